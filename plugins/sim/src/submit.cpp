// SPDX-License-Identifier: Apache-2.0
// From a call's work to a command in a stream, with the injected faults that strike while it runs.
#include <chrono>
#include <random>
#include <thread>

#include "config.h"
#include "inject.h"
#include "report.h"
#include "scheduler.h"
#include "timing.h"

namespace chipset::sim {
namespace {

using Run = std::function<chipset_status(chipset_stream)>;

unsigned char* at(std::uintptr_t public_address) {
  return static_cast<unsigned char*>(private_of(reinterpret_cast<void*>(public_address)));
}

// One bit of the first output, chosen by the seed and the call.
Run flipping(Run run, const Work& work) {
  if (work.writes.empty() || work.writes.front().begin == work.writes.front().end) return run;
  const Span out = work.writes.front();
  std::mt19937_64 random(config().seed ^ work.call.number);
  const std::uint64_t bit = random() % ((out.end - out.begin) * 8);
  return [run = std::move(run), out, bit](chipset_stream stream) {
    const chipset_status status = run(stream);
    *at(out.begin + bit / 8) ^= static_cast<unsigned char>(1u << bit % 8);
    return status;
  };
}

Run overrunning(Run run, const Work& work) {
  if (work.writes.empty()) return run;
  const Allocation* a = find_live(work.writes.front().begin);
  if (a == nullptr) return run;
  return [run = std::move(run), end = a->end()](chipset_stream stream) {
    const chipset_status status = run(stream);
    *at(end) = 0;
    return status;
  };
}

chipset_status never_ends(chipset_stream) {
  std::this_thread::sleep_for(std::chrono::milliseconds(config().comm_timeout_ms));
  return CHIPSET_STATUS_TIMEOUT;
}

void apply(Deferred deferred, Work& work, std::int32_t device) {
  switch (deferred) {
    case Deferred::none:
      return;
    case Deferred::lost:
      work.run = [](chipset_stream) { return CHIPSET_STATUS_DEVICE_LOST; };
      return;
    case Deferred::stuck:
      work.run = never_ends;
      work.collective = true;  // does not hold up the thread that synchronises
      return;
    case Deferred::bitflip:
      work.run = flipping(std::move(work.run), work);
      return;
    case Deferred::overrun:
      work.run = overrunning(std::move(work.run), work);
      return;
    case Deferred::slow:
      device_at(device).slow *= 10;
      return;
  }
}

}  // namespace

void submit(Lock& lock, const std::shared_ptr<Stream>& stream, Work work) {
  if (work.run) apply(take_deferred(), work, stream->device);
  if (stream->capture != nullptr) {
    stream->capture->works.push_back(std::move(work));
    return;
  }
  if (work.records != nullptr) {
    work.records->point = present_end(stream);
    return;
  }
  spend(*stream, work.seconds);
  auto command = std::make_shared<Command>();
  command->call = work.call;
  command->touches = std::move(work.touches);
  command->collective = work.collective;
  command->comm = work.comm;
  command->run = [run = std::move(work.run), borrowed = stream->borrowed] { return run(borrowed); };
  enqueue(lock, stream, std::move(command));
}

}  // namespace chipset::sim
