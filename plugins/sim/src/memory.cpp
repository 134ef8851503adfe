// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "config.h"
#include "report.h"

namespace chipset::sim {
namespace {

using detail::kPage;

constexpr std::uint64_t kRedZone = 64;
constexpr unsigned char kRedByte = 0xA7;
constexpr unsigned char kPoison = 0xFF;  // NaN in every floating-point format of the interface
constexpr std::uint64_t kPinnedSpace = std::uint64_t{64} << 30;
constexpr std::uint64_t kQuarantine = std::uint64_t{64} << 20;

// One range of addresses, from which allocations are cut one after the other.
struct Space {
  int file = -1;
  std::uint64_t file_offset = 0;  // of the space's first byte
  std::uintptr_t begin = 0;       // public
  std::uint64_t bytes = 0;
  std::uintptr_t delta = 0;  // private minus public
  std::uint64_t cursor = 0;
  std::uint64_t quarantined = 0;
  std::map<std::uintptr_t, Allocation> blocks;  // by base; live ones and freed ones
  // What each synchronization looks through: freed blocks are many.
  std::map<std::uintptr_t, Allocation*> live;
  std::uint64_t used = 0;
};

struct Memory {
  detail::Layout layout;
  std::vector<Space> devices;
  Space pinned;
  std::uint64_t made = 0;
};
Memory& memory() {
  static auto* the = new Memory;
  return *the;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

// What an allocation occupies, red zones or guard pages included.
Span slot_of(const Allocation& a) {
  if (a.kind == CHIPSET_MEMORY_KIND_HOST)
    return {a.base - kPage, a.base + round_up(a.bytes, kPage) + kPage};
  return {a.base - kRedZone, a.base - kRedZone + round_up(a.bytes + 2 * kRedZone, 2 * kRedZone)};
}

// Bytes behind the allocation that nobody may write.
std::uint64_t tail_bytes(const Allocation& a) {
  return a.kind == CHIPSET_MEMORY_KIND_HOST ? round_up(a.bytes, kPage) - a.bytes
                                            : slot_of(a).end - a.end();
}

unsigned char* bytes_at(std::uintptr_t public_address) {
  return static_cast<unsigned char*>(private_of(reinterpret_cast<void*>(public_address)));
}

Space* space_of(std::uintptr_t at) {
  const detail::Layout& l = memory().layout;
  if (at >= l.device_public && at < l.device_public + l.device_bytes)
    return &memory().devices[(at - l.device_public) / l.device_stride];
  if (at >= l.pinned_public && at < l.pinned_public + l.pinned_bytes) return &memory().pinned;
  return nullptr;
}

std::uintptr_t map_twice(int file, std::uint64_t bytes, std::uintptr_t* private_begin) {
  void* open = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* hidden = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (open == MAP_FAILED || hidden == MAP_FAILED) return 0;
  // A child must not share the devices' memory with its parent.
  madvise(open, bytes, MADV_DONTFORK);
  madvise(hidden, bytes, MADV_DONTFORK);
  *private_begin = address(hidden);
  return address(open);
}

// Finds `size` bytes from the cursor on, evicting what was freed; 0 if there are none. The search
// begins again at the start when the end is reached or enough freed memory is being held back.
std::uintptr_t cut(Space& space, std::uint64_t size) {
  if (space.quarantined > kQuarantine) {
    space.cursor = 0;
    space.quarantined = 0;
  }
  for (int round = 0; round < 2; ++round) {
    while (space.cursor + size <= space.bytes) {
      const std::uintptr_t at = space.begin + space.cursor;
      auto block = space.blocks.lower_bound(at);
      if (block != space.blocks.begin() && slot_of(std::prev(block)->second).end > at) --block;
      while (block != space.blocks.end() && block->second.freed != 0 &&
             slot_of(block->second).begin < at + size)
        block = space.blocks.erase(block);
      if (block == space.blocks.end() || slot_of(block->second).begin >= at + size) {
        space.cursor += size;
        return at;
      }
      space.cursor = slot_of(block->second).end - space.begin;
    }
    space.cursor = 0;
  }
  return 0;
}

// Gives the machine back whole pages inside the range; the others are filled with poison.
void discard(const Space& space, std::uintptr_t begin, std::uintptr_t end) {
  const std::uintptr_t first = round_up(begin, kPage);
  const std::uintptr_t last = end / kPage * kPage;
  if (first >= last) {
    std::memset(bytes_at(begin), kPoison, end - begin);
    return;
  }
  std::memset(bytes_at(begin), kPoison, first - begin);
  std::memset(bytes_at(last), kPoison, end - last);
  fallocate(space.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(space.file_offset + (first - space.begin)),
            static_cast<off_t>(last - first));
}

std::string red_zone_fault(const Allocation& a) {
  const auto scan = [&](std::uintptr_t begin, std::uint64_t n) -> std::optional<std::uintptr_t> {
    const unsigned char* p = bytes_at(begin);
    for (std::uint64_t i = 0; i < n; ++i)
      if (p[i] != kRedByte) return begin + i;
    return std::nullopt;
  };
  const bool host = a.kind == CHIPSET_MEMORY_KIND_HOST;
  auto hit = host ? std::nullopt : scan(a.base - kRedZone, kRedZone);
  if (!hit) hit = scan(a.end(), tail_bytes(a));
  if (!hit) return "";
  const bool before = *hit < a.base;
  return text("MEM-004: overrun: byte ", before ? a.base - *hit : *hit - a.end() + 1,
              before ? " before the start" : " past the end", " of ", text_of(a),
              " was overwritten; its last writer was ",
              a.last_writer.number == 0
                  ? "the host"
                  : text_of(a.last_writer) + text(" in stream ", a.last_stream));
}

void repair_red_zones(const Allocation& a) {
  if (a.kind != CHIPSET_MEMORY_KIND_HOST)
    std::memset(bytes_at(a.base - kRedZone), kRedByte, kRedZone);
  std::memset(bytes_at(a.end()), kRedByte, tail_bytes(a));
}

void check_red_zones(Allocation& a) {
  a.dirty = false;
  const std::string found = red_zone_fault(a);
  if (found.empty()) return;
  repair_red_zones(a);  // reported once
  note(Severity::fault, found);
}

}  // namespace

const detail::Layout& detail::layout() { return memory().layout; }

std::string text_of(const Allocation& a) {
  std::string out = text(
      "allocation ", a.id, " of ", a.bytes, " bytes ",
      a.kind == CHIPSET_MEMORY_KIND_HOST ? "of page-locked memory of sim:" : "on sim:", a.device,
      ", made by call ", a.made, " (", calls_made() - a.made, " calls ago)");
  if (a.freed != 0) out += text(", freed by call ", a.freed);
  if (!a.caller.empty()) out += " " + a.caller;
  return out;
}

std::string start_memory() {
  Memory& m = memory();
  const auto devices = static_cast<std::uint64_t>(config().devices);
  const std::uint64_t each =
      round_up(std::min(config().memory * 8, config().memory + (std::uint64_t{4} << 30)), 1 << 21);
  const int device_file = memfd_create("chipset-sim-device", MFD_CLOEXEC);
  const int pinned_file = memfd_create("chipset-sim-pinned", MFD_CLOEXEC);
  if (device_file < 0 || pinned_file < 0 ||
      ftruncate(device_file, static_cast<off_t>(each * devices)) != 0 ||
      ftruncate(pinned_file, static_cast<off_t>(kPinnedSpace)) != 0)
    return text("cannot make shared memory for ", devices, " devices: ", std::strerror(errno));
  detail::Layout& l = m.layout;
  l.device_public = map_twice(device_file, each * devices, &l.device_private);
  l.pinned_public = map_twice(pinned_file, kPinnedSpace, &l.pinned_private);
  if (l.device_public == 0 || l.pinned_public == 0)
    return text("cannot map ", each * devices, " bytes of addresses twice: ", std::strerror(errno),
                "; lower option memory or devices");
  l.device_stride = each;
  l.device_bytes = each * devices;
  l.pinned_bytes = kPinnedSpace;
  m.devices.resize(devices);
  for (std::uint64_t d = 0; d < devices; ++d) {
    Space& space = m.devices[d];
    space.file = device_file;
    space.file_offset = d * each;
    space.begin = l.device_public + d * each;
    space.bytes = each;
    space.delta = l.device_private - l.device_public;
  }
  m.pinned.file = pinned_file;
  m.pinned.begin = l.pinned_public;
  m.pinned.bytes = kPinnedSpace;
  m.pinned.delta = l.pinned_private - l.pinned_public;
  return "";
}

void* private_of(const void* pointer) {
  const std::uintptr_t at = address(pointer);
  const Space* space = space_of(at);
  return reinterpret_cast<void*>(space == nullptr ? at : at + space->delta);
}

bool is_pinned(const void* pointer) {
  const detail::Layout& l = memory().layout;
  const std::uintptr_t at = address(pointer);
  return at >= l.pinned_public && at < l.pinned_public + l.pinned_bytes;
}

chipset_status allocate(std::int32_t device, std::int32_t kind, std::uint64_t bytes, void** out) {
  Memory& m = memory();
  const bool host = kind == CHIPSET_MEMORY_KIND_HOST;
  Space& space = host ? m.pinned : m.devices[static_cast<std::size_t>(device)];
  const std::uint64_t limit = host ? kPinnedSpace / 2 : config().memory;
  if (bytes > limit || space.used > limit - bytes)
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY,
                text("mem_alloc: ", bytes, " bytes wanted on ", host ? "the host" : "sim:",
                     host ? "" : std::to_string(device), ", ", space.used, " of ", limit,
                     " are allocated (option memory sets the limit of a device)"));
  Allocation a;
  a.bytes = bytes;
  a.device = device;
  a.kind = kind;
  a.base = host ? kPage : kRedZone;
  const Span slot = slot_of(a);
  const std::uintptr_t at = cut(space, slot.end - slot.begin);
  if (at == 0)
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY,
                text("mem_alloc: no ", bytes, " bytes in one piece are left"));
  a.base += at;
  a.id = m.made++;
  a.made = current_call().number;
  a.caller = caller();
  if (host) {
    mprotect(reinterpret_cast<void*>(a.base), round_up(bytes, kPage), PROT_READ | PROT_WRITE);
    a.complete = true;  // the host's writes are not seen
  }
  if (config().poison) std::memset(bytes_at(a.base), kPoison, bytes);
  repair_red_zones(a);
  space.used += bytes;
  *out = reinterpret_cast<void*>(a.base);
  const std::uintptr_t base = a.base;
  space.live[base] = &space.blocks.insert_or_assign(base, std::move(a)).first->second;
  return CHIPSET_STATUS_OK;
}

void release(Allocation& a) {
  check_red_zones(a);
  Space& space = *space_of(a.base);
  space.live.erase(a.base);
  if (a.kind == CHIPSET_MEMORY_KIND_HOST)
    mprotect(reinterpret_cast<void*>(a.base), round_up(a.bytes, kPage), PROT_NONE);
  const Span slot = slot_of(a);
  discard(space, slot.begin, slot.end);
  space.used -= a.bytes;
  space.quarantined += std::min(slot.end - slot.begin, 2 * kPage);
  a.freed = current_call().number;
  a.written.clear();
  a.written.shrink_to_fit();
}

std::uint64_t used_bytes(std::int32_t device) {
  return memory().devices[static_cast<std::size_t>(device)].used;
}

Allocation* find(std::uintptr_t at) {
  Space* space = space_of(at);
  if (space == nullptr) return nullptr;
  auto after = space->blocks.upper_bound(at);
  if (after != space->blocks.begin()) {
    Allocation& a = std::prev(after)->second;
    if (at < slot_of(a).end) return &a;
  }
  if (after != space->blocks.end() && at >= slot_of(after->second).begin) return &after->second;
  return nullptr;
}

Allocation* find_live(std::uintptr_t at) {
  Allocation* a = find(at);
  return a != nullptr && a->freed == 0 && at >= a->base && at < a->end() ? a : nullptr;
}

void check_red_zones(std::int32_t device, bool all) {
  for (auto& [base, a] : memory().devices[static_cast<std::size_t>(device)].live)
    if (all || a->dirty) check_red_zones(*a);
  for (auto& [base, a] : memory().pinned.live)
    if (a->device == device) check_red_zones(*a);
}

std::vector<const Allocation*> live_allocations() {
  std::vector<const Allocation*> out;
  const auto add = [&](const Space& space) {
    for (const auto& [base, a] : space.live) out.push_back(a);
  };
  for (const Space& space : memory().devices) add(space);
  add(memory().pinned);
  std::sort(out.begin(), out.end(), [](auto* x, auto* y) { return x->id < y->id; });
  return out;
}

}  // namespace chipset::sim
