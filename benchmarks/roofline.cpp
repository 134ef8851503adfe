// SPDX-License-Identifier: Apache-2.0
// What the processor can do at most: multiply-adds that stay in registers, and memory read and
// written as a stream. Built and loaded by benchmarks/cpu_kernels.py with -O3 -march=native.
#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Vector __attribute__((vector_size(4 * kLanes)));
constexpr int kChains = 12;  // independent sums, more than latency times ports

double seconds() {
#ifdef CPU_TIME
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#else
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

float multiply_add(int64_t steps) {
  Vector sum[kChains], x = {}, y = {};
  for (int i = 0; i < kLanes; ++i) {
    x[i] = 0.999f;
    y[i] = 1e-3f;
  }
#pragma GCC unroll 12  // else the sums are kept in memory
  for (int i = 0; i < kChains; ++i) sum[i] = y;
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sum[i] = sum[i] * x + y;
      asm volatile("" : "+v"(sum[i]));
    }
  }
  Vector all = {};
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) all += sum[i];
  return all[0];
}

template <class Work>
double timed(int threads, Work&& work) {
  std::vector<std::thread> others;
  const double start = seconds();
  for (int i = 1; i < threads; ++i) others.emplace_back([&work, i] { work(i); });
  work(0);
  for (auto& thread : others) thread.join();
  return seconds() - start;
}

}  // namespace

extern "C" {

// Floating-point operations per second in F32.
double peak_flops(int threads) {
  constexpr int64_t steps = 20'000'000;
  const double time = timed(threads, [](int) {
    volatile float sink = multiply_add(steps);
    (void)sink;
  });
  return 2.0 * kLanes * kChains * static_cast<double>(steps) * threads / time;
}

// Bytes per second of z = x + y, counting two reads and one write.
double stream_bandwidth(int threads) {
  constexpr size_t n = size_t{1} << 25;  // 128 MiB each, far beyond any cache of a core
  std::vector<float> x(n, 1.0f), y(n, 2.0f), z(n, 0.0f);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double time = timed(threads, [&](int i) {
      const size_t from = n * static_cast<size_t>(i) / static_cast<size_t>(threads);
      const size_t to = n * static_cast<size_t>(i + 1) / static_cast<size_t>(threads);
      for (size_t j = from; j < to; ++j) z[j] = x[j] + y[j];
    });
    const double rate = 3.0 * sizeof(float) * static_cast<double>(n) / time;
    if (rate > best) best = rate;
  }
  return best;
}

// Nanoseconds per call of a function of the table, without Python in between.
double call_ns(int32_t (*function)(void* stream, const void* args), void* stream, const void* args,
               int64_t calls) {
  const double start = seconds();
  for (int64_t i = 0; i < calls; ++i) {
    if (function(stream, args) != 0) return -1;
  }
  return (seconds() - start) / static_cast<double>(calls) * 1e9;
}
}
