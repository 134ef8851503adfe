// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace chipset::opencl {
namespace {

// The argument values belong to the kernel object, so that setting them and enqueueing is one step.
// Values that it has already are not set again: each costs PoCL an allocation.
struct Kernel {
  cl_kernel handle;
  std::mutex mutex;
  std::vector<std::vector<char>> values;
};

struct Program {
  cl_program handle;
  explicit Program(cl_program made) : handle(made) {}
  ~Program() { cl().ReleaseProgram(handle); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

std::string build_log(const Device& device, cl_program program) {
  size_t bytes = 0;
  cl().GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  cl().GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
  return log.c_str();
}

void build(const Device& device, cl_program program, const char* options) {
  const cl_int error = cl().BuildProgram(program, 1, &device.id, options, nullptr, nullptr);
  if (error == CL_SUCCESS) return;
  throw sdk::Error(CHIPSET_STATUS_INTERNAL,
                   "opencl: device " + std::to_string(device.index) + " '" + device.name +
                       "' does not compile a kernel (" + error_name(error) + "):\n" +
                       build_log(device, program));
}

}  // namespace

DeviceBackend::DeviceBackend(Device& device) : device_(device) {
  traits_.language = kit::Language::kOpenCL;
  // For tests: the kernels of devices with many work-items a group, on a processor.
  traits_.is_cpu = device.is_cpu && std::getenv("CHIPSET_OPENCL_GENERIC") == nullptr;
  traits_.fp64 = device.fp64;
  traits_.compute_units = device.compute_units;
  traits_.vector_bytes = 4 * device.vector_width;
  traits_.max_group = static_cast<uint32_t>(device.max_group);
  traits_.local_memory = device.local_memory;
  traits_.max_allocation = device.max_allocation;
  traits_.identity =
      device.platform + "|" + device.name + "|" + device.driver + "|" + device.version;
  traits_.cache_folder = kit::default_cache_folder();
}

kit::Binary DeviceBackend::compile(const std::string& source, const std::string& options) {
  device_.check_alive();
  const char* text = source.c_str();
  cl_int error = CL_SUCCESS;
  const Program program(cl().CreateProgramWithSource(device_.context, 1, &text, nullptr, &error));
  device_.check(error, "CreateProgramWithSource");
  build(device_, program.handle, (options + " -w").c_str());  // PoCL prints warnings
  size_t bytes = 0;
  device_.check(
      cl().GetProgramInfo(program.handle, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr),
      "GetProgramInfo");
  kit::Binary binary(bytes);
  unsigned char* place = binary.data();
  device_.check(
      cl().GetProgramInfo(program.handle, CL_PROGRAM_BINARIES, sizeof place, &place, nullptr),
      "GetProgramInfo");
  return binary;
}

void* DeviceBackend::load(const kit::Binary& binary, const char* name) {
  device_.check_alive();
  const size_t bytes = binary.size();
  const unsigned char* place = binary.data();
  cl_int status = CL_SUCCESS, error = CL_SUCCESS;
  const Program program(cl().CreateProgramWithBinary(device_.context, 1, &device_.id, &bytes,
                                                     &place, &status, &error));
  device_.check(error, "CreateProgramWithBinary");
  build(device_, program.handle, "");
  auto kernel = std::make_unique<Kernel>();
  kernel->handle = cl().CreateKernel(program.handle, name, &error);  // keeps the program
  device_.check(error, "CreateKernel");
  return kernel.release();
}

void DeviceBackend::launch(chipset_stream stream_handle, void* kernel_handle, kit::Size3 grid,
                           kit::Size3 block, const kit::Argument* arguments, uint32_t count) {
  Stream& stream = *as_stream(stream_handle);
  Kernel& kernel = *static_cast<Kernel*>(kernel_handle);
  device_.check_alive();
  const size_t local[3] = {block.x, block.y, block.z};
  const size_t global[3] = {size_t{grid.x} * block.x, size_t{grid.y} * block.y,
                            size_t{grid.z} * block.z};
  const cl_uint rank = grid.z * block.z > 1 ? 3 : grid.y * block.y > 1 ? 2 : 1;
  std::lock_guard lock(kernel.mutex);
  kernel.values.resize(std::max<size_t>(kernel.values.size(), count));
  for (uint32_t k = 0; k < count; ++k) {
    const kit::Argument& argument = arguments[k];
    std::vector<char>& value = kernel.values[k];
    if (value.size() == argument.bytes &&
        std::memcmp(value.data(), argument.data, argument.bytes) == 0)
      continue;
    value.clear();  // unknown, should the driver refuse it
    const cl_int error = argument.is_address
                             ? cl().SetKernelArgSVMPointer(
                                   kernel.handle, k, *static_cast<void* const*>(argument.data))
                             : cl().SetKernelArg(kernel.handle, k, argument.bytes, argument.data);
    device_.check(error, "SetKernelArg");
    const char* bytes = static_cast<const char*>(argument.data);
    value.assign(bytes, bytes + argument.bytes);
  }
  device_.check(cl().EnqueueNDRangeKernel(stream.queue, kernel.handle, rank, nullptr, global, local,
                                          0, nullptr, nullptr),
                "EnqueueNDRangeKernel");
}

void* DeviceBackend::scratch(chipset_stream stream, uint64_t bytes) {
  return as_stream(stream)->get_scratch(bytes);
}

void DeviceBackend::finish(chipset_stream stream) {
  device_.check(cl().Finish(as_stream(stream)->queue), "Finish", true);
}

void* DeviceBackend::fault_word(chipset_stream stream) {
  Faults& faults = *as_stream(stream)->faults;
  faults.armed = true;
  return faults.word;
}

}  // namespace chipset::opencl
