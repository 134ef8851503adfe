// SPDX-License-Identifier: Apache-2.0
// Elementwise operations. A call is planned once, then runs over blocks that fit the L1 cache:
// operands that are contiguous in the compute type are read in place, the others are loaded
// (gathered, converted, broadcast) into a buffer; likewise the result.
#include <algorithm>
#include <cinttypes>

#include "copy.h"
#include "error.h"
#include "functions.h"
#include "iterator.h"
#include "kernels.h"
#include "parallel.h"
#include "pointwise_ops.h"

namespace chipset::cpu {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int kMaxArity = 3;
constexpr int32_t kNaturalDtype[kComputeCount] = {CHIPSET_DTYPE_F32, CHIPSET_DTYPE_F64,
                                                  CHIPSET_DTYPE_I32, CHIPSET_DTYPE_I64};

const OpTable& bf16_table() {
  static const OpTable& table = CPU_SELECT(kOpsBf16);
  return table;
}

// One tensor of a call, as the blocks see it.
struct Operand {
  const chipset_tensor* tensor = nullptr;  // NULL: an immediate
  bool direct = false;                     // contiguous in the type that the kernel reads or writes
  bool constant = false;  // one element for the whole call; its block is filled once
  bool wrap = false;      // is first converted to a compute dtype smaller than the compute type
  Loop<1> loop;
  LoadKernel load = nullptr;
  StoreKernel store = nullptr;
};

struct Plan {
  OpKernel kernel = nullptr;
  Compute compute = Compute::kF32;
  int32_t compute_dtype = 0;
  int arity = 0;
  bool byte_result = false;
  bool byte_first = false;  // WHERE: operand 0 is bytes
  int64_t input_size = 4;   // bytes per element that the kernel reads
  int64_t output_size = 4;  // and writes
  Operand output;
  Operand input[kMaxArity];
  chipset_scalar immediate[kMaxArity];
  OpParams params;
  int64_t block = kBlock;
};

// Each operand is walked in the output's order, so that what the output visits in sequence is
// written in sequence; an operand's own loop then merges the dimensions that it can.
struct DimensionOrder {
  int rank = 0;
  int dimension[CHIPSET_MAX_RANK];
};

DimensionOrder output_order(const chipset_tensor& output) {
  DimensionOrder order;
  for (int d = 0; d < output.rank; ++d) {
    if (output.shape[d] == 1) continue;
    int at = order.rank++;
    for (; at > 0 && output.stride[order.dimension[at - 1]] < output.stride[d]; --at) {
      order.dimension[at] = order.dimension[at - 1];
    }
    order.dimension[at] = d;
  }
  return order;
}

void set_loop(Operand& operand, const DimensionOrder& order) {
  chipset_tensor permuted = *operand.tensor;
  permuted.rank = order.rank;
  for (int i = 0; i < order.rank; ++i) {
    permuted.shape[i] = operand.tensor->shape[order.dimension[i]];
    permuted.stride[i] = operand.tensor->stride[order.dimension[i]];
  }
  const chipset_tensor* const tensors[1] = {&permuted};
  operand.loop = make_loop<1>(tensors, Order::kRowMajor);
}

bool contiguous_loop(const Operand& operand) {
  return operand.loop.rank == 1 &&
         (operand.loop.stride[0][0] == dtype_size(operand.tensor->dtype) ||
          operand.loop.shape[0] == 1);
}

// Elements [begin, begin + n) of an operand as the kernel wants them: in place, or in the buffer.
const void* fetch(const Operand& operand, int64_t begin, int64_t n, void* buffer, int64_t size) {
  const Loop<1>& loop = operand.loop;
  if (operand.direct) return loop.data[0] + begin * size;
  const int inner = loop.rank - 1;
  const int64_t stride = loop.stride[0][inner];
  char* to = static_cast<char*>(buffer);
  for_each_row(loop, begin, begin + n, [&](char* const* pointers, int64_t count) {
    operand.load(pointers[0], stride, to, count);
    to += count * size;
  });
  return buffer;
}

void load_wrapped(const Plan& plan, void* values, int64_t n) {
  alignas(64) char narrow[kBlock * 4];
  const ConvertTable& convert = convert_table();
  const int c = static_cast<int>(plan.compute);
  const int64_t size = dtype_size(plan.compute_dtype);
  convert.store[c][plan.compute_dtype](values, narrow, size, n);
  convert.load[c][plan.compute_dtype](narrow, size, values, n);
}

// Turns n values of the compute type that suits the operand's dtype into bytes 0 and 1, in place.
void to_bytes(const Operand& operand, void* values, int64_t n) {
  const int c = kComputeOf[operand.tensor->dtype];
  alignas(64) uint8_t bytes[kBlock];
  convert_table().store[c][CHIPSET_DTYPE_BOOL](values, bytes, 1, n);
  std::copy_n(bytes, n, static_cast<uint8_t*>(values));
}

const void* fetch_input(const Plan& plan, int k, int64_t begin, int64_t n, void* buffer) {
  const Operand& operand = plan.input[k];
  if (plan.byte_first && k == 0) {
    if (operand.direct) return operand.loop.data[0] + begin;
    fetch(operand, begin, n, buffer, kComputeSize[kComputeOf[operand.tensor->dtype]]);
    to_bytes(operand, buffer, n);
    return buffer;
  }
  const void* values = fetch(operand, begin, n, buffer, plan.input_size);
  if (operand.wrap) load_wrapped(plan, buffer, n);
  return values;
}

void put_output(const Plan& plan, int64_t begin, int64_t n, void* buffer) {
  const Operand& output = plan.output;
  if (output.wrap) load_wrapped(plan, buffer, n);
  const Loop<1>& loop = output.loop;
  const int64_t stride = loop.stride[0][loop.rank - 1];
  const char* from = static_cast<const char*>(buffer);
  const int64_t size = plan.byte_result ? 4 : plan.output_size;
  alignas(64) int32_t widened[kBlock];
  if (plan.byte_result) {  // bytes to any dtype, by way of I32
    convert_table().load[2][CHIPSET_DTYPE_BOOL](buffer, 1, widened, n);
    from = reinterpret_cast<const char*>(widened);
  }
  for_each_row(loop, begin, begin + n, [&](char* const* pointers, int64_t count) {
    output.store(from, pointers[0], stride, count);
    from += count * size;
  });
}

void fill_constant(const Plan& plan, int k, int64_t n, void* buffer) {
  const Operand& operand = plan.input[k];
  const int c = static_cast<int>(plan.compute);
  if (operand.tensor != nullptr) {  // its loop has stride 0
    fetch_input(plan, k, 0, n, buffer);
    return;
  }
  const chipset_scalar& value = plan.immediate[k];
  if (plan.byte_first && k == 0) {
    std::fill_n(static_cast<uint8_t*>(buffer), n, value.f != 0 || value.i != 0 ? 1 : 0);
    return;
  }
  const bool floating = c <= static_cast<int>(Compute::kF64);
  if (floating && plan.byte_result && plan.compute_dtype != CHIPSET_DTYPE_F32 &&
      plan.compute_dtype != CHIPSET_DTYPE_F64) {
    // Comparisons are made in the compute dtype, so the number is rounded to it first.
    uint16_t rounded = 0;
    convert_table().store[1][plan.compute_dtype](&value.f, &rounded, 2, 1);
    convert_table().load[c][plan.compute_dtype](&rounded, 0, buffer, n);
    return;
  }
  switch (plan.compute) {
    case Compute::kF32:
      std::fill_n(static_cast<float*>(buffer), n, static_cast<float>(value.f));
      break;
    case Compute::kF64:
      std::fill_n(static_cast<double*>(buffer), n, value.f);
      break;
    case Compute::kI32:
      std::fill_n(static_cast<int32_t*>(buffer), n, static_cast<int32_t>(value.i));
      break;
    case Compute::kI64:
      std::fill_n(static_cast<int64_t*>(buffer), n, value.i);
      break;
  }
  if (plan.compute == Compute::kI32 && plan.compute_dtype != CHIPSET_DTYPE_I32) {
    load_wrapped(plan, buffer, n);
  }
}

void run_range(const Plan& plan, int64_t begin, int64_t end) {
  alignas(64) char buffers[kMaxArity + 1][kBlock * 8];
  const void* in[kMaxArity] = {nullptr, nullptr, nullptr};
  for (int k = 0; k < plan.arity; ++k) {
    if (!plan.input[k].constant) continue;
    fill_constant(plan, k, std::min(plan.block, end - begin), buffers[k]);
    in[k] = buffers[k];
  }
  for (int64_t at = begin; at < end; at += plan.block) {
    const int64_t n = std::min(plan.block, end - at);
    for (int k = 0; k < plan.arity; ++k) {
      if (!plan.input[k].constant) in[k] = fetch_input(plan, k, at, n, buffers[k]);
    }
    if (plan.output.direct) {
      plan.kernel(plan.output.loop.data[0] + at * plan.output_size, in, n, plan.params);
    } else {
      plan.kernel(buffers[kMaxArity], in, n, plan.params);
      put_output(plan, at, n, buffers[kMaxArity]);
    }
  }
}

// The common small case: everything contiguous in one dtype, no immediate.
bool all_direct(const Plan& plan) {
  if (!plan.output.direct) return false;
  for (int k = 0; k < plan.arity; ++k) {
    if (!plan.input[k].direct) return false;
  }
  return true;
}

chipset_status fill(const chipset_pointwise_args& args) {
  alignas(16) char element[16] = {};
  const int32_t dtype = args.output->dtype;
  if (is_integer(dtype)) {
    convert_table().store[3][dtype](&args.param[0].i, element, 8, 1);
  } else {
    convert_table().store[1][dtype](&args.param[0].f, element, 8, 1);
  }
  fill_tensor(*args.output, element);
  return CHIPSET_STATUS_OK;
}

chipset_status arange(const chipset_pointwise_args& args) {
  const chipset_tensor* const tensors[1] = {args.output};
  const Loop<1> loop = make_loop<1>(tensors, Order::kRowMajor);
  const bool floating = is_float(args.compute_dtype);
  const StoreKernel store = convert_table().store[floating ? 1 : 3][args.output->dtype];
  parallel_for(loop.numel, 16 * kBlock, [&](int64_t begin, int64_t end) {
    alignas(64) double floats[kBlock];
    alignas(64) int64_t integers[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      for (int64_t i = 0; i < n; ++i) {
        if (floating) {
          floats[i] = args.param[0].f + args.param[1].f * static_cast<double>(at + i);
        } else {
          integers[i] = static_cast<int64_t>(static_cast<uint64_t>(args.param[0].i) +
                                             static_cast<uint64_t>(args.param[1].i) *
                                                 static_cast<uint64_t>(at + i));
        }
      }
      const char* from = reinterpret_cast<const char*>(floating ? static_cast<void*>(floats)
                                                                : static_cast<void*>(integers));
      for_each_row(loop, at, at + n, [&](char* const* pointers, int64_t count) {
        store(from, pointers[0], loop.stride[0][loop.rank - 1], count);
        from += count * 8;
      });
    }
  });
  return CHIPSET_STATUS_OK;
}

chipset_status check(const chipset_pointwise_args& args, const OpInfo& info) {
  if (const chipset_status s = check_output("pointwise", "output", args.output);
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  if (args.num_inputs != info.arity) {
    return fail(CHIPSET_STATUS_INVALID, "pointwise %s: num_inputs is %d, the operation takes %d",
                info.name, args.num_inputs, info.arity);
  }
  for (int k = 0; k < info.arity; ++k) {
    const chipset_tensor* input = args.input[k];
    if (input == nullptr) continue;
    static const char* const kNames[] = {"input[0]", "input[1]", "input[2]", "input[3]"};
    if (const chipset_status s = check_tensor("pointwise", kNames[k], input);
        s != CHIPSET_STATUS_OK) {
      return s;
    }
    if (!same_shape(*input, *args.output)) {
      return fail(
          CHIPSET_STATUS_INVALID,
          "pointwise %s: input[%d] has shape %s, the output %s; broadcast with strides of 0",
          info.name, k, shape_text(*input), shape_text(*args.output));
    }
    if (args.op != CHIPSET_POINTWISE_OP_COPY && kComputeOf[input->dtype] < 0) {
      return fail(CHIPSET_STATUS_UNSUPPORTED,
                  "pointwise %s: input[%d] is %s, which only COPY moves", info.name, k,
                  dtype_name(input->dtype));
    }
  }
  if (args.op == CHIPSET_POINTWISE_OP_COPY) return CHIPSET_STATUS_OK;
  if (kComputeOf[args.output->dtype] < 0) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "pointwise %s: the output is %s, which only COPY moves",
                info.name, dtype_name(args.output->dtype));
  }
  if (args.op != CHIPSET_POINTWISE_OP_FILL &&
      (!valid_dtype(args.compute_dtype) || kComputeOf[args.compute_dtype] < 0)) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "pointwise %s: nothing is computed in dtype %s (%d)",
                info.name, dtype_name(args.compute_dtype), args.compute_dtype);
  }
  return CHIPSET_STATUS_OK;
}

// Operations that special operands turn into others.
int effective_op(const chipset_pointwise_args& args) {
  if (args.op == CHIPSET_POINTWISE_OP_BITWISE_NOT && args.compute_dtype == CHIPSET_DTYPE_BOOL) {
    return CHIPSET_POINTWISE_OP_LOGICAL_NOT;
  }
  if (args.op == CHIPSET_POINTWISE_OP_POW && args.input[1] == nullptr) {
    if (args.immediate[1].f == 2.0) return kOpSquare;
    if (args.immediate[1].f == 3.0) return kOpCube;
  }
  return args.op;
}

// Whether an operand of this dtype must be converted to the compute dtype before it is extended to
// the compute type.
bool needs_wrap(const Plan& plan, int32_t dtype) {
  return plan.compute == Compute::kI32 && plan.compute_dtype != CHIPSET_DTYPE_I32 &&
         dtype != plan.compute_dtype;
}

chipset_status make_plan(const chipset_pointwise_args& args, const OpInfo& info, Plan& plan) {
  const int op = effective_op(args);
  plan.compute_dtype = args.compute_dtype;
  plan.compute = static_cast<Compute>(kComputeOf[args.compute_dtype]);
  plan.arity = op == args.op || op == CHIPSET_POINTWISE_OP_LOGICAL_NOT ? info.arity : 1;
  plan.byte_result = is_predicate(op);
  plan.byte_first = op == CHIPSET_POINTWISE_OP_WHERE;
  plan.kernel = op_table(plan.compute).kernel[op];
  if (plan.kernel == nullptr ||
      (op == CHIPSET_POINTWISE_OP_NEXTAFTER && args.compute_dtype != CHIPSET_DTYPE_F32 &&
       args.compute_dtype != CHIPSET_DTYPE_F64)) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "pointwise %s: not defined in compute dtype %s",
                info.name, dtype_name(args.compute_dtype));
  }
  for (int k = 0; k < 4; ++k) {
    plan.params.f[k] = args.param[k].f;
    plan.params.i[k] = args.param[k].i;
  }
  const int c = static_cast<int>(plan.compute);
  int32_t natural = kNaturalDtype[c];

  // Everything in bf16: the kernel that converts in registers.
  if (args.output->dtype == CHIPSET_DTYPE_BF16 && plan.compute == Compute::kF32 &&
      bf16_table().kernel[op] != nullptr) {
    bool all = is_contiguous(*args.output);
    for (int k = 0; k < plan.arity && all; ++k) {
      all = args.input[k] != nullptr && args.input[k]->dtype == CHIPSET_DTYPE_BF16 &&
            is_contiguous(*args.input[k]);
    }
    if (all) {
      natural = CHIPSET_DTYPE_BF16;
      plan.kernel = bf16_table().kernel[op];
    }
  }
  plan.input_size = dtype_size(natural);
  plan.output_size = plan.byte_result ? 1 : plan.input_size;

  const DimensionOrder order = output_order(*args.output);
  const ConvertTable& convert = convert_table();
  plan.output.tensor = args.output;
  set_loop(plan.output, order);
  const int32_t output_dtype = args.output->dtype;
  const bool same = plan.byte_result ? dtype_size(output_dtype) == 1 && !is_float(output_dtype)
                                     : output_dtype == natural;
  plan.output.direct = same && contiguous_loop(plan.output);
  plan.output.wrap = !plan.byte_result && needs_wrap(plan, output_dtype);
  plan.output.store = convert.store[plan.byte_result ? 2 : c][output_dtype];
  for (int k = 0; k < plan.arity; ++k) {
    Operand& operand = plan.input[k];
    operand.tensor = args.input[k];
    if (operand.tensor == nullptr) {
      plan.immediate[k] = args.immediate[k];
      operand.constant = true;
      continue;
    }
    set_loop(operand, order);
    const int32_t dtype = operand.tensor->dtype;
    const bool bytes = plan.byte_first && k == 0;
    operand.constant =
        operand.loop.rank == 1 && operand.loop.stride[0][0] == 0 && operand.loop.numel > 1;
    operand.wrap = !bytes && needs_wrap(plan, dtype);
    operand.direct = !operand.constant && !operand.wrap && contiguous_loop(operand) &&
                     (bytes ? dtype_size(dtype) == 1 && !is_float(dtype) : dtype == natural);
    operand.load = convert.load[bytes ? kComputeOf[dtype] : c][dtype];
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_pointwise(chipset_stream, const chipset_pointwise_args* given) {
  const chipset_pointwise_args& args = *given;
  if (args.op < 0 || args.op >= kOpCount) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "pointwise: unknown operation %d; the last is %d",
                args.op, kOpCount - 1);
  }
  const OpInfo& info = kOpInfo[args.op];
  if (const chipset_status s = check(args, info); s != CHIPSET_STATUS_OK) return s;
  if (args.op == CHIPSET_POINTWISE_OP_COPY) {
    if (args.input[0] == nullptr) {
      return fail(CHIPSET_STATUS_INVALID,
                  "pointwise COPY: input[0] is missing; FILL sets a number");
    }
    return copy_tensor("pointwise COPY", *args.output, *args.input[0]);
  }
  const int64_t n = numel(*args.output);
  if (n == 0) return CHIPSET_STATUS_OK;
  if (args.op == CHIPSET_POINTWISE_OP_FILL) return fill(args);
  if (args.op == CHIPSET_POINTWISE_OP_ARANGE) return arange(args);

  Plan plan;
  if (const chipset_status s = make_plan(args, info, plan); s != CHIPSET_STATUS_OK) return s;
  if (all_direct(plan)) {
    parallel_for(n, info.grain, [&](int64_t begin, int64_t end) {
      const void* in[kMaxArity] = {nullptr, nullptr, nullptr};
      for (int k = 0; k < plan.arity; ++k) {
        in[k] =
            plan.input[k].loop.data[0] + begin * (plan.byte_first && k == 0 ? 1 : plan.input_size);
      }
      plan.kernel(plan.output.loop.data[0] + begin * plan.output_size, in, end - begin,
                  plan.params);
    });
    return CHIPSET_STATUS_OK;
  }
  parallel_for(n, info.grain, [&](int64_t begin, int64_t end) { run_range(plan, begin, end); });
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
