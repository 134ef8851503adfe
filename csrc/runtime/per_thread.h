// SPDX-License-Identifier: Apache-2.0
// A thread's own object that may be used until the thread has ended for good.
#pragma once

#include <utility>

namespace chipset::runtime {

// The calling thread's T, made when it is first asked for. Calls still come when a thread's
// thread_local objects have been destroyed: a process that ends frees tensors, which runs pending
// work. A thread_local T would then be used after its end. This one is made anew, and that last one
// is not freed.
template <class T>
T& per_thread() {
  thread_local constinit T* object = nullptr;  // nothing destroys a pointer
  if (object != nullptr) return *object;
  struct End {
    ~End() { delete std::exchange(object, nullptr); }
  };
  object = new T;
  thread_local const End end;
  (void)&end;
  return *object;
}

}  // namespace chipset::runtime
