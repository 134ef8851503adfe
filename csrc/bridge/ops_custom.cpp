// SPDX-License-Identifier: Apache-2.0
// The operators of torch.ops.chipset on a chip. The layers define the schemas (in Python, before
// or after this library is loaded) and the semantics; here each goes to the waist's function, or
// is composed where the chip has none.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "pointwise.h"
#include "waist.h"

namespace chipset::bridge {
namespace {

// ---- linear_int8, linear_int4: x [..., K], N rows of weights with scales F32 ------------------

// out = x @ dequantize(w)^T + bias with scale [N, G]; false where the chip has no such function.
bool multiply_quantized(const at::Tensor& out, const at::Tensor& x, const chipset_tensor& w,
                        const at::Tensor& scale, const at::Tensor& bias) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const chipset_tensor a = view(rows), s = view(scale), d = view(out.view({-1, out.size(-1)}));
  chipset_tensor b;
  auto args = arguments<chipset_gemm_quantized_args>();
  args.group_size = scale.size(1) == 1 ? 0 : x.size(-1) / scale.size(1);
  args.x = &a;
  args.w = &w;
  args.w_scale = &s;
  args.d = &d;
  if (bias.defined()) {
    b = view(bias);
    args.bias = &b;
  }
  return call<&chipset_api::gemm_quantized>(x.get_device(), args);
}

at::Tensor empty_product(const at::Tensor& x, int64_t columns) {
  at::DimVector sizes(x.sizes());
  sizes.back() = columns;
  return empty(sizes, x.scalar_type(), x.get_device());
}

at::Tensor linear_int8(const at::Tensor& x, const at::Tensor& qweight, const at::Tensor& scale,
                       const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(qweight.scalar_type() == at::kChar && qweight.dim() == 2,
              "linear_int8: qweight must be int8 [N, K], but is ", qweight.scalar_type(), " ",
              qweight.sizes());
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) == qweight.size(1), "linear_int8: x ", x.sizes(),
              " does not fit qweight ", qweight.sizes(), " [N, K]");
  TORCH_CHECK(scale.numel() == qweight.size(0) && scale.scalar_type() == at::kFloat,
              "linear_int8: scale must be float32 [N] with N = ", qweight.size(0), ", but is ",
              scale.scalar_type(), " ", scale.sizes());
  at::Tensor out = empty_product(x, qweight.size(0));
  if (out.numel() == 0) return out;
  const at::Tensor shift =
      bias.has_value() && bias->defined() ? bias->to(x.scalar_type()) : at::Tensor();
  if (multiply_quantized(out, x, view(qweight), scale.view({-1, 1}), shift)) return out;
  // Every int8 is exact in bf16: take the product unscaled, then scale the sum.
  at::Tensor y = at::linear(x, qweight.to(x.scalar_type())).mul(scale);
  if (shift.defined()) y = y.add(shift);
  return y.to(x.scalar_type());
}

// As chipset_layers.nibbles has it: the even column in the low half, in two's complement.
at::Tensor dequantize_int4(const at::Tensor& qweight, const at::Tensor& scale) {
  const at::Tensor halves =
      at::stack({qweight.bitwise_and(15), qweight.bitwise_right_shift(4)}, -1).flatten(1);
  const at::Tensor values = halves.bitwise_xor(8).to(at::kFloat).sub(8);
  return values.view({scale.size(0), scale.size(1), -1}).mul(scale.unsqueeze(-1)).flatten(1);
}

at::Tensor linear_int4(const at::Tensor& x, const at::Tensor& qweight, const at::Tensor& scale,
                       const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(qweight.scalar_type() == at::kByte && qweight.dim() == 2,
              "linear_int4: qweight must be uint8 [N, K / 2], but is ", qweight.scalar_type(), " ",
              qweight.sizes());
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) == 2 * qweight.size(1), "linear_int4: x ", x.sizes(),
              " does not fit qweight ", qweight.sizes(), " [N, K / 2]");
  TORCH_CHECK(scale.dim() == 2 && scale.size(0) == qweight.size(0) && scale.size(1) > 0 &&
                  x.size(-1) % scale.size(1) == 0 && scale.scalar_type() == at::kFloat,
              "linear_int4: scale must be float32 [N, G] with N = ", qweight.size(0),
              " and G a divisor of K = ", x.size(-1), ", but is ", scale.scalar_type(), " ",
              scale.sizes());
  at::Tensor out = empty_product(x, qweight.size(0));
  if (out.numel() == 0) return out;
  const at::Tensor shift =
      bias.has_value() && bias->defined() ? bias->to(x.scalar_type()) : at::Tensor();
  const at::Tensor packed = qweight.contiguous();
  chipset_tensor w = view(packed);
  w.dtype = CHIPSET_DTYPE_I4;
  w.shape[1] = w.stride[0] = x.size(-1);
  if (multiply_quantized(out, x, w, scale, shift)) return out;
  return at::linear(x, dequantize_int4(packed, scale).to(x.scalar_type()), shift);
}

// ---- rms_norm over the last dimension -------------------------------------------------------

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  TORCH_CHECK(weight.dim() == 1 && x.dim() >= 1 && weight.size(0) == x.size(-1),
              "rms_norm: weight ", weight.sizes(), " does not fit x ", x.sizes());
  at::Tensor y = empty(x.sizes(), x.scalar_type(), x.get_device());
  if (y.numel() == 0) return y;
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const chipset_tensor in = view(rows), w = view(weight), out = view(y.view(rows.sizes()));
  auto args = arguments<chipset_norm_args>();
  args.eps = eps;
  args.x = &in;
  args.weight = &w;
  args.y = &out;
  if (call<&chipset_api::norm>(x.get_device(), args)) return y;
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor unit = wide.mul(wide.pow(2).mean(-1, true).add_(eps).rsqrt_());
  return unit.to(x.scalar_type()).mul(weight);
}

// ---- rotary: q [B, H, S, D], cos and sin [B or 1, S, D] -------------------------------------

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  at::Tensor y = at::empty_like(x);
  if (y.numel() == 0) return y;
  const auto shape = {x.size(0), x.size(2), cos.size(-1)};
  const chipset_tensor in = view(x), out = view(y), c = view(cos.expand(shape)),
                       s = view(sin.expand(shape));
  auto args = arguments<chipset_rotary_args>();
  args.x = &in;
  args.cos = &c;
  args.sin = &s;
  args.y = &out;
  if (call<&chipset_api::rotary>(x.get_device(), args)) return y;
  const int64_t half = x.size(-1) / 2;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  y.narrow(-1, 0, half).copy_(high.neg());
  y.narrow(-1, half, half).copy_(low);
  return y.mul_(sin.unsqueeze(1)).add_(x.mul(cos.unsqueeze(1)));
}

std::tuple<at::Tensor, at::Tensor> rotary(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& cos, const at::Tensor& sin) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && cos.dim() == 3 && cos.sizes() == sin.sizes(),
              "rotary: expected q and k [B, H, S, D] and cos and sin [B or 1, S, D], but got ",
              q.sizes(), ", ", k.sizes(), ", ", cos.sizes(), " and ", sin.sizes());
  return {rotate(q, cos, sin), rotate(k, cos, sin)};
}

// ---- swiglu ---------------------------------------------------------------------------------

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(gate.sizes() == up.sizes(), "swiglu: gate ", gate.sizes(), " and up ", up.sizes(),
              " differ in shape");
  const at::Tensor out = simple_binary(CHIPSET_POINTWISE_OP_SWIGLU, Accepts::kFloat, gate, up);
  return out.defined() ? out : at::silu(gate).mul(up);
}

// ---- attention over a paged cache -----------------------------------------------------------

// Some rows of q [T, H, D] over every slot of their sequence's block table, the unused ones masked.
at::Tensor attend_gathered(const at::Tensor& q, const at::Tensor& row, const at::Tensor& k_cache,
                           const at::Tensor& v_cache, const at::Tensor& block_table,
                           const at::Tensor& query_start, const at::Tensor& kv_len, double scale) {
  const int64_t tokens = q.size(0), heads = q.size(1), width = q.size(2);
  const int64_t kv_heads = k_cache.size(2);
  const at::Tensor ends = query_start.slice(0, 1).contiguous();
  const at::Tensor sequence = at::searchsorted(ends, row, /*out_int32=*/false, /*right=*/true);
  // Index of the last key that a row may see.
  const at::Tensor last =
      kv_len.index_select(0, sequence).sub(ends.index_select(0, sequence).sub(row));
  const at::Tensor table = block_table.index_select(0, sequence).reshape({-1});
  const auto pages = [&](const at::Tensor& cache) {
    return cache.index_select(0, table).view({tokens, -1, kv_heads, width}).transpose(1, 2);
  };
  const at::Tensor keys = pages(k_cache);
  const at::Tensor slot = at::arange(keys.size(2), last.options());
  const at::Tensor mask = slot.unsqueeze(0).le(last.unsqueeze(1));
  const at::Tensor grouped = q.reshape({tokens, kv_heads, heads / kv_heads, width});
  return at::scaled_dot_product_attention(grouped, keys, pages(v_cache),
                                          mask.unsqueeze(1).unsqueeze(1), 0.0, false, scale)
      .reshape({tokens, heads, width});
}

at::Tensor attention_paged(const at::Tensor& q, const at::Tensor& k_cache,
                           const at::Tensor& v_cache, const at::Tensor& block_table,
                           const at::Tensor& query_start, const at::Tensor& kv_len, double scale) {
  TORCH_CHECK(q.dim() == 3 && k_cache.dim() == 4 && v_cache.sizes() == k_cache.sizes(),
              "attention_paged: expected q [T, H, D] and caches [blocks, block size, Hkv, D], but ",
              "got ", q.sizes(), ", ", k_cache.sizes(), " and ", v_cache.sizes());
  TORCH_CHECK(block_table.scalar_type() == at::kInt && query_start.scalar_type() == at::kInt &&
                  kv_len.scalar_type() == at::kInt,
              "attention_paged: block_table, query_start and kv_len must be int32, but are ",
              block_table.scalar_type(), ", ", query_start.scalar_type(), " and ",
              kv_len.scalar_type());
  TORCH_CHECK(query_start.numel() == kv_len.numel() + 1 && block_table.size(0) == kv_len.numel(),
              "attention_paged: block_table ", block_table.sizes(), ", query_start ",
              query_start.sizes(), " and kv_len ", kv_len.sizes(), " disagree about the batch");
  at::Tensor out = empty(q.sizes(), q.scalar_type(), q.get_device());
  if (out.numel() == 0) return out;
  const chipset_tensor query = view(q), keys = view(k_cache), values = view(v_cache),
                       table = view(block_table), start = view(query_start), length = view(kv_len),
                       result = view(out);
  auto args = arguments<chipset_attention_paged_args>();
  // A host read of query_start would stop a captured graph; the number of tokens is a bound.
  args.max_query = static_cast<uint32_t>(q.size(0));
  args.q = &query;
  args.k_cache = &keys;
  args.v_cache = &values;
  args.block_table = &table;
  args.query_start = &start;
  args.kv_len = &length;
  args.out = &result;
  args.scale = scale;
  args.window_left = -1;
  if (call<&chipset_api::attention_paged>(q.get_device(), args)) return out;
  constexpr int64_t kRows = 16;  // bounds the gathered copy of the cache
  const at::Tensor rows = at::arange(q.size(0), query_start.options());
  for (int64_t first = 0; first < q.size(0); first += kRows) {
    const int64_t n = std::min(kRows, q.size(0) - first);
    out.narrow(0, first, n)
        .copy_(attend_gathered(q.narrow(0, first, n), rows.narrow(0, first, n), k_cache, v_cache,
                               block_table, query_start, kv_len, scale));
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(chipset, PrivateUse1, m) {
  m.impl("linear_int8", linear_int8);
  m.impl("linear_int4", linear_int4);
  m.impl("rms_norm", rms_norm);
  m.impl("rotary", rotary);
  m.impl("swiglu", swiglu);
  m.impl("attention_paged", attention_paged);
}

}  // namespace chipset::bridge
