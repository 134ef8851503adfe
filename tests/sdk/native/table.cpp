// From a class to the table: what is absent, what is checked, what exceptions become; copies of
// arguments.
#include <stdexcept>

#include "check.hpp"

using namespace chipset::sdk;

namespace {

chipset_tensor seen;
int calls = 0;

struct Chip : QueuedDevice<HostMemory> {
  static void device_info(int32_t device, chipset_device_info*) { check_device(device); }
  static void pointwise(chipset_stream, const chipset_pointwise_args* args) {
    ++calls;
    if (args->op == 1) fail(CHIPSET_STATUS_INVALID, "op %d is the one that fails", args->op);
    if (args->op == 2) throw std::bad_alloc();
    if (args->op == 3) throw std::runtime_error("a library of the vendor threw");
    if (args->op == 4) throw 4;
    seen = *args->output;
  }
  static void reduce(chipset_stream, const chipset_reduce_args*) { ++calls; }
  static void gemm(chipset_stream, const chipset_gemm_args*) { ++calls; }
  static void gather(chipset_stream, const chipset_gather_args*) { ++calls; }
  static void scatter(chipset_stream, const chipset_scatter_args*) { unsupported("no scatter"); }
};

const chipset_api api = make_table<Chip>("test", "1.2.3");
float data[64];
int64_t numbers[64];

template <class Args>
Args made() {
  Args args{};
  args.struct_size = sizeof args;
  return args;
}

void absent_functions_are_null() {
  CHECK(api.struct_size == sizeof api && api.major == CHIPSET_VERSION_MAJOR);
  CHECK(std::string(api.name) == "test" && std::string(api.version) == "1.2.3");
  CHECK(api.pointwise != nullptr && api.event_elapsed != nullptr);
  CHECK(api.attention == nullptr && api.adamw == nullptr && api.capture_begin == nullptr);
}

void exceptions_become_statuses() {
  auto args = made<chipset_pointwise_args>();
  const chipset_tensor out = tensor(data, CHIPSET_DTYPE_F32, {2});
  args.output = &out;
  const auto run = [&](int32_t op) {
    args.op = op;
    FakeHost::text().clear();
    return api.pointwise(nullptr, &args);
  };
  CHECK(run(0) == CHIPSET_STATUS_OK && FakeHost::text().empty());
  CHECK(run(1) == CHIPSET_STATUS_INVALID && FakeHost::text() == "op 1 is the one that fails");
  CHECK(run(2) == CHIPSET_STATUS_OUT_OF_MEMORY && !FakeHost::text().empty());
  CHECK(run(3) == CHIPSET_STATUS_INTERNAL && FakeHost::text() == "a library of the vendor threw");
  CHECK(run(4) == CHIPSET_STATUS_INTERNAL && !FakeHost::text().empty());
  auto scatter = made<chipset_scatter_args>();
  const chipset_tensor index = tensor(numbers, CHIPSET_DTYPE_I64, {2});
  scatter.destination = scatter.source = &out;
  scatter.num_indices = 1;
  scatter.index[0] = &index;
  CHECK(api.scatter(nullptr, &scatter) == CHIPSET_STATUS_UNSUPPORTED);
  CHECK(FakeHost::text() == "no scatter");
}

// Each sets one thing wrong; the chip never sees the call.
void wrong_arguments_do_not_reach_the_chip() {
  const chipset_tensor f2 = tensor(data, CHIPSET_DTYPE_F32, {2});
  const chipset_tensor f3 = tensor(data, CHIPSET_DTYPE_F32, {3});
  const chipset_tensor repeated = tensor(data, CHIPSET_DTYPE_F32, {2}, {0});
  const chipset_tensor nothing = tensor(nullptr, CHIPSET_DTYPE_F32, {2});
  const chipset_tensor negative = tensor(data, CHIPSET_DTYPE_F32, {2}, {-1});
  const chipset_tensor odd_dtype = tensor(data, 99, {2});
  chipset_tensor deep = f2;
  deep.rank = 9;
  const auto refused = [&](int line, chipset_status status, const char* words) {
    if (status != CHIPSET_STATUS_INVALID || FakeHost::text().find(words) == std::string::npos) {
      std::printf("line %d: status %d, '%s'; expected '%s'\n", line, status,
                  FakeHost::text().c_str(), words);
      ++failures;
    }
  };
  const auto pointwise = [&](const chipset_tensor* out, const chipset_tensor* in, int inputs = 1) {
    auto args = made<chipset_pointwise_args>();
    args.output = out;
    args.num_inputs = inputs;
    args.input[0] = in;
    FakeHost::text().clear();
    return api.pointwise(nullptr, &args);
  };
  calls = 0;
  refused(__LINE__, pointwise(nullptr, &f2), "output is missing");
  refused(__LINE__, pointwise(&f2, &f3), "an input has shape [3], but output has [2] (SHP-003)");
  refused(__LINE__, pointwise(&repeated, &f2), "repeats along dimension 0");
  refused(__LINE__, pointwise(&nothing, &f2), "has shape [2] but no data");
  refused(__LINE__, pointwise(&f2, &negative), "stride -1");
  refused(__LINE__, pointwise(&odd_dtype, &f2), "dtype 99");
  refused(__LINE__, pointwise(&deep, &f2), "rank 9");
  refused(__LINE__, pointwise(&f2, &f2, 5), "num_inputs is 5");
  refused(__LINE__, api.pointwise(nullptr, nullptr), "no arguments");

  const chipset_tensor a = tensor(data, CHIPSET_DTYPE_F32, {2, 3});
  const chipset_tensor b = tensor(data, CHIPSET_DTYPE_F32, {4, 2});
  const chipset_tensor d = tensor(data, CHIPSET_DTYPE_F32, {2, 2});
  auto gemm = made<chipset_gemm_args>();
  gemm.a = &a, gemm.b = &b, gemm.d = &d;
  refused(__LINE__, api.gemm(nullptr, &gemm), "do not multiply: a [2, 3], b [4, 2], d [2, 2]");
  gemm.a = &d, gemm.b = &d, gemm.bias = &f3;
  refused(__LINE__, api.gemm(nullptr, &gemm), "bias has shape [3] for d [2, 2]");

  auto reduce = made<chipset_reduce_args>();
  reduce.input = &a, reduce.output = &d, reduce.dims = 2;
  refused(__LINE__, api.reduce(nullptr, &reduce), "reduced over dims 0x2");

  auto gather = made<chipset_gather_args>();
  gather.output = gather.input = &f2;
  gather.num_indices = 1;
  gather.index[0] = &f2;
  refused(__LINE__, api.gather(nullptr, &gather), "index 0 is f32; need i64 or i32");
  gather.num_indices = 0;
  refused(__LINE__, api.gather(nullptr, &gather), "num_indices is 0");
  CHECK(calls == 0);
}

void options() {
  FakeHost::options() = {{"devices", "2"}, {"memory_mib", "many"}};
  int32_t count = 0;
  CHECK(api.device_count(&count) == CHIPSET_STATUS_OK && count == 2);
  CHECK(option("absent", "otherwise") == "otherwise" && option_number("absent", 7) == 7);
  CHECK_THROWS(CHIPSET_STATUS_INVALID, "option 'memory_mib' is 'many'; need a whole number",
               option_number("memory_mib", 1));
  FakeHost::options()["devices"] = "65";
  CHECK(api.device_count(&count) == CHIPSET_STATUS_INVALID);
  FakeHost::options() = {{"memory_mib", "1"}};
}

void memory_is_counted_and_checked() {
  uint64_t free_bytes = 0, total = 0;
  CHECK(api.device_memory(0, &free_bytes, &total) == CHIPSET_STATUS_OK && total == 1 << 20);
  void* pointer = nullptr;
  CHECK(api.mem_alloc(0, CHIPSET_MEMORY_KIND_DEVICE, 1000, &pointer) == CHIPSET_STATUS_OK);
  void* other = nullptr;
  for (const uint64_t bytes : {uint64_t{1} << 20, UINT64_MAX})
    CHECK(api.mem_alloc(0, CHIPSET_MEMORY_KIND_DEVICE, bytes, &other) ==
              CHIPSET_STATUS_OUT_OF_MEMORY &&
          other == nullptr);
  CHECK(api.device_memory(0, &free_bytes, &total) == CHIPSET_STATUS_OK &&
        free_bytes == total - 1000);
  auto& memory = Chip::device(0).memory;
  CHECK(memory.alias(static_cast<char*>(pointer) + 10, 990) == static_cast<char*>(pointer) + 10);
  CHECK_THROWS(CHIPSET_STATUS_INVALID, "MEM-004", memory.alias(pointer, 1001));
  CHECK(api.mem_free(0, data) == CHIPSET_STATUS_INVALID);
  CHECK(api.mem_free(0, pointer) == CHIPSET_STATUS_OK && api.mem_free(0, nullptr) == 0);
  CHECK(api.mem_free(1, nullptr) == CHIPSET_STATUS_OK);
  CHECK(api.mem_alloc(7, CHIPSET_MEMORY_KIND_DEVICE, 8, &pointer) == CHIPSET_STATUS_INVALID);
  CHECK(FakeHost::text() == "device 7 does not exist; there are 1");
}

void held_arguments_outlive_the_callers() {
  auto* const out = new chipset_tensor(tensor(data, CHIPSET_DTYPE_F32, {2}));
  auto* const args = new chipset_pointwise_args(made<chipset_pointwise_args>());
  args->output = args->input[1] = out;
  const auto shifted = [](void* at, int64_t bytes) { return static_cast<char*>(at) + bytes; };
  const Held<chipset_pointwise_args> held(args, shifted);
  const Held<chipset_pointwise_args> copy = held;
  delete args;
  delete out;
  for (const auto* one : {&held, &copy}) {
    CHECK((*one)->output->data == data + 2 && (*one)->input[0] == nullptr);
    CHECK((*one)->input[1]->shape[0] == 2 && (*one)->input[1] != (*one)->output);
  }
  CHECK(held->output != copy->output);
  // A caller with an older, shorter struct: nothing beyond it is read (VER-002).
  auto older = made<chipset_pointwise_args>();
  const chipset_tensor t = tensor(data, CHIPSET_DTYPE_F32, {2});
  older.struct_size = offsetof(chipset_pointwise_args, input);
  older.output = &t;
  older.input[0] = reinterpret_cast<const chipset_tensor*>(8);
  const Held<chipset_pointwise_args> small(&older, [](void* at, int64_t) { return at; });
  CHECK(small->input[0] == nullptr);
}

}  // namespace

int main() {
  FakeHost::install();
  absent_functions_are_null();
  exceptions_become_statuses();
  wrong_arguments_do_not_reach_the_chip();
  options();
  memory_is_counted_and_checked();
  held_arguments_outlive_the_callers();
  return report();
}
