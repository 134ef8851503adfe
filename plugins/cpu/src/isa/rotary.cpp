// SPDX-License-Identifier: Apache-2.0
// One task is one position of one sequence: its cosines and sines serve every head.
#include "rotary.h"

#include "isa/activation.h"
#include "parallel.h"
#include "scratch.h"

namespace chipset::cpu::CPU_ISA {
namespace {

template <class A>
void read_vector(const chipset_tensor& t, int64_t b, int64_t s, A* out) {
  const int64_t step = t.shape[2] == 1 ? 1 : t.stride[2];
  read_row(t.dtype, t.data, b * t.stride[0] + s * t.stride[1], step, t.shape[2], out);
}

// Element i is paired with i + half, or 2i with 2i + 1. `sin` carries the sign of the rotation, so
// that for both elements of a pair y = x*cos + partner*sin.
template <class A>
void sign_sines(bool interleaved, bool inverse, int64_t rotated, A* sin) {
  const int64_t half = rotated / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t at = interleaved ? 2 * i + (inverse ? 1 : 0) : i + (inverse ? half : 0);
    sin[at] = -sin[at];
  }
}

template <class A>
void rotate_halves(const A* x, const A* cos, const A* sin, int64_t rotated, A* y) {
  const int64_t half = rotated / 2;
  for_vectors<A>(half, [&](int64_t i, auto n) {
    const vec<A> low = load(x + i, n), high = load(x + half + i, n);
    store(y + i, low * load(cos + i, n) + high * load(sin + i, n), n);
    store(y + half + i, high * load(cos + half + i, n) + low * load(sin + half + i, n), n);
  });
}
template <class A>
void rotate_neighbours(const A* x, const A* cos, const A* sin, int64_t rotated, A* y) {
  mask<A> partner;
  for (int i = 0; i < kLanes<A>; ++i) partner[i] = i ^ 1;
  for_vectors<A>(rotated, [&](int64_t i, auto n) {
    const vec<A> own = load(x + i, n);
    store(y + i, own * load(cos + i, n) + __builtin_shuffle(own, partner) * load(sin + i, n), n);
  });
}

template <class A>
bool rotate_of(const chipset_rotary_args& r) {
  const chipset_tensor &x = *r.x, &y = *r.y;
  const int64_t heads = x.shape[1], positions = x.shape[2], size = x.shape[3];
  const int64_t rotated = r.cos->shape[2];
  const int64_t x_step = size == 1 ? 1 : x.stride[3], y_step = size == 1 ? 1 : y.stride[3];
  const bool interleaved = r.interleaved != 0;
  const int64_t work = heads * size;
  bool ok = true;
  parallel_for(x.shape[0] * positions, 1 + 16384 / work, [&](int64_t begin, int64_t end) {
    A* cos = static_cast<A*>(
        scratch(kScratchA, sizeof(A) * static_cast<size_t>(2 * rotated + 2 * size)));
    if (cos == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    A *sin = cos + rotated, *in = sin + rotated, *out = in + size;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / positions, s = i % positions;
      read_vector(*r.cos, b, s, cos);
      read_vector(*r.sin, b, s, sin);
      sign_sines(interleaved, r.inverse != 0, rotated, sin);
      for (int64_t h = 0; h < heads; ++h) {
        read_row(x.dtype, x.data, b * x.stride[0] + h * x.stride[1] + s * x.stride[2], x_step, size,
                 in);
        if (interleaved) {
          rotate_neighbours(in, cos, sin, rotated, out);
        } else {
          rotate_halves(in, cos, sin, rotated, out);
        }
        for (int64_t d = rotated; d < size; ++d) out[d] = in[d];
        write_row(y.dtype, y.data, b * y.stride[0] + h * y.stride[1] + s * y.stride[2], y_step,
                  size, out);
      }
    }
  });
  return ok;
}

bool rotate(const chipset_rotary_args& r) {
  return r.x->dtype == CHIPSET_DTYPE_F64 ? rotate_of<double>(r) : rotate_of<float>(r);
}

}  // namespace

extern const RotaryKernels rotary_kernels;
const RotaryKernels rotary_kernels = {rotate};

}  // namespace chipset::cpu::CPU_ISA
