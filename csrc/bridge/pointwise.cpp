// SPDX-License-Identifier: Apache-2.0
#include "pointwise.h"

#include <c10/util/Exception.h>

namespace chipset::bridge {
namespace {

bool is_float(at::ScalarType type) noexcept {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
}

bool is_integer(at::ScalarType type) noexcept {
  return type == at::kLong || type == at::kInt || type == at::kShort || type == at::kChar ||
         type == at::kByte;
}

// The value of a CPU tensor of one element. False for a type that the waist has no number for.
bool read_number(const at::TensorBase& tensor, const void* data, chipset_scalar* out) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      *out = scalar(*static_cast<const double*>(data));
      return true;
    case at::kLong:
      *out = scalar(*static_cast<const int64_t*>(data));
      return true;
    case at::kBool:
      *out = scalar(static_cast<int64_t>(*static_cast<const bool*>(data)));
      return true;
    default:
      break;
  }
  if (is_float(tensor.scalar_type())) {
    *out = scalar(c10::fetch_and_cast<double>(tensor.scalar_type(), data));
    return true;
  }
  if (is_integer(tensor.scalar_type())) {
    *out = scalar(c10::fetch_and_cast<int64_t>(tensor.scalar_type(), data));
    return true;
  }
  return false;
}

// A contiguous tensor needs one dimension only.
void view_flat(const at::TensorBase& tensor, chipset_tensor* out) {
  out->struct_size = sizeof(chipset_tensor);
  out->dtype = compute_dtype(tensor.scalar_type());
  out->rank = 1;
  out->flags = 0;
  out->shape[0] = tensor.numel();
  out->stride[0] = 1;
  out->data = const_cast<void*>(tensor.const_data_ptr());
}

bool on_chip(const at::TensorBase& tensor) noexcept {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// True where y is a number that leaves x's dtype as it is (torch's rules of type promotion).
bool is_number_for(const at::Tensor& x, const at::Tensor& y) {
  if (y.dim() != 0 || !y.unsafeGetTensorImpl()->is_wrapped_number()) return false;
  if (on_chip(y)) return false;
  if (is_float(x.scalar_type())) return !y.is_complex();
  return is_integer(x.scalar_type()) && is_integer(y.scalar_type());
}

bool is_pair(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() == y.scalar_type() && x.device() == y.device() && y.is_contiguous() &&
         x.sizes() == y.sizes();
}

// Fills input[1] or immediate[1]; false when the case is not the simple one.
bool second_operand(const at::Tensor& x, const at::Tensor& y, chipset_pointwise_args* args,
                    chipset_tensor* storage) {
  if (is_pair(x, y)) {
    view_flat(y, storage);
    args->input[1] = storage;
    return true;
  }
  return is_number_for(x, y) && read_number(y, y.const_data_ptr(), &args->immediate[1]);
}

chipset_pointwise_args make_arguments(chipset_pointwise_op op, at::ScalarType compute,
                                      int num_inputs, const Params& params) {
  auto args = arguments<chipset_pointwise_args>();
  args.op = op;
  args.compute_dtype = compute_dtype(compute);
  args.num_inputs = num_inputs;
  for (int k = 0; k < 4; ++k) args.param[k] = params.p[k];
  return args;
}

}  // namespace

bool accepts(Accepts which, at::ScalarType type) noexcept {
  switch (which) {
    case Accepts::kFloat:
      return is_float(type);
    case Accepts::kIntegral:
      return is_integer(type) || type == at::kBool;
    case Accepts::kNumber:
      return is_float(type) || is_integer(type);
    case Accepts::kAny:
      return is_float(type) || is_integer(type) || type == at::kBool;
  }
  return false;
}

Operand operand_of(const at::TensorIteratorBase& iterator, const at::TensorBase& tensor) {
  for (int k = iterator.noutputs(); k < iterator.ntensors(); ++k)
    if (iterator.tensor_base(k).is_same(tensor)) return k;
  TORCH_INTERNAL_ASSERT(false, "the iterator does not have this operand");
}

bool pointwise(const at::TensorIteratorBase& iterator, chipset_pointwise_op op,
               at::ScalarType compute, std::initializer_list<Operand> operands,
               const Params& params) {
  if (compute_dtype(compute) < 0 || iterator.ndim() > CHIPSET_MAX_RANK) return false;
  if (!computes(iterator.tensor_base(0))) return false;
  if (iterator.numel() == 0) return true;

  auto args = make_arguments(op, compute, static_cast<int>(operands.size()), params);
  chipset_tensor storage[5];
  storage[0] = view(iterator, 0);
  args.output = &storage[0];
  int k = 0;
  for (const Operand& operand : operands) {
    if (operand.index < 0) {
      args.immediate[k] = operand.value;
    } else {
      const auto& tensor = iterator.tensor_base(operand.index);
      if (iterator.is_cpu_scalar(operand.index)) {
        if (!read_number(tensor, iterator.data_ptr(operand.index), &args.immediate[k]))
          return false;
      } else {
        if (!computes(tensor)) return false;
        storage[k + 1] = view(iterator, operand.index);
        args.input[k] = &storage[k + 1];
      }
    }
    ++k;
  }
  return call<&chipset_api::pointwise>(iterator.device(0).index(), args);
}

bool pointwise(const at::TensorIteratorBase& iterator, chipset_pointwise_op op, Accepts which,
               const Params& params) {
  const auto compute = iterator.maybe_common_dtype().value_or(
      iterator.ninputs() > 0 ? iterator.input_dtype(0) : iterator.dtype(0));
  if (!accepts(which, compute)) return false;
  switch (iterator.ninputs()) {
    case 0:
      return pointwise(iterator, op, compute, {}, params);
    case 1:
      return pointwise(iterator, op, compute, {1}, params);
    case 2:
      return pointwise(iterator, op, compute, {1, 2}, params);
    default:
      return pointwise(iterator, op, compute, {1, 2, 3}, params);
  }
}

bool elementwise(chipset_pointwise_op op, Accepts which,
                 std::initializer_list<const at::Tensor*> inputs, at::Tensor& out,
                 const Params& params) {
  const auto type = (*inputs.begin())->scalar_type();
  if (!accepts(which, type) || (out.defined() && out.scalar_type() != type)) return false;
  at::TensorIteratorConfig config;
  config.allow_cpu_scalars(true).add_output(out);
  for (const at::Tensor* input : inputs) config.add_const_input(*input);
  const auto iterator = config.build();
  if (!pointwise(iterator, op, which, params)) return false;
  if (!out.defined()) out = iterator.output();
  return true;
}

at::Tensor simple_binary(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                         const at::Tensor& y, const Params& params) {
  if (!on_chip(x) || !x.is_contiguous() || !accepts(which, x.scalar_type())) return {};
  auto args = make_arguments(op, x.scalar_type(), 2, params);
  chipset_tensor storage[3];
  if (!second_operand(x, y, &args, &storage[2])) return {};

  const int device = x.device().index();
  at::Tensor result = empty(x.sizes(), x.scalar_type(), device);
  if (x.numel() == 0) return result;
  view_flat(result, &storage[0]);
  view_flat(x, &storage[1]);
  args.output = &storage[0];
  args.input[0] = &storage[1];
  return call<&chipset_api::pointwise>(device, args) ? result : at::Tensor();
}

at::Tensor simple_unary(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                        const Params& params) {
  if (!x.is_contiguous() || !accepts(which, x.scalar_type())) return {};
  auto args = make_arguments(op, x.scalar_type(), 1, params);
  const int device = x.device().index();
  at::Tensor result = empty(x.sizes(), x.scalar_type(), device);
  if (x.numel() == 0) return result;
  chipset_tensor storage[2];
  view_flat(result, &storage[0]);
  view_flat(x, &storage[1]);
  args.output = &storage[0];
  args.input[0] = &storage[1];
  return call<&chipset_api::pointwise>(device, args) ? result : at::Tensor();
}

bool simple_inplace(chipset_pointwise_op op, Accepts which, const at::Tensor& x,
                    const at::Tensor& y, const Params& params) {
  if (!on_chip(x) || !x.is_contiguous() || !accepts(which, x.scalar_type())) return false;
  // A partial overlap of the two is an error that the iterator reports.
  if (x.is_alias_of(y) && x.const_data_ptr() != y.const_data_ptr()) return false;
  auto args = make_arguments(op, x.scalar_type(), 2, params);
  chipset_tensor storage[2];
  if (!second_operand(x, y, &args, &storage[1])) return false;
  if (x.numel() == 0) return true;
  view_flat(x, &storage[0]);
  args.output = &storage[0];
  args.input[0] = &storage[0];
  return call<&chipset_api::pointwise>(x.device().index(), args);
}

}  // namespace chipset::bridge
