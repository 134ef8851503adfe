// SPDX-License-Identifier: Apache-2.0
// Work of streams that something waits for, as events.
#pragma once

#include <vector>

#include "runtime.h"

namespace chipset::runtime {

// The points of several streams.
class Fence {
 public:
  // Records the present end of the streams; one that has been destroyed has passed. Throws nothing:
  // where the plugin refuses the event, the fence asks again when it is asked itself. That point is
  // later, so that it waits for more and never for less.
  explicit Fence(const std::vector<chipset_stream>& streams);
  // True once every stream has passed its point. A lost device counts as passed, since nothing
  // runs on it any more; a call that is refused does not.
  bool passed();
  // Throws what the plugin answers; what has not been passed stays in the fence. A fault of
  // enqueued work surfaces here, since the plugin tells it once (ERR-003).
  void wait();

 private:
  struct Point {
    int device;
    chipset_stream stream;
    chipset_event event = nullptr;
    bool recorded = false;
  };
  static chipset_status record(Point& point);
  void drop_last();

  std::vector<Point> points_;
};

}  // namespace chipset::runtime
