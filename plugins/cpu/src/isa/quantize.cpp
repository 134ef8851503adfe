// SPDX-License-Identifier: Apache-2.0
#include "quantize.h"

#include "isa/activation.h"
#include "isa/quantized.h"
#include "parallel.h"
#include "scratch.h"

namespace chipset::cpu::CPU_ISA {
namespace {

struct Range {
  float largest;
  bool whole;  // integers
};
Range range_of(int32_t dtype) {
  switch (dtype) {
    case CHIPSET_DTYPE_I8:
      return {127, true};
    case CHIPSET_DTYPE_I4:
      return {7, true};
    case CHIPSET_DTYPE_F8E4M3:
      return {448, false};
    default:
      return {57344, false};
  }
}

template <class Number>
Number& cell(const chipset_tensor& t, int64_t row, int64_t group) {
  return static_cast<Number*>(t.data)[row * t.stride[0] + group * t.stride[1]];
}

// The bytes of one row of q, one per element and in order; I4 still packed.
const uint8_t* row_bytes(const chipset_tensor& q, int64_t row, uint8_t* buffer) {
  const int64_t columns = q.shape[1], at = row * q.stride[0];
  const uint8_t* data = static_cast<const uint8_t*>(q.data);
  if (q.dtype == CHIPSET_DTYPE_I4) return data + at / 2;
  if (q.stride[1] == 1 || columns == 1) return data + at;
  for (int64_t k = 0; k < columns; ++k) buffer[k] = data[at + k * q.stride[1]];
  return buffer;
}
void write_bytes(const chipset_tensor& q, int64_t row, const uint8_t* bytes) {
  const int64_t columns = q.shape[1], at = row * q.stride[0];
  uint8_t* data = static_cast<uint8_t*>(q.data);
  if (q.dtype != CHIPSET_DTYPE_I4) {
    const int64_t step = columns == 1 ? 1 : q.stride[1];
    for (int64_t k = 0; k < columns; ++k) data[at + k * step] = bytes[k];
    return;
  }
  data += at / 2;
  int64_t k = 0;
  for (; k + 2 <= columns; k += 2)
    data[k / 2] = static_cast<uint8_t>((bytes[k] & 15) | bytes[k + 1] << 4);
  if (k < columns) data[k / 2] = static_cast<uint8_t>((data[k / 2] & 0xf0) | (bytes[k] & 15));
}

struct Extremes {
  float low, high;  // NaN if any element is
};
Extremes extremes(const float* x, int64_t n) {
  Extremes e{x[0], x[0]};
  int64_t i = 0;
  if (n >= kLanes<float>) {
    vec<float> low = -load(x), high = load(x);
    for (; i + kLanes<float> <= n; i += kLanes<float>) {
      low = vmax(low, -load(x + i));
      high = vmax(high, load(x + i));
    }
    e = {-max_lanes(low), max_lanes(high)};
  }
  for (; i < n; ++i) {
    e.low = x[i] < e.low || x[i] != x[i] ? x[i] : e.low;
    e.high = x[i] > e.high || x[i] != x[i] ? x[i] : e.high;
  }
  return e;
}

// Scale and zero point of a group, by the formulas of the header's `quantize`.
void choose(const chipset_quantize_args& a, int64_t row, int64_t group, const float* x, int64_t n) {
  const float largest = range_of(a.q->dtype).largest;
  const Extremes e = extremes(x, n);
  float& scale = cell<float>(*a.scale, row, group);
  if (a.zero_point == nullptr) {
    scale = (-e.low > e.high ? -e.low : e.high) / largest;
    return;
  }
  const double span = static_cast<double>(e.high) - e.low;
  const double size = std::fabs(e.low) > std::fabs(e.high) ? std::fabs(e.low) : std::fabs(e.high);
  scale = static_cast<float>(span <= size * 0x1p-16 ? size : span / (2.0 * largest + 1));
  const double steps = scale == 0 ? 0.0f : std::nearbyint(e.low / scale);
  const double zero_point = -largest - 1.0 - steps;
  // Only NaN and infinities do not fit.
  const bool fits = zero_point > -2147483648.0 && zero_point < 2147483648.0;
  cell<int32_t>(*a.zero_point, row, group) = fits ? static_cast<int32_t>(zero_point) : 0;
}

// One group of x in units of its scale, as bytes.
void quantize_group(const chipset_quantize_args& a, int64_t row, int64_t group, float* x, int64_t n,
                    uint8_t* out) {
  const Range range = range_of(a.q->dtype);
  const float scale = cell<float>(*a.scale, row, group), divisor = scale == 0 ? 1.0f : scale;
  if (a.zero_point != nullptr) {
    // The sum in F64: a zero point given by the caller may have more digits than F32.
    const double zero = cell<int32_t>(*a.zero_point, row, group);
    const double low = -range.largest - 1.0, high = range.largest;
    for (int64_t i = 0; i < n; ++i) {
      double y = std::nearbyint(x[i] / divisor) + zero;
      y = y > low ? y : low;  // NaN becomes the lowest
      y = y < high ? y : high;
      out[i] = static_cast<uint8_t>(static_cast<int8_t>(y));
    }
    return;
  }
  const vec<float> high = splat(range.largest), low = -high, by = splat(divisor);
  for_vectors<float>(n, [&](int64_t i, auto w) {
    vec<float> y = load(x + i, w) / by;
    y = y > high ? high : y;
    store(x + i, y < low ? low : y, w);
  });
  if (range.whole) {
    constexpr float magic = 12582912.0f;  // 1.5 * 2^23: the sum rounds to whole numbers
    for (int64_t i = 0; i < n; ++i) {
      const float y = x[i] == x[i] ? x[i] : 0.0f;
      out[i] = static_cast<uint8_t>(static_cast<int32_t>((y + magic) - magic));
    }
  } else if (a.q->dtype == CHIPSET_DTYPE_F8E4M3) {
    for (int64_t i = 0; i < n; ++i) out[i] = from_float<f8e4m3>(x[i]).bits;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = from_float<f8e5m2>(x[i]).bits;
  }
}

// f(row, x, bytes) for each row, with room for its elements as floats and as bytes.
template <class F>
bool for_rows(const chipset_quantize_args& a, F&& f) {
  const int64_t columns = a.x->shape[1];
  bool ok = true;
  parallel_for(a.x->shape[0], 16384 / columns + 1, [&](int64_t begin, int64_t end) {
    const size_t count = static_cast<size_t>(columns);
    float* x = static_cast<float*>(scratch(kScratchA, sizeof(float) * count));
    uint8_t* bytes = static_cast<uint8_t*>(scratch(kScratchB, count));
    if (x == nullptr || bytes == nullptr) return __atomic_store_n(&ok, false, __ATOMIC_RELAXED);
    for (int64_t row = begin; row < end; ++row) f(row, x, bytes);
  });
  return ok;
}

int64_t x_step(const chipset_quantize_args& a) { return a.x->shape[1] == 1 ? 1 : a.x->stride[1]; }

bool quantize(const chipset_quantize_args& a) {
  const int64_t columns = a.x->shape[1], size = a.group_size == 0 ? columns : a.group_size;
  return for_rows(a, [&](int64_t row, float* x, uint8_t* bytes) {
    read_row(a.x->dtype, a.x->data, row * a.x->stride[0], x_step(a), columns, x);
    for (int64_t k = 0, group = 0; k < columns; k += size, ++group) {
      const int64_t n = columns - k < size ? columns - k : size;
      if (a.given_scale == 0) choose(a, row, group, x + k, n);
      quantize_group(a, row, group, x + k, n, bytes + k);
    }
    write_bytes(*a.q, row, bytes);
  });
}

template <class Format>
bool dequantize_of(const chipset_quantize_args& a) {
  const int64_t columns = a.x->shape[1], size = a.group_size == 0 ? columns : a.group_size;
  return for_rows(a, [&](int64_t row, float* x, uint8_t* buffer) {
    const uint8_t* bytes = row_bytes(*a.q, row, buffer);
    for (int64_t k = 0, group = 0; k < columns; k += size, ++group) {
      const int64_t n = columns - k < size ? columns - k : size;
      const int32_t zero = a.zero_point ? cell<int32_t>(*a.zero_point, row, group) : 0;
      dequantize_run<Format>(bytes, k, n, cell<float>(*a.scale, row, group),
                             static_cast<float>(zero), x + k);
    }
    write_row(a.x->dtype, a.x->data, row * a.x->stride[0], x_step(a), columns, x);
  });
}
bool dequantize(const chipset_quantize_args& a) {
  return with_format(a.q->dtype, [&](auto format) { return dequantize_of<decltype(format)>(a); });
}

}  // namespace

extern const QuantizeKernels quantize_kernels;
const QuantizeKernels quantize_kernels = {quantize, dequantize};

}  // namespace chipset::cpu::CPU_ISA
