// SPDX-License-Identifier: Apache-2.0
// The timing model: how long each call would take on the described chip. Virtual time advances when
// calls are made, in the order in which they are made, so that it does not depend on the scheduler.
//
//   kernel       launch + max(operations / rate of the dtype, bytes / memory bandwidth)
//   copy         launch + bytes / bandwidth of the path
//   collective   alpha-beta, by topology (docs/sim.md)
#pragma once

#include "common.h"

namespace chipset::sim {

struct Stream;

// Seconds of a kernel that does `flops` in `dtype` and moves `bytes`.
double kernel_seconds(double flops, std::int32_t dtype, double bytes);
enum class Path { device, host, peer };
double copy_seconds(Path path, double bytes);
double collective_seconds(Fn function, int ranks, double bytes);

// The calling thread submits work of so many seconds to the stream.
void spend(Stream& stream, double seconds);
// The stream waits for a point in time.
void stream_waits_until(Stream& stream, double seconds);
void host_waits_until(double seconds);

// The latest point that anything has reached, counted from the last reset.
double virtual_seconds();
void reset_virtual_time();

}  // namespace chipset::sim
