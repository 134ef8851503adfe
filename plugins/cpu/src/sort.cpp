// SPDX-License-Identifier: Apache-2.0
// sort: full sorts and top-k along a dimension. Every sort here is stable.
//
// Values are turned into unsigned keys whose order is the wanted one (NaN largest), so that one
// comparison serves every dtype; rows are sorted as (key, index) pairs.
#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <vector>

#include "check.h"
#include "functions.h"
#include "indexing.h"
#include "iterator.h"
#include "kernels.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

struct Entry {
  uint64_t key;
  int64_t index;
};

bool before(const Entry& a, const Entry& b) {
  return a.key != b.key ? a.key < b.key : a.index < b.index;
}

// Ascending order of the value as an unsigned number.
uint64_t key_of(double x) {
  if (x != x) return ~uint64_t{0};
  const uint64_t bits = std::bit_cast<uint64_t>(x + 0.0);  // -0 and 0 are equal
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}
uint64_t key_of(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

struct Plan {
  const chipset_sort_args* args;
  Loop<3> rows;  // input, values, indices: all dimensions but the sorted one
  int64_t length;
  int64_t step[3];
  Compute compute;  // kF64 or kI64
  LoadKernel load;
};

void read_keys(const Plan& plan, const char* input, std::vector<Entry>& row) {
  constexpr int64_t kBuffer = 256;
  const uint64_t flip = plan.args->descending != 0 ? ~uint64_t{0} : 0;
  union {
    double f[kBuffer];
    int64_t i[kBuffer];
  } buffer;
  for (int64_t begin = 0; begin < plan.length; begin += kBuffer) {
    const int64_t n = std::min(kBuffer, plan.length - begin);
    plan.load(input + begin * plan.step[0], plan.step[0], &buffer, n);
    for (int64_t j = 0; j < n; ++j) {
      const uint64_t key =
          plan.compute == Compute::kF64 ? key_of(buffer.f[j]) : key_of(buffer.i[j]);
      row[static_cast<size_t>(begin + j)] = {key ^ flip, begin + j};
    }
  }
}

// The best k of the row, in order. For a k far below the length a heap of k beats a full sort.
void order(std::vector<Entry>& row, int64_t k) {
  const auto middle = row.begin() + k;
  if (k * 8 < static_cast<int64_t>(row.size())) {
    std::partial_sort(row.begin(), middle, row.end(), before);
  } else {
    std::sort(row.begin(), row.end(), before);
  }
}

template <typename T>
void write_row(const Plan& plan, const std::vector<Entry>& row, const char* input, char* values,
               char* indices) {
  for (int64_t j = 0; j < plan.args->k; ++j) {
    const int64_t from = row[static_cast<size_t>(j)].index;
    __builtin_memcpy(values + j * plan.step[1], input + from * plan.step[0], sizeof(T));
    *reinterpret_cast<int64_t*>(indices + j * plan.step[2]) = from;
  }
}

// False where there was no working memory.
template <typename T>
bool run(const Plan& plan) {
  const int inner = plan.rows.rank - 1;
  const int64_t grain = std::max<int64_t>(1, 2048 / plan.length);
  std::atomic<bool> memory{true};
  parallel_for(plan.rows.numel, grain, [&](int64_t begin, int64_t end) {
    std::vector<Entry> row;
    try {
      row.resize(static_cast<size_t>(plan.length));
    } catch (const std::bad_alloc&) {
      memory = false;
      return;
    }
    for_each_row(plan.rows, begin, end, [&](char* const(&p)[3], int64_t n) {
      for (int64_t j = 0; j < n; ++j) {
        const char* input = p[0] + j * plan.rows.stride[0][inner];
        read_keys(plan, input, row);
        order(row, plan.args->k);
        write_row<T>(plan, row, input, p[1] + j * plan.rows.stride[1][inner],
                     p[2] + j * plan.rows.stride[2][inner]);
      }
    });
  });
  return memory;
}

chipset_status check(const chipset_sort_args& args) {
  RETURN_UNLESS_OK(check_tensor("sort", "input", args.input));
  RETURN_UNLESS_OK(check_output("sort", "values", args.values));
  RETURN_UNLESS_OK(check_output("sort", "indices", args.indices));
  const chipset_tensor& input = *args.input;
  if (kComputeOf[input.dtype] < 0 || args.values->dtype != input.dtype ||
      args.indices->dtype != CHIPSET_DTYPE_I64) {
    return fail(CHIPSET_STATUS_UNSUPPORTED,
                "sort: input is %s, values %s, indices %s; need numbers, the same, and i64",
                dtype_name(input.dtype), dtype_name(args.values->dtype),
                dtype_name(args.indices->dtype));
  }
  if (args.dim < 0 || args.dim >= std::max(input.rank, 1)) {
    return fail(CHIPSET_STATUS_INVALID, "sort: dim %d of an input of rank %d", args.dim,
                input.rank);
  }
  const int64_t length = input.rank == 0 ? 1 : input.shape[args.dim];
  if (args.k < 0 || args.k > length) {
    return fail(CHIPSET_STATUS_INVALID, "sort: k is %lld; the dimension has %lld elements",
                static_cast<long long>(args.k), static_cast<long long>(length));
  }
  chipset_tensor expected = input;
  if (input.rank > 0) expected.shape[args.dim] = args.k;
  if (!same_shape(*args.values, expected) || !same_shape(*args.indices, expected)) {
    return fail(CHIPSET_STATUS_INVALID, "sort: values %s and indices %s; need %s",
                shape_text(*args.values), shape_text(*args.indices), shape_text(expected));
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace

chipset_status cpu_sort(chipset_stream, const chipset_sort_args* given) {
  const chipset_sort_args& args = *given;
  RETURN_UNLESS_OK(check(args));
  if (numel(*args.values) == 0) return CHIPSET_STATUS_OK;
  const chipset_tensor* const tensors[3] = {args.input, args.values, args.indices};
  chipset_tensor others[3];  // without the sorted dimension
  Plan plan;
  plan.args = &args;
  for (int k = 0; k < 3; ++k) {
    others[k] = *tensors[k];
    plan.step[k] = 0;
    if (args.input->rank == 0) continue;
    plan.step[k] = tensors[k]->stride[args.dim] * dtype_size(tensors[k]->dtype);
    others[k].shape[args.dim] = 1;
  }
  plan.length = args.input->rank == 0 ? 1 : args.input->shape[args.dim];
  const chipset_tensor* const operands[3] = {&others[0], &others[1], &others[2]};
  plan.rows = make_loop<3>(operands, Order::kAny);
  const int32_t dtype = args.input->dtype;
  plan.compute = is_float(dtype) ? Compute::kF64 : Compute::kI64;
  plan.load = convert_table().load[static_cast<int>(plan.compute)][dtype];
  bool memory = true;
  with_bits(dtype, [&](auto type) { memory = run<decltype(type)>(plan); });
  return memory ? CHIPSET_STATUS_OK : no_memory("sort");
}

}  // namespace chipset::cpu
