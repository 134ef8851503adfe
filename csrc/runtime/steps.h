// SPDX-License-Identifier: Apache-2.0
// A composition as a list of steps: calls of required functions on tensors and temporaries. After
// the first call that is not OK the rest do nothing, so that a composition reads straight through.
#pragma once

#include <initializer_list>
#include <vector>

#include "operands.h"

namespace chipset::runtime {

using Tensor = chipset_tensor;
using Shape = std::vector<std::int64_t>;

// An operand of a pointwise step: a tensor, broadcast to the output's shape, or a number.
struct Input {
  Input(const Tensor& t) : tensor(&t), number(0) {}        // NOLINT: meant to convert
  Input(double value) : tensor(nullptr), number(value) {}  // NOLINT
  const Tensor* tensor;
  double number;
};

class Steps {
 public:
  Steps(const Plugin& plugin, chipset_stream stream);
  ~Steps();
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // A contiguous temporary, freed in stream order at the end.
  Tensor temporary(std::int32_t dtype, const Shape& shape);
  // The tensor itself if it has the dtype and is contiguous, else a contiguous temporary copy.
  Tensor contiguous(const Tensor& t, std::int32_t dtype);

  // `compute` is the dtype of the arithmetic.
  void pointwise(std::int32_t op, const Tensor& output, std::initializer_list<Input> inputs,
                 std::int32_t compute, std::initializer_list<double> params = {});
  void copy(const Tensor& output, const Tensor& input);
  void reduce(std::int32_t op, const Tensor& output, const Tensor& input,
              std::initializer_list<int> dims, std::int32_t compute, double param = 0);
  void gemm(const Tensor& d, const Tensor& a, const Tensor& b, double alpha = 1,
            const Tensor* bias = nullptr, std::int32_t activation = CHIPSET_ACTIVATION_NONE);
  void gather(const chipset_gather_args& args);
  void scatter(const chipset_scatter_args& args);

  chipset_status unsupported(const char* why);
  chipset_status status() const { return status_; }

 private:
  const Plugin& plugin_;
  chipset_stream stream_;
  const Device& device_;
  chipset_status status_ = CHIPSET_STATUS_OK;
  std::vector<void*> blocks_;
};

// The dtype in which fused functions work: F64 for F64, else F32.
std::int32_t wide(std::int32_t dtype);
Shape shape_of(const Tensor& t);
// Views. expand repeats dimensions of size 1, and leading ones.
Tensor expand(const Tensor& t, const Shape& shape);
Tensor slice(const Tensor& t, int dim, std::int64_t start, std::int64_t size,
             std::int64_t step = 1);
Tensor transpose(const Tensor& t, int a, int b);
Tensor unsqueeze(const Tensor& t, int dim);
// Another shape for a contiguous tensor.
Tensor reshape(const Tensor& t, const Shape& shape);
// Splits a dimension into two, whatever the strides.
Tensor split(const Tensor& t, int dim, std::int64_t outer, std::int64_t inner);
// A scalar in device memory.
Tensor scalar_at(const void* address, std::int32_t dtype);

}  // namespace chipset::runtime
