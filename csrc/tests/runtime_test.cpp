// SPDX-License-Identifier: Apache-2.0
// What Python cannot test well: many threads at once, and the runtime under the sanitizers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "require.h"
#include "runtime.h"

namespace rt = chipset::runtime;

namespace {

template <class F>
rt::Error thrown_by(F&& f) {
  try {
    f();
  } catch (const rt::Error& error) {
    return error;
  }
  std::fprintf(stderr, "nothing was thrown\n");
  std::abort();
}

void bad_plugins_are_answers(const std::string& toy) {
  const rt::Probe missing = rt::probe({"gone", "/nowhere/libgone.so", {}});
  REQUIRE(!missing.available && missing.reason.find("/nowhere/libgone.so") != std::string::npos);
  const rt::Probe good = rt::probe({"toy", toy, {{"devices", "3"}}});
  REQUIRE(good.available && good.devices.size() == 3);
  REQUIRE(rt::device_count() == 0);
  thrown_by([] { rt::device(0); });
  thrown_by([] { rt::launch({{"gone", "/nowhere/libgone.so", {}}}); });
}

void launching_twice_changes_nothing(const std::string& toy) {
  rt::launch({{"toy", toy, {{"devices", "2"}}}});
  rt::launch({{"toy", toy, {{"devices", "2"}}}});
  REQUIRE(rt::device_count() == 2);
  REQUIRE(rt::find_device("toy", 1) == 1);
  REQUIRE(rt::has(rt::device(0).api, &chipset_api::gemm));
  REQUIRE(rt::has(rt::device(0).api, &chipset_api::softmax));  // composed
  REQUIRE(!rt::has(rt::device(0).api, &chipset_api::comm_create));
}

// Each thread has a stream and blocks of its own; a byte pattern shows whether two were given the
// same memory.
void threads_share_the_allocator() {
  constexpr int kThreads = 4;
  constexpr int kRounds = 3000;
  const auto work = [](int number) {
    const int device = number % 2;
    chipset_stream stream = rt::pool_stream(device, 0, number);
    std::mt19937 random(static_cast<unsigned>(number));
    struct Live {
      rt::Allocation block;
      std::size_t bytes;
    };
    std::vector<Live> live;
    const auto drop = [&](std::size_t i) {
      const auto* bytes = static_cast<const unsigned char*>(live[i].block.pointer);
      REQUIRE(bytes[0] == number + 1 && bytes[live[i].bytes - 1] == number + 1);
      rt::deallocate_block(live[i].block.handle);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    };
    for (int round = 0; round < kRounds; ++round) {
      if (live.size() > 20 || (!live.empty() && random() % 2 == 0)) {
        drop(random() % live.size());
        continue;
      }
      const std::size_t bytes = 1 + random() % 20000;
      const rt::Allocation block = rt::allocate_block(device, bytes, stream);
      std::memset(block.pointer, number + 1, bytes);
      if (random() % 8 == 0) rt::record_stream(block.pointer, rt::default_stream(device));
      live.push_back({block, bytes});
    }
    while (!live.empty()) drop(live.size() - 1);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  for (int device : {0, 1}) {
    rt::empty_cache(device);
    const rt::MemoryStats stats = rt::memory_stats(device);
    REQUIRE(stats.allocated_bytes[0].current == 0);
    REQUIRE(stats.active_bytes[0].current == 0);
    REQUIRE(stats.reserved_bytes[0].current == 0);
    REQUIRE(stats.allocation[0].allocated == stats.allocation[0].freed);
  }
}

void out_of_memory_can_be_caught() {
  chipset_stream stream = rt::default_stream(0);
  const rt::Error error = thrown_by([&] { rt::allocate(0, std::size_t{1} << 40, stream); });
  REQUIRE(error.status == CHIPSET_STATUS_OUT_OF_MEMORY);
  REQUIRE(std::string(error.what()).find("memory map of toy:0") != std::string::npos);
  void* after = rt::allocate(0, 1024, stream);
  REQUIRE(after != nullptr && rt::owner_of(after) == 0);
  rt::deallocate(after);
}

void page_locked_memory_is_reused_after_its_streams() {
  chipset_stream stream = rt::default_stream(0);
  void* first = rt::allocate_host(0, 5000);
  REQUIRE(rt::is_pinned(static_cast<char*>(first) + 4999));
  REQUIRE(rt::record_host(first, stream));
  rt::deallocate_host(first);
  REQUIRE(!rt::is_pinned(first));
  void* second = rt::allocate_host(0, 6000);
  REQUIRE(second == first);  // the toy's streams have always passed
  rt::deallocate_host(second);
  rt::empty_host_cache();
}

chipset_tensor row_of(void* data, std::int64_t n) {
  chipset_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = CHIPSET_DTYPE_F32;
  t.rank = 1;
  t.shape[0] = n;
  t.stride[0] = 1;
  t.data = data;
  return t;
}

// The same composed function from several threads, each in its stream.
void threads_share_compositions() {
  constexpr std::int64_t kSize = 64;
  const auto work = [](int number) {
    chipset_stream stream = rt::pool_stream(0, 0, number);
    const chipset_api* api = rt::device(0).api;
    void* data = rt::allocate(0, kSize * sizeof(float), stream);
    void* result = rt::allocate(0, kSize * sizeof(float), stream);
    const chipset_tensor x = row_of(data, kSize);
    const chipset_tensor y = row_of(result, kSize);
    for (int round = 0; round < 50; ++round) {
      rt::check(api->mem_fill(stream, data, 0, kSize * sizeof(float)), "mem_fill");
      chipset_softmax_args args{};
      args.struct_size = sizeof args;
      args.input = &x;
      args.output = &y;
      rt::check(api->softmax(stream, &args), "softmax");
      rt::check(api->stream_sync(stream), "stream_sync");
      REQUIRE(static_cast<float*>(result)[kSize - 1] == 1.0f / kSize);
    }
    rt::deallocate(data);
    rt::deallocate(result);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
  REQUIRE(rt::composed_counts().at("toy.softmax") == 200);
}

void errors_belong_to_a_thread() {
  chipset_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(rt::device(0).api->device_info(99, &info) == CHIPSET_STATUS_INVALID);
  std::thread([] { REQUIRE(rt::take_error().empty()); }).join();
  REQUIRE(!rt::take_error().empty());
  const rt::Error error =
      thrown_by([&] { rt::check(rt::device(0).api->device_info(99, &info), "device_info"); });
  REQUIRE(std::string(error.what()).starts_with("toy: device_info: "));
}

}  // namespace

int main(int count, char** arguments) {
  REQUIRE(count == 2);
  const std::string toy = arguments[1];
  bad_plugins_are_answers(toy);
  launching_twice_changes_nothing(toy);
  threads_share_the_allocator();
  out_of_memory_can_be_caught();
  page_locked_memory_is_reused_after_its_streams();
  threads_share_compositions();
  errors_belong_to_a_thread();
  rt::flush();
  std::puts("all hold");
  return 0;
}
