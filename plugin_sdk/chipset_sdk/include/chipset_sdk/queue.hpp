// SPDX-License-Identifier: Apache-2.0
// Streams and events for a chip whose driver has none: an in-order queue with a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "error.hpp"

namespace chipset::sdk {

// A point in a queue that others wait for.
class Point {
 public:
  void pass() {
    {
      std::lock_guard lock(mutex_);
      time_ = std::chrono::steady_clock::now();
      passed_ = true;
    }
    changed_.notify_all();
  }
  // timeout_ns as in event_query; whether the point was passed.
  bool wait(int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    const auto passed = [this] { return passed_; };
    if (timeout_ns < 0) return changed_.wait(lock, passed), true;
    return changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), passed);
  }
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool passed_ = false;
  std::chrono::steady_clock::time_point time_;
};

// Work in it runs in order, on one thread. What it throws surfaces at the next sync (ERR-003):
// OUT_OF_RANGE once; anything else as DEVICE_LOST for ever, and the rest of the work is dropped.
class Queue {
 public:
  Queue() : thread_([this] { run(); }) {}
  ~Queue() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();  // after the work that was enqueued
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void push(std::function<void()> work) { push({std::move(work), false}); }

  // A new point at the queue's present end.
  std::shared_ptr<Point> mark() {
    auto point = std::make_shared<Point>();
    push({[point] { point->pass(); }, true});
    return point;
  }
  // Later work runs only after the point. Points are passed even in a lost queue, so that nobody
  // waits for ever.
  void wait(std::shared_ptr<Point> point) {
    push({[point = std::move(point)] { point->wait(-1); }, true});
  }
  // Blocks until all work enqueued so far has run; throws its fault.
  void sync() {
    std::unique_lock lock(mutex_);
    const uint64_t target = pushed_;
    idle_.wait(lock, [&] { return done_ >= target; });
    rethrow();
  }

  // Blocks likewise, whatever happened.
  void finish() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return done_ >= pushed_; });
  }
  void throw_fault() {
    std::lock_guard lock(mutex_);
    rethrow();
  }

 private:
  struct Work {
    std::function<void()> function;
    bool always;
  };

  void push(Work work) {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
      ++pushed_;
    }
    changed_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      Work work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::optional<Error> fault;
      if (work.always || !lost_) fault = attempt(work.function);
      work.function = nullptr;  // what it holds ends before the work counts as done
      lock.lock();
      if (fault && !fault_) fault_ = fault;
      if (fault && fault->status() != CHIPSET_STATUS_OUT_OF_RANGE) lost_ = true;
      ++done_;
      idle_.notify_all();
    }
  }

  static std::optional<Error> attempt(const std::function<void()>& function) {
    try {
      function();
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    } catch (const std::exception& error) {
      return Error(CHIPSET_STATUS_DEVICE_LOST, error.what());
    }
  }

  void rethrow() {
    if (!fault_) return;
    if (lost_) throw Error(CHIPSET_STATUS_DEVICE_LOST, fault_->what());
    const Error once = *std::exchange(fault_, std::nullopt);
    throw once;
  }

  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<Work> work_;
  uint64_t pushed_ = 0, done_ = 0;
  std::optional<Error> fault_;
  std::atomic<bool> lost_{false};
  bool ending_ = false;
  std::thread thread_;  // last: it starts when the rest is there
};

// An event: the point last recorded, if any (EVT-001).
struct Event {
  std::shared_ptr<Point> point;
  std::shared_ptr<Queue> queue;  // whose faults a blocking query shows
  uint32_t flags = 0;

  void record(const std::shared_ptr<Queue>& in) {
    point = in->mark();
    queue = in;
  }
  void query(int64_t timeout_ns) const {
    if (!point) return;
    if (!point->wait(timeout_ns))
      fail(timeout_ns == 0 ? CHIPSET_STATUS_NOT_READY : CHIPSET_STATUS_TIMEOUT,
           "the event was not passed within %lld ns", static_cast<long long>(timeout_ns));
    if (timeout_ns != 0) queue->throw_fault();
  }
  static double elapsed_ms(const Event& start, const Event& end) {
    const bool timed = start.flags & end.flags & CHIPSET_EVENT_FLAG_TIMING;
    if (!timed || !start.point || !end.point || !start.point->wait(0) || !end.point->wait(0))
      fail(CHIPSET_STATUS_INVALID,
           "event_elapsed needs two events that were made with TIMING, recorded and passed");
    return std::chrono::duration<double, std::milli>(end.point->time() - start.point->time())
        .count();
  }
};

}  // namespace chipset::sdk
