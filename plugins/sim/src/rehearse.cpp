// SPDX-License-Identifier: Apache-2.0
#include "rehearse.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <new>

namespace chipset::sim {
namespace {

#if defined(__SANITIZE_THREAD__)  // which leaves a program 1.5 TiB of addresses
constexpr std::uint64_t kZeros = std::uint64_t{1} << 37;
#else
constexpr std::uint64_t kZeros = std::uint64_t{1} << 40;
#endif
constexpr std::uint64_t kWindow = std::uint64_t{64} << 30;
constexpr std::uint64_t kFile = std::uint64_t{32} << 20;
constexpr std::size_t kMostAnswers = 1 << 16;

// Addresses that read as zero and take no memory.
std::uintptr_t zeros() {
  static const std::uintptr_t begin = [] {
    void* at = mmap(nullptr, kZeros, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return address(at);
  }();
  return begin;
}

// Addresses that may be written, a small file over and over; mapped as far as has been needed.
std::uintptr_t bin(std::uint64_t bytes) {
  static std::mutex mutex;
  static std::uintptr_t begin = 0;
  static std::uint64_t mapped = 0;
  static int file = -1;
  std::lock_guard lock(mutex);
  if (begin == 0) {
    file = memfd_create("chipset-sim-scratch", MFD_CLOEXEC);
    void* at =
        mmap(nullptr, kWindow, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || ftruncate(file, kFile) != 0 || at == MAP_FAILED) throw std::bad_alloc();
    begin = address(at);
  }
  if (bytes > kWindow) throw std::bad_alloc();
  for (; mapped < bytes; mapped += kFile)
    if (mmap(reinterpret_cast<void*>(begin + mapped), kFile, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      throw std::bad_alloc();
  return begin;
}

struct Answers {
  std::mutex mutex;
  std::unordered_map<std::string, Answer> all;
};
Answers& answers() {
  static auto* the = new Answers;
  return *the;
}

}  // namespace

Scratch::Scratch(const Operands& operands) {
  struct Need {
    std::uint64_t bytes = 0;
    bool written = false;
  };
  std::vector<const void*> order;
  std::unordered_map<const void*, Need> needs;
  for (const Operand& o : operands) {
    const Span span = span_of(o);
    const auto [need, is_new] = needs.try_emplace(o.data);
    if (is_new) order.push_back(o.data);
    need->second.bytes = std::max(need->second.bytes, span.end - span.begin);
    need->second.written |= o.access != Access::read;
  }
  // In the order of the operands, so that equal calls get equal addresses.
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  const auto take = [](std::uint64_t& offset, const void* data, std::uint64_t bytes) {
    const std::uint64_t at = offset + address(data) % 64;
    offset += (bytes + 127) / 64 * 64 + 4096;
    return at;
  };
  for (const void* data : order) {
    const Need& need = needs[data];
    if (need.written) take(written, data, need.bytes);
  }
  const std::uintptr_t bin_begin = written == 0 ? 0 : bin(written);
  written = 0;
  for (const void* data : order) {
    const Need& need = needs[data];
    const std::uintptr_t at = need.written ? bin_begin + take(written, data, need.bytes)
                                           : zeros() + take(read, data, need.bytes);
    places_[data] = reinterpret_cast<void*>(at);
  }
}

void* Scratch::address_of(const void* original) {
  const auto found = places_.find(original);
  return found == places_.end() ? reinterpret_cast<void*>(zeros()) : found->second;
}

std::optional<Answer> known_answer(const std::string& key) {
  std::lock_guard lock(answers().mutex);
  const auto found = answers().all.find(key);
  if (found == answers().all.end()) return std::nullopt;
  return found->second;
}

void keep_answer(const std::string& key, const Answer& answer) {
  std::lock_guard lock(answers().mutex);
  if (answers().all.size() >= kMostAnswers) answers().all.clear();
  answers().all.insert_or_assign(key, answer);
}

chipset_stream rehearsal_stream() {
  struct Own {
    chipset_stream stream = nullptr;
    Own() { borrowed().stream_create(0, 0, &stream); }
    ~Own() { borrowed().stream_destroy(stream); }
  };
  return runtime::per_thread<Own>().stream;
}

}  // namespace chipset::sim
