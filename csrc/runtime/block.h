// SPDX-License-Identifier: Apache-2.0
// Inside the caching allocator: blocks, and the pools that hold the free ones.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "runtime.h"

namespace chipset::runtime {

// Sizes follow PyTorch's CUDA allocator, whose behaviour users know: blocks in steps of 512 bytes,
// small ones cut from 2 MiB segments, larger ones from 20 MiB, the largest with a segment each.
constexpr std::size_t kStep = 512;
constexpr std::size_t kSmallLimit = 1 << 20;
constexpr std::size_t kSmallSegment = 2 << 20;
constexpr std::size_t kLargeSegment = 20 << 20;
constexpr std::size_t kSharedSegmentLimit = 10 << 20;
constexpr std::size_t kLargeStep = 2 << 20;

enum class BlockState : std::uint8_t { used, waiting, parked, free };

class Pool;

// A piece of a segment. Neighbours in the same segment are linked, so that free ones can merge.
struct Block {
  char* pointer = nullptr;
  std::size_t size = 0;
  std::size_t requested = 0;
  chipset_stream stream = nullptr;
  Pool* pool = nullptr;
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* next_parked = nullptr;
  int device = 0;
  BlockState state = BlockState::free;
  std::vector<chipset_stream> uses;  // other streams (record_stream)

  bool whole_segment() const { return previous == nullptr && next == nullptr; }
};

struct BlockOrder {
  bool operator()(const Block* a, const Block* b) const {
    if (a->stream != b->stream) return std::less<>()(a->stream, b->stream);
    if (a->size != b->size) return a->size < b->size;
    return std::less<>()(a->pointer, b->pointer);
  }
};

// Free blocks of one kind. Small blocks are first parked in a list per size and stream, whole and
// ready to be handed out again in a few nanoseconds; they merge only when memory is sought.
class Pool {
 public:
  explicit Pool(bool is_small) : small(is_small) {}

  Block* take_parked(chipset_stream stream, std::size_t size) {
    if (!small || size > kSmallLimit) return nullptr;
    Block*& head = shelf(stream)[size / kStep];
    Block* block = head;
    if (block != nullptr) head = block->next_parked;
    return block;
  }
  void park(Block* block) {
    Block*& head = shelf(block->stream)[block->size / kStep];
    block->next_parked = head;
    block->state = BlockState::parked;
    head = block;
    any_parked = true;
  }
  bool can_park(std::size_t size) const { return small && size <= kSmallLimit; }
  // Smallest free block of the stream that holds `size`, taken out; NULL if there is none.
  Block* take_best(chipset_stream stream, std::size_t size);
  // Merges with free neighbours and keeps the result.
  void keep(Block* block);
  // Turns parked blocks into free ones.
  void unpark();

  const bool small;
  bool is_private = false;
  bool any_parked = false;
  std::set<Block*, BlockOrder> free;

 private:
  using Shelf = std::array<Block*, kSmallLimit / kStep + 1>;
  Shelf& shelf(chipset_stream stream) {
    if (stream == last_stream_ && last_shelf_ != nullptr) [[likely]]
      return *last_shelf_;
    return find_shelf(stream);
  }
  Shelf& find_shelf(chipset_stream stream);

  chipset_stream last_stream_ = nullptr;
  Shelf* last_shelf_ = nullptr;
  std::vector<std::pair<chipset_stream, std::unique_ptr<Shelf>>> shelves_;
};

// Blocks by address, for callers that have only the pointer; all devices in one index.
void index_add(Block* block);
void index_remove(const Block* block);
Block* index_find(const void* pointer);  // exact start of a block
// Segments by address.
void segment_add(const char* base, std::size_t size, int device);
void segment_remove(const char* base);
int segment_device(const void* pointer);

}  // namespace chipset::runtime
