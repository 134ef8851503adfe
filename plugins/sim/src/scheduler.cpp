// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <unordered_map>

#include "borrowed.h"
#include "config.h"
#include "report.h"
#include "timing.h"

namespace chipset::sim {
namespace {

using std::chrono::steady_clock;

struct Scheduler {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Device> devices;
  std::unordered_map<chipset_stream, std::shared_ptr<Stream>> streams;
  std::unordered_map<chipset_event, std::shared_ptr<Event>> events;
  std::uint64_t streams_made = 0;
  Clock host;
  std::mt19937_64 random;
  int collectives = 0;  // running on threads of their own
};
Scheduler& scheduler() {
  static auto* the = [] {
    auto* s = new Scheduler;
    s->devices.resize(static_cast<std::size_t>(config().devices));
    s->random.seed(config().seed);
    return s;
  }();
  return *the;
}

void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool ready(const Stream& s) {
  if (s.queue.empty() || s.running) return false;
  const auto& after = s.queue.front()->after;
  return std::all_of(after.begin(), after.end(), [](const auto& p) { return passed(*p); });
}

void finish(Stream& s, const Command& command, chipset_status status, std::string what) {
  s.running = false;
  s.done = command.sequence;
  if (status != CHIPSET_STATUS_OK && s.error == CHIPSET_STATUS_OK) {
    s.error = status;
    s.error_text = std::move(what);
    if (status == CHIPSET_STATUS_DEVICE_LOST) lose(s.device, s.error_text);
  }
  scheduler().changed.notify_all();
}

// Runs the first command of a stream that is ready. The lock is released while it runs.
void run_first(Lock& lock, const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Command> command = stream->queue.front();
  stream->queue.pop_front();
  stream->running = true;
  if (!command->run || device_at(stream->device).lost) {
    finish(*stream, *command, CHIPSET_STATUS_OK, "");
    return;
  }
  const auto work = [command] {
    take_borrowed_error();
    const chipset_status status = command->run();
    return std::pair(status, status == CHIPSET_STATUS_OK
                                 ? std::string()
                                 : text_of(command->call) + ": " + take_borrowed_error());
  };
  if (command->collective && !config().workers) {
    // It blocks until the other ranks come, which may be this thread's next work.
    ++scheduler().collectives;
    std::thread([stream, command, work] {
      const auto [status, what] = work();
      Lock own(scheduler().mutex);
      --scheduler().collectives;
      finish(*stream, *command, status, what);
      while (config().mode == Mode::eager && ready(*stream)) run_first(own, stream);
    }).detach();
    return;
  }
  lock.unlock();
  const auto [status, what] = work();
  lock.lock();
  finish(*stream, *command, status, what);
}

// A stream that is ready and that the target needs, or NULL.
std::shared_ptr<Stream> needed(const std::shared_ptr<Stream>& target, std::uint64_t until,
                               std::set<const Stream*>& seen) {
  if (target->done >= until || !seen.insert(target.get()).second) return nullptr;
  if (ready(*target)) return target;
  if (target->queue.empty() || target->running) return nullptr;
  for (const auto& point : target->queue.front()->after)
    if (auto found = needed(point->stream, point->sequence, seen)) return found;
  return nullptr;
}

std::vector<std::shared_ptr<Stream>> all_ready() {
  std::vector<std::shared_ptr<Stream>> out;
  for (const auto& [handle, stream] : scheduler().streams)
    if (ready(*stream)) out.push_back(stream);
  std::sort(out.begin(), out.end(), [](auto& a, auto& b) { return a->number < b->number; });
  return out;
}

std::uint64_t draw(std::uint64_t below) { return scheduler().random() % below; }

void work_for(const std::shared_ptr<Stream>& stream) {
  std::mt19937_64 random(config().seed * 1000003 + stream->number);
  Lock lock(scheduler().mutex);
  for (;;) {
    scheduler().changed.wait(lock, [&] { return ready(*stream) || stream->ended; });
    if (!ready(*stream)) return;
    if (config().delay_us > 0) {
      const double wait = config().delay_us * static_cast<double>(random() % 1001) / 1000;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(wait));
      lock.lock();
    }
    if (ready(*stream)) run_first(lock, stream);
  }
}

}  // namespace

std::mutex& simulator_mutex() { return scheduler().mutex; }

Device& device_at(std::int32_t device) {
  return scheduler().devices[static_cast<std::size_t>(device)];
}
void lose(std::int32_t device, const std::string& why) {
  Device& d = device_at(device);
  if (!d.lost) d.lost_text = why;
  d.lost = true;
}
chipset_status lost_status(std::int32_t device) {
  const Device& d = device_at(device);
  return d.lost ? fail(CHIPSET_STATUS_DEVICE_LOST, text("sim:", device, " is lost: ", d.lost_text))
                : CHIPSET_STATUS_OK;
}

std::shared_ptr<Stream> stream_at(chipset_stream handle) {
  const auto found = scheduler().streams.find(handle);
  return found == scheduler().streams.end() ? nullptr : found->second;
}
std::shared_ptr<Event> event_at(chipset_event handle) {
  const auto found = scheduler().events.find(handle);
  return found == scheduler().events.end() ? nullptr : found->second;
}

chipset_stream add_stream(std::int32_t device, chipset_stream borrowed) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->borrowed = borrowed;
  stream->number = scheduler().streams_made++;
  stream->clock = scheduler().host;
  auto handle = reinterpret_cast<chipset_stream>(stream.get());
  scheduler().streams[handle] = stream;
  if (config().workers) stream->worker = std::thread(work_for, stream);
  return handle;
}

void remove_stream(Lock& lock, chipset_stream handle) {
  const std::shared_ptr<Stream> stream = stream_at(handle);
  stream->ended = true;
  scheduler().streams.erase(handle);
  scheduler().changed.notify_all();
  if (!stream->worker.joinable()) return;
  lock.unlock();
  stream->worker.join();
  lock.lock();
}

chipset_event add_event(std::int32_t device, std::uint32_t flags) {
  auto event = std::make_shared<Event>();
  event->device = device;
  event->flags = flags;
  auto handle = reinterpret_cast<chipset_event>(event.get());
  scheduler().events[handle] = event;
  return handle;
}
void remove_event(chipset_event handle) { scheduler().events.erase(handle); }

bool passed(const Point& point) { return point.stream->done >= point.sequence; }

std::shared_ptr<Point> present_end(const std::shared_ptr<Stream>& stream) {
  auto point = std::make_shared<Point>();
  point->stream = stream;
  point->sequence = stream->submitted;
  point->clock = stream->clock;
  point->seconds = stream->seconds;
  return point;
}

void enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, std::shared_ptr<Command> command) {
  command->sequence = ++stream->submitted;
  join(stream->clock, scheduler().host);
  for (const auto& point : command->after) join(stream->clock, point->clock);
  if (stream->clock.size() <= stream->number) stream->clock.resize(stream->number + 1);
  stream->clock[stream->number] = command->sequence;
  stream->queue.push_back(std::move(command));
  if (config().workers || scheduler().collectives > 0) scheduler().changed.notify_all();
  if (config().workers) return;
  if (config().mode == Mode::eager)
    while (ready(*stream)) run_first(lock, stream);
  if (config().mode == Mode::random)
    for (std::uint64_t n = draw(4); n > 1; --n)
      if (const auto choices = all_ready(); !choices.empty())
        run_first(lock, choices[draw(choices.size())]);
}

bool drive(Lock& lock, const std::vector<std::shared_ptr<Point>>& points, std::int64_t timeout_ns) {
  const bool endless = timeout_ns < 0 || timeout_ns > std::int64_t{1} << 60;
  const auto deadline =
      steady_clock::now() + std::chrono::nanoseconds(endless ? std::int64_t{0} : timeout_ns);
  for (;;) {
    const auto open =
        std::find_if(points.begin(), points.end(), [](const auto& p) { return !passed(*p); });
    if (open == points.end()) return true;
    std::shared_ptr<Stream> next;
    if (!config().workers) {
      std::set<const Stream*> seen;
      if (config().mode != Mode::random) next = needed((*open)->stream, (*open)->sequence, seen);
      // Also when what is needed is a collective whose other ranks have not come yet.
      if (next == nullptr && (config().mode == Mode::random || scheduler().collectives > 0))
        if (const auto choices = all_ready(); !choices.empty())
          next = choices[config().mode == Mode::random ? draw(choices.size()) : 0];
    }
    if (next != nullptr) {
      run_first(lock, next);
    } else if (endless) {
      scheduler().changed.wait(lock);
    } else if (scheduler().changed.wait_until(lock, deadline) == std::cv_status::timeout) {
      return std::all_of(points.begin(), points.end(), [](const auto& p) { return passed(*p); });
    }
  }
}

void host_passes(const std::vector<std::shared_ptr<Point>>& points) {
  for (const auto& point : points) {
    join(scheduler().host, point->clock);
    host_waits_until(point->seconds);
  }
  land(scheduler().host);
}

std::shared_ptr<Command> pending_use(std::uintptr_t begin, std::uintptr_t end,
                                     std::shared_ptr<Stream>* stream) {
  for (const auto& [handle, s] : scheduler().streams)
    for (const auto& command : s->queue)
      for (const Span& span : command->touches)
        if (span.begin < end && begin < span.end) {
          *stream = s;
          return command;
        }
  return nullptr;
}

std::vector<std::shared_ptr<Stream>> streams_of(std::int32_t device) {
  std::vector<std::shared_ptr<Stream>> out;
  for (const auto& [handle, stream] : scheduler().streams)
    if (device == kHost || stream->device == device) out.push_back(stream);
  std::sort(out.begin(), out.end(), [](auto& a, auto& b) { return a->number < b->number; });
  return out;
}

chipset_status surface(Stream& stream) {
  if (const chipset_status s = lost_status(stream.device); s != CHIPSET_STATUS_OK) return s;
  const chipset_status status = stream.error;
  if (status == CHIPSET_STATUS_OK) return status;
  stream.error = CHIPSET_STATUS_OK;
  return fail(status, std::exchange(stream.error_text, ""));
}

std::string handles_text() {
  return text("\"streams\":", scheduler().streams.size(),
              ",\"events\":", scheduler().events.size());
}

}  // namespace chipset::sim
