// SPDX-License-Identifier: Apache-2.0
// Cached page-locked host memory. A block that streams use is handed out again only after they
// passed the point of its deallocation.
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "plugin.h"
#include "pools.h"

namespace chipset::runtime {
namespace {

constexpr std::size_t kSmallest = 4096;

struct HostBlock {
  int device;
  char* pointer;
  std::size_t size;
  std::vector<chipset_stream> uses;  // guarded by HostMemory::mutex
  bool free = false;
};

struct HostMemory {
  std::shared_mutex mutex;
  std::map<const char*, HostBlock*> blocks;  // by address, free or not
  std::map<std::pair<int, std::size_t>, std::vector<HostBlock*>> free;
  std::vector<std::pair<Fence, HostBlock*>> pending;
  std::atomic<std::size_t> count{0};
};
HostMemory& memory() {
  static auto* the = new HostMemory;
  return *the;
}

// The block that holds the address, or NULL. Caller holds the mutex.
HostBlock* find(HostMemory& m, const void* pointer) {
  const char* address = static_cast<const char*>(pointer);
  auto after = m.blocks.upper_bound(address);
  if (after == m.blocks.begin()) return nullptr;
  HostBlock* block = std::prev(after)->second;
  const bool inside = address < block->pointer + block->size;
  return inside && !block->free ? block : nullptr;
}

void collect_passed(HostMemory& m) {
  std::erase_if(m.pending, [&](auto& entry) {
    if (!entry.first.passed()) return false;
    m.free[{entry.second->device, entry.second->size}].push_back(entry.second);
    return true;
  });
}

}  // namespace

void* allocate_host(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  Device& d = runtime::device(device);
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  HostMemory& m = memory();
  std::unique_lock lock(m.mutex);
  collect_passed(m);
  auto& ready = m.free[{device, size}];
  if (!ready.empty()) {
    HostBlock* block = ready.back();
    ready.pop_back();
    block->free = false;
    return block->pointer;
  }
  lock.unlock();
  void* pointer = nullptr;
  check(d.api->mem_alloc(d.local, CHIPSET_MEMORY_KIND_HOST, size, &pointer), "mem_alloc");
  lock.lock();
  m.blocks[static_cast<char*>(pointer)] =
      new HostBlock{device, static_cast<char*>(pointer), size, {}, false};
  m.count.fetch_add(1);
  return pointer;
}

void deallocate_host(void* pointer) {
  if (pointer == nullptr || retired()) return;
  HostMemory& m = memory();
  std::unique_lock lock(m.mutex);
  HostBlock* block = find(m, pointer);
  if (block == nullptr || block->pointer != pointer)
    throw Error(CHIPSET_STATUS_INVALID,
                "deallocate_host: the pointer is not the start of a page-locked block in use");
  block->free = true;
  if (block->uses.empty()) {
    m.free[{block->device, block->size}].push_back(block);
    return;
  }
  m.pending.emplace_back(Fence(block->uses), block);
  block->uses.clear();
}

bool record_host(const void* pointer, chipset_stream stream) {
  HostMemory& m = memory();
  if (m.count.load(std::memory_order_relaxed) == 0) return false;
  std::unique_lock lock(m.mutex);
  HostBlock* block = find(m, pointer);
  if (block == nullptr) return false;
  for (chipset_stream known : block->uses)
    if (known == stream) return true;
  block->uses.push_back(stream);
  return true;
}

bool is_pinned(const void* pointer) {
  HostMemory& m = memory();
  if (m.count.load(std::memory_order_relaxed) == 0) return false;
  std::shared_lock lock(m.mutex);
  return find(m, pointer) != nullptr;
}

void empty_host_cache() {
  HostMemory& m = memory();
  std::unique_lock lock(m.mutex);
  collect_passed(m);
  for (auto& [key, blocks] : m.free) {
    while (!blocks.empty()) {
      HostBlock* block = blocks.back();
      Device& d = device(block->device);
      check(d.api->mem_free(d.local, block->pointer), "mem_free");
      blocks.pop_back();
      m.blocks.erase(block->pointer);
      m.count.fetch_sub(1);
      delete block;
    }
  }
}

}  // namespace chipset::runtime
