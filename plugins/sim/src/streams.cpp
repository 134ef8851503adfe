// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include "config.h"
#include "functions.h"

namespace chipset::sim {

chipset_status unknown_stream(chipset_stream stream) {
  const char* why = stream == nullptr
                        ? " is NULL; there is no default stream: name the one that is meant"
                        : " was never made, or has been destroyed";
  return fault(
      text("HND-001: ", text_of(current_call()), ": stream ", static_cast<void*>(stream), why));
}
chipset_status unknown_event(chipset_event event) {
  return fault(text("HND-001: ", text_of(current_call()), ": event ", static_cast<void*>(event),
                    event == nullptr ? " is NULL" : " was never made, or has been destroyed"));
}

chipset_status stream_create(std::int32_t device, std::int32_t, chipset_stream* out) {
  if (out == nullptr) return fail(CHIPSET_STATUS_INVALID, "stream_create: stream is NULL");
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  chipset_stream inner = nullptr;
  if (const auto s = borrowed().stream_create(device, 0, &inner); s != CHIPSET_STATUS_OK)
    return fail(s, "stream_create: " + take_borrowed_error());
  Lock lock(simulator_mutex());
  *out = add_stream(device, inner);
  return CHIPSET_STATUS_OK;
}

chipset_status stream_destroy(chipset_stream handle) {
  if (handle == nullptr) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (stream->capture != nullptr) leave_capture(*stream);
  const std::vector end{present_end(stream)};
  drive(lock, end);
  host_passes(end);
  const chipset_status status = surface(*stream);
  remove_stream(lock, handle);
  borrowed().stream_destroy(stream->borrowed);
  return status;
}

chipset_status stream_sync(chipset_stream handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (stream->capture != nullptr) return spoil(*stream);
  const std::vector end{present_end(stream)};
  drive(lock, end);
  host_passes(end);
  check_red_zones(stream->device, false);
  return surface(*stream);
}

// A point that was never recorded counts as passed (EVT-001), but whoever asks for it has most
// likely forgotten to record it.
static void warn_of_unrecorded(Event& event, const char* verb) {
  if (event.point != nullptr || event.warned || !event.captured.expired()) return;
  event.warned = true;
  note(config().unrecorded,
       text("EVT-001: ", text_of(current_call()), " ", verb, " an event of sim:", event.device,
            " that has never been recorded; record it in the stream whose work is meant"));
}

chipset_status stream_wait(chipset_stream handle, chipset_event event_handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  const std::shared_ptr<Event> event = event_at(event_handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (event == nullptr) return unknown_event(event_handle);
  warn_of_unrecorded(*event, "waits for");
  if (join_capture(*stream, *event)) return CHIPSET_STATUS_OK;
  if (event->point == nullptr) return CHIPSET_STATUS_OK;
  if (stream->capture != nullptr) return CHIPSET_STATUS_OK;  // passed before the graph can run
  auto command = std::make_shared<Command>();
  command->call = current_call();
  command->after.push_back(event->point);
  stream_waits_until(*stream, event->point->seconds);
  enqueue(lock, stream, std::move(command));
  return CHIPSET_STATUS_OK;
}

chipset_status event_create(std::int32_t device, std::uint32_t flags, chipset_event* out) {
  if (out == nullptr) return fail(CHIPSET_STATUS_INVALID, "event_create: event is NULL");
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  Lock lock(simulator_mutex());
  *out = add_event(device, flags);
  return CHIPSET_STATUS_OK;
}

chipset_status event_destroy(chipset_event handle) {
  if (handle == nullptr) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  if (event_at(handle) == nullptr) return unknown_event(handle);
  remove_event(handle);
  return CHIPSET_STATUS_OK;
}

chipset_status event_record(chipset_event event_handle, chipset_stream handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  const std::shared_ptr<Event> event = event_at(event_handle);
  if (event == nullptr) return unknown_event(event_handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (event->device != stream->device)
    return fault(text("HND-001: ", text_of(current_call()), ": an event of sim:", event->device,
                      " cannot be recorded in a stream of sim:", stream->device,
                      "; make it for the stream's device, whatever the current device is"));
  event->captured = stream->capture;
  event->warned = false;
  Work work;
  work.call = current_call();
  work.records = event;
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

chipset_status event_query(chipset_event handle, std::int64_t timeout_ns) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Event> event = event_at(handle);
  if (event == nullptr) return unknown_event(handle);
  warn_of_unrecorded(*event, "asks for");
  const std::shared_ptr<Point> point = event->point;
  if (point == nullptr) return CHIPSET_STATUS_OK;
  const std::vector points{point};
  // Polls see nothing pass until somebody seems to do nothing but poll.
  if (timeout_ns == 0 && !passed(*point)) {
    if (++point->polls < config().polls) return CHIPSET_STATUS_NOT_READY;
    if (!drive(lock, points, 1000000)) return CHIPSET_STATUS_NOT_READY;
  }
  if (!drive(lock, points, timeout_ns))
    return fail(CHIPSET_STATUS_TIMEOUT,
                text("event_query: the event was not passed within ", timeout_ns, " ns"));
  host_passes(points);
  return timeout_ns == 0 ? lost_status(event->device) : surface(*point->stream);
}

chipset_status event_elapsed(chipset_event start, chipset_event end, double* milliseconds) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Event> a = event_at(start);
  const std::shared_ptr<Event> b = event_at(end);
  if (a == nullptr) return unknown_event(start);
  if (b == nullptr) return unknown_event(end);
  const auto refuse = [](const std::string& why) {
    return fail(CHIPSET_STATUS_INVALID, "event_elapsed: " + why);
  };
  if (milliseconds == nullptr) return refuse("the out parameter is NULL");
  if ((a->flags & b->flags & CHIPSET_EVENT_FLAG_TIMING) == 0)
    return refuse("both events need CHIPSET_EVENT_FLAG_TIMING, given to event_create");
  if (a->device != b->device)
    return refuse(text("events of sim:", a->device, " and sim:", b->device));
  if (a->point == nullptr || b->point == nullptr) return refuse("an event was never recorded");
  if (!passed(*a->point) || !passed(*b->point))
    return refuse("an event has not been passed yet; synchronise with it first");
  *milliseconds = (b->point->seconds - a->point->seconds) * 1e3;
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
