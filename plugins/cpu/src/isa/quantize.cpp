// SPDX-License-Identifier: Apache-2.0
#include "quantize.h"

#include "isa/activation.h"
#include "parallel.h"
#include "scratch.h"

namespace chipset::cpu::CPU_ISA {
namespace {

float largest_of(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return 127;
    case CHIPSET_DTYPE_I4:
      return 7;
    case CHIPSET_DTYPE_F8E4M3:
      return 448;
    default:
      return 57344;
  }
}
bool is_whole(int32_t dtype) { return dtype == CHIPSET_DTYPE_I8 || dtype == CHIPSET_DTYPE_I4; }

float get(const chipset_tensor& q, int64_t row, int64_t k) {
  const int64_t at = row * q.stride[0] + k * q.stride[1];
  const uint8_t* bytes = static_cast<const uint8_t*>(q.data);
  switch (q.dtype) {
    case CHIPSET_DTYPE_I8:
      return static_cast<int8_t>(bytes[at]);
    case CHIPSET_DTYPE_I4:
      return static_cast<int8_t>(at & 1 ? bytes[at / 2] & 0xf0 : bytes[at / 2] << 4) / 16;
    case CHIPSET_DTYPE_F8E4M3:
      return to_float(f8e4m3{bytes[at]});
    default:
      return to_float(f8e5m2{bytes[at]});
  }
}
void put(const chipset_tensor& q, int64_t row, int64_t k, float x) {
  const int64_t at = row * q.stride[0] + k * q.stride[1];
  uint8_t* bytes = static_cast<uint8_t*>(q.data);
  const int whole = is_whole(q.dtype) && x == x ? static_cast<int>(x) : 0;
  if (q.dtype == CHIPSET_DTYPE_I8) {
    bytes[at] = static_cast<uint8_t>(whole);
  } else if (q.dtype == CHIPSET_DTYPE_I4) {
    uint8_t& byte = bytes[at / 2];
    byte = static_cast<uint8_t>(at & 1 ? (byte & 0x0f) | (whole & 15) << 4
                                       : (byte & 0xf0) | (whole & 15));
  } else if (q.dtype == CHIPSET_DTYPE_F8E4M3) {
    bytes[at] = from_float<f8e4m3>(x).bits;
  } else {
    bytes[at] = from_float<f8e5m2>(x).bits;
  }
}

template <class Number>
Number& cell(const chipset_tensor& t, int64_t row, int64_t group) {
  return static_cast<Number*>(t.data)[row * t.stride[0] + group * t.stride[1]];
}

void choose(const chipset_quantize_args& a, int64_t row, int64_t group, const float* x, int64_t n) {
  const float largest = largest_of(a.q->dtype);
  float low = x[0], high = x[0];
  for (int64_t i = 1; i < n; ++i) {
    low = x[i] < low || x[i] != x[i] ? x[i] : low;
    high = x[i] > high || x[i] != x[i] ? x[i] : high;
  }
  if (a.zero_point == nullptr) {
    cell<float>(*a.scale, row, group) = (-low > high ? -low : high) / largest;
    return;
  }
  float scale = (high - low) / (2 * largest + 1);
  if (scale == 0) scale = low < 0 ? -low : low;  // one value: it is one step from zero
  cell<float>(*a.scale, row, group) = scale;
  const float first = -largest - 1 - (scale == 0 ? 0.0f : std::nearbyint(low / scale));
  const bool fits = first > -2147483520.0f && first < 2147483520.0f;
  cell<int32_t>(*a.zero_point, row, group) = fits ? static_cast<int32_t>(first) : 0;
}

template <bool kToFloat>
bool each_group(const chipset_quantize_args& a) {
  const int64_t columns = a.x->shape[1], size = a.group_size == 0 ? columns : a.group_size;
  const float largest = largest_of(a.q->dtype);
  const float smallest = a.zero_point != nullptr && is_whole(a.q->dtype) ? -largest - 1 : -largest;
  bool ok = true;
  parallel_for(a.x->shape[0], 16384 / columns + 1, [&](int64_t begin, int64_t end) {
    float* x =
        static_cast<float*>(scratch(kScratchA, sizeof(float) * static_cast<size_t>(columns)));
    if (x == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * a.x->stride[0];
      if (!kToFloat) read_row(a.x->dtype, a.x->data, at, a.x->stride[1], columns, x);
      for (int64_t k = 0, group = 0; k < columns; k += size, ++group) {
        const int64_t n = columns - k < size ? columns - k : size;
        if (!kToFloat && a.given_scale == 0) choose(a, row, group, x + k, n);
        const float scale = cell<float>(*a.scale, row, group);
        const float zero =
            a.zero_point ? static_cast<float>(cell<int32_t>(*a.zero_point, row, group)) : 0.0f;
        for (int64_t i = k; i < k + n; ++i) {
          if (kToFloat) {
            x[i] = (get(*a.q, row, i) - zero) * scale;
            continue;
          }
          float y = x[i] / (scale == 0 ? 1.0f : scale);
          if (is_whole(a.q->dtype)) y = std::nearbyint(y);
          y += zero;
          y = y < smallest ? smallest : y > largest ? largest : y;
          put(*a.q, row, i, y);
        }
      }
      if (kToFloat) write_row(a.x->dtype, a.x->data, at, a.x->stride[1], columns, x);
    }
  });
  return ok;
}

}  // namespace

extern const QuantizeKernels quantize_kernels;
const QuantizeKernels quantize_kernels = {each_group<false>, each_group<true>};

}  // namespace chipset::cpu::CPU_ISA
