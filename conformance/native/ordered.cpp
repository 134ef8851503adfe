// SPDX-License-Identifier: Apache-2.0
// Faults of scan, sort, random and capture.
#include "mutant.h"

namespace chipset::mutants {

void add_ordered(List& list) {
#define SCAN(name, fault, ...) CHIPSET_MUTANT("scan-" name, scan, scan_args, fault, __VA_ARGS__)
  SCAN("along-the-last", "the scan is always along the last dimension",
       if (a.input->rank > 0) a.dim = a.input->rank - 1;);
  SCAN("prod-is-sum", "PROD adds", if (a.op == CHIPSET_SCAN_OP_PROD) a.op = CHIPSET_SCAN_OP_SUM;);
  SCAN("indices-not-written", "indices are not written", a.indices = nullptr;);
  SCAN("ignores-strides", "the input is read as if it were contiguous", Edited x(a.input);
       make_contiguous(*x););
  CHIPSET_MUTANT_AFTER("scan-exclusive", scan, scan_args, "an element's own value is left out",
                       if (a.op == CHIPSET_SCAN_OP_SUM && a.output->data != a.input->data)
                           rewrite<double>(*a.output, a.input, nullptr,
                                           [](double& v, double x, double) { v -= x; }););
  CHIPSET_MUTANT_AFTER("scan-drops-nan", scan, scan_args, "a running MAX forgets NaN",
                       if (a.op == CHIPSET_SCAN_OP_MAX && sdk::is_float(a.output->dtype))
                           rewrite<double>(*a.output, [](double& v) {
                             if (v != v) v = 9;
                           }););
  CHIPSET_MUTANT_AFTER("scan-indices-from-1", scan, scan_args, "indices count from 1",
                       if (a.indices != nullptr)
                           rewrite<int64_t>(*a.indices, [](int64_t& v) { ++v; }););

#define SORT(name, fault, ...) CHIPSET_MUTANT("sort-" name, sort, sort_args, fault, __VA_ARGS__)
#define SORT_AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("sort-" name, sort, sort_args, fault, __VA_ARGS__)
  SORT("always-ascending", "the order is always ascending", a.descending = 0;);
  SORT("along-the-last", "the sort is always along the last dimension",
       if (a.input->rank > 0) a.dim = a.input->rank - 1;);
  SORT_AFTER("indices-from-1", "indices count from 1",
             rewrite<int64_t>(*a.indices, [](int64_t& v) { ++v; }););
  CHIPSET_MUTANT_INSTEAD(
      "sort-unstable", sort, sort_args, "equals change places although a stable sort is asked",
      if (!a.stable || a.k < 2 || a.values->rank == 0) return good().sort(stream, given);
      const chipset_status status = good().sort(stream, given);
      if (status != CHIPSET_STATUS_OK) return status; sdk::loops::detail::for_each_line<2>(
          {a.values, a.indices}, a.dim,
          [&](auto& base, auto& along) {
            for (int64_t i = 0; i + 1 < a.k; ++i) {
              const auto same = [&](int64_t k) {
                return std::memcmp(sdk::address(*a.values, base[0] + k * along[0]),
                                   sdk::address(*a.values, base[0] + (k + 1) * along[0]),
                                   static_cast<std::size_t>(sdk::dtype_size(a.values->dtype))) == 0;
              };
              if (!same(i)) continue;
              char* first = sdk::address(*a.indices, base[1] + i * along[1]);
              char* second = sdk::address(*a.indices, base[1] + (i + 1) * along[1]);
              std::swap_ranges(first, first + 8, second);
              ++i;
            }
          });
      return status;);
  CHIPSET_MUTANT_INSTEAD("sort-nan-first", sort, sort_args,
                         "NaN counts as smaller than every number",
                         if (!sdk::is_float(a.input->dtype)) return good().sort(stream, given);
                         chipset_sort_args b = a; Copied x(b.input);
                         rewrite<double>(*x,
                                         [](double& v) {
                                           if (v != v) v = -std::numeric_limits<double>::infinity();
                                         });
                         return good().sort(stream, &b););

#define RANDOM(name, fault, ...) \
  CHIPSET_MUTANT("random-" name, random, random_args, fault, __VA_ARGS__)
#define RANDOM_AFTER(name, fault, ...) \
  CHIPSET_MUTANT_AFTER("random-" name, random, random_args, fault, __VA_ARGS__)
  RANDOM("counter-reused", "the offset is ignored, so that numbers repeat", a.offset = 0;);
  RANDOM("seed-in-32-bits", "the upper half of the seed is ignored", a.seed &= 0xffffffffu;);
  RANDOM("offset-in-32-bits", "the upper half of the offset is ignored", a.offset &= 0xffffffffu;);
  RANDOM("offset-by-one", "numbers begin one block late", ++a.offset;);
  RANDOM(
      "range-ignored", "UNIFORM is always from 0 to 1", if (a.kind == CHIPSET_RANDOM_KIND_UNIFORM) {
        a.param[0] = {0, 0};
        a.param[1] = {1, 1};
      });
  RANDOM("mask-ignored", "BITS ignores its mask",
         if (a.kind == CHIPSET_RANDOM_KIND_BITS) a.param[0] = {0, 0};);
  RANDOM("probabilities-ignored", "BERNOULLI ignores its tensor of probabilities", a.p = nullptr;);
  RANDOM("seed-in-memory-ignored", "seed and offset in device memory are ignored",
         a.seed_offset = nullptr;);
  RANDOM_AFTER("uniform-mirrored", "UNIFORM is mirrored",
               if (a.kind == CHIPSET_RANDOM_KIND_UNIFORM) rewrite<double>(
                   *a.output, [&](double& v) { v = a.param[0].f + a.param[1].f - v; }););
  RANDOM_AFTER(
      "normal-in-another-order", "the two numbers of a pair change places",
      if (a.kind == CHIPSET_RANDOM_KIND_NORMAL && sdk::is_contiguous(*a.output)) {
        const int64_t size = sdk::dtype_size(a.output->dtype);
        for (int64_t i = 0; i + 1 < sdk::numel(*a.output); i += 2) {
          char* first = sdk::address(*a.output, i);
          std::swap_ranges(first, first + size, first + size);
        }
      });
  RANDOM_AFTER("randint-reaches-the-top", "RANDINT reaches the end of its range",
               if (a.kind == CHIPSET_RANDOM_KIND_RANDINT)
                   rewrite<int64_t>(*a.output, [](int64_t& v) { ++v; }););
#undef SCAN
#undef SORT
#undef SORT_AFTER
#undef RANDOM
#undef RANDOM_AFTER

  list.push_back({"capture-replays-nothing", "2", "capture_replay capture_begin capture_end",
                  "a replay does nothing", [](chipset_api& api) {
                    api.capture_replay = [](chipset_graph, chipset_stream) {
                      return CHIPSET_STATUS_OK;
                    };
                  }});
  list.push_back({"capture-accepts-host-copies", "2", "capture_begin mem_copy",
                  "a copy that touches the host is accepted while capturing", [](chipset_api& api) {
                    api.mem_copy = [](chipset_stream stream, void* to, const void* from,
                                      uint64_t bytes, int32_t kind) -> chipset_status {
                      const chipset_status status = good().mem_copy(stream, to, from, bytes, kind);
                      return status == CHIPSET_STATUS_INVALID &&
                                     kind != CHIPSET_COPY_KIND_DEVICE_TO_DEVICE
                                 ? CHIPSET_STATUS_OK
                                 : status;
                    };
                  }});
}

}  // namespace chipset::mutants
