// SPDX-License-Identifier: Apache-2.0
// Matrix products: a tiled one for devices with many work-items a group, and one for processors,
// whose register tile is measured once for a device and kept beside the compiled kernels.
#include <chrono>

#include "source.h"

namespace chipset::kit {
namespace {

constexpr int64_t kBlockK = 256;  // KC: 32 KiB of b, in the first-level cache
constexpr int64_t kBlockM = 512;  // MC: 64 KiB of sums, in the second-level cache
constexpr int64_t kPackedBytes = int64_t{256} << 20;  // of a at a time
constexpr int kTileRows[] = {8, 12};                  // that are tried
constexpr double kWorthTuning = 1 << 26;              // products of a call before tiles are tried
constexpr int64_t kDotRows = 2;                       // up to so many rows, b is not worth packing
constexpr int64_t kMostGroups = 65535;                // along y and z, on every device

enum Kernel { kTiled, kPackA, kMultiply, kDots };
constexpr const char* kNames[] = {"gemm", "gemm_pack_a", "gemm_multiply", "gemm_dots"};

// As in gemm.h.
struct Problem {
  int64_t batch, m, n, k, rows;
  int64_t a_batch, a_m, a_k, b_batch, b_k, b_n;
  int64_t c_batch, c_m, c_n, d_batch, d_m, d_n, bias_n;
};

struct Operands {
  const chipset_tensor *a, *b, *c, *d, *bias;
};

// The matrix in the last two dimensions, and how far its batches lie apart.
void take_apart(const chipset_tensor& t, int64_t* batch, int64_t* row, int64_t* column) {
  *batch = t.rank == 3 && t.shape[0] > 1 ? t.stride[0] : 0;
  *row = t.shape[t.rank - 2] > 1 ? t.stride[t.rank - 2] : 0;
  *column = t.shape[t.rank - 1] > 1 ? t.stride[t.rank - 1] : 1;
}

Problem problem_of(const Operands& x) {
  const int rank = x.d->rank;
  Problem p = {};
  p.batch = rank == 3 ? x.d->shape[0] : 1;
  p.m = x.d->shape[rank - 2], p.n = x.d->shape[rank - 1], p.k = x.a->shape[rank - 1];
  take_apart(*x.a, &p.a_batch, &p.a_m, &p.a_k);
  take_apart(*x.b, &p.b_batch, &p.b_k, &p.b_n);
  take_apart(*x.d, &p.d_batch, &p.d_m, &p.d_n);
  if (x.c != nullptr) take_apart(*x.c, &p.c_batch, &p.c_m, &p.c_n);
  if (x.bias != nullptr) p.bias_n = x.bias->shape[0] > 1 ? x.bias->stride[0] : 1;
  return p;
}

// Narrower dtypes are computed in f32; results may be f32 then.
void check_dtypes(const Traits& traits, const Operands& x) {
  const int32_t dtype = x.a->dtype;
  need_float(traits, "gemm", dtype);
  if (x.b->dtype != dtype)
    unsupported(std::string("gemm of ") + sdk::dtype_name(dtype) + " by " +
                sdk::dtype_name(x.b->dtype));
  for (const chipset_tensor* t : {x.c, x.d, x.bias}) {
    if (t == nullptr || t->dtype == dtype) continue;
    if (dtype == CHIPSET_DTYPE_F64 || t->dtype != CHIPSET_DTYPE_F32)
      unsupported(std::string("gemm of ") + sdk::dtype_name(dtype) + " with c, d or bias of " +
                  sdk::dtype_name(t->dtype));
  }
}

// What the launches of one product have in common.
struct Product {
  Kit& kit;
  chipset_stream stream;
  Operands x;
  int32_t activation;
  double alpha, beta;
  int lanes, width;  // work-items of a group; elements of a vector
  int rows;          // of a register tile; 0: the tiled kernel

  char held() const { return x.a->dtype == CHIPSET_DTYPE_F64 ? 'd' : 'f'; }
  int64_t element() const { return held() == 'd' ? 8 : 4; }

  void* kernel(Kernel which) const {
    const auto dtype = [&](const chipset_tensor* t) { return (t ? t : x.d)->dtype; };
    const Signature signature{kGemm,      which,
                              x.a->dtype, x.c != nullptr ? x.c->dtype + 1 : 0,
                              x.d->dtype, x.bias != nullptr ? x.bias->dtype + 1 : 0,
                              activation, rows};
    return kit.kernel(signature, kNames[which], [&] {
      Source source(kit.traits(), width, lanes);
      source.define("C", std::string(1, held())).file("compute.h");
      source.operand("A", x.a->dtype).operand("B", x.b->dtype).operand("E", dtype(x.c));
      source.operand("V", dtype(x.bias)).operand("D", x.d->dtype).define("ACTIVATION", activation);
      source.define("HAS_C", x.c != nullptr).define("HAS_BIAS", x.bias != nullptr).file("gemm.h");
      if (rows == 0) {
        int side = 1;
        while (side * side < lanes) side *= 2;
        return source.define("SIDE", side).file("gemm.c").take();
      }
      source.define("MR", rows).define("KC", kBlockK).define("MC", kBlockM / rows * rows);
      return source.file("turn.h").file("gemm_processor.c").take();
    });
  }
  void run(Kernel which, Size3 grid, const void* a, int64_t batch, const Problem& p) const {
    Launch(kit.backend(), stream, kernel(which))
        .address(a)
        .address(sdk::address(*x.b, batch * p.b_batch))
        .address(x.c != nullptr ? sdk::address(*x.c, batch * p.c_batch) : x.d->data)
        .address(x.bias != nullptr ? x.bias->data : x.d->data)
        .address(sdk::address(*x.d, batch * p.d_batch))
        .value(p)
        .real(held(), alpha)
        .real(held(), beta)
        .run(grid, static_cast<uint32_t>(lanes));
  }
};

Size3 grid_of(int64_t x, int64_t y, int64_t z) {
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(std::min(y, kMostGroups)),
          static_cast<uint32_t>(std::min(z, kMostGroups))};
}

int vector_lanes(const Traits& traits) {
  return std::clamp<int>(static_cast<int>(traits.vector_bytes / 4), 4, 16);
}

// `scratch`: memory for the packed a, or NULL to ask the backend for it.
void multiply_on_processor(Product product, Problem p, void* scratch) {
  const Operands& x = product.x;
  const Traits& traits = product.kit.traits();
  const int rows = product.rows;
  const int64_t panels = ceil_div(p.n, 2 * product.width);
  if (p.m <= kDotRows && (p.a_k == 1 || p.k == 1) && (p.b_k == 1 || p.k == 1)) {
    for (int64_t first = 0; first < p.batch; first += kMostGroups)
      product.run(kDots, grid_of(panels, p.m, p.batch - first),
                  sdk::address(*x.a, first * p.a_batch), first, p);
    return;
  }
  // Rows of a group: as many as the sums of a group have room for, fewer to give every unit work.
  const int64_t tiles = ceil_div(p.m, rows);
  int64_t group_tiles = std::min(tiles, kBlockM / rows);
  while (group_tiles > 8 &&
         panels * ceil_div(tiles, group_tiles) * p.batch < 4 * int64_t{traits.compute_units})
    group_tiles = ceil_div(group_tiles, 2);
  p.rows = group_tiles * rows;

  const int64_t packed = std::max<int64_t>(1, tiles * rows * p.k * product.element());
  const int64_t most = std::min(std::max<int64_t>(1, kPackedBytes / packed), kMostGroups);
  for (int64_t first = 0; first < p.batch; first += most) {
    const int64_t count = std::min(most, p.batch - first);
    void* room = scratch != nullptr ? scratch
                                    : product.kit.backend().scratch(
                                          product.stream, static_cast<uint64_t>(packed * count));
    if (p.k > 0)
      Launch(product.kit.backend(), product.stream, product.kernel(kPackA))
          .address(sdk::address(*x.a, first * p.a_batch))
          .address(room)
          .value(p)
          .run(grid_of(tiles, count, 1), 1);
    product.run(kMultiply, grid_of(panels, ceil_div(tiles, group_tiles), count), room, first, p);
  }
}

// Milliseconds of a product of two 512 x 512 matrices, the best of five.
double measure(Kit& kit, chipset_stream stream, int rows) {
  constexpr int64_t kSide = 512, kBytes = kSide * kSide * 4;
  char* memory = static_cast<char*>(kit.backend().scratch(stream, 5 * kBytes));
  chipset_tensor matrix[3];
  for (int i = 0; i < 3; ++i)
    matrix[i] = {sizeof(chipset_tensor), CHIPSET_DTYPE_F32, 2, 0, {kSide, kSide}, {kSide, 1},
                 memory + i * kBytes};
  for (chipset_tensor& each : matrix) {
    chipset_pointwise_args fill = {};
    fill.struct_size = sizeof fill, fill.op = CHIPSET_POINTWISE_OP_FILL;
    fill.compute_dtype = CHIPSET_DTYPE_F32, fill.output = &each;
    kit.pointwise(stream, fill);
  }
  const Operands x{&matrix[0], &matrix[1], nullptr, &matrix[2], nullptr};
  const Product product{
      kit, stream, x, CHIPSET_ACTIVATION_NONE, 1.0, 0.0, 1, vector_lanes(kit.traits()), rows};
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {  // the first one compiles
    const auto start = std::chrono::steady_clock::now();
    multiply_on_processor(product, problem_of(x), memory + 3 * kBytes);
    kit.backend().finish(stream);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::min(best, taken.count());
  }
  return best;
}

// Rows of the best tile for the device: from the kernel cache, or measured and put there.
int choose_rows(Kit& kit, chipset_stream stream) {
  const Traits& traits = kit.traits();
  const std::string key = traits.identity + "\nrows of gemm's tile";
  if (const Binary kept = read_cached(traits, key); kept.size() == 1)
    for (const int candidate : kTileRows)
      if (candidate == kept[0]) return candidate;
  int rows = 0;
  double best = 1e9;
  for (const int candidate : kTileRows) {
    const double time = measure(kit, stream, candidate);
    if (time < best) best = time, rows = candidate;
  }
  write_cached(traits, key, {static_cast<unsigned char>(rows)});
  return rows;
}

}  // namespace

void Kit::gemm(chipset_stream stream, const chipset_gemm_args& args) {
  const Operands x{args.a, args.b, args.beta != 0 ? args.c : nullptr, args.d, args.bias};
  check_dtypes(traits_, x);
  if (args.activation < CHIPSET_ACTIVATION_NONE || args.activation > CHIPSET_ACTIVATION_SILU)
    fail(CHIPSET_STATUS_INVALID, "gemm: unknown activation %d", args.activation);
  const Problem p = problem_of(x);
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  Product product{*this, stream, x, args.activation, args.alpha, args.beta, 1, 1, 0};
  if (traits_.is_cpu) {
    const double products = static_cast<double>(sdk::numel(*x.d)) * static_cast<double>(p.k);
    if (products >= kWorthTuning)
      std::call_once(gemm_once_, [&] {
        try {
          gemm_rows_ = choose_rows(*this, stream);
        } catch (const sdk::Error&) {  // no memory to try with: the call may have what it needs
        }
      });
    product.rows = gemm_rows_;
    product.width = vector_lanes(traits_) / (product.held() == 'd' ? 2 : 1);
    return multiply_on_processor(product, p, nullptr);
  }
  product.lanes = group_lanes(traits_);
  int side = 1;  // a square of work-items
  while (4 * side * side <= product.lanes) side *= 2;
  product.lanes = side * side;
  product.run(kTiled, grid_of(ceil_div(p.n, 4 * side), ceil_div(p.m, 4 * side), p.batch), x.a->data,
              0, p);
}

}  // namespace chipset::kit
