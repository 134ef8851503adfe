// Queues and events: order, waits, faults, times. Run under the thread sanitizer too.
#include <future>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace chipset::sdk;
using namespace std::chrono_literals;

namespace {

void work_runs_in_order_and_later() {
  Queue queue;
  std::promise<void> go;
  std::vector<int> ran;
  queue.push([&] { go.get_future().wait(); });
  for (int i = 0; i < 100; ++i) queue.push([&ran, i] { ran.push_back(i); });
  CHECK(ran.empty());  // nothing can have run: the first waits for us
  go.set_value();
  queue.sync();
  CHECK(ran.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(ran[i] == i);
}

void a_queue_waits_for_anothers_point() {
  Queue first, second;
  std::promise<void> go;
  int value = 0, seen = 0;
  first.push([&] {
    go.get_future().wait();
    value = 1;
  });
  second.wait(first.mark());
  first.push([&] { std::this_thread::sleep_for(1ms); });  // after the point: not waited for
  second.push([&] { seen = value; });
  go.set_value();
  second.sync();
  CHECK(seen == 1);
  first.sync();
}

void events() {
  const auto queue = std::make_shared<Queue>();
  Event start, end, plain;
  start.flags = end.flags = CHIPSET_EVENT_FLAG_TIMING;
  start.query(0);  // never recorded: passed
  std::promise<void> go;
  start.record(queue);
  start.query(-1);  // its time is taken when the queue comes to it
  queue->push([&] { go.get_future().wait(); });
  end.record(queue);
  plain.record(queue);
  CHECK_THROWS(CHIPSET_STATUS_NOT_READY, "", end.query(0));
  CHECK_THROWS(CHIPSET_STATUS_TIMEOUT, "1000000 ns", end.query(1000000));
  CHECK_THROWS(CHIPSET_STATUS_INVALID, "event_elapsed", Event::elapsed_ms(start, end));
  go.set_value();
  end.query(-1);
  CHECK(Event::elapsed_ms(start, end) >= 1.0);  // the time-out lay in between
  plain.query(-1);
  CHECK_THROWS(CHIPSET_STATUS_INVALID, "TIMING", Event::elapsed_ms(start, plain));
}

void a_bad_index_surfaces_once() {
  Queue queue;
  bool later = false;
  queue.push([] { fail(CHIPSET_STATUS_OUT_OF_RANGE, "index 7"); });
  queue.push([&] { later = true; });
  CHECK_THROWS(CHIPSET_STATUS_OUT_OF_RANGE, "index 7", queue.sync());
  CHECK(later);
  queue.sync();
}

void a_lost_queue_stays_lost_and_nobody_hangs() {
  const auto queue = std::make_shared<Queue>();
  bool later = false;
  queue->push([] { throw std::runtime_error("the bus is gone"); });
  queue->push([&] { later = true; });
  Event event;
  event.record(queue);
  Queue other;
  other.wait(queue->mark());
  other.sync();
  CHECK_THROWS(CHIPSET_STATUS_DEVICE_LOST, "the bus is gone", event.query(-1));
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS(CHIPSET_STATUS_DEVICE_LOST, "the bus is gone", queue->sync());
  CHECK(!later);
  queue->finish();
}

void many_threads_share_a_queue() {
  Queue queue;
  int sum = 0;  // only the queue's thread touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) queue.push([&] { ++sum; });
      queue.sync();
    });
  for (auto& thread : threads) thread.join();
  queue.sync();
  CHECK(sum == 1600);
}

void what_was_enqueued_runs_before_the_queue_ends() {
  int ran = 0;
  {
    Queue queue;
    for (int i = 0; i < 50; ++i) queue.push([&] { ++ran; });
  }
  CHECK(ran == 50);
}

}  // namespace

int main() {
  FakeHost::install();
  work_runs_in_order_and_later();
  a_queue_waits_for_anothers_point();
  events();
  a_bad_index_surfaces_once();
  a_lost_queue_stays_lost_and_nobody_hangs();
  many_threads_share_a_queue();
  what_was_enqueued_runs_before_the_queue_ends();
  return report();
}
