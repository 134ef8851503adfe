// SPDX-License-Identifier: Apache-2.0
// The caching allocator that all chips share: stream-ordered reuse, splitting and merging, memory
// for graph capture, statistics, and an out-of-memory error that shows where the memory is.
//
// CHIPSET_CACHING=0 (implied by CHIPSET_CHECK=1, and for plugins launched with check=1) gives every
// allocation memory of its own and its exact size, so that the checked layer and strict devices see
// each tensor's bounds and lifetime.
#include "allocator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace chipset::runtime {
namespace {

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
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

bool wants_cache() {
  const char* text = std::getenv("CHIPSET_CACHING");
  return !(text != nullptr && std::strcmp(text, "0") == 0) && !is_set("CHIPSET_CHECK");
}

DeviceAllocator& allocator(int device) {
  static auto* all = new std::array<DeviceAllocator, kMaxDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

void disable_cache(int device) { allocator(device).disable_cache(); }

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
                    (refusal_.empty() ? "" : "  the device says: " + refusal_ + "\n") +
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
    refusal_ = take_error();
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
  if (!cache_) free_memory(block);  // may throw; then the block waits on
  if (block->state == BlockState::waiting) {
    subtract(waiting_count_, block, 1);
    subtract(waiting_bytes_, block, static_cast<std::int64_t>(block->size));
  }
  if (!cache_) {
    forget_segment(block);
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
    give_back(waiting_[i].second);
    waiting_[i] = std::move(waiting_.back());
    waiting_.pop_back();
  }
}

// Throws when the plugin refuses, and nothing has changed. A lost device has no memory to keep.
void DeviceAllocator::free_memory(const Block* block) {
  const Device& d = device(block->device);
  const chipset_status status = d.api->mem_free(d.local, block->pointer);
  if (status == CHIPSET_STATUS_DEVICE_LOST)
    take_error();
  else
    check(status, "mem_free");
}

void DeviceAllocator::forget_segment(Block* block) {
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
    free_memory(block);
    block->pool->free.erase(block);
    forget_segment(block);
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
