// SPDX-License-Identifier: Apache-2.0
// Fault injection. A rule is `FUNCTION[@DEVICE]:WHEN=KIND`: FUNCTION a name of the interface or *,
// WHEN the number of the call among those that match (3), from which call on (3+), or a
// probability (p0.01); KIND
//   INVALID, UNSUPPORTED, OUT_OF_MEMORY, TIMEOUT, INTERNAL   the call answers so and does nothing
//   DEVICE_LOST   likewise, and the device is lost for good
//   ASYNC_LOST    the call is accepted; the device is lost while its work runs
//   STUCK         the work never ends: a collective times out
//   BITFLIP       one bit of what the work wrote is flipped
//   OVERRUN       the work writes a byte past the end of its output
//   SLOW          the device is ten times as slow from here on
// Rules are separated by semicolons.
#pragma once

#include <string>
#include <vector>

#include "common.h"

namespace chipset::sim {

enum class Deferred { none, lost, stuck, bitflip, overrun, slow };

// Adds rules; "" or what is wrong with them.
std::string add_rules(const std::string& rules);
void clear_rules();
// What a rule wants of this call: a status to answer, and what to do to its work.
struct Injection {
  chipset_status status = CHIPSET_STATUS_OK;
  Deferred deferred = Deferred::none;
  std::string rule;
};
Injection injection_for(Fn function, std::int32_t device);
// How often rules have fired since they were set.
std::uint64_t injections_made();
// Of this thread's present call; the enqueuing function takes it.
Deferred take_deferred();
void set_deferred(Deferred deferred);

}  // namespace chipset::sim
