// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated devices, and page-locked host memory.
//
// Both are mapped twice. Device memory: callers get addresses of a mapping that nobody may touch
// (PROT_NONE for ever), kernels work on the private one, so that no access of the host is ever
// legal. Page-locked memory: callers read and write the public mapping, except while a copy that
// they have not waited for uses it.
//
// Around each allocation lie red zones; new memory is filled with bytes that are NaN as a float; a
// map of written bytes tells reads of memory that nobody wrote. What has been freed is given out
// again as late as possible, so that a stale pointer is recognised.
//
// Unless said otherwise, callers hold the simulator's lock (scheduler.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common.h"

namespace chipset::sim {

constexpr std::int32_t kHost = -1;  // in the place of a device

struct Allocation {
  std::uintptr_t base = 0;  // public address
  std::uint64_t bytes = 0;
  std::int32_t device = 0;  // whose mem_alloc made it
  std::int32_t kind = 0;
  std::uint64_t id = 0;
  std::uint64_t made = 0;   // number of the call
  std::uint64_t freed = 0;  // likewise; 0: live
  std::string caller;
  // Which bytes have been written, one bit each; not kept once all are.
  bool complete = false;
  std::vector<std::uint64_t> written;
  // The kernel that wrote last, for whom the red zone accuses.
  Call last_writer;
  std::uint64_t last_stream = 0;
  bool dirty = false;

  std::uintptr_t end() const { return base + bytes; }
};

// "allocation 7 of 64 bytes on sim:0, made by call 12 (5 calls ago) at …"
std::string text_of(const Allocation& a);

// Maps everything; "" or the reason why that is impossible.
std::string start_memory();

chipset_status allocate(std::int32_t device, std::int32_t kind, std::uint64_t bytes, void** out);
// Ends a live allocation: checks its red zones, poisons it, keeps its addresses from being reused.
void release(Allocation& a);
std::uint64_t used_bytes(std::int32_t device);

// The live or freed allocation whose memory or red zones hold the address, or NULL.
Allocation* find(std::uintptr_t at);
// As find, but only a live one, and not its red zones.
Allocation* find_live(std::uintptr_t at);
bool is_pinned(const void* pointer);
// Where device address or page-locked memory lies for kernels; any other pointer is unchanged.
void* private_of(const void* pointer);

// Looks at the red zones of what was written since the last check (or of everything), and reports.
void check_red_zones(std::int32_t device, bool all);
// Live allocations, for reports of leaks.
std::vector<const Allocation*> live_allocations();

// ---- operands (operand_checks.cpp) --------------------------------------------------------------

// First and one-past-last byte that the operand can touch; empty if it touches none.
struct Span {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool empty() const { return begin == end; }
};
Span span_of(const Operand& operand);
// Whether the operand lies inside one live allocation of the device; or the fault.
std::string placement_fault(const Operand& operand, std::int32_t device);
// A fault if bytes that are read were never written.
std::string unwritten_fault(const Operand& operand);
void mark_written(const Operand& operand);
// Copies which bytes are written from one range to another, as the copy will.
void copy_written(const void* destination, const void* source, std::uint64_t bytes);

// ---- page-locked memory in flight (pinned.cpp) --------------------------------------------------

// A copy between page-locked and device memory that the host has not waited for.
struct Flight {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool device_writes = false;
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  Call call;
  std::optional<std::uint64_t>
      checksum;  // of what must not change until the copy has been waited for
};
void take_off(Flight flight);
// Forgets the copies that the host's clock says have been waited for, after checking them.
void land(const std::vector<std::uint64_t>& host_clock);
bool in_flight(std::uintptr_t begin, std::uintptr_t end);
// The first such copy of the bytes, and what is missing; or "".
std::string flight_text(std::uintptr_t begin, std::uintptr_t end);

// Installs the handler that turns a SIGSEGV into a report.
void install_handler();

namespace detail {
struct Layout {
  std::uintptr_t device_public = 0, device_private = 0;
  std::uint64_t device_stride = 0, device_bytes = 0;
  std::uintptr_t pinned_public = 0, pinned_private = 0;
  std::uint64_t pinned_bytes = 0;
};
const Layout& layout();
constexpr std::uint64_t kPage = 4096;
}  // namespace detail

}  // namespace chipset::sim
