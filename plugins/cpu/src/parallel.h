// SPDX-License-Identifier: Apache-2.0
// A small thread pool. Calls that are too small for it never touch it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace chipset::cpu {

// Threads that a parallel loop may use, the caller's included: option `threads`, else the cores
// that the process may run on.
int thread_count();

namespace detail {
using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_run(int64_t n, int64_t chunk, RangeFunction function, void* context);
}  // namespace detail

// Calls function(begin, end) over pieces that cover [0, n) exactly once, on up to thread_count()
// threads, and returns when all are done. Pieces have at least `grain` elements (choose it so that
// a piece takes 10 µs or more) and begin at multiples of it; n <= grain runs inline. Which thread
// runs which piece is not determined, so a result that depends on the order of pieces (a sum) needs
// pieces of the caller's own making. Nested calls and calls while another host thread uses the pool
// run inline. The function must not throw.
template <typename Function>
inline void parallel_for(int64_t n, int64_t grain, Function&& function) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n <= grain || thread_count() == 1) {
    function(int64_t{0}, n);
    return;
  }
  // About four pieces a thread balance an uneven load; more would cost more than they gain.
  int64_t pieces = n / grain;
  const int64_t most = int64_t{4} * thread_count();
  if (pieces > most) pieces = most;
  if (pieces < 2) pieces = 2;
  const int64_t chunk = ((n + pieces - 1) / pieces + grain - 1) / grain * grain;
  using Plain = std::remove_reference_t<Function>;
  detail::parallel_run(
      n, chunk,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<Plain*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&function)));
}

}  // namespace chipset::cpu
