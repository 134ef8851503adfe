// SPDX-License-Identifier: Apache-2.0
// Captured graphs: calls with copies of their arguments, replayed into one stream in the order in
// which the host made them, which satisfies every wait among the captured streams.
#pragma once

#include <functional>
#include <vector>

#include "device.h"

namespace chipset::opencl {

class Capture {
 public:
  using Call = std::function<void(chipset_stream)>;

  // Starts recording in the stream. Throws INVALID when it is being captured already.
  static void begin(Stream& stream);
  // Ends it; the graph is the caller's. Throws INVALID when it was spoilt.
  static Capture* end(Stream& stream);
  // A stream that waits for a captured point is captured too.
  static void join(Stream& stream, const Event& event);
  // A stream that ends leaves its capture, spoilt.
  static void leave(Stream& stream);

  void add(Call call) { calls_.push_back(std::move(call)); }
  // Throws INVALID: `call` cannot be captured, and so neither can the whole.
  [[noreturn]] void spoil(const char* call);
  void replay(chipset_stream stream) const;
  uint64_t number() const { return number_; }

 private:
  void release_members();

  Device* device_;
  Stream* origin_;
  std::vector<Stream*> members_;
  std::vector<Call> calls_;
  uint64_t number_;
  bool spoilt_ = false;
};

}  // namespace chipset::opencl
