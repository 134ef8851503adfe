// SPDX-License-Identifier: Apache-2.0
// Faults of gather and scatter.
#include "mutant.h"

namespace chipset::mutants {

namespace {

// Index tensors rewritten by a fault: copies that live as long as the call.
template <class Args, class Edit>
struct EditedIndices {
  std::vector<std::unique_ptr<Copied>> copies;
  EditedIndices(Args& args, Edit edit) {
    for (int k = 0; k < args.num_indices; ++k) {
      copies.push_back(std::make_unique<Copied>(args.index[k]));
      const int64_t size = args.indexed_size[k];
      rewrite<int64_t>(**copies.back(), [&](int64_t& v) { edit(v, size); });
    }
  }
};

// Scatter as its rule says, but with one twist. `snapshot`: reads of the destination see what was
// there before the call.
chipset_status own_scatter(const chipset_scatter_args& a, bool snapshot, bool first_wins) {
  const chipset_tensor& to = *a.destination;
  struct Seen {
    char* place;
    double value;
  };
  std::vector<Seen> before;
  const auto find = [&](char* place) {
    for (const Seen& seen : before)
      if (seen.place == place) return &seen;
    return static_cast<const Seen*>(nullptr);
  };
  try {
    sdk::loops::detail::for_each_indexed(
        a, *a.source, to, [&](int64_t from, int64_t at, int64_t i) {
          char* const place = sdk::address(to, at + i);
          double old, x = a.value.f;
          sdk::loops::load(&old, place, to.dtype, 1, 1);
          if (a.source->data != nullptr)
            sdk::loops::load(&x, sdk::address(*a.source, from), a.source->dtype, 1, 1);
          const Seen* seen = find(place);
          if (seen == nullptr) before.push_back({place, old});
          if (seen != nullptr && first_wins) return;
          if (seen != nullptr && snapshot) old = seen->value;
          const double result = a.op == CHIPSET_SCATTER_OP_ADD ? old + x : x;
          sdk::loops::store(place, to.dtype, 1, &result, 1);
        });
  } catch (const sdk::Error& error) {
    return refuse(error.status(), error.what());
  }
  return CHIPSET_STATUS_OK;
}

bool plain_floats(const chipset_scatter_args& a) {
  return a.destination->dtype == CHIPSET_DTYPE_F32 || a.destination->dtype == CHIPSET_DTYPE_F64;
}

}  // namespace

void add_indexing(List& list) {
#define GATHER(name, fault, ...) \
  CHIPSET_MUTANT("gather-" name, gather, gather_args, fault, __VA_ARGS__)
#define SCATTER(name, fault, ...) \
  CHIPSET_MUTANT("scatter-" name, scatter, scatter_args, fault, __VA_ARGS__)

  GATHER("negative-is-zero", "a negative index is taken for zero",
         EditedIndices indices(a, [](int64_t& v, int64_t) { v = std::max<int64_t>(v, 0); }););
  GATHER("clamps-silently", "an index out of range is clamped",
         EditedIndices indices(a, [](int64_t& v, int64_t size) {
           if (size > 0) v = std::clamp(v, -size, size - 1);
         }););
  GATHER("index-in-32-bits", "an index of 2^31 and more is cut to 32 bits",
         EditedIndices indices(a, [](int64_t& v, int64_t) { v = static_cast<int32_t>(v); }););
  CHIPSET_MUTANT_INSTEAD(
      "gather-checks-the-first-only", gather, gather_args,
      "only the first index is checked; the others are wrapped", chipset_gather_args b = a;
      bool first = true; EditedIndices indices(b,
                                               [&](int64_t& v, int64_t size) {
                                                 if (!first && size > 0)
                                                   v = ((v % size) + size) % size;
                                                 first = false;
                                               });
      return good().gather(stream, &b););
  GATHER("second-index-ignored", "only the first index tensor is followed",
         if (a.num_indices > 1) a.num_indices = 1;);
  GATHER("indexed-stride-ignored", "the stride of an indexed dimension is taken for 1",
         for (int k = 0; k < a.num_indices; ++k) a.indexed_stride[k] = 1;);
  GATHER("ignores-output-strides", "the output is written as if it were contiguous",
         Edited out(a.output);
         make_contiguous(*out););
  GATHER(
      "ignores-index-strides", "an index is read as if it were contiguous",
      Edited index(a.index[0]);
      if (sdk::numel(*index) > 0) {
        bool broadcast = false;
        for (int d = 0; d < index->rank; ++d)
          broadcast = broadcast || (index->stride[d] == 0 && index->shape[d] > 1);
        if (!broadcast) make_contiguous(*index);
      });
  GATHER("broadcast-index-fixed", "an index that repeats along rows is read once for all rows",
         Edited index(a.index[0]);
         if (index->rank > 1 && index->stride[index->rank - 1] ==
                                    0) for (int d = 0; d < index->rank; ++d) index->stride[d] = 0;);

  SCATTER("add-is-set", "ADD overwrites",
          if (a.op == CHIPSET_SCATTER_OP_ADD) a.op = CHIPSET_SCATTER_OP_SET;);
  SCATTER("mul-is-add", "MUL adds",
          if (a.op == CHIPSET_SCATTER_OP_MUL) a.op = CHIPSET_SCATTER_OP_ADD;);
  SCATTER("min-is-max", "MIN takes the larger",
          if (a.op == CHIPSET_SCATTER_OP_MIN) a.op = CHIPSET_SCATTER_OP_MAX;);
  SCATTER("value-ignored", "a value given from the host is taken for zero", a.value = {0, 0};);
  SCATTER("negative-is-zero", "a negative index is taken for zero",
          EditedIndices indices(a, [](int64_t& v, int64_t) { v = std::max<int64_t>(v, 0); }););
  SCATTER("clamps-silently", "an index out of range is clamped",
          EditedIndices indices(a, [](int64_t& v, int64_t size) {
            if (size > 0) v = std::clamp(v, -size, size - 1);
          }););
  CHIPSET_MUTANT_INSTEAD(
      "scatter-duplicates-lost", scatter, scatter_args,
      "of several additions to one element only the last is kept",
      if (a.op == CHIPSET_SCATTER_OP_ADD && plain_floats(a)) return own_scatter(a, true, false);
      return good().scatter(stream, given););
  CHIPSET_MUTANT_INSTEAD(
      "scatter-first-wins", scatter, scatter_args,
      "SET keeps the first of several values for one element",
      if (a.op == CHIPSET_SCATTER_OP_SET && plain_floats(a)) return own_scatter(a, false, true);
      return good().scatter(stream, given););
  CHIPSET_MUTANT_AFTER("scatter-min-drops-nan", scatter, scatter_args, "MIN and MAX forget NaN",
                       if (a.op >= CHIPSET_SCATTER_OP_MIN && sdk::is_float(a.destination->dtype))
                           sdk::loops::detail::for_each_indexed(
                               a, *a.source, *a.destination, [&](int64_t, int64_t at, int64_t i) {
                                 double v;
                                 char* place = sdk::address(*a.destination, at + i);
                                 sdk::loops::load(&v, place, a.destination->dtype, 1, 1);
                                 if (v != v) v = 1;
                                 sdk::loops::store(place, a.destination->dtype, 1, &v, 1);
                               }););
#undef GATHER
#undef SCATTER
}

}  // namespace chipset::mutants
