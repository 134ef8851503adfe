// SPDX-License-Identifier: Apache-2.0
// A loop over tasks of unequal size: each thread takes the next one when it is done with its last.
#pragma once

#include <cstdint>

#include "parallel.h"

namespace chipset::cpu {

// Calls function(task) once for each task in [0, n), in order of start. Tasks should take 10 µs or
// more. `parallel` false: all on this thread.
template <class Function>
inline void for_tasks(int64_t n, bool parallel, Function&& function) {
  const int64_t threads = parallel ? thread_count() : 1;
  if (threads == 1 || n <= 1) {
    for (int64_t i = 0; i < n; ++i) function(i);
    return;
  }
  int64_t next = 0;  // a builtin: kernels instantiate no library code that the linker could merge
  parallel_for(threads < n ? threads : n, 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin)
      for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < n;) function(i);
  });
}

}  // namespace chipset::cpu
