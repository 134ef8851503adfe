// SPDX-License-Identifier: Apache-2.0
// reduce: walks the kept dimensions and, for each of their elements, the reduced ones.
//
// Two orders: along a row (elements of one result lie together) and down columns (neighbouring
// results lie together, so a block of them is carried at once). A single long reduction is cut into
// pieces of a fixed size and merged from left to right: the same bits with any number of threads.
#include "reduce_ops.h"

#include <algorithm>
#include <vector>

#include "check.h"
#include "functions.h"
#include "iterator.h"
#include "kernels.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

using reduction::Context;

constexpr int64_t kPiece = 65536;  // elements of a piece of a cut reduction
constexpr int64_t kColumns = 64;   // results carried at once
constexpr int64_t kBuffer = 1024;  // elements converted at once

struct Plan {
  const chipset_reduce_args* args;
  Compute compute;
  LoadKernel load;
  Loop<3> kept;     // output, input, indices
  Loop<1> reduced;  // input
  Context context;
  bool direct;  // the input's dtype is the compute type
};

bool is_arg(int32_t op) { return op == CHIPSET_REDUCE_OP_ARGMAX || op == CHIPSET_REDUCE_OP_ARGMIN; }
bool is_extreme(int32_t op) {
  return is_arg(op) || op == CHIPSET_REDUCE_OP_MAX || op == CHIPSET_REDUCE_OP_MIN;
}
// Operations that look at the elements as they are stored, before any conversion.
bool reads_natural(int32_t op) {
  return is_extreme(op) || op == CHIPSET_REDUCE_OP_ANY || op == CHIPSET_REDUCE_OP_ALL ||
         op == CHIPSET_REDUCE_OP_COUNT_NONZERO;
}

chipset_status check(const chipset_reduce_args& args) {
  RETURN_UNLESS_OK(check_tensor("reduce", "input", args.input));
  RETURN_UNLESS_OK(check_output("reduce", "output", args.output));
  const chipset_tensor& input = *args.input;
  const chipset_tensor& output = *args.output;
  if (args.op < 0 || args.op > CHIPSET_REDUCE_OP_NANSUM) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "reduce: unknown operation %d", args.op);
  }
  if (!valid_dtype(args.compute_dtype) || kComputeOf[args.compute_dtype] < 0 ||
      kComputeOf[input.dtype] < 0 || kComputeOf[output.dtype] < 0) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "reduce: cannot compute %s in dtype %d to %s",
                dtype_name(input.dtype), args.compute_dtype, dtype_name(output.dtype));
  }
  if (output.rank != input.rank) {
    return fail(CHIPSET_STATUS_INVALID, "reduce: output has rank %d, input %d; they must agree",
                output.rank, input.rank);
  }
  int reduced = 0;
  for (int d = 0; d < input.rank; ++d) {
    const bool is_reduced = (args.dims >> d & 1) != 0;
    reduced += is_reduced;
    if (output.shape[d] != (is_reduced ? 1 : input.shape[d])) {
      return fail(CHIPSET_STATUS_INVALID,
                  "reduce: output has shape %s for input %s and dims 0x%x; need the input's shape "
                  "with 1 where reduced",
                  shape_text(output), shape_text(input), args.dims);
    }
    if (is_reduced && input.shape[d] == 0 && is_extreme(args.op) && numel(output) > 0) {
      return fail(CHIPSET_STATUS_INVALID,
                  "reduce: max, min and their arg- forms of no elements have no value (input %s)",
                  shape_text(input));
    }
  }
  if (is_arg(args.op) && output.dtype != CHIPSET_DTYPE_I64) {
    return fail(CHIPSET_STATUS_INVALID, "reduce: an index needs an i64 output, not %s",
                dtype_name(output.dtype));
  }
  if (args.indices == nullptr) return CHIPSET_STATUS_OK;
  RETURN_UNLESS_OK(check_output("reduce", "indices", args.indices));
  const bool mean = args.op == CHIPSET_REDUCE_OP_VAR;
  if (!same_shape(*args.indices, output) ||
      args.indices->dtype != (mean ? output.dtype : static_cast<int32_t>(CHIPSET_DTYPE_I64))) {
    return fail(CHIPSET_STATUS_INVALID, "reduce: indices is %s %s; need the output's shape and %s",
                dtype_name(args.indices->dtype), shape_text(*args.indices),
                mean ? "its dtype (the mean)" : "i64");
  }
  if (!mean && (reduced != 1 || is_arg(args.op) || !is_extreme(args.op))) {
    return fail(CHIPSET_STATUS_INVALID, "reduce: indices go with MAX or MIN over one dimension");
  }
  return CHIPSET_STATUS_OK;
}

// The part of the input that is reduced (or kept): the other dimensions have size 1.
chipset_tensor part_of(const chipset_tensor& input, uint32_t dims, bool reduced) {
  chipset_tensor part = input;
  for (int d = 0; d < part.rank; ++d) {
    if (((dims >> d & 1) != 0) != reduced) part.shape[d] = 1;
  }
  return part;
}

Plan make_plan(const chipset_reduce_args& args) {
  Plan plan;
  plan.args = &args;
  const int32_t dtype = args.input->dtype;
  plan.compute =
      static_cast<Compute>(kComputeOf[reads_natural(args.op) ? dtype : args.compute_dtype]);
  plan.load = convert_table().load[static_cast<int>(plan.compute)][dtype];
  constexpr int32_t natural[] = {CHIPSET_DTYPE_F32, CHIPSET_DTYPE_F64, CHIPSET_DTYPE_I32,
                                 CHIPSET_DTYPE_I64};
  plan.direct = dtype == natural[static_cast<int>(plan.compute)];
  const chipset_tensor kept = part_of(*args.input, args.dims, false);
  const chipset_tensor reduced = part_of(*args.input, args.dims, true);
  const chipset_tensor* const outer[3] = {args.output, &kept, args.indices};
  const chipset_tensor* const inner[1] = {&reduced};
  plan.kept = make_loop<3>(outer, Order::kAny);
  // Indices count in row-major order; the others take the order that memory likes.
  plan.reduced = make_loop<1>(inner, is_extreme(args.op) ? Order::kRowMajor : Order::kAny);
  plan.context = {args.param[0].f, plan.reduced.numel};
  return plan;
}

template <typename T, typename Acc>
void merge_into(Acc& left, const Acc& right, const Context& context) {
  if constexpr (requires { left.merge_with(right, context); }) {
    left.merge_with(right, context);
  } else {
    left.merge(right);
  }
}

template <typename T, typename Acc>
void write(const Plan& plan, const Acc& acc, char* output, char* indices) {
  const auto store = [&](auto value, char* target, int32_t dtype) {
    using V = decltype(value);
    constexpr Compute compute = std::is_same_v<V, float>     ? Compute::kF32
                                : std::is_same_v<V, double>  ? Compute::kF64
                                : std::is_same_v<V, int32_t> ? Compute::kI32
                                                             : Compute::kI64;
    convert_table().store[static_cast<int>(compute)][dtype](&value, target, 0, 1);
  };
  const int32_t dtype = plan.args->output->dtype;
  const auto result = acc.finish(plan.context);
  if constexpr (std::is_same_v<std::decay_t<decltype(result)>, double> &&
                std::is_same_v<T, float>) {
    // Small floats round once from F32, as everything else does (NUM-001).
    if (dtype == CHIPSET_DTYPE_F64)
      store(double{result}, output, dtype);
    else
      store(static_cast<float>(result), output, dtype);
  } else {
    store(std::decay_t<decltype(result)>(result), output, dtype);
  }
  if (indices == nullptr) return;
  if constexpr (requires { acc.m2; }) {
    if (dtype == CHIPSET_DTYPE_F64)
      store(double{acc.mean}, indices, dtype);
    else
      store(static_cast<float>(acc.mean), indices, dtype);
  } else if constexpr (requires { acc.index; }) {
    store(int64_t{acc.index}, indices, CHIPSET_DTYPE_I64);
  }
}

// Reduces elements [begin, end) of the reduced loop, whose element 0 lies at `base`.
template <typename T, typename Acc>
void reduce_range(const Plan& plan, char* base, int64_t begin, int64_t end, Acc& acc) {
  Loop<1> loop = plan.reduced;
  loop.data[0] = base;
  const int64_t step = loop.stride[0][loop.rank - 1];
  int64_t index = begin;
  T buffer[kBuffer];
  for_each_row(loop, begin, end, [&](char* const(&p)[1], int64_t n) {
    if (plan.direct && step == sizeof(T)) {
      acc.row(reinterpret_cast<const T*>(p[0]), n, index, plan.context);
      index += n;
      return;
    }
    for (int64_t done = 0; done < n; done += kBuffer) {
      const int64_t some = std::min(kBuffer, n - done);
      plan.load(p[0] + done * step, step, buffer, some);
      acc.row(buffer, some, index, plan.context);
      index += some;
    }
  });
}

// One result, cut into pieces that threads share.
template <typename T, typename Acc>
void reduce_long(const Plan& plan, char* base, char* output, char* indices) {
  const int64_t pieces = (plan.reduced.numel + kPiece - 1) / kPiece;
  std::vector<Acc> part(static_cast<size_t>(pieces), Acc::init());
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      reduce_range<T>(plan, base, i * kPiece, std::min(plan.reduced.numel, (i + 1) * kPiece),
                      part[static_cast<size_t>(i)]);
    }
  });
  Acc acc = Acc::init();
  for (const Acc& p : part) merge_into<T>(acc, p, plan.context);
  write<T>(plan, acc, output, indices);
}

// Results that lie together in the input: `n` of them, carried kColumns at a time.
template <typename T, typename Acc>
void reduce_columns(const Plan& plan, char* const (&p)[3], int64_t n) {
  const int inner = plan.kept.rank - 1;
  const int64_t in_step = plan.kept.stride[1][inner];
  Loop<1> loop = plan.reduced;
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t width = std::min(kColumns, n - first);
    Acc acc[kColumns];
    for (int64_t j = 0; j < width; ++j) acc[j] = Acc::init();
    loop.data[0] = p[1] + first * in_step;
    const int64_t step = loop.stride[0][loop.rank - 1];
    int64_t index = 0;
    for_each_row(loop, 0, loop.numel, [&](char* const(&row)[1], int64_t count) {
      T buffer[kColumns];
      for (int64_t i = 0; i < count; ++i) {
        const T* x = reinterpret_cast<const T*>(row[0] + i * step);
        if (!plan.direct) {
          plan.load(row[0] + i * step, in_step, buffer, width);
          x = buffer;
        }
        for (int64_t j = 0; j < width; ++j) acc[j].step(x[j], index, plan.context);
        ++index;
      }
    });
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = first + j;
      write<T>(plan, acc[j], p[0] + at * plan.kept.stride[0][inner],
               p[2] == nullptr ? nullptr : p[2] + at * plan.kept.stride[2][inner]);
    }
  }
}

template <typename T, template <typename> typename Op>
void run(const Plan& plan) {
  using Acc = Op<T>;
  const int64_t results = plan.kept.numel;
  const int64_t length = plan.reduced.numel;
  if (length > kPiece && results < 8) {
    for_each_row(plan.kept, 0, results, [&](char* const(&p)[3], int64_t n) {
      const int inner = plan.kept.rank - 1;
      for (int64_t j = 0; j < n; ++j) {
        reduce_long<T, Acc>(plan, p[1] + j * plan.kept.stride[1][inner],
                            p[0] + j * plan.kept.stride[0][inner],
                            p[2] == nullptr ? nullptr : p[2] + j * plan.kept.stride[2][inner]);
      }
    });
    return;
  }
  const int inner = plan.kept.rank - 1;
  const bool columns =
      plan.kept.stride[1][inner] == dtype_size(plan.args->input->dtype) &&
      plan.kept.shape[inner] >= 8 &&
      plan.reduced.stride[0][plan.reduced.rank - 1] != dtype_size(plan.args->input->dtype);
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, length));
  parallel_for(results, columns ? std::max(grain, kColumns) : grain,
               [&](int64_t begin, int64_t end) {
                 for_each_row(plan.kept, begin, end, [&](char* const(&p)[3], int64_t n) {
                   if (columns) {
                     reduce_columns<T, Acc>(plan, p, n);
                     return;
                   }
                   for (int64_t j = 0; j < n; ++j) {
                     Acc acc = Acc::init();
                     reduce_range<T>(plan, p[1] + j * plan.kept.stride[1][inner], 0, length, acc);
                     write<T>(plan, acc, p[0] + j * plan.kept.stride[0][inner],
                              p[2] == nullptr ? nullptr : p[2] + j * plan.kept.stride[2][inner]);
                   }
                 });
               });
}

template <typename T>
void run_op(const Plan& plan) {
  switch (plan.args->op) {
    case CHIPSET_REDUCE_OP_SUM:
      return run<T, reduction::Sum>(plan);
    case CHIPSET_REDUCE_OP_MEAN:
      return run<T, reduction::Mean>(plan);
    case CHIPSET_REDUCE_OP_PROD:
      return run<T, reduction::Prod>(plan);
    case CHIPSET_REDUCE_OP_MAX:
      return run<T, reduction::Max>(plan);
    case CHIPSET_REDUCE_OP_MIN:
      return run<T, reduction::Min>(plan);
    case CHIPSET_REDUCE_OP_ARGMAX:
      return run<T, reduction::ArgMax>(plan);
    case CHIPSET_REDUCE_OP_ARGMIN:
      return run<T, reduction::ArgMin>(plan);
    case CHIPSET_REDUCE_OP_ANY:
      return run<T, reduction::Any>(plan);
    case CHIPSET_REDUCE_OP_ALL:
      return run<T, reduction::All>(plan);
    case CHIPSET_REDUCE_OP_NORM:
      return run<T, reduction::Norm>(plan);
    case CHIPSET_REDUCE_OP_VAR:
      return run<T, reduction::Var>(plan);
    case CHIPSET_REDUCE_OP_COUNT_NONZERO:
      return run<T, reduction::CountNonzero>(plan);
    case CHIPSET_REDUCE_OP_LOGSUMEXP:
      return run<T, reduction::LogSumExp>(plan);
    default:
      return run<T, reduction::NanSum>(plan);
  }
}

}  // namespace

chipset_status cpu_reduce(chipset_stream, const chipset_reduce_args* given) {
  const chipset_reduce_args& args = *given;
  RETURN_UNLESS_OK(check(args));
  if (numel(*args.output) == 0) return CHIPSET_STATUS_OK;
  const Plan plan = make_plan(args);
  switch (plan.compute) {
    case Compute::kF32:
      run_op<float>(plan);
      break;
    case Compute::kF64:
      run_op<double>(plan);
      break;
    case Compute::kI32:
      run_op<int32_t>(plan);
      break;
    case Compute::kI64:
      run_op<int64_t>(plan);
      break;
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
