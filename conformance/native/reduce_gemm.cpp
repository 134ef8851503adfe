// SPDX-License-Identifier: Apache-2.0
// Faults of reduce and of gemm.
#include <csignal>

#include "mutant.h"

namespace chipset::mutants {

namespace {

// The sum of a row, rounded to the tensor's own dtype after each addition.
void sum_in_own_dtype(const chipset_reduce_args& a) {
  const chipset_tensor rows = sdk::loops::detail::part_of(*a.input, a.dims, false);
  const chipset_tensor row = sdk::loops::detail::part_of(*a.input, a.dims, true);
  const chipset_tensor out = sdk::loops::detail::part_of(*a.output, a.dims, false);
  sdk::for_each_row<2>(rows, {rows.stride, out.stride}, [&](auto& base, int64_t n, auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      sdk::for_each_row<1>(row, {row.stride}, [&](auto& offset, int64_t count, auto& stride) {
        for (int64_t k = 0; k < count; ++k) {
          float x;
          sdk::loops::load(
              &x, sdk::address(*a.input, base[0] + i * step[0] + offset[0] + k * stride[0]),
              a.input->dtype, 1, 1);
          sum += x;
          sdk::loops::to_width(&sum, a.input->dtype, 1);
        }
      });
      sdk::loops::store(sdk::address(*a.output, base[1] + i * step[1]), a.output->dtype, 1, &sum,
                        1);
    }
  });
}

bool is_half(const chipset_tensor& t) {
  return t.dtype == CHIPSET_DTYPE_F16 || t.dtype == CHIPSET_DTYPE_BF16;
}

// d = alpha a@b + … with K cut into pieces, the sum rounded to d's dtype after each.
chipset_status gemm_in_pieces(chipset_stream stream, const chipset_gemm_args& given) {
  constexpr int64_t kPiece = 4;
  chipset_gemm_args a = given;
  Edited left(a.a), right(a.b);
  const int k_of_a = left->rank - 1, k_of_b = right->rank - 2;
  const int64_t depth = left->shape[k_of_a];
  if (depth <= kPiece || a.activation != CHIPSET_ACTIVATION_NONE)
    return good().gemm(stream, &given);
  chipset_status status = CHIPSET_STATUS_OK;
  for (int64_t from = 0; from < depth && status == CHIPSET_STATUS_OK; from += kPiece) {
    left->shape[k_of_a] = right->shape[k_of_b] = std::min(kPiece, depth - from);
    left->data = sdk::address(*given.a, from * left->stride[k_of_a]);
    right->data = sdk::address(*given.b, from * right->stride[k_of_b]);
    if (from > 0) a.c = a.d, a.beta = 1, a.bias = nullptr;
    status = good().gemm(stream, &a);
  }
  return status;
}

}  // namespace

void add_reduce(List& list) {
#define EDIT(name, fault, ...) \
  CHIPSET_MUTANT("reduce-" name, reduce, reduce_args, fault, __VA_ARGS__)
#define AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("reduce-" name, reduce, reduce_args, fault, __VA_ARGS__)
#define INSTEAD(name, fault, ...) \
  CHIPSET_MUTANT_INSTEAD("reduce-" name, reduce, reduce_args, fault, __VA_ARGS__)
#define IF_OP(name) if (a.op == CHIPSET_REDUCE_OP_##name)

  EDIT("ignores-strides", "the input is read as if it were contiguous", Edited x(a.input);
       make_contiguous(*x););
  EDIT("ignores-output-strides", "the output is written as if it were contiguous",
       Edited out(a.output);
       make_contiguous(*out););
  EDIT("skips-last-element", "the last element of a row is left out", Edited x(a.input);
       if (x->rank > 0 && (a.dims >> (x->rank - 1) & 1) &&
           x->shape[x->rank - 1] > 1)-- x->shape[x->rank - 1];);
  AFTER("sums-halves-in-halves", "sums of f16 and bf16 are rounded after each addition",
        if (a.op == CHIPSET_REDUCE_OP_SUM && is_half(*a.input) && is_half(*a.output))
            sum_in_own_dtype(a););
  AFTER(
      "mean-of-one-fewer", "MEAN divides by n - 1", IF_OP(MEAN) {
        const int64_t rows = std::max<int64_t>(1, sdk::numel(*a.output));
        const double n = static_cast<double>(sdk::numel(*a.input) / rows);
        if (n > 1) rewrite<double>(*a.output, [=](double& v) { v *= n / (n - 1); });
      });
  AFTER("max-drops-nan", "MAX of a row with NaN is a number",
        IF_OP(MAX) if (sdk::is_float(a.output->dtype)) rewrite<double>(*a.output, [](double& v) {
          if (v != v) v = 3;
        }););
  AFTER("min-drops-nan", "MIN of a row with NaN is a number",
        IF_OP(MIN) if (sdk::is_float(a.output->dtype)) rewrite<double>(*a.output, [](double& v) {
          if (v != v) v = 3;
        }););
  INSTEAD(
      "argmax-takes-the-last", "ARGMAX takes the last of equals",
      if (a.op != CHIPSET_REDUCE_OP_ARGMAX || a.input->rank == 0) return good().reduce(stream,
                                                                                       given);
      // The row is walked backwards through a reversed copy.
      chipset_reduce_args b = a;
      Copied x(b.input); const int64_t n = sdk::numel(*x);
      const int64_t size = sdk::dtype_size(x->dtype);
      if ((a.dims >> a.input->rank) != 0 || a.dims + 1 != (1u << a.input->rank)) return good()
          .reduce(stream, given);
      char* bytes = static_cast<char*>(x->data); for (int64_t i = 0; i < n / 2; ++i)
          std::swap_ranges(bytes + i * size, bytes + (i + 1) * size, bytes + (n - 1 - i) * size);
      const chipset_status status = good().reduce(stream, &b); if (status == CHIPSET_STATUS_OK)
          rewrite<int64_t>(*a.output, [=](int64_t& v) { v = n - 1 - v; });
      return status;);
  AFTER(
      "argmin-within-the-innermost", "ARGMIN over several dimensions answers an index in the last",
      if (a.op == CHIPSET_REDUCE_OP_ARGMIN && a.input->rank > 1) {
        const int64_t last = std::max<int64_t>(1, a.input->shape[a.input->rank - 1]);
        rewrite<int64_t>(*a.output, [=](int64_t& v) { v %= last; });
      });
  INSTEAD("empty-sum-not-written", "a sum over nothing writes nothing",
          if (sdk::numel(*a.input) == 0) return CHIPSET_STATUS_OK;
          return good().reduce(stream, given););
  INSTEAD("empty-max-is-ok", "MAX over nothing answers OK",
          if (sdk::numel(*a.input) == 0 && a.op == CHIPSET_REDUCE_OP_MAX) return CHIPSET_STATUS_OK;
          return good().reduce(stream, given););
  INSTEAD("crashes-on-nothing", "a reduction over nothing crashes",
          if (sdk::numel(*a.input) == 0) std::raise(SIGFPE);
          return good().reduce(stream, given););
  EDIT("var-ignores-correction", "VAR divides by n", IF_OP(VAR) a.param[0] = {0, 0};);
  EDIT("norm-is-euclidean", "NORM has p = 2 whatever is asked", IF_OP(NORM) a.param[0] = {2, 2};);
  EDIT("prod-is-sum", "PROD of integers is their sum",
       if (a.op == CHIPSET_REDUCE_OP_PROD && !sdk::is_float(a.compute_dtype)) a.op =
           CHIPSET_REDUCE_OP_SUM;);
  EDIT("nansum-is-sum", "NANSUM does not leave NaN out",
       IF_OP(NANSUM) a.op = CHIPSET_REDUCE_OP_SUM;);
  EDIT("any-is-all", "ANY asks for all", IF_OP(ANY) a.op = CHIPSET_REDUCE_OP_ALL;);
  EDIT("indices-not-written", "the indices of MAX are not written", a.indices = nullptr;);
  AFTER("logsumexp-overflows", "LOGSUMEXP does not subtract the largest element first",
        IF_OP(LOGSUMEXP) if (a.output->dtype == CHIPSET_DTYPE_F32)
            rewrite<float>(*a.output, [](float& v) {
              if (v > 88) v = std::numeric_limits<float>::infinity();
            }););
  AFTER("count-skips-nan", "COUNT_NONZERO answers one less",
        IF_OP(COUNT_NONZERO) rewrite<int64_t>(*a.output, [](int64_t& v) { v -= v > 0; }););
  INSTEAD("not-repeatable", "the same call gives other bits the second time", static int calls = 0;
          const chipset_status status = good().reduce(stream, given);
          if (a.op == CHIPSET_REDUCE_OP_SUM && a.output->dtype == CHIPSET_DTYPE_F32 &&
              sdk::numel(*a.input) > 4 * sdk::numel(*a.output) && ++calls % 2)
              rewrite<float>(*a.output, [](float& v) { v = std::nextafter(v, 1e30f); });
          return status;);
#undef EDIT
#undef AFTER
#undef INSTEAD
#undef IF_OP
}

void add_gemm(List& list) {
#define EDIT(name, fault, ...) CHIPSET_MUTANT("gemm-" name, gemm, gemm_args, fault, __VA_ARGS__)
#define AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("gemm-" name, gemm, gemm_args, fault, __VA_ARGS__)
#define INSTEAD(name, fault, ...) \
  CHIPSET_MUTANT_INSTEAD("gemm-" name, gemm, gemm_args, fault, __VA_ARGS__)

  EDIT("drops-bias", "the bias is not added", a.bias = nullptr;);
  EDIT("ignores-alpha", "alpha is taken for 1", a.alpha = 1;);
  EDIT("ignores-beta", "beta is taken for 1 where c is given", if (a.beta != 0) a.beta = 1;);
  EDIT("reads-c-for-beta-0", "NaN in c spreads although beta is 0",
       if (a.beta == 0 && a.c != nullptr) a.beta = 1e-30;);
  EDIT("ignores-activation", "the activation is left out", a.activation = CHIPSET_ACTIVATION_NONE;);
  EDIT("gelu-approximated", "GELU_ERF is computed with tanh",
       if (a.activation == CHIPSET_ACTIVATION_GELU_ERF) a.activation =
           CHIPSET_ACTIVATION_GELU_TANH;);
  EDIT("transposed-a-as-rows", "a is read as if it were contiguous", Edited x(a.a);
       make_contiguous(*x););
  EDIT("transposed-b-as-rows", "b is read as if it were contiguous", Edited x(a.b);
       make_contiguous(*x););
  EDIT("ignores-output-strides", "d is written as if it were contiguous", Edited d(a.d);
       make_contiguous(*d););
  EDIT("one-batch-for-all", "every batch is multiplied by the first b", Edited b(a.b);
       if (b->rank == 3) b->stride[0] = 0;);
  EDIT(
      "k-off-by-one", "the last product of a dot product is left out", Edited x(a.a); Edited y(a.b);
      if (x->shape[x->rank - 1] > 1) {
        --x->shape[x->rank - 1];
        --y->shape[y->rank - 2];
      });
  EDIT(
      "skips-last-column", "the last column of d is not written", Edited d(a.d); Edited b(a.b);
      Edited c(a.c); Edited bias(a.bias); if (d->shape[d->rank - 1] > 1) {
        --d->shape[d->rank - 1];
        --b->shape[b->rank - 1];
        if (c) --c->shape[c->rank - 1];
        if (bias) --bias->shape[0];
      });
  INSTEAD("accumulates-in-halves", "dot products of f16 and bf16 are rounded on the way",
          return is_half(*a.d) ? gemm_in_pieces(stream, a) : good().gemm(stream, given););
  INSTEAD("nothing-to-add-up", "K = 0 writes nothing",
          if (a.a->shape[a.a->rank - 1] == 0) return CHIPSET_STATUS_OK;
          return good().gemm(stream, given););
  AFTER("f32-output-rounded", "an f32 product of bf16 matrices is rounded to bf16",
        if (a.a->dtype == CHIPSET_DTYPE_BF16 && a.d->dtype == CHIPSET_DTYPE_F32) rewrite<float>(
            *a.d, [](float& v) { sdk::loops::to_width(&v, CHIPSET_DTYPE_BF16, 1); }););
  INSTEAD("accepts-any-shape", "shapes that do not multiply answer OK",
          const chipset_status status = good().gemm(stream, given);
          return status == CHIPSET_STATUS_INVALID ? CHIPSET_STATUS_OK : status;);
  AFTER("low-precision", "f32 products are rounded to tf32",
        if (a.d->dtype == CHIPSET_DTYPE_F32 && a.a->dtype == CHIPSET_DTYPE_F32)
            rewrite<float>(*a.d, [](float& v) {
              v = sdk::detail::bits_as<float>(sdk::detail::bits_as<uint32_t>(v) & 0xffffe000u);
            }););
#undef EDIT
#undef AFTER
#undef INSTEAD
}

}  // namespace chipset::mutants
