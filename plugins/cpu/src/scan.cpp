// SPDX-License-Identifier: Apache-2.0
// scan: inclusive prefixes along a dimension, in order, row by row.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "check.h"
#include "functions.h"
#include "iterator.h"
#include "kernels.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

constexpr int64_t kBuffer = 512;  // elements converted at once

template <typename T>
bool is_nan(T x) {
  return x != x;
}

// Sums and products of floats are carried in double, so that long rows do not drift.
template <typename T>
using Carry = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <typename T>
struct Sum {
  Carry<T> carry = 0;
  T next(T x, int64_t) { return static_cast<T>(carry += static_cast<Carry<T>>(x)); }
};
template <typename T>
struct Prod {
  Carry<T> carry = 1;
  T next(T x, int64_t) { return static_cast<T>(carry *= static_cast<Carry<T>>(x)); }
};
// Ties take the later index, and a NaN stays (as PyTorch's cummax does).
template <typename T, bool kMax>
struct Extreme {
  T carry{};
  int64_t index = -1;
  T next(T x, int64_t i) {
    if (index < 0 || is_nan(x) || (!is_nan(carry) && (kMax ? x >= carry : x <= carry))) {
      carry = x;
      index = i;
    }
    return carry;
  }
};
template <typename T>
using Max = Extreme<T, true>;
template <typename T>
using Min = Extreme<T, false>;
template <typename T>
struct LogSumExp {
  double carry = -std::numeric_limits<double>::infinity();
  T next(T value, int64_t) {
    const double x = static_cast<double>(value);
    const double low = std::min(x, carry), high = std::max(x, carry);
    if (is_nan(x) || is_nan(carry))
      carry = std::numeric_limits<double>::quiet_NaN();
    else if (!std::isinf(low))
      carry = high + std::log1p(std::exp(low - high));
    else
      carry = low == high || low < 0 ? high : low;
    return static_cast<T>(carry);
  }
};

struct Plan {
  Loop<3> rows;  // input, output, indices: all dimensions but the scanned one
  int64_t length;
  int64_t step[3];  // bytes along the scanned dimension
  Compute compute;
  LoadKernel load;
  StoreKernel store;
};

template <typename T, template <typename> typename Op>
void scan_row(const Plan& plan, const char* input, char* output, char* indices) {
  Op<T> op;
  T buffer[kBuffer];
  for (int64_t begin = 0; begin < plan.length; begin += kBuffer) {
    const int64_t n = std::min(kBuffer, plan.length - begin);
    plan.load(input + begin * plan.step[0], plan.step[0], buffer, n);
    for (int64_t j = 0; j < n; ++j) {
      buffer[j] = op.next(buffer[j], begin + j);
      if constexpr (requires { op.index; }) {
        if (indices != nullptr) {
          *reinterpret_cast<int64_t*>(indices + (begin + j) * plan.step[2]) = op.index;
        }
      }
    }
    plan.store(buffer, output + begin * plan.step[1], plan.step[1], n);
  }
}

template <typename T, template <typename> typename Op>
void run(const Plan& plan) {
  const int64_t grain = std::max<int64_t>(1, 16384 / plan.length);
  parallel_for(plan.rows.numel, grain, [&](int64_t begin, int64_t end) {
    for_each_row(plan.rows, begin, end, [&](char* const(&p)[3], int64_t n) {
      const int inner = plan.rows.rank - 1;
      for (int64_t j = 0; j < n; ++j) {
        scan_row<T, Op>(plan, p[0] + j * plan.rows.stride[0][inner],
                        p[1] + j * plan.rows.stride[1][inner],
                        p[2] == nullptr ? nullptr : p[2] + j * plan.rows.stride[2][inner]);
      }
    });
  });
}

template <typename T>
chipset_status run_op(const Plan& plan, int32_t op) {
  switch (op) {
    case CHIPSET_SCAN_OP_SUM:
      run<T, Sum>(plan);
      break;
    case CHIPSET_SCAN_OP_PROD:
      run<T, Prod>(plan);
      break;
    case CHIPSET_SCAN_OP_MAX:
      run<T, Max>(plan);
      break;
    case CHIPSET_SCAN_OP_MIN:
      run<T, Min>(plan);
      break;
    case CHIPSET_SCAN_OP_LOGSUMEXP:
      if constexpr (std::is_floating_point_v<T>) {
        run<T, LogSumExp>(plan);
        break;
      }
      return fail(CHIPSET_STATUS_UNSUPPORTED, "scan: LOGSUMEXP needs a floating compute dtype");
    default:
      return fail(CHIPSET_STATUS_UNSUPPORTED, "scan: unknown operation %d", op);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check(const chipset_scan_args& args) {
  RETURN_UNLESS_OK(check_tensor("scan", "input", args.input));
  RETURN_UNLESS_OK(check_output("scan", "output", args.output));
  const chipset_tensor& input = *args.input;
  if (!same_shape(input, *args.output)) {
    return fail(CHIPSET_STATUS_INVALID, "scan: output has shape %s, input %s; they must agree",
                shape_text(*args.output), shape_text(input));
  }
  if (args.dim < 0 || args.dim >= std::max(input.rank, 1)) {
    return fail(CHIPSET_STATUS_INVALID, "scan: dim %d of an input of rank %d", args.dim,
                input.rank);
  }
  if (!valid_dtype(args.compute_dtype) || kComputeOf[args.compute_dtype] < 0 ||
      kComputeOf[input.dtype] < 0 || kComputeOf[args.output->dtype] < 0) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "scan: cannot compute %s in dtype %d to %s",
                dtype_name(input.dtype), args.compute_dtype, dtype_name(args.output->dtype));
  }
  if (args.indices == nullptr) return CHIPSET_STATUS_OK;
  RETURN_UNLESS_OK(check_output("scan", "indices", args.indices));
  if (args.indices->dtype != CHIPSET_DTYPE_I64 || !same_shape(*args.indices, input)) {
    return fail(CHIPSET_STATUS_INVALID, "scan: indices is %s %s; need i64 of the input's shape",
                dtype_name(args.indices->dtype), shape_text(*args.indices));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_scan(chipset_stream, const chipset_scan_args* given) {
  const chipset_scan_args& args = *given;
  RETURN_UNLESS_OK(check(args));
  if (numel(*args.input) == 0) return CHIPSET_STATUS_OK;
  const chipset_tensor* const tensors[3] = {args.input, args.output, args.indices};
  chipset_tensor others[3];  // without the scanned dimension
  const chipset_tensor* operands[3] = {};
  Plan plan;
  for (int k = 0; k < 3; ++k) {
    plan.step[k] = 0;
    if (tensors[k] == nullptr) continue;
    others[k] = *tensors[k];
    operands[k] = &others[k];
    if (args.input->rank == 0) continue;
    plan.step[k] = tensors[k]->stride[args.dim] * dtype_size(tensors[k]->dtype);
    others[k].shape[args.dim] = 1;
  }
  plan.length = args.input->rank == 0 ? 1 : args.input->shape[args.dim];
  const chipset_tensor* const(&fixed)[3] = operands;
  plan.rows = make_loop<3>(fixed, Order::kAny);
  const int compute = kComputeOf[args.compute_dtype];
  plan.compute = static_cast<Compute>(compute);
  plan.load = convert_table().load[compute][args.input->dtype];
  plan.store = convert_table().store[compute][args.output->dtype];
  switch (plan.compute) {
    case Compute::kF32:
      return run_op<float>(plan, args.op);
    case Compute::kF64:
      return run_op<double>(plan, args.op);
    case Compute::kI32:
      return run_op<int32_t>(plan, args.op);
    default:
      return run_op<int64_t>(plan, args.op);
  }
}

}  // namespace chipset::cpu
