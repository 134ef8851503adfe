// SPDX-License-Identifier: Apache-2.0
// Work of streams that something waits for, as events.
#pragma once

#include <vector>

#include "runtime.h"

namespace chipset::runtime {

// The points of several streams.
class Fence {
 public:
  // Records the present end of the streams; one that has been destroyed has passed.
  explicit Fence(const std::vector<chipset_stream>& streams);
  // True once every stream has passed its point. A lost device counts as passed, since nothing
  // runs on it any more.
  bool passed();
  void wait();

 private:
  std::vector<std::pair<int, chipset_event>> events_;  // with their device
};

}  // namespace chipset::runtime
