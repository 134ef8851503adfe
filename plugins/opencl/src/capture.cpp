// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>

namespace chipset::opencl {
namespace {

// Captures in progress, so that an event that outlived its capture is told from one within.
std::mutex g_mutex;
std::vector<Capture*> g_captures;
uint64_t g_last_number = 0;

}  // namespace

void Capture::begin(Stream& stream) {
  if (stream.capture != nullptr)
    sdk::fail(CHIPSET_STATUS_INVALID, "opencl: the stream is being captured already");
  stream.device->check_alive();
  auto made = std::make_unique<Capture>();
  made->device_ = stream.device;
  made->origin_ = &stream;
  made->members_.push_back(&stream);
  std::lock_guard lock(g_mutex);
  made->number_ = ++g_last_number;
  g_captures.push_back(made.get());
  stream.capture = made.release();
}

Capture* Capture::end(Stream& stream) {
  Capture* capture = stream.capture;
  if (capture == nullptr || capture->origin_ != &stream)
    sdk::fail(CHIPSET_STATUS_INVALID,
              capture == nullptr
                  ? "opencl: the stream is not being captured"
                  : "opencl: the stream joined the capture of another; end that one");
  capture->release_members();
  std::unique_ptr<Capture> owner(capture);
  if (capture->spoilt_)
    sdk::fail(CHIPSET_STATUS_INVALID,
              "opencl: a call that cannot be captured was made meanwhile; there is no graph");
  return owner.release();
}

void Capture::join(Stream& stream, const Event& event) {
  if (stream.capture != nullptr || event.capture == 0) return;
  std::lock_guard lock(g_mutex);
  for (Capture* capture : g_captures)
    if (capture->number_ == event.capture && capture->device_ == stream.device) {
      stream.capture = capture;
      capture->members_.push_back(&stream);
    }
}

void Capture::leave(Stream& stream) {
  Capture* capture = stream.capture;
  if (capture == nullptr) return;
  capture->spoilt_ = true;
  if (capture->origin_ != &stream) {
    std::erase(capture->members_, &stream);
    return;
  }
  capture->release_members();
  delete capture;
}

void Capture::release_members() {
  std::lock_guard lock(g_mutex);
  for (Stream* member : members_) member->capture = nullptr;
  members_.clear();
  std::erase(g_captures, this);
}

void Capture::spoil(const char* call) {
  spoilt_ = true;
  sdk::fail(
      CHIPSET_STATUS_INVALID,
      "opencl: %s is not possible while the stream is captured; the capture is spoilt, end it "
      "with capture_end",
      call);
}

void Capture::replay(chipset_stream handle) const {
  Stream& stream = *as_stream(handle);
  if (stream.device != device_)
    sdk::fail(CHIPSET_STATUS_INVALID,
              "opencl: captured on device %d, but the stream is of device %d", device_->index,
              stream.device->index);
  if (stream.capture != nullptr) {  // a graph in a graph: its calls become part of the outer one
    auto& outer = stream.capture->calls_;
    outer.insert(outer.end(), calls_.begin(), calls_.end());
    return;
  }
  for (const Call& call : calls_) call(handle);
}

}  // namespace chipset::opencl
