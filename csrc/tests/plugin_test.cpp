// SPDX-License-Identifier: Apache-2.0
// A plugin's native code through the runtime, without Python: threads, each with streams of its
// own, that copy, compute, wait for one another's streams and free.
//
// plugin_test NAME LIBRARY [OPTION=VALUE]...
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "require.h"
#include "runtime.h"

namespace rt = chipset::runtime;

namespace {

constexpr int kSkipped = 77;  // as ctest is told

// F32 memory of one stream.
class Array {
 public:
  Array(int device, chipset_stream stream, std::vector<std::int64_t> shape) {
    tensor_.struct_size = sizeof tensor_;
    tensor_.dtype = CHIPSET_DTYPE_F32;
    tensor_.rank = static_cast<std::int32_t>(shape.size());
    count_ = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      tensor_.shape[d] = shape[d];
      tensor_.stride[d] = count_;
      count_ *= shape[d];
    }
    tensor_.data = rt::allocate(device, bytes(), stream);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { rt::deallocate(tensor_.data); }

  const chipset_tensor* tensor() const { return &tensor_; }
  void* data() const { return tensor_.data; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(float); }

 private:
  chipset_tensor tensor_{};
  std::int64_t count_ = 0;
};

template <class T>
T arguments() {
  T args{};
  args.struct_size = sizeof args;
  return args;
}

// The calls of one stream.
struct Queue {
  const chipset_api* api;
  chipset_stream stream;

  void upload(const Array& to, const std::vector<float>& from) const {
    rt::check(
        api->mem_copy(stream, to.data(), from.data(), to.bytes(), CHIPSET_COPY_KIND_HOST_TO_DEVICE),
        "mem_copy");
  }
  std::vector<float> download(const Array& from) const {
    std::vector<float> out(static_cast<std::size_t>(from.count()));
    rt::check(api->mem_copy(stream, out.data(), from.data(), from.bytes(),
                            CHIPSET_COPY_KIND_DEVICE_TO_HOST),
              "mem_copy");
    rt::check(api->stream_sync(stream), "stream_sync");
    return out;
  }
  // output = a + factor * b
  void add(const Array& output, const Array& a, const Array& b, double factor) const {
    auto args = arguments<chipset_pointwise_args>();
    args.op = CHIPSET_POINTWISE_OP_ADD;
    args.compute_dtype = CHIPSET_DTYPE_F32;
    args.num_inputs = 2;
    args.output = output.tensor();
    args.input[0] = a.tensor();
    args.input[1] = b.tensor();
    args.param[0].f = factor;
    rt::check(api->pointwise(stream, &args), "pointwise");
  }
  void multiply(const Array& d, const Array& a, const Array& b) const {
    auto args = arguments<chipset_gemm_args>();
    args.a = a.tensor();
    args.b = b.tensor();
    args.d = d.tensor();
    args.alpha = 1;
    rt::check(api->gemm(stream, &args), "gemm");
  }
  void sum_rows(const Array& output, const Array& input) const {
    auto args = arguments<chipset_reduce_args>();
    args.op = CHIPSET_REDUCE_OP_SUM;
    args.compute_dtype = CHIPSET_DTYPE_F32;
    args.dims = 2;  // the columns
    args.input = input.tensor();
    args.output = output.tensor();
    rt::check(api->reduce(stream, &args), "reduce");
  }
  void softmax(const Array& output, const Array& input) const {
    auto args = arguments<chipset_softmax_args>();
    args.dim = 1;
    args.input = input.tensor();
    args.output = output.tensor();
    rt::check(api->softmax(stream, &args), "softmax");
  }
};

// (x + x/2) @ identity, summed by rows; and softmax of equal numbers. Exact in F32.
void computes(const Queue& queue, int device, std::int64_t n) {
  const Array x(device, queue.stream, {n, n}), identity(device, queue.stream, {n, n}),
      y(device, queue.stream, {n, n}), z(device, queue.stream, {n, n}),
      sums(device, queue.stream, {n, 1});
  std::vector<float> host(static_cast<std::size_t>(n * n)), one(host.size(), 0);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i % 16) * 2;
  for (std::int64_t i = 0; i < n; ++i) one[static_cast<std::size_t>(i * n + i)] = 1;
  queue.upload(x, host);
  queue.upload(identity, one);
  queue.add(y, x, x, 0.5);
  queue.multiply(z, y, identity);
  queue.sum_rows(sums, z);
  const std::vector<float> product = queue.download(z), by_row = queue.download(sums);
  for (std::int64_t row = 0; row < n; ++row) {
    float sum = 0;
    for (std::int64_t column = 0; column < n; ++column) {
      const auto i = static_cast<std::size_t>(row * n + column);
      REQUIRE(product[i] == 1.5f * host[i]);
      sum += product[i];
    }
    REQUIRE(by_row[static_cast<std::size_t>(row)] == sum);
  }
  queue.add(x, identity, identity, -1);  // zeros
  queue.softmax(z, x);
  for (const float p : queue.download(z)) REQUIRE(p == 1.0f / static_cast<float>(n));
}

// A second stream goes on with what the first made, while the first lets go of it.
void hands_on(const Queue& first, const Queue& second, int device, float value) {
  constexpr std::int64_t kSize = 4096;
  const Array result(device, second.stream, {kSize});
  const chipset_event made = rt::acquire_event(device, 0);
  {
    const Array x(device, first.stream, {kSize}), y(device, first.stream, {kSize});
    first.upload(x, std::vector<float>(kSize, value));
    first.add(y, x, x, 2);
    rt::check(first.api->event_record(made, first.stream), "event_record");
    rt::check(second.api->stream_wait(second.stream, made), "stream_wait");
    second.add(result, y, y, -0.5);
    rt::record_stream(y.data(), second.stream);
  }
  // Would land in y's memory, were that free already.
  const Array other(device, first.stream, {kSize});
  rt::check(first.api->mem_fill(first.stream, other.data(), 255, other.bytes()), "mem_fill");
  for (const float found : second.download(result)) REQUIRE(found == 1.5f * value);
  rt::release_event(device, 0, made);
}

// Page-locked memory, of which a copy uses one part and the host another.
void shares_page_locked_memory(const Queue& queue, int device) {
  constexpr std::int64_t kSize = 16;
  const Array x(device, queue.stream, {kSize});
  auto* pinned = static_cast<float*>(rt::allocate_host(device, 4096));
  std::iota(pinned, pinned + kSize, 0.0f);
  rt::check(queue.api->mem_copy(queue.stream, x.data(), pinned, x.bytes(),
                                CHIPSET_COPY_KIND_HOST_TO_DEVICE),
            "mem_copy");
  rt::record_host(pinned, queue.stream);
  pinned[1000] = 5;  // beside what the copy reads: legal while it is on its way
  REQUIRE(pinned[1000] == 5);
  const std::vector<float> there = queue.download(x);
  REQUIRE(there.front() == 0 && there.back() == kSize - 1);
  rt::deallocate_host(pinned);
}

void runs_out_of_memory(const Queue& queue, int device) {
  bool thrown = false;
  try {
    rt::allocate(device, std::size_t{1} << 50, queue.stream);
  } catch (const rt::Error& error) {
    thrown = error.status == CHIPSET_STATUS_OUT_OF_MEMORY;
  }
  REQUIRE(thrown);
  computes(queue, device, 4);
}

void one_thread(int number) {
  const int device = number % rt::device_count();
  const chipset_api* api = rt::device(device).api;
  const Queue first{api, rt::pool_stream(device, 0, 2 * number)};
  const Queue second{api, rt::pool_stream(device, 0, 2 * number + 1)};
  for (int round = 0; round < 6; ++round) {
    computes(round % 2 ? second : first, device, 8 << (round % 3));
    hands_on(first, second, device, static_cast<float>(number + round));
    shares_page_locked_memory(first, device);
  }
  runs_out_of_memory(first, device);
}

}  // namespace

int main(int count, char** arguments) {
  REQUIRE(count >= 3);
  rt::PluginSpec spec{arguments[1], arguments[2], {}};
  for (int i = 3; i < count; ++i) {
    const std::string given = arguments[i];
    const std::size_t sign = given.find('=');
    REQUIRE(sign != std::string::npos);
    spec.options[given.substr(0, sign)] = given.substr(sign + 1);
  }
  const rt::Probe probe = rt::probe(spec);
  if (!probe.available || probe.devices.empty()) {
    std::printf("skipped: %s has no device: %s\n", arguments[1], probe.reason.c_str());
    return kSkipped;
  }
  rt::launch({spec});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(one_thread, i);
  for (auto& thread : threads) thread.join();
  for (int device = 0; device < rt::device_count(); ++device) {
    rt::check(rt::device(device).api->device_sync(rt::device(device).local), "device_sync");
    rt::empty_cache(device);
    REQUIRE(rt::memory_stats(device).reserved_bytes[0].current == 0);
  }
  std::printf("%d devices of %s hold\n", rt::device_count(), arguments[1]);
  return 0;
}
