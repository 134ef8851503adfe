// SPDX-License-Identifier: Apache-2.0
// The caching allocator beside malloc: nanoseconds for allocating and freeing one block, medians.
//   allocator_benchmark PLUGIN_LIBRARY     (built with BUILD_TESTING; see csrc/tests)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime.h"

namespace rt = chipset::runtime;

namespace {

constexpr int kCalls = 200'000;
constexpr int kRounds = 15;

template <class F>
double median_ns(F&& call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    rounds.push_back(taken.count() / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

void row(const char* what, double ours, double theirs) {
  std::printf("%-28s %8.1f ns %12.1f ns %8.2f\n", what, ours, theirs, ours / theirs);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: allocator_benchmark PLUGIN_LIBRARY\n");
    return 2;
  }
  rt::launch({{"plugin", arguments[1], {}}});
  chipset_stream stream = rt::default_stream(0);
  std::printf("%-28s %11s %15s %8s\n", "allocate + free", "runtime", "malloc", "ratio");
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}, std::size_t{5} << 20}) {
    const double theirs = median_ns([&] {
      void* volatile p = std::malloc(bytes);
      std::free(p);
    });
    char what[64];
    std::snprintf(what, sizeof what, "%zu bytes, by handle", bytes);
    row(what, median_ns([&] { rt::deallocate_block(rt::allocate_block(0, bytes, stream).handle); }),
        theirs);
    std::snprintf(what, sizeof what, "%zu bytes, by pointer", bytes);
    row(what, median_ns([&] { rt::deallocate(rt::allocate(0, bytes, stream)); }), theirs);
  }
  return 0;
}
