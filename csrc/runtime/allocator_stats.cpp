// SPDX-License-Identifier: Apache-2.0
// What the caching allocator tells: statistics, and the map that an out-of-memory error carries.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "allocator.h"

namespace chipset::runtime {
namespace {

void derive_active(Stat& active, const Stat& allocated, const Stat& waiting, std::int64_t peak) {
  active.current = allocated.current + waiting.current;
  active.allocated = allocated.allocated;
  active.peak = std::max({peak, allocated.peak, active.current});
}

template <class F>
void each_stat(MemoryStats& stats, F&& f) {
  for (auto* family : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                       &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                       &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& s : *family) f(s);
  }
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  char text[32];
  const double b = static_cast<double>(bytes);
  if (bytes >= 1 << 30)
    std::snprintf(text, sizeof text, "%.2f GiB", b / (1 << 30));
  else if (bytes >= 1 << 20)
    std::snprintf(text, sizeof text, "%.2f MiB", b / (1 << 20));
  else
    std::snprintf(text, sizeof text, "%.1f KiB", b / 1024);
  return text;
}

MemoryStats DeviceAllocator::stats() {
  std::lock_guard lock(mutex_);
  // Free parts of used segments are counted when asked for, so that the fast path need not; their
  // peak is the highest that was ever asked.
  for (int i = 0; i < 3; ++i) {
    stats_.inactive_split[i].current = 0;
    stats_.inactive_split_bytes[i].current = 0;
  }
  for (const auto& [base, size] : segments_) {
    for (const Block* b = index_find(base); b != nullptr; b = b->next) {
      const bool idle = b->state == BlockState::free || b->state == BlockState::parked;
      if (!idle || b->whole_segment()) continue;
      for (int i : {0, b->pool->small ? 1 : 2}) {
        stats_.inactive_split[i].current += 1;
        stats_.inactive_split_bytes[i].current += static_cast<std::int64_t>(b->size);
      }
    }
  }
  for (int i = 0; i < 3; ++i) {
    for (Stat* s : {&stats_.inactive_split[i], &stats_.inactive_split_bytes[i]})
      s->peak = std::max(s->peak, s->current);
    derive_active(stats_.active[i], stats_.allocation[i], waiting_count_[i], active_peak_[i]);
    derive_active(stats_.active_bytes[i], stats_.allocated_bytes[i], waiting_bytes_[i],
                  active_bytes_peak_[i]);
  }
  MemoryStats out = stats_;
  each_stat(out, [](Stat& s) { s.freed = s.allocated - s.current; });
  return out;
}

void DeviceAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  each_stat(stats_, [](Stat& s) { s.peak = s.current; });
  std::fill(std::begin(active_peak_), std::end(active_peak_), 0);
  std::fill(std::begin(active_bytes_peak_), std::end(active_bytes_peak_), 0);
}

void DeviceAllocator::reset_accumulated() {
  std::lock_guard lock(mutex_);
  each_stat(stats_, [](Stat& s) { s.allocated = s.current; });
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

std::string DeviceAllocator::map(int index) {
  std::lock_guard lock(mutex_);
  return map_locked(index);
}

std::string DeviceAllocator::map_locked(int index) {
  constexpr std::size_t kMostRows = 16;
  const Device& d = device(index);
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::ostringstream out;
  out << "memory map of " << d.plugin << ":" << d.local << "\n";
  if (d.api->device_memory(d.local, &free_bytes, &total_bytes) == CHIPSET_STATUS_OK)
    out << "  device     " << size_text(static_cast<std::int64_t>(free_bytes)) << " free of "
        << size_text(static_cast<std::int64_t>(total_bytes)) << "\n";
  out << "  allocated  " << size_text(stats_.allocated_bytes[0].current) << " in "
      << stats_.allocation[0].current << " blocks (peak "
      << size_text(stats_.allocated_bytes[0].peak) << ")\n"
      << "  waiting    " << size_text(waiting_bytes_[0].current)
      << " freed, but a stream has still to pass\n"
      << "  reserved   " << size_text(stats_.reserved_bytes[0].current) << " in "
      << stats_.segment[0].current << " segments\n"
      << "  segments, largest first ('#' allocated, 'w' waiting, '.' free):\n";
  std::vector<std::pair<std::size_t, char*>> order;
  for (const auto& [base, size] : segments_) order.emplace_back(size, base);
  std::sort(order.rbegin(), order.rend());
  for (std::size_t i = 0; i < order.size() && i < kMostRows; ++i) {
    constexpr std::size_t kColumns = 40;
    const auto& [size, base] = order[i];
    std::string row(kColumns, '.');
    std::size_t largest = 0;
    for (const Block* b = index_find(base); b != nullptr; b = b->next) {
      const bool idle = b->state == BlockState::free || b->state == BlockState::parked;
      if (idle) {
        largest = std::max(largest, b->size);
        continue;
      }
      const auto offset = static_cast<std::size_t>(b->pointer - base);
      const std::size_t first = offset * kColumns / size;
      const std::size_t last = (offset + b->size) * kColumns / size;
      for (std::size_t c = first; c < std::min(std::max(last, first + 1), kColumns); ++c)
        row[c] = b->state == BlockState::used ? '#' : 'w';
    }
    out << "    [" << row << "] " << size_text(static_cast<std::int64_t>(size))
        << ", largest free piece " << size_text(static_cast<std::int64_t>(largest)) << "\n";
  }
  if (order.size() > kMostRows) out << "    and " << order.size() - kMostRows << " more\n";
  return out.str();
}

}  // namespace chipset::runtime
