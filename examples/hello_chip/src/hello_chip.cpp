// SPDX-License-Identifier: Apache-2.0
// hello_chip: a worked example of a plugin. The chip is a model of a small accelerator card: memory
// of its own (memory.hpp), which the host cannot reach; a command processor with in-order queues; a
// matrix unit (matrix_unit.hpp) and a vector unit (the SDK's loops). Everything else — attention,
// norms, losses, the optimizer — the core composes of these.
#include "matrix_unit.hpp"
#include "memory.hpp"

namespace loops = chipset::sdk::loops;

namespace hello {
namespace {

// Queues and events are the SDK's; memory and units are the chip's.
struct HelloChip : chipset::sdk::QueuedDevice<Memory> {
  static void device_info(int32_t device, chipset_device_info* info) {
    check_device(device);
    chipset_device_info mine{};
    mine.struct_size = info->struct_size;
    mine.compute_units = 1;
    std::snprintf(mine.name, sizeof mine.name, "hello_chip");
    std::snprintf(mine.vendor, sizeof mine.vendor, "Chipset examples");
    std::snprintf(mine.architecture, sizeof mine.architecture, "hello-1");
    std::snprintf(mine.driver, sizeof mine.driver, "0.1.0");
    mine.capabilities = CHIPSET_CAPABILITY_EMULATED | CHIPSET_CAPABILITY_HOST_ASYNC;
    mine.total_memory = mine.max_allocation = memory_bytes();
    mine.dtypes = (1u << (CHIPSET_DTYPE_F8E5M2 + 1)) - 1;  // bool to f8, as the vector unit has
    mine.alignment = Memory::kAlignment;
    mine.preferred_vector_bytes = 32;
    std::memcpy(info, &mine, std::min<std::size_t>(info->struct_size, sizeof mine));
  }

  // ---- the matrix unit -------------------------------------------------------------------------

  static void gemm(chipset_stream stream, const chipset_gemm_args* args) {
    check_gemm(*args);
    launch(stream, args, hello::gemm);
  }
  static void gemm_quantized(chipset_stream stream, const chipset_gemm_quantized_args* args) {
    loops::check_gemm_quantized(*args);
    launch(stream, args, hello::gemm_quantized);
  }

  // ---- the vector unit -------------------------------------------------------------------------

  static void pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
    loops::check_pointwise(*args);
    launch(stream, args, loops::pointwise);
  }
  static void reduce(chipset_stream stream, const chipset_reduce_args* args) {
    loops::check_reduce(*args);
    launch(stream, args, loops::reduce);
  }
  static void gather(chipset_stream stream, const chipset_gather_args* args) {
    launch(stream, args, loops::gather);
  }
  static void scatter(chipset_stream stream, const chipset_scatter_args* args) {
    loops::check_scatter(*args);
    launch(stream, args, loops::scatter);
  }
  static void scan(chipset_stream stream, const chipset_scan_args* args) {
    loops::check_scan(*args);
    launch(stream, args, loops::scan);
  }
  static void sort(chipset_stream stream, const chipset_sort_args* args) {
    loops::check_sort(*args);
    launch(stream, args, loops::sort);
  }
  static void quantize(chipset_stream stream, const chipset_quantize_args* args) {
    loops::check_quantize(*args);
    launch(stream, args, loops::quantize);
  }
  static void dequantize(chipset_stream stream, const chipset_quantize_args* args) {
    loops::check_quantize(*args);
    launch(stream, args, loops::dequantize);
  }
  static void random(chipset_stream stream, const chipset_random_args* args) {
    loops::check_random(*args);
    launch(stream, args, loops::random);
  }
};

}  // namespace
}  // namespace hello

CHIPSET_SDK_PLUGIN(hello::HelloChip, "hello", "0.1.0")
