// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace chipset::runtime {

Block* Pool::take_best(chipset_stream stream, std::size_t size) {
  Block key;
  key.stream = stream;
  key.size = size;
  const auto found = free.lower_bound(&key);
  if (found == free.end() || (*found)->stream != stream) return nullptr;
  // A huge block is not cut up for a middling one: it could never be given back.
  if (!small && size < kLargeSegment && (*found)->size >= size + kLargeSegment * 8) return nullptr;
  Block* block = *found;
  free.erase(found);
  return block;
}

void Pool::keep(Block* block) {
  const auto mergeable = [](const Block* b) {
    return b != nullptr && b->state == BlockState::free;
  };
  if (Block* left = block->previous; mergeable(left)) {
    free.erase(left);
    index_remove(left);
    index_remove(block);
    block->pointer = left->pointer;
    block->size += left->size;
    block->previous = left->previous;
    if (block->previous != nullptr) block->previous->next = block;
    delete left;
    index_add(block);
  }
  if (Block* right = block->next; mergeable(right)) {
    free.erase(right);
    index_remove(right);
    block->size += right->size;
    block->next = right->next;
    if (block->next != nullptr) block->next->previous = block;
    delete right;
  }
  block->state = BlockState::free;
  free.insert(block);
}

void Pool::unpark() {
  if (!any_parked) return;
  any_parked = false;
  for (auto& [stream, shelf] : shelves_) {
    for (Block*& head : *shelf) {
      while (head != nullptr) {
        Block* block = head;
        head = block->next_parked;
        block->next_parked = nullptr;
        keep(block);
      }
    }
  }
}

Pool::Shelf& Pool::find_shelf(chipset_stream stream) {
  for (auto& [known, shelf] : shelves_) {
    if (known != stream) continue;
    last_stream_ = stream;
    last_shelf_ = shelf.get();
    return *shelf;
  }
  shelves_.emplace_back(stream, std::make_unique<Shelf>());
  shelves_.back().second->fill(nullptr);
  last_stream_ = stream;
  last_shelf_ = shelves_.back().second.get();
  return *last_shelf_;
}

namespace {

constexpr std::size_t kShards = 16;
struct Shard {
  std::mutex mutex;
  std::unordered_map<const void*, Block*> blocks;
};
Shard& shard(const void* pointer) {
  static auto* all = new std::array<Shard, kShards>;
  return (*all)[(reinterpret_cast<std::uintptr_t>(pointer) / kStep) % kShards];
}

struct Segments {
  std::shared_mutex mutex;
  std::map<const char*, std::pair<std::size_t, int>> by_base;
};
Segments& segments() {
  static auto* the = new Segments;
  return *the;
}

}  // namespace

void index_add(Block* block) {
  Shard& s = shard(block->pointer);
  std::lock_guard lock(s.mutex);
  s.blocks[block->pointer] = block;
}

void index_remove(const Block* block) {
  Shard& s = shard(block->pointer);
  std::lock_guard lock(s.mutex);
  s.blocks.erase(block->pointer);
}

Block* index_find(const void* pointer) {
  Shard& s = shard(pointer);
  std::lock_guard lock(s.mutex);
  const auto found = s.blocks.find(pointer);
  return found == s.blocks.end() ? nullptr : found->second;
}

void segment_add(const char* base, std::size_t size, int device) {
  std::unique_lock lock(segments().mutex);
  segments().by_base[base] = {size, device};
}

void segment_remove(const char* base) {
  std::unique_lock lock(segments().mutex);
  segments().by_base.erase(base);
}

int segment_device(const void* pointer) {
  const char* address = static_cast<const char*>(pointer);
  std::shared_lock lock(segments().mutex);
  auto after = segments().by_base.upper_bound(address);
  if (after == segments().by_base.begin()) return -1;
  const auto& [base, extent] = *std::prev(after);
  return address < base + extent.first ? extent.second : -1;
}

}  // namespace chipset::runtime
