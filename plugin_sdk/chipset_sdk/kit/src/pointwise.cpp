// SPDX-License-Identifier: Apache-2.0
// pointwise: a kernel is generated for each operation, class, dtypes and way of walking.
#include "formulas.h"
#include "source.h"

namespace chipset::kit {

namespace {
constexpr int kOperands = 3;  // no operation has more
enum Kind : uint8_t { kImmediate, kAdjacent, kRepeated, kStrided };

// Turns an element of 16 bytes into two of 8.
chipset_tensor halved(const chipset_tensor& tensor) {
  if (tensor.rank == CHIPSET_MAX_RANK) unsupported("a tensor of opaque128 of rank 8");
  chipset_tensor two = tensor;
  for (int d = 0; d < two.rank; ++d) two.stride[d] *= 2;
  two.shape[two.rank] = 2;
  two.stride[two.rank++] = 1;
  two.dtype = CHIPSET_DTYPE_OPAQUE64;
  return two;
}

// How a value becomes one of the compute dtype: integers are cut to its width.
const char* conversion(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_BOOL:
      return "TRUTH((x) != 0)";
    case CHIPSET_DTYPE_U8:
      return "CV_i(CV_u8(x))";
    case CHIPSET_DTYPE_I8:
      return "CV_i(CV_i8(x))";
    case CHIPSET_DTYPE_I16:
      return "CV_i(CV_i16(x))";
    case CHIPSET_DTYPE_I32:
      return "CV_i(x)";
    case CHIPSET_DTYPE_I64:
      return "CV_l(x)";
    case CHIPSET_DTYPE_F64:
      return "CV_d(x)";
    default:
      return "CV_f(x)";
  }
}

struct Plan {
  int32_t op, compute, out;
  int32_t in[kOperands];
  Kind kind[kOperands];
  bool out_adjacent, wide_index;
  int arity;
};

// As in kernels/pointwise.c.
template <class T>
struct Numbers {
  T p[4], immediate[4];
};
template <class T>
struct Call {
  Walk<4> walk;
  int64_t rows;
  Numbers<T> numbers;
};

std::string source_of(const Plan& plan, const Traits& traits) {
  const Formula& formula = kFormulas[plan.op];
  const char held = dialect_class(plan.compute);
  const bool floats = held == 'f' || held == 'd';
  const char* text = floats ? formula.of_floats : formula.of_integers;
  bool wide = held == 'd' || held == 'l' || sdk::dtype_size(plan.out) > 4;
  for (int k = 0; k < plan.arity; ++k)
    if (plan.kind[k] != kImmediate) wide = wide || sdk::dtype_size(plan.in[k]) > 4;
  const int width = formula.looping ? 1 : vector_width(traits, wide ? 8 : 4);
  const int lanes = group_lanes(traits);
  Source source(traits, width, lanes);
  source.define("C", std::string(1, held)).file("compute.h").file("functions.h");
  source.define("IDX", plan.wide_index ? "i64" : "i32");
  source.define("BLOCK", traits.is_cpu ? 2048 : 1);
  source.operand("OUT", plan.out).define("OUT_ADJACENT", plan.out_adjacent);
  const char* names[] = {"A", "B", "Z"};
  const char* kinds[] = {"A_KIND", "B_KIND", "Z_KIND"};
  for (int k = 0; k < kOperands; ++k)
    source.operand(names[k], plan.in[k]).define(kinds[k], plan.kind[k]);
  source.define("A_IS_CONDITION", plan.op == CHIPSET_POINTWISE_OP_WHERE);
  source.define("TO_COMPUTE(x)", conversion(plan.compute));
  if (plan.op == CHIPSET_POINTWISE_OP_ARANGE) source.define("INDEX", "row_major(index + i)");
  const std::string result = formula.result == kTruth ? "TRUTH(x)" : "(x)";
  const char out_class = dialect_class(plan.out);
  if (plan.out == CHIPSET_DTYPE_BOOL)
    source.define("TO_OUT(x)", formula.result == kTruth ? result : "TRUTH((x) != 0)");
  else if (held == 'd' && formula.result == kValue && out_class == 'f' &&
           plan.out != CHIPSET_DTYPE_F32)
    source.define("TO_OUT(x)", "rounded_to_odd(x)");
  else
    source.define("TO_OUT(x)", std::string("CV_") + out_class + "(" + result + ")");
  source.define("OPERATION(x, y, z)", text);
  return source.file("pointwise.c").take();
}
}  // namespace

void Kit::pointwise(chipset_stream stream, const chipset_pointwise_args& arguments) {
  int op = arguments.op;
  if (op < 0 || op > CHIPSET_POINTWISE_OP_I0)
    fail(CHIPSET_STATUS_INVALID, "pointwise: operation %d does not exist", op);
  // Of a truth value, which is held as an integer, there is one bit to turn over.
  if (op == CHIPSET_POINTWISE_OP_BITWISE_NOT && arguments.compute_dtype == CHIPSET_DTYPE_BOOL)
    op = CHIPSET_POINTWISE_OP_LOGICAL_NOT;
  const Formula& formula = kFormulas[op];
  if (arguments.num_inputs != formula.arity)
    fail(CHIPSET_STATUS_INVALID, "pointwise: operation %d has %d inputs; need %d", op,
         arguments.num_inputs, formula.arity);
  chipset_tensor out = *arguments.output;
  if (sdk::numel(out) == 0) return;
  chipset_tensor in[kOperands];
  const bool copy = op == CHIPSET_POINTWISE_OP_COPY;
  for (int k = 0; k < formula.arity; ++k)
    if (arguments.input[k] != nullptr) in[k] = *arguments.input[k];

  Plan plan{};
  plan.op = op;
  plan.arity = formula.arity;
  if (copy && arguments.input[0] != nullptr && in[0].dtype == out.dtype &&
      out.dtype != CHIPSET_DTYPE_BOOL) {  // bits are moved
    if (out.dtype == CHIPSET_DTYPE_OPAQUE128) {
      out = halved(out);
      in[0] = halved(in[0]);
    }
    out.dtype = in[0].dtype = moved_as(out.dtype);
  }
  // COPY is evaluated in whatever loses least on the way.
  plan.compute = arguments.compute_dtype;
  const auto widest = [](int32_t a, int32_t b) {
    if (a == CHIPSET_DTYPE_F64 || b == CHIPSET_DTYPE_F64) return CHIPSET_DTYPE_F64;
    if (is_float(a)) return CHIPSET_DTYPE_F32;
    return a == CHIPSET_DTYPE_I64 ? CHIPSET_DTYPE_I64 : CHIPSET_DTYPE_I32;
  };
  if (copy)
    plan.compute = arguments.input[0] == nullptr      ? widest(out.dtype, out.dtype)
                   : in[0].dtype == CHIPSET_DTYPE_F64 ? CHIPSET_DTYPE_F64
                                                      : widest(in[0].dtype, in[0].dtype);
  if (op == CHIPSET_POINTWISE_OP_FILL) {
    plan.compute = widest(out.dtype, out.dtype);
  } else if (op == CHIPSET_POINTWISE_OP_ARANGE && traits_.fp64 && is_float(plan.compute)) {
    plan.compute = CHIPSET_DTYPE_F64;
  }
  if (op == CHIPSET_POINTWISE_OP_FILL && out.dtype > CHIPSET_DTYPE_I4)
    unsupported("filling an opaque dtype");
  const char held = dialect_class(plan.compute);
  const bool floats = held == 'f' || held == 'd';
  if (held == 'd') need_fp64(traits_, CHIPSET_DTYPE_F64);
  need_fp64(traits_, out.dtype);
  if ((floats ? formula.of_floats : formula.of_integers)[0] == '\0')
    unsupported("pointwise operation " + std::to_string(op) + " in " +
                sdk::dtype_name(plan.compute));

  // The space.
  static constexpr int64_t kNone[8] = {};
  std::array<const int64_t*, 4> strides = {out.stride, kNone, kNone, kNone};
  for (int k = 0; k < formula.arity; ++k)
    if (arguments.input[k] != nullptr) strides[k + 1] = in[k].stride;
  const auto walk = make_walk<4>(out.rank, out.shape, strides, op == CHIPSET_POINTWISE_OP_ARANGE);

  plan.out = out.dtype;
  plan.out_adjacent = walk.stride[0][0] == 1 || walk.inner() == 1;
  plan.wide_index = traits_.is_cpu || walk.numel() > INT32_MAX;
  for (int k = 0; k < kOperands; ++k) {
    plan.in[k] = out.dtype;
    plan.kind[k] = kImmediate;
    if (k >= formula.arity || arguments.input[k] == nullptr) continue;
    need_fp64(traits_, in[k].dtype);
    plan.in[k] = in[k].dtype;
    const int64_t step = walk.stride[0][k + 1];
    plan.kind[k] = walk.inner() == 1 || step == 1 ? kAdjacent : step == 0 ? kRepeated : kStrided;
    // A condition is no value of the compute class, so that it has no row of its own.
    if (op == CHIPSET_POINTWISE_OP_WHERE && k == 0 && plan.kind[0] == kRepeated)
      plan.kind[0] = kStrided;
  }

  const Signature signature{kPointwise,   op,           plan.compute,      plan.out,
                            plan.in[0],   plan.in[1],   plan.in[2],        plan.kind[0],
                            plan.kind[1], plan.kind[2], plan.out_adjacent, plan.wide_index};
  void* kernel = this->kernel(signature, "pointwise", [&] { return source_of(plan, traits_); });

  Numbers<float> f;
  Numbers<double> d;
  Numbers<int32_t> i;
  Numbers<int64_t> l;
  for (int k = 0; k < 4; ++k) {
    f.p[k] = static_cast<float>(d.p[k] = arguments.param[k].f);
    f.immediate[k] = static_cast<float>(d.immediate[k] = arguments.immediate[k].f);
    i.p[k] = static_cast<int32_t>(l.p[k] = arguments.param[k].i);
    i.immediate[k] = static_cast<int32_t>(l.immediate[k] = arguments.immediate[k].i);
  }
  // A condition is true where it is not zero, whatever its fraction.
  if (op == CHIPSET_POINTWISE_OP_WHERE && arguments.input[0] == nullptr) {
    const bool truth = arguments.immediate[0].f != 0 || arguments.immediate[0].i != 0;
    f.immediate[0] = d.immediate[0] = i.immediate[0] = l.immediate[0] = truth;
  }

  Launch launch(backend_, stream, kernel);
  launch.address(out.data);
  for (int k = 0; k < kOperands; ++k)
    launch.address(plan.kind[k] != kImmediate ? in[k].data : nullptr);
  if (held == 'f') launch.value(Call<float>{walk, walk.rows(), f});
  if (held == 'd') launch.value(Call<double>{walk, walk.rows(), d});
  if (held == 'i') launch.value(Call<int32_t>{walk, walk.rows(), i});
  if (held == 'l') launch.value(Call<int64_t>{walk, walk.rows(), l});
  const int lanes = group_lanes(traits_);
  const int64_t block = traits_.is_cpu ? 2048 : 1;
  const int64_t units = walk.rows() * ceil_div(walk.inner(), block);
  const int64_t cost = std::min(walk.inner(), block);
  launch.run({group_count(traits_, traits_.is_cpu ? units : ceil_div(units, lanes), cost)},
             static_cast<uint32_t>(lanes));
}

}  // namespace chipset::kit
