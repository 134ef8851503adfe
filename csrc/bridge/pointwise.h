// SPDX-License-Identifier: Apache-2.0
// One elementwise operation through the waist, from operands that torch's iterator has broadcast,
// promoted and coalesced.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "waist.h"

namespace chipset::bridge {

// Compute dtypes for which an operation goes to the chip. For any other one torch's own kernel on
// the host runs, or raises torch's own error.
enum class Accepts : uint8_t {
  kFloat,     // F16, BF16, F32, F64
  kIntegral,  // integers and bool
  kNumber,    // kFloat and integers
  kAny,       // kNumber and bool
};
bool accepts(Accepts which, at::ScalarType type) noexcept;

// An operand: one of the iterator's, by its index (outputs first), or a number.
struct Operand {
  Operand(int index) : index(index) {}             // NOLINT(google-explicit-constructor)
  Operand(chipset_scalar value) : value(value) {}  // NOLINT(google-explicit-constructor)
  int index = -1;
  chipset_scalar value{};
};
// Index of the operand that is this tensor: meta functions differ in the order of their inputs.
Operand operand_of(const at::TensorIteratorBase& iterator, const at::TensorBase& tensor);

struct Params {
  chipset_scalar p[4]{};
};

// Runs the operation into output 0. False: the chip does not do it and nothing was written.
// `compute`: by default the iterator's common dtype, or the first input's.
bool pointwise(const at::TensorIteratorBase& iterator, chipset_pointwise_op op, Accepts which,
               const Params& params = {});
bool pointwise(const at::TensorIteratorBase& iterator, chipset_pointwise_op op,
               at::ScalarType compute, std::initializer_list<Operand> operands,
               const Params& params = {});

// For operators that torch does not describe by a meta function: out = op(inputs…), all of one
// dtype. `out` is resized, or allocated when undefined. False: not done.
bool elementwise(chipset_pointwise_op op, Accepts which,
                 std::initializer_list<const at::Tensor*> inputs, at::Tensor& out,
                 const Params& params = {});

// The hot case needs no iterator: contiguous operands of one shape, dtype and chip, or a tensor and
// a number of no higher kind. The result is undefined when the case, or the chip, is another.
at::Tensor simple_binary(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                         const at::Tensor& y, const Params& params = {});
at::Tensor simple_unary(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                        const Params& params = {});
// The same written to x itself; false when not done.
bool simple_inplace(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                    const at::Tensor& y, const Params& params = {});

}  // namespace chipset::bridge
