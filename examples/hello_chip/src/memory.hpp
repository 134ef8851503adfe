// SPDX-License-Identifier: Apache-2.0
// The card's memory. Its addresses are the chip's own: the host cannot follow them, only the chip's
// units can, through an alias that nobody else knows. So a program that forgets a copy crashes here
// as it would on a real card.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <chipset_sdk.hpp>
#include <map>
#include <mutex>

namespace hello {

class Memory {
 public:
  static constexpr uint64_t kAlignment = 256;
  static constexpr uint64_t kPage = 4096;  // of the host

  explicit Memory(uint64_t bytes) : bytes_(bytes) {
    const int file = memfd_create("hello_chip", MFD_CLOEXEC);
    const bool sized = file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0;
    address_ = map(nullptr, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    alias_ =
        sized ? map(nullptr, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file) : nullptr;
    if (file >= 0) close(file);
    if (address_ == nullptr || alias_ == nullptr)
      chipset::sdk::fail(CHIPSET_STATUS_INTERNAL, "the host gives no address space for %llu bytes",
                         static_cast<unsigned long long>(bytes));
    free_[0] = bytes;
  }
  ~Memory() {
    munmap(address_, bytes_);
    munmap(alias_, bytes_);
  }

  // First fit.
  void* allocate(uint64_t bytes) {
    const uint64_t size =
        bytes > bytes_ ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [start, room] = *it;
      if (room < size) continue;
      free_.erase(it);
      if (room > size) free_[start + size] = room - size;
      used_[start] = {size, bytes};
      taken_ += size;
      return address_ + start;
    }
    chipset::sdk::fail(
        CHIPSET_STATUS_OUT_OF_MEMORY, "no free block of %llu bytes; %llu of %llu are in use",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(taken_),
        static_cast<unsigned long long>(bytes_));
  }

  void release(void* pointer) {
    std::lock_guard lock(mutex_);
    const auto it = used_.find(static_cast<uint64_t>(static_cast<char*>(pointer) - address_));
    if (it == used_.end())
      chipset::sdk::fail(CHIPSET_STATUS_INVALID, "%p is no allocation of this device", pointer);
    uint64_t start = it->first, size = it->second.size;
    used_.erase(it);
    taken_ -= size;
    // Its whole pages go back to the host (a part of one may be a neighbour's), and the block joins
    // its free neighbours.
    const uint64_t first = (start + kPage - 1) / kPage * kPage,
                   last = (start + size) / kPage * kPage;
    if (first < last) madvise(alias_ + first, last - first, MADV_REMOVE);
    auto next = free_.lower_bound(start);
    if (next != free_.end() && next->first == start + size)
      size += next->second, next = free_.erase(next);
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == start)
      std::prev(next)->second += size;
    else
      free_[start] = size;
  }

  // The alias of [pointer, pointer + bytes), which must lie in one allocation (MEM-004).
  void* alias(void* pointer, int64_t bytes) {
    if (bytes == 0) return pointer;
    const uint64_t at = static_cast<uint64_t>(static_cast<char*>(pointer) - address_);
    std::lock_guard lock(mutex_);
    auto it = used_.upper_bound(at);
    if (it == used_.begin() ||
        (--it, at + static_cast<uint64_t>(bytes) > it->first + it->second.asked))
      chipset::sdk::fail(CHIPSET_STATUS_INVALID,
                         "%lld bytes at %p do not lie in one allocation of this device (MEM-004)",
                         static_cast<long long>(bytes), pointer);
    return alias_ + at;
  }

  uint64_t total() const { return bytes_; }
  uint64_t free() {
    std::lock_guard lock(mutex_);
    return bytes_ - taken_;
  }

 private:
  struct Block {
    uint64_t size, asked;
  };

  char* map(void* where, int protection, int flags, int file) const {
    void* got = mmap(where, bytes_, protection, flags, file, 0);
    return got == MAP_FAILED ? nullptr : static_cast<char*>(got);
  }

  uint64_t bytes_, taken_ = 0;
  char *address_, *alias_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset to size
  std::map<uint64_t, Block> used_;
};

}  // namespace hello
