// SPDX-License-Identifier: Apache-2.0
// Streams, events, and the adversarial scheduler.
//
// A call that takes a stream appends a command to it. Commands of one stream run in order; one that
// waits for events runs after them; nothing else is promised, and the scheduler promises no more:
//   eager    at once, on the calling thread
//   latest   only when something must be known: a synchronisation runs what it needs, nothing else
//   random   any order that is legal, drawn from the seed, at any call
// With workers each stream has a thread of its own, which sleeps for a random while before each
// command. All of the simulator's state is guarded by one mutex, which is free while a command
// runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common.h"
#include "memory.h"

namespace chipset::sim {

std::mutex& simulator_mutex();
using Lock = std::unique_lock<std::mutex>;

// What has been passed of each stream, by stream number.
using Clock = std::vector<std::uint64_t>;

struct Stream;
struct Captured;

// A point in a stream.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t sequence = 0;
  Clock clock;              // of the stream at the point, itself included
  double seconds = 0;       // virtual time
  std::uint32_t polls = 0;  // how often it has been asked for in vain
};

struct Command {
  Call call;
  std::uint64_t sequence = 0;
  // Runs without the lock; NULL for commands that only wait.
  std::function<chipset_status()> run;
  std::vector<std::shared_ptr<Point>> after;
  std::vector<Span> touches;
  bool collective = false;      // blocks until other streams' commands run
  chipset_comm comm = nullptr;  // that it uses
};

struct Stream {
  std::uint64_t number = 0;
  std::int32_t device = 0;
  chipset_stream borrowed = nullptr;  // of the CPU chip
  std::deque<std::shared_ptr<Command>> queue;
  std::uint64_t submitted = 0;
  std::uint64_t done = 0;
  bool running = false;
  bool ended = false;
  Clock clock;
  double seconds = 0;       // virtual time
  double host_seconds = 0;  // of the host when it last submitted to the stream
  // The first fault of enqueued work, until it has surfaced (ERR-003).
  chipset_status error = CHIPSET_STATUS_OK;
  std::string error_text;
  std::shared_ptr<Captured> capture;
  std::thread worker;
  std::atomic<int> callers{0};  // threads inside of a call on the stream
};

struct Event {
  std::int32_t device = 0;
  std::uint32_t flags = 0;
  std::shared_ptr<Point> point;      // NULL: never recorded
  std::weak_ptr<Captured> captured;  // recorded inside this capture
  bool warned = false;
};

// What a call wants done in a stream. Pointers in it are the private ones.
struct Work {
  Call call;
  // Given the borrowed stream. Runs without the lock.
  std::function<chipset_status(chipset_stream)> run;
  std::vector<Span> touches;  // public addresses, read or written
  std::vector<Span> writes;   // likewise
  double seconds = 0;
  bool collective = false;
  chipset_comm comm = nullptr;
  std::shared_ptr<Event> records;  // instead: the event is recorded here
};
// Enqueues the work, or keeps it when the stream is captured. Takes an injected fault along.
void submit(Lock& lock, const std::shared_ptr<Stream>& stream, Work work);

// A captured graph: work that is enqueued again at each replay.
struct Captured {
  std::int32_t device = 0;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;
  std::vector<Work> works;
  bool spoilt = false;
};

struct Device {
  bool lost = false;
  std::string lost_text;
  double slow = 1;  // factor on virtual time, by injection
};
Device& device_at(std::int32_t device);
void lose(std::int32_t device, const std::string& why);
// DEVICE_LOST with its text when the device is lost, else OK.
chipset_status lost_status(std::int32_t device);

chipset_stream add_stream(std::int32_t device, chipset_stream borrowed);
void remove_stream(Lock& lock, chipset_stream handle);
chipset_event add_event(std::int32_t device, std::uint32_t flags);
void remove_event(chipset_event handle);
// Handles that live. NULL when the handle is none.
std::shared_ptr<Stream> stream_at(chipset_stream handle);
std::shared_ptr<Event> event_at(chipset_event handle);

// Appends the command; runs what the mode says. The caller holds the lock, which may be released
// for a while.
void enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, std::shared_ptr<Command> command);
// The stream's present end.
std::shared_ptr<Point> present_end(const std::shared_ptr<Stream>& stream);
// Runs or awaits what it takes to pass the points. False when the time ends first; negative: never.
bool drive(Lock& lock, const std::vector<std::shared_ptr<Point>>& points,
           std::int64_t timeout_ns = CHIPSET_WAIT_FOREVER);
bool passed(const Point& point);
// The host knows now that the points have been passed.
void host_passes(const std::vector<std::shared_ptr<Point>>& points);
// Not yet run commands that touch the bytes: the first one, or NULL, and its stream.
std::shared_ptr<Command> pending_use(std::uintptr_t begin, std::uintptr_t end,
                                     std::shared_ptr<Stream>* stream);
// Every live stream (of the device, or of all for kHost).
std::vector<std::shared_ptr<Stream>> streams_of(std::int32_t device);
// The error of enqueued work, once.
chipset_status surface(Stream& stream);

std::string handles_text();

}  // namespace chipset::sim
