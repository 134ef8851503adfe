// SPDX-License-Identifier: Apache-2.0
// OpenCL without a library to link: the driver's loader is opened at run time. The Khronos headers
// come with the plugin (third_party/CL, Apache-2.0), so that building it needs no package either.
#pragma once

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <chipset/chipset.h>

namespace chipset::opencl {

// clang-format off
#define OPENCL_FUNCTIONS(X) \
  X(GetPlatformIDs) X(GetPlatformInfo) X(GetDeviceIDs) X(GetDeviceInfo) X(CreateContext) \
  X(CreateCommandQueueWithProperties) X(RetainCommandQueue) X(ReleaseCommandQueue) X(Flush) \
  X(Finish) X(CreateBuffer) X(ReleaseMemObject) X(EnqueueMapBuffer) X(EnqueueUnmapMemObject) \
  X(SVMAlloc) X(SVMFree) X(EnqueueSVMMemcpy) X(EnqueueSVMMemFill) X(EnqueueMarkerWithWaitList) \
  X(EnqueueBarrierWithWaitList) X(WaitForEvents) X(GetEventInfo) X(GetEventProfilingInfo) \
  X(SetEventCallback) X(CreateUserEvent) X(SetUserEventStatus) X(RetainEvent) X(ReleaseEvent) \
  X(CreateProgramWithSource) X(CreateProgramWithBinary) X(BuildProgram) X(GetProgramInfo) \
  X(GetProgramBuildInfo) X(ReleaseProgram) X(CreateKernel) X(SetKernelArg) \
  X(SetKernelArgSVMPointer) X(EnqueueNDRangeKernel)
// clang-format on

struct Functions {
#define OPENCL_FUNCTION(name) decltype(&cl##name) name;
  OPENCL_FUNCTIONS(OPENCL_FUNCTION)
#undef OPENCL_FUNCTION
};

// The functions of the ICD loader: libOpenCL.so.1, or the option `loader`. Throws INTERNAL, with
// the path sought, when it cannot be opened or is older than OpenCL 2.0.
const Functions& cl();

// What the core is told of an error.
chipset_status status_of(cl_int error);

// "CL_OUT_OF_RESOURCES" or "OpenCL error -9999".
const char* error_name(cl_int error);

// Throws unless error is CL_SUCCESS; `what` is the function that failed.
void check(cl_int error, const char* what);

}  // namespace chipset::opencl
