// SPDX-License-Identifier: Apache-2.0
#include "gemm.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <string>

#include "functions.h"
#include "gemm_source.h"

namespace chipset::opencl {
namespace {

constexpr int64_t kBlockK = 256;  // KC: 32 KiB of b, in the first-level cache
constexpr int64_t kBlockM = 512;  // MC: 64 KiB of sums, in the second-level cache
constexpr int64_t kPackedBytes = int64_t{256} << 20;  // of a at a time
constexpr int kTileRows[] = {8, 12};                  // that are tried
constexpr double kWorthTuning = 1 << 26;              // products of a call before tiles are tried
constexpr int64_t kDotRows = 2;                       // up to so many rows, b is not worth packing

// As in gemm_source.h; alpha and beta have the width of COMPUTE.
struct Problem {
  int64_t m, n, k, mc;
  int64_t a_batch, a_m, a_k, b_batch, b_k, b_n;
  int64_t c_batch, c_m, c_n, d_batch, d_m, d_n, bias_n;
  union {
    float f32[2];
    double f64[2];
  } scale;
};

// Rows of a register tile and lanes of a vector.
struct Tile {
  int rows, lanes;
};

struct Operands {
  const chipset_tensor *a, *b, *c, *d, *bias;
};

const char* name_of(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_F16:
      return "f16";
    case CHIPSET_DTYPE_BF16:
      return "bf16";
    case CHIPSET_DTYPE_F32:
      return "f32";
    case CHIPSET_DTYPE_F64:
      return "f64";
    default:
      return nullptr;
  }
}

// The matrix in the last two dimensions, and how far its batches lie apart.
void take_apart(const chipset_tensor& t, int64_t* batch, int64_t* row, int64_t* column) {
  *batch = t.rank == 3 && t.shape[0] > 1 ? t.stride[0] : 0;
  *row = t.shape[t.rank - 2] > 1 ? t.stride[t.rank - 2] : 0;
  *column = t.shape[t.rank - 1] > 1 ? t.stride[t.rank - 1] : 1;
}

// Narrower dtypes are computed in f32; results may be f32 then.
bool accepts(const Operands& x, bool fp64) {
  const int32_t dtype = x.a->dtype;
  if (name_of(dtype) == nullptr || x.b->dtype != dtype) return false;
  if (dtype == CHIPSET_DTYPE_F64 && !fp64) return false;
  for (const chipset_tensor* t : {x.c, x.d, x.bias}) {
    if (t == nullptr || t->dtype == dtype) continue;
    if (dtype == CHIPSET_DTYPE_F64 || t->dtype != CHIPSET_DTYPE_F32) return false;
  }
  return true;
}

class Launcher {
 public:
  Launcher(kit::Kit& kit, chipset_stream stream, const Operands& operands, int32_t activation,
           Tile tile)
      : kit_(kit), stream_(stream), x_(operands), activation_(activation), tile_(tile) {}

  void run(const char* kernel, int which, kit::Size3 grid, const void* const* addresses,
           uint32_t count, const Problem& problem) {
    kit::Argument arguments[6];
    for (uint32_t k = 0; k < count; ++k) arguments[k] = {&addresses[k], sizeof(void*), true};
    const bool wide = x_.a->dtype == CHIPSET_DTYPE_F64;
    arguments[count] = {&problem,
                        static_cast<uint32_t>(offsetof(Problem, scale) +
                                              2 * (wide ? sizeof(double) : sizeof(float))),
                        false};
    const kit::Signature signature{200 + which, x_.a->dtype,
                                   x_.b->dtype, x_.c != nullptr ? x_.c->dtype + 1 : 0,
                                   x_.d->dtype, x_.bias != nullptr ? x_.bias->dtype + 1 : 0,
                                   activation_, tile_.rows,
                                   tile_.lanes};
    void* handle = kit_.kernel(signature, kernel, [&] { return source(); });
    kit_.backend().launch(stream_, handle, grid, {1, 1, 1}, arguments, count + 1);
  }

  int64_t lanes() const { return x_.a->dtype == CHIPSET_DTYPE_F64 ? tile_.lanes / 2 : tile_.lanes; }

 private:
  std::string source() const {
    std::string text;
    const auto define = [&](const char* name, const std::string& value) {
      text += "#define " + std::string(name) + " " + value + "\n";
    };
    const auto dtype = [&](const char* name, const chipset_tensor* t) {
      define(name, name_of(t != nullptr ? t->dtype : x_.d->dtype));
    };
    define("COMPUTE", x_.a->dtype == CHIPSET_DTYPE_F64 ? "double" : "float");
    define("VW", std::to_string(lanes()));
    define("MR", std::to_string(tile_.rows));
    define("KC", std::to_string(kBlockK));
    define("MC", std::to_string(kBlockM / tile_.rows * tile_.rows));
    define("ACTIVATION", std::to_string(activation_));
    define("HAS_C", x_.c != nullptr ? "1" : "0");
    define("HAS_BIAS", x_.bias != nullptr ? "1" : "0");
    dtype("A", x_.a), dtype("B", x_.b), dtype("C", x_.c), dtype("D", x_.d), dtype("BIAS", x_.bias);
    return text + kGemmSource;
  }

  kit::Kit& kit_;
  chipset_stream stream_;
  Operands x_;
  int32_t activation_;
  Tile tile_;
};

char* offset(const chipset_tensor* t, int64_t elements) {
  if (t == nullptr) return nullptr;
  static constexpr int64_t kSize[] = {2, 2, 4, 8};  // from F16 on
  return static_cast<char*>(t->data) + elements * kSize[t->dtype - CHIPSET_DTYPE_F16];
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool multiply(kit::Kit& kit, chipset_stream stream, const chipset_gemm_args& args, Tile tile) {
  Operands x{args.a, args.b, args.beta != 0 ? args.c : nullptr, args.d, args.bias};
  if (!accepts(x, kit.traits().fp64)) return false;
  if (args.activation < CHIPSET_ACTIVATION_NONE || args.activation > CHIPSET_ACTIVATION_SILU)
    sdk::fail(CHIPSET_STATUS_INVALID, "gemm: unknown activation %d", args.activation);
  const int rank = x.d->rank;
  Problem p = {};
  p.m = x.d->shape[rank - 2], p.n = x.d->shape[rank - 1], p.k = x.a->shape[rank - 1];
  const int64_t batch = rank == 3 ? x.d->shape[0] : 1;
  if (batch == 0 || p.m == 0 || p.n == 0) return true;
  take_apart(*x.a, &p.a_batch, &p.a_m, &p.a_k);
  take_apart(*x.b, &p.b_batch, &p.b_k, &p.b_n);
  take_apart(*x.d, &p.d_batch, &p.d_m, &p.d_n);
  if (x.c != nullptr) take_apart(*x.c, &p.c_batch, &p.c_m, &p.c_n);
  if (x.bias != nullptr) p.bias_n = x.bias->shape[0] > 1 ? x.bias->stride[0] : 1;
  const bool wide = x.a->dtype == CHIPSET_DTYPE_F64;
  if (wide)
    p.scale.f64[0] = args.alpha, p.scale.f64[1] = args.beta;
  else
    p.scale.f32[0] = static_cast<float>(args.alpha), p.scale.f32[1] = static_cast<float>(args.beta);

  Launcher launcher(kit, stream, x, args.activation, tile);
  const int64_t panels = divide_up(p.n, 2 * launcher.lanes());
  const auto grid = [](int64_t i, int64_t j, int64_t k) {
    return kit::Size3{static_cast<uint32_t>(i), static_cast<uint32_t>(j), static_cast<uint32_t>(k)};
  };
  if (p.m <= kDotRows && (p.a_k == 1 || p.k == 1) && (x.b->shape[rank - 2] == 1 || p.b_k == 1)) {
    const void* addresses[] = {x.a->data, x.b->data, x.c != nullptr ? x.c->data : nullptr,
                               x.bias != nullptr ? x.bias->data : nullptr, x.d->data};
    launcher.run("dots", 0, grid(panels, p.m, batch), addresses, 5, p);
    return true;
  }

  // Rows of a group: as many as the sums of a group have room for, fewer to give every unit work.
  const int64_t units = kit.traits().compute_units;
  const int64_t tiles = divide_up(p.m, tile.rows);
  int64_t group_tiles = std::min(tiles, kBlockM / tile.rows);
  while (group_tiles > 8 && panels * divide_up(tiles, group_tiles) * batch < 4 * units)
    group_tiles = divide_up(group_tiles, 2);
  p.mc = group_tiles * tile.rows;

  const int64_t element = wide ? 8 : 4;
  const int64_t packed = std::max<int64_t>(1, tiles * tile.rows * p.k * element);
  const int64_t together = std::clamp<int64_t>(kPackedBytes / packed, 1, batch);
  for (int64_t first = 0; first < batch; first += together) {
    const int64_t count = std::min(together, batch - first);
    void* scratch = kit.backend().scratch(stream, static_cast<uint64_t>(packed * count));
    const void* pack[] = {offset(x.a, first * p.a_batch), scratch};
    if (p.k > 0) launcher.run("pack_a", 1, grid(tiles, count, 1), pack, 2, p);
    const void* addresses[] = {scratch, offset(x.b, first * p.b_batch),
                               offset(x.c, first * p.c_batch), offset(x.bias, 0),
                               offset(x.d, first * p.d_batch)};
    launcher.run("multiply", 2, grid(panels, divide_up(tiles, group_tiles), count), addresses, 5,
                 p);
  }
  return true;
}

// Milliseconds of a product of two 512 x 512 matrices, the best of five.
double measure(kit::Kit& kit, Device& device, Tile tile) {
  chipset_stream stream = nullptr;
  void* memory = nullptr;
  Driver::stream_create(device.index, 0, &stream);
  Driver::mem_alloc(device.index, CHIPSET_MEMORY_KIND_DEVICE, 3 << 20, &memory);
  Driver::mem_fill(stream, memory, 0, 3 << 20);
  chipset_tensor matrix[3];
  for (int i = 0; i < 3; ++i)
    matrix[i] = {sizeof(chipset_tensor),
                 CHIPSET_DTYPE_F32,
                 2,
                 0,
                 {512, 512},
                 {512, 1},
                 static_cast<char*>(memory) + (i << 20)};
  chipset_gemm_args args = {};
  args.a = &matrix[0], args.b = &matrix[1], args.d = &matrix[2], args.alpha = 1;
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {  // the first one compiles
    const auto start = std::chrono::steady_clock::now();
    multiply(kit, stream, args, tile);
    Driver::stream_sync(stream);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::min(best, taken.count());
  }
  Driver::stream_destroy(stream);
  Driver::mem_free(device.index, memory);
  return best;
}

int lanes_of(const Device& device) {
  return std::clamp<int>(static_cast<int>(device.vector_width), 4, 16);
}

// Rows of the best tile for the device: from the kernel cache, or measured and put there.
int choose_rows(kit::Kit& kit, Device& device) {
  const kit::Traits& traits = kit.traits();
  const std::string path = traits.cache_folder + "/gemm-tile-" +
                           std::to_string(std::hash<std::string>()(traits.identity)) + ".txt";
  int rows = 0;
  if (!traits.cache_folder.empty()) std::ifstream(path) >> rows;
  if (std::find(std::begin(kTileRows), std::end(kTileRows), rows) != std::end(kTileRows))
    return rows;
  rows = device.gemm_rows;
  double best = 1e9;
  for (const int candidate : kTileRows) {
    const double time = measure(kit, device, {candidate, lanes_of(device)});
    if (time < best) best = time, rows = candidate;
  }
  if (!traits.cache_folder.empty()) std::ofstream(path) << rows << "\n";
  return rows;
}

}  // namespace

bool cpu_gemm(kit::Kit& kit, chipset_stream stream, const chipset_gemm_args& args) {
  Device& device = *as_stream(stream)->device;
  const chipset_tensor &a = *args.a, &d = *args.d;
  const double products = static_cast<double>(sdk::numel(d)) * a.shape[a.rank - 1];
  if (products >= kWorthTuning)
    std::call_once(device.gemm_once, [&] {
      try {
        device.gemm_rows = choose_rows(kit, device);
      } catch (const sdk::Error&) {  // no memory to try with: the call may still have what it needs
      }
    });
  return multiply(kit, stream, args, {device.gemm_rows, lanes_of(device)});
}

}  // namespace chipset::opencl
