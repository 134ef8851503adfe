// SPDX-License-Identifier: Apache-2.0
// One task is one sequence and key-value head. It goes over the keys in tiles with a running
// maximum (arXiv:2205.14135); the heads that share the keys read each tile while it is in cache.
#include "attention_paged.h"

#include "isa/activation.h"
#include "scratch.h"
#include "tasks.h"

namespace chipset::cpu::CPU_ISA {
namespace {

constexpr int64_t kTile = 128;  // keys

template <class T, class A = compute_t<T>>
A dot(const A* q, const T* k, int64_t n) {
  vec<A> a{}, b{};
  int64_t i = 0;
  for (; i + 2 * kLanes<A> <= n; i += 2 * kLanes<A>) {
    a += load(q + i) * load(k + i);
    b += load(q + i + kLanes<A>) * load(k + i + kLanes<A>);
  }
  for_vectors<A>(n - i, [&](int64_t j, auto w) { a += load(q + i + j, w) * load(k + i + j, w); });
  return sum_lanes(a + b);
}

struct Lengths {
  int64_t begin, end, keys;
};
int64_t read_i32(const chipset_tensor& t, int64_t i) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0]];
}

// The row of a cache at `offset`; one with a stride is copied to `copy`.
template <class T>
const T* contiguous_row(const chipset_tensor& cache, int64_t offset, T* copy) {
  const T* row = static_cast<const T*>(cache.data) + offset;
  const int64_t step = cache.stride[3];
  if (step == 1) return row;
  for (int64_t i = 0; i < cache.shape[3]; ++i) copy[i] = row[i * step];
  return copy;
}

template <class T>
bool task(const chipset_attention_paged_args& a, int64_t s, int64_t h_kv, const Lengths& n) {
  using A = compute_t<T>;
  const int64_t size = a.q->shape[2], group = a.q->shape[1] / a.k_cache->shape[2];
  const int64_t block_size = a.k_cache->shape[1];
  A* buffer = static_cast<A*>(
      scratch(kScratchA, sizeof(A) * static_cast<size_t>((2 * size + 2) * group + kTile)));
  const T** rows = static_cast<const T**>(scratch(kScratchB, 2 * kTile * sizeof(T*)));
  const chipset_tensor* const caches[2] = {a.k_cache, a.v_cache};
  const bool strided = caches[0]->stride[3] != 1 || caches[1]->stride[3] != 1;
  T* copies = static_cast<T*>(
      scratch(kScratchC, strided ? 2 * kTile * static_cast<size_t>(size) * sizeof(T) : 0));
  if (buffer == nullptr || rows == nullptr || copies == nullptr) return false;
  A *q = buffer, *out = q + size * group, *score = out + size * group;
  A *highest = score + kTile, *sum = highest + group;
  const int32_t* table =
      static_cast<const int32_t*>(a.block_table->data) + s * a.block_table->stride[0];
  const A scale = static_cast<A>(a.scale), cap = static_cast<A>(a.logit_softcap);
  for (int64_t t = n.begin; t < n.end; ++t) {
    for (int64_t g = 0; g < group; ++g) {
      read_row(a.q->dtype, a.q->data, t * a.q->stride[0] + (h_kv * group + g) * a.q->stride[1],
               a.q->stride[2], size, q + g * size);
      highest[g] = -INFINITY;
      sum[g] = 0;
    }
    std::memset(out, 0, sizeof(A) * static_cast<size_t>(size * group));
    const int64_t last = n.keys - (n.end - n.begin) + (t - n.begin);  // its own position
    const int64_t first = a.window_left >= 0 && last > a.window_left ? last - a.window_left : 0;
    for (int64_t start = first; start <= last; start += kTile) {
      const int64_t count = last + 1 - start < kTile ? last + 1 - start : kTile;
      for (int64_t j = 0; j < count; ++j) {
        const int64_t block = table[(start + j) / block_size * a.block_table->stride[1]];
        const int64_t slot = (start + j) % block_size;
        for (int c = 0; c < 2; ++c) {
          const chipset_tensor& cache = *caches[c];
          const int64_t offset =
              block * cache.stride[0] + slot * cache.stride[1] + h_kv * cache.stride[2];
          rows[2 * j + c] = contiguous_row(cache, offset, copies + (2 * j + c) * size);
        }
      }
      for (int64_t g = 0; g < group; ++g) {
        A top = highest[g];
        for (int64_t j = 0; j < count; ++j) {
          A x = scale * dot(q + g * size, rows[2 * j], size);
          if (cap != 0) x = cap * std::tanh(x / cap);
          score[j] = x;
          top = x > top || x != x ? x : top;
        }
        if (top == -INFINITY) continue;
        const A keep = std::exp(highest[g] - top);
        const vec<A> shift = splat(top);
        for_vectors<A>(count, [&](int64_t j, auto w) {
          store(score + j, vexp(load(score + j, w) - shift), w);
        });
        A* o = out + g * size;
        if (keep != 1)
          for_vectors<A>(size, [&](int64_t i, auto w) { store(o + i, load(o + i, w) * keep, w); });
        A total = sum[g] * keep;
        for (int64_t j = 0; j < count; ++j) total += score[j];
        sum[g] = total;
        highest[g] = top;
        for_vectors<A>(size, [&](int64_t i, auto w) {
          vec<A> acc = load(o + i, w);
          for (int64_t j = 0; j < count; ++j) acc += load(rows[2 * j + 1] + i, w) * score[j];
          store(o + i, acc, w);
        });
      }
    }
    for (int64_t g = 0; g < group; ++g) {
      A* o = out + g * size;
      const A inverse = sum[g] == 0 ? A{0} : A{1} / sum[g];  // no key: zero (NUM-006)
      for_vectors<A>(size, [&](int64_t i, auto w) { store(o + i, load(o + i, w) * inverse, w); });
      write_row(a.out->dtype, a.out->data,
                t * a.out->stride[0] + (h_kv * group + g) * a.out->stride[1], a.out->stride[2],
                size, o);
    }
  }
  return true;
}

bool forward(const chipset_attention_paged_args& a) {
  const int64_t heads = a.k_cache->shape[2], sequences = a.kv_len->shape[0];
  int64_t work = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    work +=
        read_i32(*a.kv_len, s) * (read_i32(*a.query_start, s + 1) - read_i32(*a.query_start, s));
  }
  bool ok = true;
  for_tasks(heads * sequences, work * a.q->shape[1] * a.q->shape[2] > 100000, [&](int64_t i) {
    const int64_t s = i / heads, h = i % heads;
    const Lengths n{read_i32(*a.query_start, s), read_i32(*a.query_start, s + 1),
                    read_i32(*a.kv_len, s)};
    bool done;
    switch (a.q->dtype) {
      case CHIPSET_DTYPE_F16:
        done = task<f16>(a, s, h, n);
        break;
      case CHIPSET_DTYPE_BF16:
        done = task<bf16>(a, s, h, n);
        break;
      case CHIPSET_DTYPE_F32:
        done = task<float>(a, s, h, n);
        break;
      default:
        done = task<double>(a, s, h, n);
    }
    if (!done) __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
  });
  return ok;
}

}  // namespace

extern const PagedKernels paged_kernels;
const PagedKernels paged_kernels = {forward};

}  // namespace chipset::cpu::CPU_ISA
