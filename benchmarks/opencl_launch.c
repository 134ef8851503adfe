// SPDX-License-Identifier: Apache-2.0
// Bare OpenCL: the same small addition enqueued again and again, its arguments set each time.
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <stddef.h>

static cl_command_queue queue;
static cl_kernel kernel;
static void *to, *from;

// Prepares the n-th device of all platforms; 0 when it is ready.
int bare_open(int number, int profiling) {
  cl_platform_id platforms[32];
  cl_device_id devices[64], device = NULL;
  cl_uint platform_count = 0, count = 0;
  clGetPlatformIDs(32, platforms, &platform_count);
  for (cl_uint p = 0; p < platform_count && device == NULL; ++p) {
    if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, devices, &count) != CL_SUCCESS)
      continue;
    if (number < (int)count) device = devices[number];
    number -= (int)count;
  }
  if (device == NULL) return 1;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  const cl_bitfield properties[] = {CL_QUEUE_PROPERTIES, profiling ? CL_QUEUE_PROFILING_ENABLE : 0,
                                    0};
  queue = clCreateCommandQueueWithProperties(context, device, properties, NULL);
  const char* source =
      "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
      "void add(__global float* to, const __global float* from, long n) {\n"
      "  for (long i = 0; i < n; ++i) to[i] += from[i];\n"
      "}\n";
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
  if (clBuildProgram(program, 1, &device, "", NULL, NULL) != CL_SUCCESS) return 2;
  kernel = clCreateKernel(program, "add", NULL);
  to = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
  from = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
  return to == NULL || from == NULL ? 3 : 0;
}

int bare_launch(int times) {
  const size_t one = 1;
  const cl_long n = 64;
  for (int i = 0; i < times; ++i) {
    clSetKernelArgSVMPointer(kernel, 0, to);
    clSetKernelArgSVMPointer(kernel, 1, from);
    clSetKernelArg(kernel, 2, sizeof n, &n);
    const cl_int error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    if (error != CL_SUCCESS) return error;
  }
  return 0;
}

void bare_finish(void) { clFinish(queue); }
