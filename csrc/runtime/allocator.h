// SPDX-License-Identifier: Apache-2.0
// The caching allocator of one device. allocator.cpp does the work, allocator_stats.cpp tells of
// it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "block.h"
#include "plugin.h"
#include "pools.h"

namespace chipset::runtime {

// False with CHIPSET_CACHING=0 or CHIPSET_CHECK=1.
bool wants_cache();
// "12.00 MiB"
std::string size_text(std::int64_t bytes);

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

  void disable_cache() { cache_ = false; }

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
  void free_memory(const Block* block);
  void forget_segment(Block* block);
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
  std::string refusal_;  // the plugin's text of the last mem_alloc that ran out
  Stat waiting_count_[3];
  Stat waiting_bytes_[3];
  std::int64_t active_peak_[3] = {};
  std::int64_t active_bytes_peak_[3] = {};
};

DeviceAllocator& allocator(int device);

}  // namespace chipset::runtime
