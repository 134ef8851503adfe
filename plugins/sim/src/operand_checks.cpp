// SPDX-License-Identifier: Apache-2.0
// Where an operand lies, and which of its bytes have been written.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "memory.h"
#include "report.h"

namespace chipset::sim {
namespace {

// Calls f(address, bytes) for each run of bytes without a gap, until f answers false.
template <class F>
void each_run(const Operand& o, F&& f) {
  if (o.tensor == nullptr) {
    f(address(o.data), o.bytes);
    return;
  }
  const chipset_tensor& t = *o.tensor;
  if (runtime::empty(t) || t.data == nullptr) return;
  if (runtime::dtype_bits(t.dtype) < 8) {  // two elements a byte, contiguous rows
    const Span span = span_of(o);
    f(span.begin, span.end - span.begin);
    return;
  }
  const auto size = static_cast<std::int64_t>(runtime::dtype_bits(t.dtype) / 8);
  std::array<std::pair<std::int64_t, std::int64_t>, CHIPSET_MAX_RANK> dims;  // byte stride, count
  std::size_t rank = 0;
  for (int d = 0; d < t.rank; ++d) {  // sorted by stride
    if (t.shape[d] <= 1 || t.stride[d] == 0) continue;
    std::size_t at = rank++;
    for (; at > 0 && dims[at - 1].first > t.stride[d] * size; --at) dims[at] = dims[at - 1];
    dims[at] = {t.stride[d] * size, t.shape[d]};
  }
  std::int64_t run = size;
  std::size_t inner = 0;
  while (inner < rank && dims[inner].first <= run) {
    run += dims[inner].first * (dims[inner].second - 1);
    ++inner;
  }
  std::array<std::int64_t, CHIPSET_MAX_RANK> index{};
  std::int64_t offset = 0;
  for (;;) {
    if (!f(address(t.data) + static_cast<std::uintptr_t>(offset), static_cast<std::uint64_t>(run)))
      return;
    std::size_t d = inner;
    for (; d < rank; ++d) {
      offset += dims[d].first;
      if (++index[d] < dims[d].second) break;
      offset -= dims[d].first * dims[d].second;
      index[d] = 0;
    }
    if (d == rank) return;
  }
}

// The bits of [begin, end) in words: f(word, mask).
template <class F>
void each_word(std::uint64_t begin, std::uint64_t end, F&& f) {
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t word = at / 64;
    const std::uint64_t first = at % 64;
    const std::uint64_t count = std::min(end - at, 64 - first);
    const std::uint64_t mask = (count == 64 ? ~0ULL : ((1ULL << count) - 1)) << first;
    if (!f(word, mask)) return;
    at += count;
  }
}

void mark(Allocation& a, std::uint64_t begin, std::uint64_t end) {
  if (a.complete) return;
  if (begin == 0 && end == a.bytes) {
    a.complete = true;
    a.written = {};
    return;
  }
  if (a.written.empty()) a.written.resize((a.bytes + 63) / 64);
  each_word(begin, end, [&](std::uint64_t word, std::uint64_t mask) {
    a.written[word] |= mask;
    return true;
  });
}

// First byte of [begin, end) that nobody wrote, or end.
std::uint64_t first_unwritten(const Allocation& a, std::uint64_t begin, std::uint64_t end) {
  if (a.complete) return end;
  if (a.written.empty()) return begin;
  std::uint64_t found = end;
  each_word(begin, end, [&](std::uint64_t word, std::uint64_t mask) {
    const std::uint64_t missing = mask & ~a.written[word];
    if (missing == 0) return true;
    found = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(missing));
    return false;
  });
  return found;
}

// After many partial writes: whether nothing is missing any more.
void settle(Allocation& a) {
  if (a.complete || a.written.empty()) return;
  if (first_unwritten(a, 0, a.bytes) != a.bytes) return;
  a.complete = true;
  a.written = {};
}

std::string where(std::uintptr_t at) {
  const Allocation* near = find(at);
  if (near == nullptr) return "lies in no allocation of this chip";
  if (near->freed != 0)
    return text("lies in ", text_of(*near), "; keep the tensor alive until its last use");
  return text("lies in the red zone of ", text_of(*near));
}

}  // namespace

Span span_of(const Operand& o) {
  if (o.tensor == nullptr) return {address(o.data), address(o.data) + o.bytes};
  const chipset_tensor& t = *o.tensor;
  const std::uintptr_t begin = address(t.data);
  if (runtime::empty(t)) return {begin, begin};
  std::int64_t last = 0;
  for (int d = 0; d < t.rank; ++d)
    if (t.shape[d] > 1) last += (t.shape[d] - 1) * t.stride[d];
  const std::uint64_t bits = runtime::dtype_bits(t.dtype);
  return {begin, begin + ((static_cast<std::uint64_t>(last) + 1) * bits + 7) / 8};
}

std::string placement_fault(const Operand& o, std::int32_t device) {
  const Span span = span_of(o);
  if (span.empty()) return "";
  const std::string what =
      text(text_of(current_call()), ": '", o.name, "' at ", reinterpret_cast<void*>(span.begin));
  const Allocation* a = find_live(span.begin);
  if (o.host) {
    if (a != nullptr && a->kind == CHIPSET_MEMORY_KIND_DEVICE)
      return text("MEM-003: ", what, " should be host memory, but lies in ", text_of(*a),
                  "; check the copy's kind");
    if (a == nullptr && find(span.begin) == nullptr) return "";  // any memory of the host
  }
  if (a == nullptr) return text("MEM-004: ", what, " ", where(span.begin));
  if (span.end > a->end())
    return text("MEM-004: ", what, " reaches bytes ", span.begin - a->base, " to ",
                span.end - a->base, " of ", text_of(*a));
  if (o.host) return "";
  if (a->kind == CHIPSET_MEMORY_KIND_HOST)
    return text("MEM-004: ", what, " is ", text_of(*a),
                "; kernels take device memory only: copy it to the device first");
  if (device != kHost && a->device != device)
    return text("STA-001: ", what, " is ", text_of(*a), ", but the stream is of sim:", device,
                "; take the stream from the memory's device, not from a current device");
  return "";
}

std::string unwritten_fault(const Operand& o) {
  if (config().uninitialised == Severity::off) return "";
  std::string out;
  each_run(o, [&](std::uintptr_t at, std::uint64_t bytes) {
    Allocation* a = find_live(at);
    if (a == nullptr || a->complete) return false;
    const std::uint64_t begin = at - a->base;
    const std::uint64_t missing = first_unwritten(*a, begin, begin + bytes);
    if (missing == begin + bytes) return true;
    settle(*a);
    out = text("MEM-001: ", text_of(current_call()), " reads '", o.name, "' at byte ", missing,
               " of ", text_of(*a), ", which nothing has written; fill it or write it first");
    return false;
  });
  return out;
}

void mark_written(const Operand& o) {
  each_run(o, [&](std::uintptr_t at, std::uint64_t bytes) {
    Allocation* a = find_live(at);
    if (a == nullptr) return false;
    a->last_writer = current_call();
    a->dirty = true;
    if (a->complete) return false;
    mark(*a, at - a->base, at - a->base + bytes);
    return true;
  });
  if (Allocation* a = find_live(span_of(o).begin); a != nullptr) settle(*a);
}

void copy_written(const void* destination, const void* source, std::uint64_t bytes) {
  Allocation* to = find_live(address(destination));
  const Allocation* from = find_live(address(source));
  if (to == nullptr || from == nullptr) return;
  to->last_writer = current_call();
  to->dirty = true;
  const std::uint64_t t = address(destination) - to->base;
  const std::uint64_t f = address(source) - from->base;
  if (from->complete || first_unwritten(*from, f, f + bytes) == f + bytes) {
    mark(*to, t, t + bytes);
    settle(*to);
    return;
  }
  for (std::uint64_t i = 0; i < bytes; ++i)
    if (first_unwritten(*from, f + i, f + i + 1) != f + i) mark(*to, t + i, t + i + 1);
}

}  // namespace chipset::sim
