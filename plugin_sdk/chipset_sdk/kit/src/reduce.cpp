// SPDX-License-Identifier: Apache-2.0
// reduce. Variance and log-sum-exp take two passes: the mean or the largest element first, which
// then shifts every element of the second.
#include <cmath>

#include "source.h"

namespace chipset::kit {

namespace {
// The last four are passes of others.
enum Pass : uint8_t { kSumExp = 32, kSquaresAround, kMeanOf, kLargestOf };

struct How {
  const char* map;
  const char* combine;
  const char* identity;
  const char* finish;
};

// `held` is the class of the elements; the accumulator's follows from the operation.
How how(int op, char held, double p) {
  const bool floats = held == 'f' || held == 'd';
  switch (op) {
    case CHIPSET_REDUCE_OP_SUM:
      return {"(x)", "((a) + (b))", "0", "(a)"};
    case CHIPSET_REDUCE_OP_MEAN:
    case kMeanOf:
      return {"(x)", "((a) + (b))", "0", "((a) / (sa)length)"};
    case CHIPSET_REDUCE_OP_PROD:
      return {"(x)", "((a) * (b))", "1", "(a)"};
    case CHIPSET_REDUCE_OP_MAX:
    case kLargestOf:
      return {"(x)", "((a) > (b) || (a) != (a) ? (a) : (b))",
              held == 'i'   ? "(-2147483647 - 1)"
              : held == 'l' ? "(-9223372036854775807L - 1)"
                            : "((sa)-INFINITY)",
              "(a)"};
    case CHIPSET_REDUCE_OP_MIN:
      return {"(x)", "((a) < (b) || (a) != (a) ? (a) : (b))",
              held == 'i'   ? "2147483647"
              : held == 'l' ? "9223372036854775807L"
                            : "((sa)INFINITY)",
              "(a)"};
    case CHIPSET_REDUCE_OP_ANY:
      return {"CV(A, TRUTH((x) != K(0)))", "((a) | (b))", "0", "(a)"};
    case CHIPSET_REDUCE_OP_ALL:
      return {"CV(A, TRUTH((x) != K(0)))", "((a) & (b))", "1", "(a)"};
    case CHIPSET_REDUCE_OP_COUNT_NONZERO:
      return {"CV(A, TRUTH((x) != K(0)))", "((a) + (b))", "0", "(a)"};
    case CHIPSET_REDUCE_OP_NANSUM:
      return {floats ? "((x) != (x) ? (va)(0) : (x))" : "(x)", "((a) + (b))", "0", "(a)"};
    case CHIPSET_REDUCE_OP_NORM:
      if (p == 2) return {"(CV(A, x) * CV(A, x))", "((a) + (b))", "0", "sqrt(a)"};
      if (p == 1) return {"fabs(CV(A, x))", "((a) + (b))", "0", "(a)"};
      // By the bits, all but the sign: LLVM compares halves with zero as halves, and PoCL 3.1,
      // which has no arithmetic for them, crashes.
      if (p == 0 && held == 'f')
        return {"CV(A, TRUTH((AS_ui(x) << 1) != 0u))", "((a) + (b))", "0", "(a)"};
      if (p == 0) return {"CV(A, TRUTH((x) != K(0)))", "((a) + (b))", "0", "(a)"};
      if (std::isinf(p) && p > 0)
        return {"fabs(CV(A, x))", "((a) > (b) || (a) != (a) ? (a) : (b))", "0", "(a)"};
      if (std::isinf(p))
        return {"fabs(CV(A, x))", "((a) < (b) || (a) != (a) ? (a) : (b))", "((sa)INFINITY)", "(a)"};
      return {"pow(fabs(CV(A, x)), (va)((sa)param))", "((a) + (b))", "0",
              "pow(a, (sa)1 / (sa)param)"};
    case kSquaresAround:
      return {"((x - shift) * (x - shift))", "((a) + (b))", "0",
              "((a) / fmax((sa)length - (sa)param, (sa)0))"};
    case kSumExp:  // a largest element that is infinite would make NaN of itself
      return {"exp(x - (fabs(shift) == (sa)INFINITY ? (va)(0) : shift))", "((a) + (b))", "0",
              "(log(a) + (fabs(shift) == (sa)INFINITY ? (sa)0 : shift))"};
    default:
      return {"(x)", "(a)", "0", "(a)"};  // with an index: not used
  }
}

constexpr int kAnyNorm = 3;  // with p as an argument
int norm_kind(double p) {
  return p == 2 ? 2 : p == 1 ? 1 : p == 0 ? 0 : std::isinf(p) ? (p > 0 ? 4 : 5) : kAnyNorm;
}

struct Reduction {
  chipset_tensor input, output;
  const chipset_tensor* indices = nullptr;
  uint32_t dims = 0;
  int op = 0;
  int32_t compute = 0;
  double param = 0;
  const void* shifts = nullptr;
};

class Reducer {
 public:
  Reducer(Kit& kit, chipset_stream stream) : kit_(kit), stream_(stream) {}
  // Where the accumulators of pieces go; asked for once, since the stream has one scratch.
  void* partial = nullptr;
  int64_t partial_bytes = 0;

  void run(const Reduction& r) {
    const Traits& traits = kit_.traits();
    const bool arg = r.op == CHIPSET_REDUCE_OP_ARGMAX || r.op == CHIPSET_REDUCE_OP_ARGMIN;
    const bool extreme = arg || r.op == CHIPSET_REDUCE_OP_MAX || r.op == CHIPSET_REDUCE_OP_MIN;
    const bool with_index = arg || (extreme && r.indices != nullptr);
    const bool truth = r.op == CHIPSET_REDUCE_OP_ANY || r.op == CHIPSET_REDUCE_OP_ALL ||
                       r.op == CHIPSET_REDUCE_OP_COUNT_NONZERO;
    // What looks at elements as they are stored needs no conversion.
    const char stored = dialect_class(r.input.dtype);
    const char wanted = dialect_class(r.compute);
    const char held = extreme || truth ? stored : wanted;
    char acc = held;
    if (truth) acc = held == 'f' || held == 'i' ? 'i' : 'l';
    const bool wide_norm = r.op == CHIPSET_REDUCE_OP_NORM && (held != 'f' || traits.fp64);
    if (r.op == CHIPSET_REDUCE_OP_NORM) acc = wide_norm && traits.fp64 ? 'd' : 'f';

    int64_t kept_size[8], reduced_size[8];
    for (int d = 0; d < r.input.rank; ++d) {
      const bool reduced = (r.dims >> d & 1) != 0;
      kept_size[d] = reduced ? 1 : r.input.shape[d];
      reduced_size[d] = reduced ? r.input.shape[d] : 1;
    }
    static constexpr int64_t kNone[8] = {};
    auto kept = make_walk<3>(
        r.input.rank, kept_size,
        {r.output.stride, r.input.stride, r.indices != nullptr ? r.indices->stride : kNone},
        r.shifts != nullptr || r.op == kMeanOf || r.op == kLargestOf);
    const auto reduced = make_walk<1>(r.input.rank, reduced_size, {r.input.stride}, with_index);
    int64_t results = 1, length = 1;
    for (int d = 0; d < r.input.rank; ++d) results *= kept_size[d], length *= reduced_size[d];
    if (with_index && length > INT32_MAX && (held == 'f' || held == 'i'))
      unsupported("the place of an extreme among more than 2^31 elements");
    if (truth && acc == 'i' && length > INT32_MAX) unsupported("counting more than 2^31 elements");

    const bool columns = kept.rank > 0 && kept.stride[0][1] == 1 && kept.size[0] >= 8 &&
                         (reduced.stride[0][0] != 1 || length == 1);
    const bool wide = held == 'd' || held == 'l' || acc == 'd' || acc == 'l' ||
                      sdk::dtype_size(r.input.dtype) > 4;
    // pow goes one element at a time, as in pointwise: PoCL 3.1's of 8 doubles gives infinities for
    // elements that stand beside zeros.
    const bool power = r.op == CHIPSET_REDUCE_OP_NORM && norm_kind(r.param) == kAnyNorm;
    const int width = power ? 1 : vector_width(traits, wide ? 8 : 4);
    const int lanes = group_lanes(traits);

    // Pieces: enough to occupy the device, each worth its while. Their number depends on nothing
    // but shapes and the device, so that the same call gives the same bits.
    const int64_t columns_units =
        columns ? results / kept.size[0] * ceil_div(kept.size[0], width) : results;
    int64_t pieces = 1;
    if (!with_index && length > 0) {
      const int64_t wanted_units = int64_t{traits.compute_units} * (traits.is_cpu ? 4 : 256);
      const int64_t least = traits.is_cpu ? (columns ? 512 : 16384) : (columns ? 64 : 4096);
      pieces = std::clamp<int64_t>(std::min(wanted_units / columns_units, length / least), 1, 256);
      // A float loses its low bits over too long a sum.
      pieces = std::max(pieces, std::min<int64_t>(ceil_div(length, 1 << 22), 256));
    }
    const int acc_bytes = acc == 'd' || acc == 'l' ? 8 : 4;
    if (pieces > 1) {
      const int64_t bytes = pieces * results * acc_bytes;
      if (partial == nullptr)
        partial = kit_.backend().scratch(stream_, static_cast<uint64_t>(bytes));
      else if (bytes > partial_bytes)
        pieces = std::max<int64_t>(1, partial_bytes / (results * acc_bytes));
    }

    if (r.op == CHIPSET_REDUCE_OP_NORM && held == 'l' && !traits.fp64)
      unsupported("the norm of integers on a device without double precision");
    const Signature signature{kReduce,
                              r.op,
                              held - 'a',
                              acc - 'a',
                              r.input.dtype,
                              r.output.dtype,
                              columns,
                              pieces > 1,
                              with_index,
                              r.shifts != nullptr,
                              r.op == CHIPSET_REDUCE_OP_NORM ? norm_kind(r.param) : 0};
    const auto make = [&] {
      const How the = how(r.op, held, r.param);
      Source source(traits, width, lanes);
      source.define("C", std::string(1, held)).define("A", std::string(1, acc));
      source.file("compute.h").operand("IN", r.input.dtype).operand("OUT", r.output.dtype);
      source.define("MAP(x, shift)", the.map).define("COMBINE(a, b)", the.combine);
      source.define("IDENTITY", std::string("((S_") + acc + ")" + the.identity + ")");
      source.define("FINISH(a, shift)", the.finish).define("COLUMNS", columns);
      source.define("SPLIT", pieces > 1).define("SHIFTED", r.shifts != nullptr);
      source.define("WITH_INDEX", with_index).define("OUT_IS_INDEX", arg);
      source.define("PLACE", held == 'f' || held == 'i' ? "i" : "l");
      const bool largest = r.op == CHIPSET_REDUCE_OP_MAX || r.op == CHIPSET_REDUCE_OP_ARGMAX;
      source.define("BETTER(a, b)", largest ? "((a) > (b))" : "((a) < (b))");
      return source.file("reduce.c").take();
    };
    void* kernel = kit_.kernel(signature, "reduce", make);
    const int64_t units = columns_units * pieces;
    const bool per_lane = columns && !traits.is_cpu;
    const int64_t cost = ceil_div(length, pieces) * (columns ? width : 1);
    const uint32_t groups = group_count(traits, per_lane ? ceil_div(units, lanes) : units, cost);
    const void* some = r.output.data;  // stands for an address that is not used
    Launch(kit_.backend(), stream_, kernel)
        .address(r.output.data)
        .address(length > 0 ? r.input.data : some)
        .address(r.indices != nullptr ? r.indices->data : some)
        .address(partial != nullptr ? partial : some)
        .address(r.shifts != nullptr ? r.shifts : some)
        .value(kept)
        .value(reduced)
        .i64(results)
        .i64(length)
        .i64(pieces)
        .f32(r.param)
        .i64(r.indices != nullptr)
        .run({groups}, static_cast<uint32_t>(lanes));
    if (pieces == 1) return;
    Signature finish = signature;
    finish.value[0] = kReduceFinish;
    kernel = kit_.kernel(finish, "reduce_finish", make);
    Launch(kit_.backend(), stream_, kernel)
        .address(r.output.data)
        .address(partial)
        .address(r.shifts != nullptr ? r.shifts : some)
        .value(kept)
        .i64(results)
        .i64(length)
        .i64(pieces)
        .f32(r.param)
        .run({group_count(traits, ceil_div(results, lanes), pieces)}, static_cast<uint32_t>(lanes));
  }

 private:
  Kit& kit_;
  chipset_stream stream_;
};

// A dense tensor of a reduction's results.
chipset_tensor dense_like(const chipset_tensor& shape, int32_t dtype, void* data) {
  chipset_tensor dense = shape;
  dense.dtype = dtype;
  dense.data = data;
  int64_t step = 1;
  for (int d = dense.rank - 1; d >= 0; --d) {
    dense.stride[d] = step;
    step *= dense.shape[d];
  }
  return dense;
}
}  // namespace

void Kit::reduce(chipset_stream stream, const chipset_reduce_args& arguments) {
  const int op = arguments.op;
  if (op < 0 || op > CHIPSET_REDUCE_OP_NANSUM)
    fail(CHIPSET_STATUS_INVALID, "reduce: operation %d does not exist", op);
  if (sdk::numel(*arguments.output) == 0) return;
  const bool extreme = op == CHIPSET_REDUCE_OP_MAX || op == CHIPSET_REDUCE_OP_MIN ||
                       op == CHIPSET_REDUCE_OP_ARGMAX || op == CHIPSET_REDUCE_OP_ARGMIN;
  if (extreme && sdk::numel(*arguments.input) == 0)
    fail(CHIPSET_STATUS_INVALID, "reduce: no element has no extreme (NUM-005)");
  for (int32_t dtype : {arguments.input->dtype, arguments.output->dtype, arguments.compute_dtype})
    need_fp64(traits_, dtype);
  Reduction r;
  r.input = *arguments.input;
  r.output = *arguments.output;
  r.dims = arguments.dims;
  r.op = op;
  r.compute = arguments.compute_dtype;
  r.param = arguments.param[0].f;
  const bool var = op == CHIPSET_REDUCE_OP_VAR;
  r.indices = var ? nullptr : arguments.indices;
  Reducer reducer(*this, stream);
  if (!var && op != CHIPSET_REDUCE_OP_LOGSUMEXP) return reducer.run(r);

  const char held = dialect_class(r.compute);
  if (held != 'f' && held != 'd') unsupported("variance or log-sum-exp computed in integers");
  const int32_t shift_dtype = held == 'd' ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_F32;
  const int64_t shift_bytes = (sdk::numel(r.output) * sdk::dtype_size(shift_dtype) + 63) / 64 * 64;
  reducer.partial_bytes = sdk::numel(r.output) * 8 * 32;
  char* room = static_cast<char*>(
      backend_.scratch(stream, static_cast<uint64_t>(shift_bytes + reducer.partial_bytes)));
  reducer.partial = room + shift_bytes;
  Reduction first = r;
  first.op = var ? kMeanOf : kLargestOf;
  first.output = dense_like(r.output, shift_dtype, room);
  reducer.run(first);
  if (var && arguments.indices != nullptr) {
    chipset_pointwise_args copy{};
    copy.struct_size = sizeof copy;
    copy.op = CHIPSET_POINTWISE_OP_COPY;
    copy.compute_dtype = shift_dtype;
    copy.num_inputs = 1;
    copy.output = arguments.indices;
    copy.input[0] = &first.output;
    pointwise(stream, copy);
  }
  r.op = var ? kSquaresAround : kSumExp;
  r.shifts = room;
  reducer.run(r);
}

}  // namespace chipset::kit
