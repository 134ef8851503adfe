// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cinttypes>
#include <cstring>

#include "functions.h"

namespace chipset::opencl {
namespace {

std::string info_text(cl_device_id id, cl_uint what) {
  size_t bytes = 0;
  check(cl().GetDeviceInfo(id, what, 0, nullptr, &bytes), "GetDeviceInfo");
  std::string text(bytes, '\0');
  check(cl().GetDeviceInfo(id, what, bytes, text.data(), nullptr), "GetDeviceInfo");
  return text.c_str();  // without the terminating zero
}

template <class T>
T info_number(cl_device_id id, cl_uint what) {
  T value{};  // stays zero where the device is too old to know the question
  cl().GetDeviceInfo(id, what, sizeof value, &value, nullptr);
  return value;
}

std::string platform_name(cl_platform_id platform) {
  char text[256] = "";
  check(cl().GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text, text, nullptr),
        "GetPlatformInfo");
  return text;
}

void warn(const std::string& text) { sdk::host()->log(2, ("opencl: " + text).c_str()); }

// NULL, after a warning with the reason, for a device that the plugin cannot drive.
std::unique_ptr<Device> open_device(const std::string& platform, cl_device_id id) {
  auto device = std::make_unique<Device>();
  device->id = id;
  device->platform = platform;
  device->name = info_text(id, CL_DEVICE_NAME);
  const auto svm = info_number<cl_bitfield>(id, CL_DEVICE_SVM_CAPABILITIES);
  if ((svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) == 0) {
    warn("device '" + device->name + "' of '" + platform +
         "' has no shared virtual memory (CL_DEVICE_SVM_CAPABILITIES=" + std::to_string(svm) +
         "), which device pointers need; it is left out");
    return nullptr;
  }
  device->vendor = info_text(id, CL_DEVICE_VENDOR);
  device->driver = info_text(id, CL_DRIVER_VERSION);
  device->version = info_text(id, CL_DEVICE_VERSION);
  const std::string extensions = " " + info_text(id, CL_DEVICE_EXTENSIONS) + " ";
  device->fp16 = extensions.find(" cl_khr_fp16 ") != std::string::npos;
  device->fp64 = extensions.find(" cl_khr_fp64 ") != std::string::npos;
  device->is_cpu = (info_number<cl_bitfield>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  device->compute_units = info_number<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
  device->vector_width = info_number<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  device->total_memory = info_number<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  device->max_allocation = info_number<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  device->local_memory = info_number<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  device->max_group = info_number<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  cl_int error = CL_SUCCESS;
  device->context = cl().CreateContext(nullptr, 1, &id, nullptr, nullptr, &error);
  if (error == CL_SUCCESS)
    device->service = cl().CreateCommandQueueWithProperties(device->context, id, nullptr, &error);
  if (error != CL_SUCCESS) {
    warn("device '" + device->name + "' of '" + platform + "' gives no context (" +
         error_name(error) + "); it is left out");
    return nullptr;
  }
  return device;
}

// Platforms whose name, or devices whose name, contains the option `device`; all without it.
std::vector<std::unique_ptr<Device>> find_devices() {
  std::vector<std::unique_ptr<Device>> found;
  cl_platform_id platforms[32];
  cl_uint count = 0;
  if (const cl_int error = cl().GetPlatformIDs(32, platforms, &count);
      error != CL_SUCCESS || count == 0) {
    warn("the ICD loader knows no platform (clGetPlatformIDs: " + std::string(error_name(error)) +
         "); install a driver, such as Debian's pocl-opencl-icd, or correct OCL_ICD_VENDORS");
    return found;
  }
  const std::string wanted = sdk::option("device");
  for (cl_uint p = 0; p < std::min<cl_uint>(count, 32); ++p) {
    const std::string platform = platform_name(platforms[p]);
    cl_device_id ids[64];
    cl_uint number = 0;
    if (cl().GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, ids, &number) != CL_SUCCESS)
      continue;
    for (cl_uint d = 0; d < std::min<cl_uint>(number, 64); ++d) {
      const std::string name = platform + " " + info_text(ids[d], CL_DEVICE_NAME);
      if (name.find(wanted) == std::string::npos) continue;
      if (auto device = open_device(platform, ids[d])) found.push_back(std::move(device));
    }
  }
  if (found.empty() && !wanted.empty())
    warn("no usable device has '" + wanted + "' in its name (CHIPSET_OPENCL_DEVICE)");
  for (size_t i = 0; i < found.size(); ++i) found[i]->index = static_cast<int32_t>(i);
  return found;
}

// Page-locked: a buffer of the driver's own, mapped for as long as it lives.
void* alloc_pinned(Device& device, uint64_t bytes, cl_mem* buffer) {
  cl_int error = CL_SUCCESS;
  *buffer = cl().CreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes,
                              nullptr, &error);
  device.check(error, "CreateBuffer");
  void* pointer =
      cl().EnqueueMapBuffer(device.service, *buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                            0, nullptr, nullptr, &error);
  if (error != CL_SUCCESS) {
    cl().ReleaseMemObject(*buffer);
    device.check(error, "EnqueueMapBuffer");
  }
  return pointer;
}

template <size_t Size>
void put_text(char (&field)[Size], const std::string& text) {
  std::snprintf(field, Size, "%s", text.c_str());
}

}  // namespace

const std::vector<std::unique_ptr<Device>>& devices() {
  static const auto* const all = new std::vector(find_devices());  // outlives static destructors
  return *all;
}

Device& device_at(int32_t index) {
  const auto& all = devices();
  if (index < 0 || index >= static_cast<int32_t>(all.size()))
    sdk::fail(CHIPSET_STATUS_INVALID,
              "opencl: there is no device %d; there are %zu, numbered from 0 ('chipset devices' "
              "lists them)",
              index, all.size());
  return *all[static_cast<size_t>(index)];
}

void Device::check_alive() {
  if (!is_lost.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex);
  throw sdk::Error(CHIPSET_STATUS_DEVICE_LOST, lost);
}

void Device::check(cl_int error, const char* what, bool finished) {
  if (error == CL_SUCCESS) return;
  const bool is_loss = finished || status_of(error) == CHIPSET_STATUS_DEVICE_LOST;
  if (!is_loss) return opencl::check(error, what);
  {
    std::lock_guard lock(mutex);
    if (lost.empty())
      lost = "opencl: device " + std::to_string(index) + " '" + name + "' was lost: cl" + what +
             " answered " + error_name(error) + "; restart the process to use it again";
    is_lost.store(true, std::memory_order_release);
  }
  check_alive();
}

bool Device::is_pinned(const void* address) {
  std::lock_guard lock(mutex);
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return false;
  const auto& [begin, allocation] = *std::prev(next);
  return allocation.pinned != nullptr && at < begin + allocation.bytes;
}

void Driver::device_count(int32_t* count) { *count = static_cast<int32_t>(devices().size()); }

void Driver::device_info(int32_t index, chipset_device_info* info) {
  const Device& device = device_at(index);
  chipset_device_info all = {};
  all.struct_size = info->struct_size;
  all.compute_units = device.compute_units;
  put_text(all.name, device.name);
  put_text(all.vendor, device.vendor);
  put_text(all.architecture, device.version);
  put_text(all.driver, device.platform + " " + device.driver);
  all.capabilities = CHIPSET_CAPABILITY_HOST_ASYNC | CHIPSET_CAPABILITY_CAPTURE;
  all.total_memory = device.total_memory;
  all.max_allocation = device.max_allocation;
  all.dtypes = (uint64_t{1} << (CHIPSET_DTYPE_OPAQUE128 + 1)) - 1;
  if (!device.fp64) all.dtypes &= ~(uint64_t{1} << CHIPSET_DTYPE_F64);
  all.alignment = 128;  // clSVMAlloc aligns to the largest type, long16
  all.preferred_vector_bytes = 4 * device.vector_width;
  std::memcpy(info, &all, std::min<size_t>(info->struct_size, sizeof all));
}

void Driver::device_memory(int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
  Device& device = device_at(index);
  std::lock_guard lock(device.mutex);
  *total_bytes = device.total_memory;  // OpenCL does not say what others have taken
  *free_bytes = device.total_memory - std::min(device.total_memory, device.allocated);
}

void Driver::mem_alloc(int32_t index, int32_t kind, uint64_t bytes, void** pointer) {
  *pointer = nullptr;
  Device& device = device_at(index);
  device.check_alive();
  if (kind != CHIPSET_MEMORY_KIND_DEVICE && kind != CHIPSET_MEMORY_KIND_HOST)
    sdk::fail(CHIPSET_STATUS_INVALID, "opencl: mem_alloc: unknown memory kind %d", kind);
  if (bytes == 0) return;
  if (bytes > device.max_allocation)
    sdk::fail(CHIPSET_STATUS_OUT_OF_MEMORY,
              "opencl: mem_alloc: %" PRIu64
              " bytes wanted, but device %d '%s' gives at most %" PRIu64
              " at once (CL_DEVICE_MAX_MEM_ALLOC_SIZE); split the tensor",
              bytes, index, device.name.c_str(), device.max_allocation);
  cl_mem pinned = nullptr;
  void* made = kind == CHIPSET_MEMORY_KIND_HOST
                   ? alloc_pinned(device, bytes, &pinned)
                   : cl().SVMAlloc(device.context, CL_MEM_READ_WRITE, bytes, 0);
  std::lock_guard lock(device.mutex);
  if (made == nullptr)
    sdk::fail(CHIPSET_STATUS_OUT_OF_MEMORY,
              "opencl: mem_alloc: device %d '%s' has no %" PRIu64 " bytes left; %" PRIu64
              " of %" PRIu64 " are allocated here",
              index, device.name.c_str(), bytes, device.allocated, device.total_memory);
  device.allocations[reinterpret_cast<uintptr_t>(made)] = {bytes, pinned};
  if (pinned == nullptr) device.allocated += bytes;
  *pointer = made;
}

void Driver::mem_free(int32_t index, void* pointer) {
  Device& device = device_at(index);
  if (pointer == nullptr) return;
  Allocation freed;
  {
    std::lock_guard lock(device.mutex);
    const auto found = device.allocations.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == device.allocations.end())
      sdk::fail(CHIPSET_STATUS_INVALID,
                "opencl: mem_free: %p is not from mem_alloc of device %d, or was freed before",
                pointer, index);
    freed = found->second;
    device.allocations.erase(found);
    if (freed.pinned == nullptr) device.allocated -= freed.bytes;
  }
  if (freed.pinned == nullptr) return cl().SVMFree(device.context, pointer);
  cl().EnqueueUnmapMemObject(device.service, freed.pinned, pointer, 0, nullptr, nullptr);
  cl().Finish(device.service);
  cl().ReleaseMemObject(freed.pinned);
}

}  // namespace chipset::opencl
