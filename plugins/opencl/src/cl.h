// SPDX-License-Identifier: Apache-2.0
// The part of OpenCL 2.0 that the plugin uses, declared here so that building it needs no OpenCL
// package (tests/opencl holds it against the Khronos headers). The library is opened at run time.
#pragma once

#include <chipset/chipset.h>

#include <cstddef>
#include <cstdint>

namespace chipset::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bitfield = uint64_t;
using cl_platform_id = struct cl_platform_s*;
using cl_device_id = struct cl_device_s*;
using cl_context = struct cl_context_s*;
using cl_command_queue = struct cl_command_queue_s*;
using cl_program = struct cl_program_s*;
using cl_kernel = struct cl_kernel_s*;
using cl_event = struct cl_event_s*;
using cl_mem = struct cl_mem_s*;

// name, value.
#define OPENCL_ERRORS(X)                            \
  X(SUCCESS, 0)                                     \
  X(DEVICE_NOT_FOUND, -1)                           \
  X(DEVICE_NOT_AVAILABLE, -2)                       \
  X(MEM_OBJECT_ALLOCATION_FAILURE, -4)              \
  X(OUT_OF_RESOURCES, -5)                           \
  X(OUT_OF_HOST_MEMORY, -6)                         \
  X(BUILD_PROGRAM_FAILURE, -11)                     \
  X(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14) \
  X(INVALID_VALUE, -30)                             \
  X(INVALID_COMMAND_QUEUE, -36)                     \
  X(INVALID_BINARY, -42)                            \
  X(INVALID_KERNEL_NAME, -46)                       \
  X(INVALID_KERNEL_ARGS, -52)                       \
  X(INVALID_WORK_GROUP_SIZE, -54)
#define OPENCL_CONSTANTS(X)                   \
  X(TRUE, 1)                                  \
  X(FALSE, 0)                                 \
  X(COMPLETE, 0)                              \
  X(DEVICE_TYPE_CPU, 2)                       \
  X(DEVICE_TYPE_ALL, 0xFFFFFFFF)              \
  X(PLATFORM_NAME, 0x0902)                    \
  X(DEVICE_TYPE, 0x1000)                      \
  X(DEVICE_MAX_COMPUTE_UNITS, 0x1002)         \
  X(DEVICE_MAX_WORK_GROUP_SIZE, 0x1004)       \
  X(DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 0x103A) \
  X(DEVICE_MAX_MEM_ALLOC_SIZE, 0x1010)        \
  X(DEVICE_GLOBAL_MEM_SIZE, 0x101F)           \
  X(DEVICE_LOCAL_MEM_SIZE, 0x1023)            \
  X(DEVICE_NAME, 0x102B)                      \
  X(DEVICE_VENDOR, 0x102C)                    \
  X(DRIVER_VERSION, 0x102D)                   \
  X(DEVICE_VERSION, 0x102F)                   \
  X(DEVICE_EXTENSIONS, 0x1030)                \
  X(DEVICE_SVM_CAPABILITIES, 0x1053)          \
  X(DEVICE_SVM_COARSE_GRAIN_BUFFER, 1)        \
  X(QUEUE_PROPERTIES, 0x1093)                 \
  X(QUEUE_PROFILING_ENABLE, 2)                \
  X(MEM_READ_WRITE, 1)                        \
  X(MEM_ALLOC_HOST_PTR, 16)                   \
  X(MAP_READ, 1)                              \
  X(MAP_WRITE, 2)                             \
  X(PROGRAM_BINARY_SIZES, 0x1165)             \
  X(PROGRAM_BINARIES, 0x1166)                 \
  X(PROGRAM_BUILD_LOG, 0x1183)                \
  X(KERNEL_EXEC_INFO_SVM_PTRS, 0x11B6)        \
  X(EVENT_COMMAND_EXECUTION_STATUS, 0x11D3)   \
  X(PROFILING_COMMAND_END, 0x1283)

#define OPENCL_CONSTANT(name, value) inline constexpr int64_t CL_##name = value;
OPENCL_ERRORS(OPENCL_CONSTANT)
OPENCL_CONSTANTS(OPENCL_CONSTANT)
#undef OPENCL_CONSTANT

using BuildCallback = void (*)(cl_program, void*);
using EventCallback = void (*)(cl_event, cl_int, void*);
using ContextCallback = void (*)(const char*, const void*, size_t, void*);

// return type, name, parameters.
#define OPENCL_FUNCTIONS(X)                                                                       \
  X(cl_int, GetPlatformIDs, (cl_uint, cl_platform_id*, cl_uint*))                                 \
  X(cl_int, GetPlatformInfo, (cl_platform_id, cl_uint, size_t, void*, size_t*))                   \
  X(cl_int, GetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*))        \
  X(cl_int, GetDeviceInfo, (cl_device_id, cl_uint, size_t, void*, size_t*))                       \
  X(cl_context, CreateContext,                                                                    \
    (const intptr_t*, cl_uint, const cl_device_id*, ContextCallback, void*, cl_int*))             \
  X(cl_command_queue, CreateCommandQueueWithProperties,                                           \
    (cl_context, cl_device_id, const cl_bitfield*, cl_int*))                                      \
  X(cl_int, RetainCommandQueue, (cl_command_queue))                                               \
  X(cl_int, ReleaseCommandQueue, (cl_command_queue))                                              \
  X(cl_int, Flush, (cl_command_queue))                                                            \
  X(cl_int, Finish, (cl_command_queue))                                                           \
  X(cl_mem, CreateBuffer, (cl_context, cl_bitfield, size_t, void*, cl_int*))                      \
  X(cl_int, ReleaseMemObject, (cl_mem))                                                           \
  X(void*, EnqueueMapBuffer,                                                                      \
    (cl_command_queue, cl_mem, cl_uint, cl_bitfield, size_t, size_t, cl_uint, const cl_event*,    \
     cl_event*, cl_int*))                                                                         \
  X(cl_int, EnqueueUnmapMemObject,                                                                \
    (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))                       \
  X(void*, SVMAlloc, (cl_context, cl_bitfield, size_t, cl_uint))                                  \
  X(void, SVMFree, (cl_context, void*))                                                           \
  X(cl_int, EnqueueSVMMemcpy,                                                                     \
    (cl_command_queue, cl_uint, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, EnqueueSVMMemFill,                                                                    \
    (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*))  \
  X(cl_int, EnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))   \
  X(cl_int, EnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))  \
  X(cl_int, WaitForEvents, (cl_uint, const cl_event*))                                            \
  X(cl_int, GetEventInfo, (cl_event, cl_uint, size_t, void*, size_t*))                            \
  X(cl_int, GetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))                   \
  X(cl_int, SetEventCallback, (cl_event, cl_int, EventCallback, void*))                           \
  X(cl_event, CreateUserEvent, (cl_context, cl_int*))                                             \
  X(cl_int, SetUserEventStatus, (cl_event, cl_int))                                               \
  X(cl_int, RetainEvent, (cl_event))                                                              \
  X(cl_int, ReleaseEvent, (cl_event))                                                             \
  X(cl_program, CreateProgramWithSource,                                                          \
    (cl_context, cl_uint, const char**, const size_t*, cl_int*))                                  \
  X(cl_program, CreateProgramWithBinary,                                                          \
    (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*,     \
     cl_int*))                                                                                    \
  X(cl_int, BuildProgram,                                                                         \
    (cl_program, cl_uint, const cl_device_id*, const char*, BuildCallback, void*))                \
  X(cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void*, size_t*))                        \
  X(cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))     \
  X(cl_int, ReleaseProgram, (cl_program))                                                         \
  X(cl_kernel, CreateKernel, (cl_program, const char*, cl_int*))                                  \
  X(cl_int, ReleaseKernel, (cl_kernel))                                                           \
  X(cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                              \
  X(cl_int, SetKernelArgSVMPointer, (cl_kernel, cl_uint, const void*))                            \
  X(cl_int, SetKernelExecInfo, (cl_kernel, cl_uint, size_t, const void*))                         \
  X(cl_int, EnqueueNDRangeKernel,                                                                 \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,  \
     const cl_event*, cl_event*))

struct Functions {
#define OPENCL_FUNCTION(result, name, parameters) result(*name) parameters;
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
