// SPDX-License-Identifier: Apache-2.0
#include "cl.h"

#include <dlfcn.h>

#include <chipset_sdk.hpp>
#include <cstdio>
#include <cstdlib>

namespace chipset::opencl {
namespace {

Functions load() {
  // PoCL would compile each kernel again when it is first enqueued, for that very grid, and keep
  // the result where no binary has it; the kit's kernels have fixed groups and gain nothing from
  // it.
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 0);
  const std::string path = sdk::option("loader", "libOpenCL.so.1");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    sdk::fail(
        CHIPSET_STATUS_INTERNAL,
        "opencl: no ICD loader: %s; install one (Debian: apt install ocl-icd-libopencl1 and a "
        "driver such as pocl-opencl-icd), or name it in CHIPSET_OPENCL_LOADER",
        dlerror());
  Functions functions;
#define OPENCL_FUNCTION(name)                                                                    \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, "cl" #name));       \
  if (functions.name == nullptr)                                                                 \
    sdk::fail(CHIPSET_STATUS_INTERNAL,                                                           \
              "opencl: '%s' has no cl" #name "; an ICD loader of OpenCL 2.0 or later is needed", \
              path.c_str());
  OPENCL_FUNCTIONS(OPENCL_FUNCTION)
#undef OPENCL_FUNCTION
  return functions;
}

}  // namespace

const Functions& cl() {
  static const Functions functions = load();
  return functions;
}

chipset_status status_of(cl_int error) {
  switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
      return CHIPSET_STATUS_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_COMMAND_QUEUE:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
      return CHIPSET_STATUS_DEVICE_LOST;
    default:
      return CHIPSET_STATUS_INTERNAL;
  }
}

const char* error_name(cl_int error) {
#define OPENCL_ERROR(name) \
  if (error == (name)) return #name;
  OPENCL_ERROR(CL_DEVICE_NOT_FOUND)
  OPENCL_ERROR(CL_DEVICE_NOT_AVAILABLE)
  OPENCL_ERROR(CL_MEM_OBJECT_ALLOCATION_FAILURE)
  OPENCL_ERROR(CL_OUT_OF_RESOURCES)
  OPENCL_ERROR(CL_OUT_OF_HOST_MEMORY)
  OPENCL_ERROR(CL_BUILD_PROGRAM_FAILURE)
  OPENCL_ERROR(CL_INVALID_COMMAND_QUEUE)
  OPENCL_ERROR(CL_INVALID_BINARY)
#undef OPENCL_ERROR
  static thread_local char text[32];
  std::snprintf(text, sizeof text, "OpenCL error %d", error);
  return text;
}

void check(cl_int error, const char* what) {
  if (error != CL_SUCCESS) sdk::fail(status_of(error), "opencl: cl%s: %s", what, error_name(error));
}

}  // namespace chipset::opencl
