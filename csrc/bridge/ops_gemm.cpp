// SPDX-License-Identifier: Apache-2.0
// Matrix products: mm, addmm, bmm, baddbmm, addmv, dot, linear, grouped products.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_grouped_mm_ops.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/vdot_ops.h>
#include <torch/library.h>

#include "pointwise.h"
#include "structured.h"

namespace chipset::bridge {
namespace {

using at::Scalar;
using at::Tensor;

// ---- one call -------------------------------------------------------------------------------

struct Product {
  const chipset_tensor* a;
  const chipset_tensor* b;
  const chipset_tensor* d;
  const chipset_tensor* c = nullptr;
  const chipset_tensor* bias = nullptr;
  double alpha = 1.0;
  double beta = 0.0;
  int32_t activation = CHIPSET_ACTIVATION_NONE;
};

bool run(int device, const Product& product) {
  auto args = arguments<chipset_gemm_args>();
  args.a = product.a;
  args.b = product.b;
  args.c = product.c;
  args.d = product.d;
  args.bias = product.bias;
  args.alpha = product.alpha;
  args.beta = product.beta;
  args.activation = product.activation;
  return call<&chipset_api::gemm>(device, args);
}

// Both operands and the result on one chip and of one floating dtype. Shapes were checked before.
bool fits_gemm(const Tensor& a, const Tensor& b, const Tensor& d) {
  const auto type = a.scalar_type();
  return accepts(Accepts::kFloat, type) && b.scalar_type() == type && d.scalar_type() == type;
}

// d = alpha * a @ b.
bool multiply(const Tensor& a, const Tensor& b, const Tensor& d) {
  if (!fits_gemm(a, b, d)) return false;
  if (d.numel() == 0) return true;
  const chipset_tensor va = view(a);
  const chipset_tensor vb = view(b);
  const chipset_tensor vd = view(d);
  return run(a.device().index(), {.a = &va, .b = &vb, .d = &vd});
}

// d = activation(beta * c + alpha * a @ b), with c broadcast to d.
bool multiply_add(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
                  const Scalar& alpha, const Tensor& d,
                  int32_t activation = CHIPSET_ACTIVATION_NONE) {
  if (!fits_gemm(a, b, d) || c.scalar_type() != d.scalar_type()) return false;
  if (beta.isComplex() || alpha.isComplex()) return false;
  if (d.numel() == 0) return true;
  const chipset_tensor va = view(a);
  const chipset_tensor vb = view(b);
  const chipset_tensor vd = view(d);
  Product product{.a = &va,
                  .b = &vb,
                  .d = &vd,
                  .alpha = alpha.toDouble(),
                  .beta = beta.toDouble(),
                  .activation = activation};
  // A row added to a matrix once is a bias, for which kernels have a faster path.
  chipset_tensor vc;
  if (c.dim() == 1 && c.size(0) == d.size(-1) && product.beta == 1.0 && product.alpha == 1.0) {
    vc = view(c);
    product.bias = &vc;
    product.beta = 0.0;
  } else if (product.beta != 0.0) {
    vc = view(c.expand(d.sizes()));
    product.c = &vc;
  }
  return run(a.device().index(), product);
}

// ---- mm, bmm --------------------------------------------------------------------------------

template <class Meta, class Host>
Tensor product(const Tensor& a, const Tensor& b) {
  same_device("mat2", a, b);
  Functional<Meta> meta;
  meta.meta(a, b);
  if (!multiply(a, b, meta.maybe_get_output(0))) return host<Host>(a, b);
  return meta.take();
}
template <class Meta, class Host>
Tensor& product_out(const Tensor& a, const Tensor& b, Tensor& out) {
  same_device("mat2", a, b, out);
  Out<Meta> meta(out);
  meta.meta(a, b);
  if (!multiply(a, b, out)) host<Host>(a, b, out);
  return out;
}

// ---- addmm, baddbmm, addmv ------------------------------------------------------------------

// `self` as a third matrix. An output that overlaps an operand is legal only where it is `self`.
template <class Meta, class Host>
Tensor product_add(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                   const Scalar& alpha) {
  same_device("mat1 or mat2", self, a, b);
  Functional<Meta> meta;
  meta.meta(self, a, b, beta, alpha);
  if (!multiply_add(self, a, b, beta, alpha, meta.maybe_get_output(0)))
    return host<Host>(self, a, b, beta, alpha);
  return meta.take();
}
template <class Meta, class Host>
Tensor& product_add_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                        const Scalar& alpha, Tensor& out) {
  same_device("mat1 or mat2", self, a, b, out);
  Out<Meta> meta(out);
  meta.meta(self, a, b, beta, alpha);
  if (!multiply_add(self, a, b, beta, alpha, out)) host<Host>(self, a, b, beta, alpha, out);
  return out;
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& a, const Tensor& b,
                             const Scalar& beta, const Scalar& alpha, bool use_gelu, Tensor& out) {
  same_device("mat1 or mat2", self, a, b, out);
  Out<at::meta::structured__addmm_activation> meta(out);
  meta.meta(self, a, b, beta, alpha, use_gelu);
  // On the host torch applies the erf form.
  const auto activation = use_gelu ? CHIPSET_ACTIVATION_GELU_ERF : CHIPSET_ACTIVATION_RELU;
  if (!multiply_add(self, a, b, beta, alpha, out, activation))
    host<at::_ops::_addmm_activation_out>(self, a, b, beta, alpha, use_gelu, out);
  return out;
}

// A vector is a matrix with one column.
Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  same_device("mat or vec", self, mat, vec, out);
  Out<at::meta::structured_addmv> meta(out);
  meta.meta(self, mat, vec, beta, alpha);
  const Tensor column = self.expand(out.sizes()).unsqueeze(1);
  if (!multiply_add(column, mat, vec.unsqueeze(1), beta, alpha, out.unsqueeze(1)))
    host<at::_ops::addmv_out>(self, mat, vec, beta, alpha, out);
  return out;
}

void check_dot(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ",
              b.dim(), "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", a.scalar_type(),
              " and ", b.scalar_type());
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(),
              "] and src [", b.numel(), "] to have the same number of elements, but got ",
              a.numel(), " and ", b.numel(), " elements respectively");
  same_device("tensor", a, b);
}

template <class Host>
Tensor dot(const Tensor& a, const Tensor& b) {
  check_dot(a, b);
  Tensor out = empty({}, a.scalar_type(), a.device().index());
  if (multiply(a.unsqueeze(0), b.unsqueeze(1), out.view({1, 1}))) return out;
  if (at::isIntegralType(a.scalar_type(), false)) return at::sum(at::mul(a, b));
  return host<Host>(a, b);
}

// beta * self + alpha * sum over the batch of a @ b.
Tensor& addbmm_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  same_device("batch1 or batch2", self, a, b);
  const Tensor sum = at::mul(at::sum(at::bmm(a, b), {0}), alpha);
  const bool ignored = beta.toComplexDouble() == 0.0;
  const Tensor result = ignored ? sum.expand(at::infer_size(self.sizes(), sum.sizes()))
                                : at::add(at::mul(self, beta), sum);
  TORCH_CHECK(result.sizes() == sum.sizes(), "addbmm: self of shape ", self.sizes(),
              " does not broadcast to ", sum.sizes());
  return store(result, out);
}
Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  Tensor out = empty({0}, self.scalar_type(), self.device().index());
  return addbmm_out(self, a, b, beta, alpha, out);
}
Tensor& addbmm_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha) {
  return addbmm_out(self, a, b, beta, alpha, self);
}

// ---- linear ---------------------------------------------------------------------------------

// [..., K] as [M, K] where the strides allow it, which they nearly always do.
bool as_matrix(const Tensor& x, chipset_tensor* out) {
  const int64_t last = x.dim() - 1;
  int64_t rows = 1;
  int64_t stride = x.size(last);  // between rows, once a dimension larger than 1 is seen
  bool seen = false;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (seen && x.stride(d) != stride * rows) return false;
    if (!seen) stride = x.stride(d);
    seen = true;
    rows *= x.size(d);
  }
  *out = {
      sizeof(chipset_tensor),   compute_dtype(x.scalar_type()),       2, 0, {rows, x.size(last)},
      {stride, x.stride(last)}, const_cast<void*>(x.const_data_ptr())};
  return true;
}

// The transpose of a matrix view.
chipset_tensor transposed(chipset_tensor matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.stride[0], matrix.stride[1]);
  return matrix;
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const bool biased = bias.has_value() && bias->defined();
  TORCH_CHECK(input.dim() > 0 && weight.dim() > 0,
              "both arguments to linear need to be at least 1D, but they are ", input.dim(),
              "D and ", weight.dim(), "D");
  same_device("weight", input, weight);
  if (biased) same_device("bias", input, *bias);
  const auto type = input.scalar_type();
  TORCH_CHECK(weight.scalar_type() == type && (!biased || bias->scalar_type() == type),
              "linear: input, weight and bias must have the same dtype, but got ", type, ", ",
              weight.scalar_type(), biased ? c10::toString(bias->scalar_type()) : "");
  const int64_t depth = input.size(-1);
  TORCH_CHECK(depth == weight.size(-1), "mat1 and mat2 shapes cannot be multiplied (",
              input.numel() / std::max<int64_t>(depth, 1), "x", depth, " and ", weight.size(-1),
              "x", weight.dim() > 1 ? weight.size(0) : 1, ")");
  const bool matrix = weight.dim() == 2;
  if (matrix && biased && bias->dim() == 1)  // torch's error for a bias of another size
    bias->expand({input.numel() / std::max<int64_t>(depth, 1), weight.size(0)});
  if (!matrix || (biased && (bias->dim() != 1 || bias->size(0) != weight.size(0)))) {
    const Tensor product = at::matmul(input, matrix ? weight.t() : weight);
    return biased ? at::add(product, *bias) : product;
  }

  at::DimVector sizes(input.sizes());
  sizes.back() = weight.size(0);
  Tensor out = empty(sizes, type, input.device().index());
  if (out.numel() == 0) return out;
  chipset_tensor a;
  chipset_tensor d;
  const Tensor x = as_matrix(input, &a) ? input : input.contiguous();
  if (accepts(Accepts::kFloat, type) && as_matrix(x, &a) && as_matrix(out, &d)) {
    const chipset_tensor b = transposed(view(weight));
    chipset_tensor row;
    if (biased) row = view(*bias);
    if (run(input.device().index(), {.a = &a, .b = &b, .d = &d, .bias = biased ? &row : nullptr}))
      return out;
  }
  return host<at::_ops::linear>(input, weight, bias);
}

// Gradients of linear. Shapes as there; each is computed only when asked for.
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad,
                                                   const Tensor& weight,
                                                   std::array<bool, 3> wanted) {
  Tensor dinput;
  Tensor dweight;
  Tensor dbias;
  const Tensor rows = grad.reshape_symint({-1, grad.sym_size(-1)});
  if (wanted[0]) dinput = at::mm(rows, weight).view_symint(input.sym_sizes());
  if (wanted[1]) dweight = at::mm(rows.t(), input.reshape_symint({-1, input.sym_size(-1)}));
  if (wanted[2]) dbias = at::sum(rows, {0});
  return {dinput, dweight, dbias};
}

// ---- grouped products -----------------------------------------------------------------------

// One product per group. `offs` holds the group ends along the dimension that differs: the rows of
// a 2-D self, the columns of a 2-D mat2, or the shared dimension when both are 2-D. The ends decide
// the shapes of the calls, so they are read on the host.
Tensor grouped_mm(const Tensor& self, const Tensor& mat2, const std::optional<Tensor>& offs,
                  const std::optional<Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  same_device("mat2", self, mat2);
  TORCH_CHECK((self.dim() == 2 || self.dim() == 3) && (mat2.dim() == 2 || mat2.dim() == 3),
              "_grouped_mm: operands must be 2-D or 3-D, but are ", self.dim(), "-D and ",
              mat2.dim(), "-D");
  TORCH_CHECK(!bias.has_value() || !bias->defined(), "_grouped_mm: bias is not supported");
  TORCH_CHECK(self.size(-1) == mat2.size(-2), "_grouped_mm: contraction dimensions ", self.size(-1),
              " and ", mat2.size(-2), " differ");
  const auto type = out_dtype.value_or(self.scalar_type());
  TORCH_CHECK(type == self.scalar_type(), "_grouped_mm: the output dtype ", type,
              " must be the operands' ", self.scalar_type());
  if (self.dim() == 3 && mat2.dim() == 3) return at::bmm(self, mat2);

  TORCH_CHECK(offs.has_value() && offs->defined(),
              "_grouped_mm: offs is needed when an operand is 2-D");
  const Tensor ends = offs->to(at::Device(at::kCPU), at::kInt).contiguous();
  const auto* end = ends.const_data_ptr<int32_t>();
  const int64_t groups = ends.numel();
  const int device = self.device().index();
  const bool by_row = self.dim() == 2 && mat2.dim() == 3;
  const bool by_column = self.dim() == 3 && mat2.dim() == 2;
  Tensor out = by_row      ? empty({self.size(0), mat2.size(2)}, type, device)
               : by_column ? empty({self.size(1), mat2.size(1)}, type, device)
                           : empty({groups, self.size(0), mat2.size(1)}, type, device);
  int64_t begin = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t size = end[g] - begin;
    TORCH_CHECK(size >= 0, "_grouped_mm: offs must not decrease, but offs[", g, "] = ", end[g],
                " follows ", begin);
    Tensor part = by_row      ? out.narrow(0, begin, size)
                  : by_column ? out.narrow(1, begin, size)
                              : out.select(0, g);
    at::mm_out(part, by_column ? self.select(0, g) : self.narrow(by_row ? 0 : 1, begin, size),
               by_row ? mat2.select(0, g) : mat2.narrow(by_column ? 1 : 0, begin, size));
    begin = end[g];
  }
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm", TORCH_FN((product<at::meta::structured_mm, at::_ops::mm>)));
  m.impl("mm.out", TORCH_FN((product_out<at::meta::structured_mm, at::_ops::mm_out>)));
  m.impl("bmm", TORCH_FN((product<at::meta::structured_bmm, at::_ops::bmm>)));
  m.impl("bmm.out", TORCH_FN((product_out<at::meta::structured_bmm, at::_ops::bmm_out>)));
  m.impl("addmm", TORCH_FN((product_add<at::meta::structured_addmm, at::_ops::addmm>)));
  m.impl("addmm.out", TORCH_FN((product_add_out<at::meta::structured_addmm, at::_ops::addmm_out>)));
  m.impl("baddbmm", TORCH_FN((product_add<at::meta::structured_baddbmm, at::_ops::baddbmm>)));
  m.impl("baddbmm.out",
         TORCH_FN((product_add_out<at::meta::structured_baddbmm, at::_ops::baddbmm_out>)));
  m.impl("_addmm_activation.out", TORCH_FN(addmm_activation_out));
  m.impl("addmv.out", TORCH_FN(addmv_out));
  m.impl("dot", TORCH_FN(dot<at::_ops::dot>));
  m.impl("vdot", TORCH_FN(dot<at::_ops::vdot>));
  m.impl("addbmm", TORCH_FN(addbmm));
  m.impl("addbmm_", TORCH_FN(addbmm_));
  m.impl("addbmm.out", TORCH_FN(addbmm_out));
  m.impl("linear", TORCH_FN(linear));
  m.impl("linear_backward", TORCH_FN(linear_backward));
  m.impl("_grouped_mm", TORCH_FN(grouped_mm));
}

// Tensors that see operators before the chip does (DTensor, functorch, tracing) know linear's parts
// but not linear_backward, for which torch has no decomposition: this is one. DTensor wants every
// output, so all gradients are computed; autograd ignores those that nobody asked for.
std::tuple<Tensor, Tensor, Tensor> composite_linear_backward(const Tensor& input,
                                                             const Tensor& grad,
                                                             const Tensor& weight,
                                                             std::array<bool, 3>) {
  return linear_backward(input, grad, weight, {true, true, true});
}
TORCH_LIBRARY_IMPL(aten, CompositeImplicitAutograd, m) {
  m.impl("linear_backward", TORCH_FN(composite_linear_backward));
}

}  // namespace
}  // namespace chipset::bridge
