// Must not compile: the chip lacks a required function, and the message names it.
#include <chipset_sdk.hpp>

struct Lacking : chipset::sdk::QueuedDevice<chipset::sdk::HostMemory> {
  static void device_info(int32_t, chipset_device_info*) {}
  static void pointwise(chipset_stream, const chipset_pointwise_args*) {}
  static void reduce(chipset_stream, const chipset_reduce_args*) {}
  static void gather(chipset_stream, const chipset_gather_args*) {}
  static void scatter(chipset_stream, const chipset_scatter_args*) {}
};

CHIPSET_SDK_PLUGIN(Lacking, "lacking", "0.1.0")
