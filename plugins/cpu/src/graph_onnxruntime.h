// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime, opened at run time: the few functions of its C interface that graph_onnx.cpp calls.
//
// The wheel of onnxruntime brings the library without its header, so the functions are taken by
// their places in struct OrtApi. Those are frozen: "the order of members must not change" there,
// and new ones are only appended (include/onnxruntime/core/session/onnxruntime_c_api.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "chipset/chipset.h"

namespace chipset::cpu::ort {

struct Env;
struct Status;  // NULL: success
struct Session;
struct SessionOptions;
struct RunOptions;
struct Value;
struct TypeInfo;
struct TensorInfo;
struct MemoryInfo;
struct Allocator;

// X(place in OrtApi, name, result, parameters)
#define CPU_ORT_FUNCTIONS(X)                                                                    \
  X(1, GetErrorCode, int, (const Status*))                                                      \
  X(2, GetErrorMessage, const char*, (const Status*))                                           \
  X(3, CreateEnv, Status*, (int log_level, const char* log_id, Env**))                          \
  X(8, CreateSessionFromArray, Status*,                                                         \
    (const Env*, const void* model, size_t bytes, const SessionOptions*, Session**))            \
  X(9, Run, Status*,                                                                            \
    (Session*, const RunOptions*, const char* const* input_names, const Value* const* inputs,   \
     size_t num_inputs, const char* const* output_names, size_t num_outputs, Value** outputs))  \
  X(10, CreateSessionOptions, Status*, (SessionOptions**))                                      \
  X(24, SetIntraOpNumThreads, Status*, (SessionOptions*, int))                                  \
  X(30, SessionGetInputCount, Status*, (const Session*, size_t*))                               \
  X(31, SessionGetOutputCount, Status*, (const Session*, size_t*))                              \
  X(33, SessionGetInputTypeInfo, Status*, (const Session*, size_t, TypeInfo**))                 \
  X(34, SessionGetOutputTypeInfo, Status*, (const Session*, size_t, TypeInfo**))                \
  X(36, SessionGetInputName, Status*, (const Session*, size_t, Allocator*, char**))             \
  X(37, SessionGetOutputName, Status*, (const Session*, size_t, Allocator*, char**))            \
  X(49, CreateTensorWithDataAsOrtValue, Status*,                                                \
    (const MemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t rank, int dtype, \
     Value**))                                                                                  \
  X(51, GetTensorMutableData, Status*, (Value*, void**))                                        \
  X(55, CastTypeInfoToTensorInfo, Status*, (const TypeInfo*, const TensorInfo**))               \
  X(60, GetTensorElementType, Status*, (const TensorInfo*, int*))                               \
  X(61, GetDimensionsCount, Status*, (const TensorInfo*, size_t*))                              \
  X(62, GetDimensions, Status*, (const TensorInfo*, int64_t*, size_t))                          \
  X(65, GetTensorTypeAndShape, Status*, (const Value*, TensorInfo**))                           \
  X(69, CreateCpuMemoryInfo, Status*, (int allocator_type, int memory_type, MemoryInfo**))      \
  X(76, AllocatorFree, Status*, (Allocator*, void*))                                            \
  X(78, GetAllocatorWithDefaultOptions, Status*, (Allocator**))                                 \
  X(93, ReleaseStatus, void, (Status*))                                                         \
  X(95, ReleaseSession, void, (Session*))                                                       \
  X(96, ReleaseValue, void, (Value*))                                                           \
  X(98, ReleaseTypeInfo, void, (TypeInfo*))                                                     \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (TensorInfo*))                                     \
  X(100, ReleaseSessionOptions, void, (SessionOptions*))                                        \
  X(130, AddSessionConfigEntry, Status*, (SessionOptions*, const char* key, const char* value))

struct Library {
#define CPU_ORT_FIELD(place, name, result, parameters) result(*name) parameters = nullptr;
  CPU_ORT_FUNCTIONS(CPU_ORT_FIELD)
#undef CPU_ORT_FIELD
  Env* env = nullptr;
  MemoryInfo* memory = nullptr;
  Allocator* allocator = nullptr;
};

// OrtErrorCode.
enum ErrorCode {
  kFail = 1,
  kInvalidArgument = 2,
  kNoModel = 4,
  kRuntimeException = 6,
  kInvalidProtobuf = 7
};

// The library, opened by the first call and kept for the life of the process. NULL: there is none
// that can be used; `reason` then says what was sought where and what to install.
const Library* library(const char** reason);

// ONNXTensorElementDataType of a chipset_dtype, and back; -1 where the other side has none.
int element_type(int32_t dtype);
int32_t dtype_of(int element_type);

}  // namespace chipset::cpu::ort
