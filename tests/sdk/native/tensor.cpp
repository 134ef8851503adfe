// for_each_row against nested loops, over shapes and strides of every kind; extents.
#include <random>
#include <vector>

#include "check.hpp"

using namespace chipset::sdk;

namespace {

using Visits = std::vector<std::array<int64_t, 2>>;

Visits by_loops(const chipset_tensor& a, const chipset_tensor& b) {
  Visits visits;
  for (int64_t linear = 0; linear < numel(a); ++linear) {
    int64_t rest = linear, first = 0, second = 0;
    for (int d = a.rank - 1; d >= 0; rest /= a.shape[d--]) {
      first += rest % a.shape[d] * a.stride[d];
      second += rest % a.shape[d] * b.stride[d];
    }
    visits.push_back({first, second});
  }
  return visits;
}

Visits by_rows(const chipset_tensor& a, const chipset_tensor& b, int64_t* rows) {
  Visits visits;
  for_each_row<2>(a, {a.stride, b.stride}, [&](auto& offset, int64_t count, auto& step) {
    ++*rows;
    for (int64_t i = 0; i < count; ++i)
      visits.push_back({offset[0] + i * step[0], offset[1] + i * step[1]});
  });
  return visits;
}

void rows_visit_every_element_in_order() {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    chipset_tensor a = tensor(nullptr, CHIPSET_DTYPE_F32, {}), b = a;
    a.rank = b.rank = static_cast<int32_t>(random() % (CHIPSET_MAX_RANK + 1));
    int64_t step = 1;
    for (int d = a.rank - 1; d >= 0; --d) {
      a.shape[d] = b.shape[d] = random() % 20 == 0 ? 0 : 1 + random() % 3;
      a.stride[d] = step;                                         // contiguous
      b.stride[d] = random() % 3 == 0 ? step : random() % 4 * 2;  // repeated, strided, in order
      step *= std::max<int64_t>(a.shape[d], 1);
    }
    int64_t rows = 0;
    CHECK(by_rows(a, b, &rows) == by_loops(a, b));
  }
}

void contiguous_dimensions_are_one_row() {
  const chipset_tensor a = tensor(nullptr, CHIPSET_DTYPE_F32, {3, 4, 5});
  int64_t rows = 0;
  CHECK(by_rows(a, a, &rows).size() == 60);
  CHECK(rows == 1);
  const chipset_tensor turned = tensor(nullptr, CHIPSET_DTYPE_F32, {3, 4, 5}, {1, 15, 3});
  rows = 0;
  by_rows(a, turned, &rows);
  CHECK(rows == 3);  // the last two of both are one
}

void extents() {
  CHECK(extent(tensor(nullptr, CHIPSET_DTYPE_F32, {})) == 4);
  CHECK(extent(tensor(nullptr, CHIPSET_DTYPE_F32, {2, 0})) == 0);
  CHECK(extent(tensor(nullptr, CHIPSET_DTYPE_F16, {2, 3}, {10, 2})) == 2 * (10 + 4 + 1));
  CHECK(extent(tensor(nullptr, CHIPSET_DTYPE_F64, {1000}, {0})) == 8);
  CHECK(extent(tensor(nullptr, CHIPSET_DTYPE_I4, {5})) == 3);
  CHECK(is_contiguous(tensor(nullptr, CHIPSET_DTYPE_F32, {2, 1, 3}, {3, 77, 1})));
  CHECK(!is_contiguous(tensor(nullptr, CHIPSET_DTYPE_F32, {2, 3}, {4, 1})));
  CHECK(is_contiguous(tensor(nullptr, CHIPSET_DTYPE_F32, {0, 3}, {4, 9})));
}

}  // namespace

int main() {
  rows_visit_every_element_in_order();
  contiguous_dimensions_are_one_row();
  extents();
  return report();
}
