// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>

#include "error.h"

namespace chipset::cpu {
namespace {

// Long enough to bridge the gap between two operators of one training step, short enough to leave
// the core to others when nothing comes.
constexpr auto kSpin = std::chrono::microseconds(30);

inline void relax() { __builtin_ia32_pause(); }

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// One loop at a time. A worker joins an open loop, takes pieces until none is left, and leaves; the
// caller does the same and then waits only for workers that have joined, so a worker that the
// operating system has not scheduled delays nobody.
class Pool {
 public:
  explicit Pool(int workers) {
    for (int i = 0; i < workers; ++i) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (...) {
        break;  // The loop runs on fewer threads; nothing depends on their number.
      }
    }
  }

  // False when another thread, or this one in an outer loop, holds the pool.
  bool run(int64_t n, int64_t chunk, detail::RangeFunction function, void* context) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    function_ = function;
    context_ = context;
    n_ = n;
    chunk_ = chunk;
    next_.store(0, std::memory_order_relaxed);
    open_.store(true, std::memory_order_seq_cst);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(generation_);
    take_pieces();
    open_.store(false, std::memory_order_seq_cst);
    wait_for_workers();
    busy_.store(false, std::memory_order_release);
    return true;
  }

 private:
  void take_pieces() {
    for (;;) {
      const int64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
      if (begin >= n_) return;
      function_(context_, begin, std::min(begin + chunk_, n_));
    }
  }

  void wait_for_workers() {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    for (uint32_t joined; (joined = joined_.load(std::memory_order_seq_cst)) != 0;) {
      if (std::chrono::steady_clock::now() < deadline) {
        relax();
        continue;
      }
      caller_sleeps_.store(true, std::memory_order_seq_cst);
      futex_wait(joined_, joined);
      caller_sleeps_.store(false, std::memory_order_seq_cst);
    }
  }

  void work() {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_loop(seen);
      joined_.fetch_add(1, std::memory_order_seq_cst);
      // Joined before this check, so the caller that closes the loop afterwards waits for us.
      if (open_.load(std::memory_order_seq_cst)) take_pieces();
      joined_.fetch_sub(1, std::memory_order_seq_cst);
      if (caller_sleeps_.load(std::memory_order_seq_cst)) futex_wake_all(joined_);
    }
  }

  uint32_t wait_for_loop(uint32_t seen) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    for (uint32_t now;;) {
      if ((now = generation_.load(std::memory_order_acquire)) != seen) return now;
      if (std::chrono::steady_clock::now() < deadline) {
        relax();
        continue;
      }
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      futex_wait(generation_, seen);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  alignas(64) std::atomic<bool> busy_{false};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> open_{false};
  alignas(64) std::atomic<uint32_t> joined_{0};
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<int64_t> next_{0};
  detail::RangeFunction function_ = nullptr;
  void* context_ = nullptr;
  int64_t n_ = 0;
  int64_t chunk_ = 1;
};

std::atomic<Pool*> g_pool{nullptr};
std::mutex g_pool_mutex;

// In the child only the forking thread exists: the parent's pool is abandoned, a new one is made
// when it is needed.
void after_fork_in_child() {
  g_pool.store(nullptr, std::memory_order_relaxed);
  new (&g_pool_mutex) std::mutex;
}

Pool* pool() {
  Pool* found = g_pool.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  std::lock_guard lock(g_pool_mutex);
  found = g_pool.load(std::memory_order_relaxed);
  if (found == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
    (void)registered;
    // Never destroyed: workers may run until the process ends.
    found = new Pool(thread_count() - 1);
    g_pool.store(found, std::memory_order_release);
  }
  return found;
}

int count_threads() {
  cpu_set_t set;
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  return static_cast<int>(option_number("threads", cores, 1, 1024));
}

}  // namespace

int thread_count() {
  static const int count = count_threads();
  return count;
}

void detail::parallel_run(int64_t n, int64_t chunk, RangeFunction function, void* context) {
  if (!pool()->run(n, chunk, function, context)) function(context, 0, n);
}

}  // namespace chipset::cpu
