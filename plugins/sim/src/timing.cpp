// SPDX-License-Identifier: Apache-2.0
#include "timing.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "config.h"
#include "scheduler.h"

namespace chipset::sim {
namespace {

// Each thread of the host has a clock of its own; all start at the last reset. A thread that takes
// a stream over from another goes on no earlier than that one's last submission (THR-001: they have
// come to an understanding); threads with streams of their own, such as ranks, run side by side.
std::atomic<double> latest{0};
std::atomic<double> base{0};
std::atomic<std::uint64_t> epoch{1};
thread_local double own_time = 0;
thread_local std::uint64_t own_epoch = 0;

double& host_time() {
  if (own_epoch != epoch.load()) {
    own_epoch = epoch.load();
    own_time = base.load();
  }
  return own_time;
}

void reach(double seconds) {
  double seen = latest.load();
  while (seen < seconds && !latest.compare_exchange_weak(seen, seconds)) {
  }
}

double rate_of(std::int32_t dtype) {
  const ChipModel& m = config().chip;
  switch (dtype) {
    case CHIPSET_DTYPE_F64:
      return m.flops_f64;
    case CHIPSET_DTYPE_F16:
    case CHIPSET_DTYPE_BF16:
      return m.flops_f16;
    case CHIPSET_DTYPE_F8E4M3:
    case CHIPSET_DTYPE_F8E5M2:
      return m.flops_f8;
    case CHIPSET_DTYPE_I8:
    case CHIPSET_DTYPE_I4:
      return m.ops_i8;
    default:
      return m.flops_f32;
  }
}

double time_of(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Between two of n devices: over all links of a device, but on a mesh over the pair's own.
double seconds_per_byte_of_a_pair(double n) {
  const ChipModel& m = config().chip;
  const double shares = m.topology == "mesh" ? std::max<double>(m.links, n - 1) : 1;
  return shares * time_of(1, m.link_bandwidth);
}

}  // namespace

double kernel_seconds(double flops, std::int32_t dtype, double bytes) {
  const ChipModel& m = config().chip;
  return m.launch_seconds +
         std::max(time_of(flops, rate_of(dtype)), time_of(bytes, m.memory_bandwidth));
}

double copy_seconds(Path path, double bytes) {
  const ChipModel& m = config().chip;
  if (path == Path::device) return m.launch_seconds + time_of(2 * bytes, m.memory_bandwidth);
  if (path == Path::host) return m.launch_seconds + time_of(bytes, m.host_bandwidth);
  return m.launch_seconds + m.link_seconds + bytes * seconds_per_byte_of_a_pair(2);
}

// Rabenseifner's costs on a switch, ring costs on a ring (Thakur, Rabenseifner and Gropp, 2005);
// on a full mesh every pair has a link of its own, and all of a device's links work at once.
double collective_seconds(Fn function, int ranks, double bytes) {
  const ChipModel& m = config().chip;
  if (ranks <= 1) return m.launch_seconds;
  const double n = ranks;
  const bool mesh = m.topology == "mesh";
  const double pair = seconds_per_byte_of_a_pair(n);
  const double beta = mesh ? pair / (n - 1) : pair;
  const double steps = m.topology == "ring"     ? n - 1
                       : m.topology == "switch" ? std::ceil(std::log2(n))
                                                : 1;
  const double moved = (n - 1) / n * bytes * beta;  // bytes: the whole vector
  const double half = steps * m.link_seconds + moved;
  switch (function) {
    case Fn::all_reduce:
      return m.launch_seconds + 2 * half;
    case Fn::all_gather:
    case Fn::reduce_scatter:
    case Fn::all_to_all:
      return m.launch_seconds + half;
    case Fn::broadcast:
      // On a mesh whole to each peer, or in parts that the peers exchange.
      return m.launch_seconds + (mesh ? std::min(m.link_seconds + bytes * pair, 2 * half)
                                      : steps * m.link_seconds + bytes * beta);
    default:
      return m.launch_seconds + m.link_seconds + bytes * pair;
  }
}

void spend(Stream& stream, double seconds) {
  host_time() = std::max(host_time(), stream.host_seconds) + config().chip.submit_seconds;
  stream.host_seconds = host_time();
  stream.seconds = std::max(stream.seconds, host_time()) + seconds * device_at(stream.device).slow;
  reach(stream.seconds);
}

void stream_waits_until(Stream& stream, double seconds) {
  stream.seconds = std::max(stream.seconds, seconds);
}

void host_waits_until(double seconds) {
  host_time() = std::max(host_time(), seconds);
  reach(host_time());
}

double virtual_seconds() { return latest.load() - base.load(); }

// Streams and hosts go on from the latest point.
void reset_virtual_time() {
  base.store(latest.load());
  epoch.fetch_add(1);
  for (const auto& stream : streams_of(kHost)) {
    stream->seconds = latest.load();
    stream->host_seconds = latest.load();
  }
}

}  // namespace chipset::sim
