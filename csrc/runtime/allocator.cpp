// SPDX-License-Identifier: Apache-2.0
// The caching allocator that all chips share: stream-ordered reuse, splitting and merging, memory
// for graph capture, statistics, and an out-of-memory error that shows where the memory is.
//
// CHIPSET_CACHING=0 (implied by CHIPSET_CHECK=1) gives every allocation memory of its own and its
// exact size, so that the checked layer and strict devices see each tensor's bounds and lifetime.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

#include "block.h"
#include "plugin.h"
#include "pools.h"

namespace chipset::runtime {
namespace {

bool wants_cache() {
  const char* text = std::getenv("CHIPSET_CACHING");
  return !(text != nullptr && std::strcmp(text, "0") == 0) && !is_set("CHIPSET_CHECK");
}

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

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

struct PrivatePool {
  Pool small{true};
  Pool large{false};
};

class DeviceAllocator {
 public:
  Block* allocate(int index, std::size_t bytes, chipset_stream stream);
  void deallocate(Block* block);
  void record(Block* block, chipset_stream stream);
  void empty_cache(int index);

  void begin_private(std::uint64_t id);
  void end_private(std::uint64_t id);
  void release_private(std::uint64_t id);

  MemoryStats stats();
  void reset_peak();
  void reset_accumulated();
  std::string map(int index);

 private:
  Block* find(int index, Pool& pool, std::size_t size, std::size_t bytes, chipset_stream stream);
  Block* new_segment(int index, Pool& pool, std::size_t size, chipset_stream stream);
  void split(Block* block, std::size_t size);
  void give_back(Block* block);
  void collect_passed(bool wait);
  void free_cached(int index);
  void free_segment(Block* block);
  void add(Stat (&stat)[3], const Block* block, std::int64_t by);
  void subtract(Stat (&stat)[3], const Block* block, std::int64_t by);
  void note_active_peak();
  std::string map_locked(int index);

  std::mutex mutex_;
  bool cache_ = wants_cache();
  Pool small_{true};
  Pool large_{false};
  std::map<std::uint64_t, std::unique_ptr<PrivatePool>> private_;
  PrivatePool* capturing_ = nullptr;
  std::vector<std::pair<Fence, Block*>> waiting_;
  std::vector<Block*> held_;  // used by other streams during a capture; kept until it is released
  std::map<char*, std::size_t> segments_;  // sizes by address
  MemoryStats stats_;
  Stat waiting_count_[3];
  Stat waiting_bytes_[3];
  std::int64_t active_peak_[3] = {};
  std::int64_t active_bytes_peak_[3] = {};
};

DeviceAllocator& allocator(int device) {
  static auto* all = new std::array<DeviceAllocator, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

inline void DeviceAllocator::add(Stat (&stat)[3], const Block* block, std::int64_t by) {
  for (int i : {0, block->pool->small ? 1 : 2}) {
    Stat& s = stat[i];
    s.current += by;
    s.allocated += by;
    if (s.current > s.peak) s.peak = s.current;
  }
}

// `freed` is what `allocated` and `current` leave over; see stats().
inline void DeviceAllocator::subtract(Stat (&stat)[3], const Block* block, std::int64_t by) {
  stat[0].current -= by;
  stat[block->pool->small ? 1 : 2].current -= by;
}

// What is active is what is allocated plus what waits, so that it needs a count of its own only
// while something waits.
void DeviceAllocator::note_active_peak() {
  for (int i = 0; i < 3; ++i) {
    active_peak_[i] =
        std::max(active_peak_[i], stats_.allocation[i].current + waiting_count_[i].current);
    active_bytes_peak_[i] = std::max(active_bytes_peak_[i],
                                     stats_.allocated_bytes[i].current + waiting_bytes_[i].current);
  }
}

Block* DeviceAllocator::allocate(int index, std::size_t bytes, chipset_stream stream) {
  std::lock_guard lock(mutex_);
  if (!waiting_.empty()) [[unlikely]]
    collect_passed(false);
  const std::size_t size = cache_ ? round_up(bytes, kStep) : bytes;
  const bool small = size <= kSmallLimit;
  Pool& pool = capturing_ != nullptr ? (small ? capturing_->small : capturing_->large)
                                     : (small ? small_ : large_);
  Block* block = cache_ ? pool.take_parked(stream, size) : nullptr;
  if (block == nullptr) [[unlikely]]
    block = find(index, pool, size, bytes, stream);
  block->state = BlockState::used;
  block->requested = bytes;
  add(stats_.allocation, block, 1);
  add(stats_.allocated_bytes, block, static_cast<std::int64_t>(block->size));
  add(stats_.requested_bytes, block, static_cast<std::int64_t>(bytes));
  if (waiting_count_[0].current != 0) [[unlikely]]
    note_active_peak();
  return block;
}

// A block from the free ones, or from new memory; throws OUT_OF_MEMORY when all has been tried.
Block* DeviceAllocator::find(int index, Pool& pool, std::size_t size, std::size_t bytes,
                             chipset_stream stream) {
  Block* block = nullptr;
  if (cache_) {
    block = pool.take_best(stream, size);
    if (block == nullptr && pool.any_parked) {
      pool.unpark();
      block = pool.take_best(stream, size);
    }
  }
  if (block == nullptr) block = new_segment(index, pool, size, stream);
  if (block == nullptr) {
    ++stats_.num_alloc_retries;
    collect_passed(true);
    free_cached(index);
    if (cache_) block = pool.take_best(stream, size);
    if (block == nullptr) block = new_segment(index, pool, size, stream);
  }
  if (block == nullptr) {
    ++stats_.num_ooms;
    const Device& d = device(index);
    throw Error(CHIPSET_STATUS_OUT_OF_MEMORY,
                d.plugin + ": out of memory: tried to allocate " +
                    size_text(static_cast<std::int64_t>(bytes)) + " on device " +
                    std::to_string(index) + " (" + d.plugin + ":" + std::to_string(d.local) + ", " +
                    d.info.name + "). Use a smaller batch or sequence, or free tensors.\n" +
                    map_locked(index));
  }
  if (cache_) split(block, size);
  return block;
}

Block* DeviceAllocator::new_segment(int index, Pool& pool, std::size_t size,
                                    chipset_stream stream) {
  std::size_t segment = size;
  if (cache_) {
    segment = pool.small                   ? kSmallSegment
              : size < kSharedSegmentLimit ? kLargeSegment
                                           : round_up(size, kLargeStep);
  }
  const Device& d = device(index);
  void* pointer = nullptr;
  chipset_status status = d.api->mem_alloc(d.local, CHIPSET_MEMORY_KIND_DEVICE, segment, &pointer);
  if (status == CHIPSET_STATUS_OUT_OF_MEMORY && segment > size) {
    // A nearly full device may still hold the block itself.
    segment = size;
    status = d.api->mem_alloc(d.local, CHIPSET_MEMORY_KIND_DEVICE, segment, &pointer);
  }
  if (status == CHIPSET_STATUS_OUT_OF_MEMORY) {
    take_error();
    return nullptr;
  }
  check(status, "mem_alloc");
  auto* block = new Block;
  block->pointer = static_cast<char*>(pointer);
  block->size = segment;
  block->stream = stream;
  block->pool = &pool;
  block->device = index;
  index_add(block);
  segment_add(block->pointer, segment, index);
  segments_[block->pointer] = segment;
  ++stats_.num_device_alloc;
  add(stats_.segment, block, 1);
  add(stats_.reserved_bytes, block, static_cast<std::int64_t>(segment));
  return block;
}

void DeviceAllocator::split(Block* block, std::size_t size) {
  const std::size_t rest = block->size - size;
  if (rest < (block->pool->small ? kStep : kSmallLimit)) return;
  auto* tail = new Block;
  tail->pointer = block->pointer + size;
  tail->size = rest;
  tail->stream = block->stream;
  tail->pool = block->pool;
  tail->device = block->device;
  tail->previous = block;
  tail->next = block->next;
  if (tail->next != nullptr) tail->next->previous = tail;
  block->next = tail;
  block->size = size;
  index_add(tail);
  tail->pool->free.insert(tail);
}

void DeviceAllocator::deallocate(Block* block) {
  std::lock_guard lock(mutex_);
  if (block->state != BlockState::used)
    throw Error(CHIPSET_STATUS_INVALID, "deallocate: the block was freed before (MEM-002)");
  subtract(stats_.allocation, block, 1);
  subtract(stats_.allocated_bytes, block, static_cast<std::int64_t>(block->size));
  subtract(stats_.requested_bytes, block, static_cast<std::int64_t>(block->requested));
  if (block->uses.empty() && cache_) [[likely]] {
    give_back(block);
    return;
  }
  block->state = BlockState::waiting;
  add(waiting_count_, block, 1);
  add(waiting_bytes_, block, static_cast<std::int64_t>(block->size));
  if (block->pool->is_private) {
    // Events recorded inside a capture tell nothing about when a replay has passed.
    held_.push_back(block);
    return;
  }
  std::vector<chipset_stream> streams = std::move(block->uses);
  block->uses.clear();
  if (!cache_) streams.push_back(block->stream);
  waiting_.emplace_back(Fence(streams), block);
}

// The block's memory may be used again from here on.
void DeviceAllocator::give_back(Block* block) {
  if (block->state == BlockState::waiting) {
    subtract(waiting_count_, block, 1);
    subtract(waiting_bytes_, block, static_cast<std::int64_t>(block->size));
  }
  if (!cache_) {
    free_segment(block);
  } else if (block->pool->can_park(block->size)) {
    block->pool->park(block);
  } else {
    block->pool->keep(block);
  }
}

void DeviceAllocator::record(Block* block, chipset_stream stream) {
  std::lock_guard lock(mutex_);
  if (block->stream == stream) return;
  if (std::find(block->uses.begin(), block->uses.end(), stream) == block->uses.end())
    block->uses.push_back(stream);
}

void DeviceAllocator::collect_passed(bool wait) {
  for (std::size_t i = 0; i < waiting_.size();) {
    if (wait) waiting_[i].first.wait();
    if (!waiting_[i].first.passed()) {
      ++i;
      continue;
    }
    Block* block = waiting_[i].second;
    waiting_[i] = std::move(waiting_.back());
    waiting_.pop_back();
    give_back(block);
  }
}

void DeviceAllocator::free_segment(Block* block) {
  const Device& d = device(block->device);
  check(d.api->mem_free(d.local, block->pointer), "mem_free");
  ++stats_.num_device_free;
  subtract(stats_.segment, block, 1);
  subtract(stats_.reserved_bytes, block, static_cast<std::int64_t>(block->size));
  segment_remove(block->pointer);
  segments_.erase(block->pointer);
  index_remove(block);
  delete block;
}

// Frees every segment of the common pools that nothing uses.
void DeviceAllocator::free_cached(int index) {
  std::vector<Block*> whole;
  for (Pool* pool : {&small_, &large_}) {
    pool->unpark();
    for (Block* block : pool->free)
      if (block->whole_segment()) whole.push_back(block);
  }
  if (whole.empty()) return;
  // Enqueued work may still use memory that has been freed in stream order (MEM-002).
  const Device& d = device(index);
  ++stats_.num_sync_all_streams;
  check(d.api->device_sync(d.local), "device_sync");
  for (Block* block : whole) {
    block->pool->free.erase(block);
    free_segment(block);
  }
}

void DeviceAllocator::empty_cache(int index) {
  std::lock_guard lock(mutex_);
  collect_passed(true);
  free_cached(index);
}

void DeviceAllocator::begin_private(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  if (capturing_ != nullptr)
    throw Error(CHIPSET_STATUS_INVALID,
                "a graph capture already allocates from a private pool of this device");
  auto& pools = private_[id];
  if (pools == nullptr) {
    pools = std::make_unique<PrivatePool>();
    pools->small.is_private = pools->large.is_private = true;
  }
  capturing_ = pools.get();
}

void DeviceAllocator::end_private(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = private_.find(id);
  if (found == private_.end() || capturing_ != found->second.get())
    throw Error(CHIPSET_STATUS_INVALID,
                "private pool " + std::to_string(id) + " is not the one that allocates");
  capturing_ = nullptr;
}

// The pool's memory becomes ordinary: blocks still in use return to the common pools when freed.
void DeviceAllocator::release_private(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = private_.find(id);
  if (found == private_.end()) return;
  if (capturing_ == found->second.get())
    throw Error(CHIPSET_STATUS_INVALID,
                "private pool " + std::to_string(id) + " still allocates; end it first");
  PrivatePool& pools = *found->second;
  std::erase_if(held_, [&](Block* block) {
    if (block->pool != &pools.small && block->pool != &pools.large) return false;
    std::vector<chipset_stream> streams = std::move(block->uses);
    block->uses.clear();
    waiting_.emplace_back(Fence(streams), block);
    return true;
  });
  pools.small.unpark();
  for (const auto& [base, size] : segments_) {
    Block* block = index_find(base);
    if (block->pool != &pools.small && block->pool != &pools.large) continue;
    for (; block != nullptr; block = block->next) {
      if (block->state == BlockState::free) block->pool->free.erase(block);
      block->pool = block->pool->small ? &small_ : &large_;
      if (block->state == BlockState::free) block->pool->free.insert(block);
    }
  }
  private_.erase(found);
}

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

Block* handle_of(void* pointer, const char* function) {
  Block* block = index_find(pointer);
  if (block == nullptr)
    throw Error(CHIPSET_STATUS_INVALID, std::string(function) +
                                            ": the pointer is not the start of a block of the "
                                            "caching allocator");
  return block;
}

}  // namespace

Allocation allocate_block(int device, std::size_t bytes, chipset_stream stream) {
  if (bytes == 0) return {nullptr, nullptr};
  throw_if_forked();
  if (device < 0 || device >= device_count()) [[unlikely]]
    runtime::device(device);  // throws
  Block* block = allocator(device).allocate(device, bytes, stream);
  return {block->pointer, block};
}

void deallocate_block(void* handle) {
  if (handle == nullptr || retired()) return;
  auto* block = static_cast<Block*>(handle);
  allocator(block->device).deallocate(block);
}

Extent extent_of(const void* handle) {
  const auto* block = static_cast<const Block*>(handle);
  return {block->pointer, block->size, block->device};
}

void* allocate(int device, std::size_t bytes, chipset_stream stream) {
  return allocate_block(device, bytes, stream).pointer;
}

void deallocate(void* pointer) {
  if (pointer == nullptr || retired()) return;
  deallocate_block(handle_of(pointer, "deallocate"));
}

void record_stream(void* pointer, chipset_stream stream) {
  if (pointer == nullptr || retired()) return;
  Block* block = handle_of(pointer, "record_stream");
  allocator(block->device).record(block, stream);
}

std::size_t block_size(const void* pointer) {
  const Block* block = pointer == nullptr ? nullptr : index_find(pointer);
  return block == nullptr ? 0 : block->size;
}

int owner_of(const void* pointer) { return segment_device(pointer); }

void empty_cache(int device) {
  runtime::device(device);
  allocator(device).empty_cache(device);
}

void begin_private_pool(int device, std::uint64_t id) {
  runtime::device(device);
  allocator(device).begin_private(id);
}
void end_private_pool(int device, std::uint64_t id) { allocator(device).end_private(id); }
void release_private_pool(int device, std::uint64_t id) { allocator(device).release_private(id); }

MemoryStats memory_stats(int device) {
  runtime::device(device);
  return allocator(device).stats();
}
void reset_peak_memory_stats(int device) {
  runtime::device(device);
  allocator(device).reset_peak();
}
void reset_accumulated_memory_stats(int device) {
  runtime::device(device);
  allocator(device).reset_accumulated();
}
std::string memory_map(int device) {
  runtime::device(device);
  return allocator(device).map(device);
}

}  // namespace chipset::runtime
