// SPDX-License-Identifier: Apache-2.0
// Structured operators: torch's own meta function checks the arguments and says what the outputs
// look like; these classes give it the outputs. So a functional call allocates its result directly,
// without the detour through the `.out` overload that torch otherwise takes (about 350 ns).
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <array>
#include <type_traits>
#include <utility>

#include "waist.h"

namespace chipset::bridge {

// The output that a meta function describes: explicit strides, a memory format, or contiguous.
at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& o);
// Checks the `out=` argument against the description and resizes it if need be.
void fit_output(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options);
// Checks the operand of an in-place call; it is never resized.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);

// Meta: at::meta::structured_X. N: number of outputs.
template <class Meta, size_t N = 1>
class Functional final : public Meta {
 public:
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    results_[i] = make_output(sizes, strides, options);
    // The iterator takes the output from maybe_get_output, so this comes second.
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      Meta::set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return results_[i]; }
  at::Tensor take(size_t i = 0) { return std::move(results_[i]); }

 private:
  std::array<at::Tensor, N> results_;
};

// The outputs are the caller's `out=` tensors. The waist writes any strides, so that no proxy with
// the strides that the meta function would like is needed.
template <class Meta, size_t N = 1>
class Out final : public Meta {
 public:
  template <typename... Tensors>
  explicit Out(const Tensors&... outs) : outs_{&outs...} {}
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    fit_output(*outs_[i], sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      Meta::set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return *outs_[i]; }

 private:
  std::array<const at::Tensor*, N> outs_;
};

// The output is the first operand itself.
template <class Meta>
class Inplace final : public Meta {
 public:
  explicit Inplace(const at::Tensor& self) : self_(self) {}
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    check_inplace(self_, sizes, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>)
      Meta::set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return self_; }

 private:
  const at::Tensor& self_;
};

}  // namespace chipset::bridge
