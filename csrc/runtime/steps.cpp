// SPDX-License-Identifier: Apache-2.0
#include "steps.h"

#include <cmath>

namespace chipset::runtime {
namespace {

chipset_scalar number(double value) {
  chipset_scalar s{};
  s.f = value;
  constexpr double kLimit = 9.2e18;
  const double whole = std::isnan(value) ? 0 : std::trunc(value);
  s.i = whole > kLimit ? INT64_MAX : whole < -kLimit ? INT64_MIN : static_cast<std::int64_t>(whole);
  return s;
}

bool is_contiguous(const Tensor& t) {
  std::int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.shape[d] == 1) continue;
    if (t.stride[d] != expected) return false;
    expected *= t.shape[d];
  }
  return true;
}

void set_contiguous(Tensor& t, const Shape& shape) {
  t.rank = static_cast<std::int32_t>(shape.size());
  std::int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    t.shape[d] = shape[static_cast<std::size_t>(d)];
    t.stride[d] = stride;
    stride *= std::max<std::int64_t>(t.shape[d], 1);
  }
}

}  // namespace

Steps::Steps(const Plugin& plugin, chipset_stream stream)
    : plugin_(plugin), stream_(stream), device_(device_of(stream)) {}

Steps::~Steps() {
  for (void* block : blocks_) deallocate_block(block);
}

Tensor Steps::temporary(std::int32_t dtype, const Shape& shape) {
  Tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  set_contiguous(t, shape);
  if (status_ != CHIPSET_STATUS_OK || empty(t)) return t;
  const std::uint64_t bytes = static_cast<std::uint64_t>(element_count(t)) * dtype_bits(dtype) / 8;
  try {
    const Allocation block = allocate_block(device_.index, bytes, stream_);
    blocks_.push_back(block.handle);
    t.data = block.pointer;
  } catch (const Error& error) {
    status_ = set_error(plugin_.spec.name, error.status, error.what());
  }
  return t;
}

Tensor Steps::contiguous(const Tensor& t, std::int32_t dtype) {
  if (t.dtype == dtype && is_contiguous(t)) return t;
  Tensor out = temporary(dtype, shape_of(t));
  copy(out, t);
  return out;
}

void Steps::pointwise(std::int32_t op, const Tensor& output, std::initializer_list<Input> inputs,
                      std::int32_t compute, std::initializer_list<double> params) {
  if (status_ != CHIPSET_STATUS_OK || empty(output)) return;
  chipset_pointwise_args args{};
  args.struct_size = sizeof args;
  args.op = op;
  args.compute_dtype = compute;
  args.num_inputs = static_cast<std::int32_t>(inputs.size());
  args.output = &output;
  Tensor views[CHIPSET_MAX_INPUTS];
  int k = 0;
  for (const Input& input : inputs) {
    if (input.tensor == nullptr) {
      args.immediate[k++] = number(input.number);
      continue;
    }
    views[k] = expand(*input.tensor, shape_of(output));
    args.input[k] = &views[k];
    ++k;
  }
  k = 0;
  for (const double param : params) args.param[k++] = number(param);
  status_ = device_.api->pointwise(stream_, &args);
}

void Steps::copy(const Tensor& output, const Tensor& input) {
  pointwise(CHIPSET_POINTWISE_OP_COPY, output, {input}, output.dtype);
}

void Steps::reduce(std::int32_t op, const Tensor& output, const Tensor& input,
                   std::initializer_list<int> dims, std::int32_t compute, double param) {
  if (status_ != CHIPSET_STATUS_OK || empty(output)) return;
  chipset_reduce_args args{};
  args.struct_size = sizeof args;
  args.op = op;
  args.compute_dtype = compute;
  for (const int d : dims) args.dims |= 1u << d;
  args.input = &input;
  args.output = &output;
  args.param[0] = number(param);
  status_ = device_.api->reduce(stream_, &args);
}

void Steps::gemm(const Tensor& d, const Tensor& a, const Tensor& b, double alpha,
                 const Tensor* bias, std::int32_t activation) {
  if (status_ != CHIPSET_STATUS_OK || empty(d)) return;
  chipset_gemm_args args{};
  args.struct_size = sizeof args;
  args.activation = activation;
  args.a = &a;
  args.b = &b;
  args.d = &d;
  args.bias = bias;
  args.alpha = alpha;
  status_ = device_.api->gemm(stream_, &args);
}

void Steps::gather(const chipset_gather_args& args) {
  if (status_ == CHIPSET_STATUS_OK) status_ = device_.api->gather(stream_, &args);
}
void Steps::scatter(const chipset_scatter_args& args) {
  if (status_ == CHIPSET_STATUS_OK) status_ = device_.api->scatter(stream_, &args);
}

chipset_status Steps::unsupported(const char* why) {
  return set_error(plugin_.spec.name, CHIPSET_STATUS_UNSUPPORTED,
                   std::string("not composed: ") + why);
}

std::int32_t wide(std::int32_t dtype) {
  return dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
}

Shape shape_of(const Tensor& t) { return Shape(t.shape, t.shape + t.rank); }

Tensor expand(const Tensor& t, const Shape& shape) {
  Tensor out = t;
  out.rank = static_cast<std::int32_t>(shape.size());
  const int missing = out.rank - t.rank;
  for (int d = 0; d < out.rank; ++d) {
    out.shape[d] = shape[static_cast<std::size_t>(d)];
    const bool repeated =
        d < missing || (t.shape[d - missing] == 1 && shape[static_cast<std::size_t>(d)] != 1);
    out.stride[d] = repeated ? 0 : t.stride[d - missing];
  }
  return out;
}

Tensor slice(const Tensor& t, int dim, std::int64_t start, std::int64_t size, std::int64_t step) {
  Tensor out = t;
  out.shape[dim] = size;
  if (size > 0 && t.data != nullptr)
    out.data = static_cast<char*>(t.data) +
               start * t.stride[dim] * static_cast<std::int64_t>(dtype_bits(t.dtype) / 8);
  out.stride[dim] = t.stride[dim] * step;
  return out;
}

Tensor transpose(const Tensor& t, int a, int b) {
  Tensor out = t;
  std::swap(out.shape[a], out.shape[b]);
  std::swap(out.stride[a], out.stride[b]);
  return out;
}

Tensor unsqueeze(const Tensor& t, int dim) {
  Tensor out = t;
  ++out.rank;
  for (int d = out.rank - 1; d > dim; --d) {
    out.shape[d] = t.shape[d - 1];
    out.stride[d] = t.stride[d - 1];
  }
  out.shape[dim] = 1;
  out.stride[dim] = 1;
  return out;
}

Tensor reshape(const Tensor& t, const Shape& shape) {
  Tensor out = t;
  set_contiguous(out, shape);
  return out;
}

Tensor split(const Tensor& t, int dim, std::int64_t outer, std::int64_t inner) {
  Tensor out = unsqueeze(t, dim);
  out.shape[dim] = outer;
  out.stride[dim] = t.stride[dim] * inner;
  out.shape[dim + 1] = inner;
  out.stride[dim + 1] = t.stride[dim];
  return out;
}

Tensor scalar_at(const void* address, std::int32_t dtype) {
  Tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.data = const_cast<void*>(address);
  return t;
}

}  // namespace chipset::runtime
