// SPDX-License-Identifier: Apache-2.0
// The host's accesses: page-locked memory that copies in flight use, and the handler that turns a
// SIGSEGV on memory of this chip into a report.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "config.h"
#include "memory.h"
#include "report.h"
#include "scheduler.h"

namespace chipset::sim {
namespace {

using detail::kPage;

std::vector<Flight>& flights() {
  static auto* all = new std::vector<Flight>;
  return *all;
}
// Pages that a legal access beside a copy's range has opened again, until the copies have landed.
std::vector<std::uintptr_t>& opened() {
  static auto* all = new std::vector<std::uintptr_t>;
  return *all;
}

std::uintptr_t page_of(std::uintptr_t at) { return at / kPage * kPage; }

// What the host may do with a page, given the copies in flight.
int protection_of(std::uintptr_t page) {
  int protection = PROT_READ | PROT_WRITE;
  if (std::find(opened().begin(), opened().end(), page) != opened().end()) return protection;
  for (const Flight& f : flights()) {
    if (f.begin >= page + kPage || f.end <= page) continue;
    protection = f.device_writes ? PROT_NONE : std::min(protection, PROT_READ);
    if (protection == PROT_NONE) break;
  }
  return protection;
}

void protect(std::uintptr_t begin, std::uintptr_t end) {
  for (std::uintptr_t page = page_of(begin); page < end; page += kPage)
    if (const Allocation* a = find(page); a != nullptr && a->freed == 0)
      mprotect(reinterpret_cast<void*>(page), kPage, protection_of(page));
}

std::uint64_t checksum(std::uintptr_t begin, std::uintptr_t end) {
  const auto* p = static_cast<const unsigned char*>(private_of(reinterpret_cast<void*>(begin)));
  std::uint64_t sum = 1469598103934665603ULL;  // FNV-1a
  for (std::uintptr_t i = 0; i < end - begin; ++i) sum = (sum ^ p[i]) * 1099511628211ULL;
  return sum;
}

std::string text_of(const Flight& f) {
  return text(text_of(f.call), " in stream ", f.stream,
              f.device_writes ? ", which writes it and" : ", which reads it and",
              " has not been waited for; synchronise with the stream, or with an event recorded "
              "after the copy, before touching the memory");
}

// ---- the handler --------------------------------------------------------------------------------

struct sigaction previous;
bool installed = false;

// The process is about to end: the report goes out, then whoever was there before us decides.
void report_and_pass_on(const std::string& what) {
  std::string where = caller();
  note(Severity::fault, what + (where.empty() ? "" : "; the host is " + where));
  sigaction(SIGSEGV, &previous, nullptr);
}

void on_fault(int, siginfo_t* info, void* context) {
  const std::uintptr_t at = address(info->si_addr);
  const detail::Layout& l = detail::layout();
  const bool device = at >= l.device_public && at < l.device_public + l.device_bytes;
  const bool pinned = at >= l.pinned_public && at < l.pinned_public + l.pinned_bytes;
  if (!device && !pinned) {
    sigaction(SIGSEGV, &previous, nullptr);
    return;
  }
#if defined(__x86_64__)
  const auto* machine = static_cast<const ucontext_t*>(context);
  const char* verb = (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "writes" : "reads";
#else
  (void)context;
  const char* verb = "touches";
#endif
  // Another thread may hold the lock for a moment; this one never does while it can fault.
  std::unique_lock lock(simulator_mutex(), std::try_to_lock);
  for (int i = 0; !lock.owns_lock() && i < 1000000; ++i) lock.try_lock();
  const Allocation* a = find(at);
  // Only for a report: a legal access goes on, and its thread may be inside malloc.
  const auto target = [&] {
    return text("byte ", a == nullptr ? 0 : static_cast<std::int64_t>(at - a->base), " of ",
                a == nullptr ? "no allocation" : text_of(*a));
  };
  if (device) {
    report_and_pass_on(text("MEM-003: the host ", verb, " device memory at ", info->si_addr, ", ",
                            target(), "; copy it with mem_copy (Tensor.cpu()) instead"));
    return;
  }
  for (const Flight& f : flights())
    if (at >= f.begin && at < f.end) {
      report_and_pass_on(text("ASY-002: the host ", verb, " ", target(), ", used by ", text_of(f)));
      return;
    }
  const bool live = a != nullptr && a->freed == 0 &&
                    at < a->base + (a->bytes + kPage - 1) / kPage * kPage && at >= a->base;
  if (!live) {
    report_and_pass_on(text("MEM-004: the host ", verb, " page-locked memory at ", info->si_addr,
                            " outside of any live allocation: ", target()));
    return;
  }
  // A neighbour of a copy's range on the same page: legal. The checksum still watches the range.
  opened().push_back(page_of(at));
  mprotect(reinterpret_cast<void*>(page_of(at)), kPage, PROT_READ | PROT_WRITE);
}

}  // namespace

void take_off(Flight f) {
  const bool alone = !in_flight(f.begin, f.end);
  if (!f.device_writes && alone) f.checksum = checksum(f.begin, f.end);
  if (f.device_writes)  // what an earlier copy reads changes legally from here on
    for (Flight& other : flights())
      if (other.begin < f.end && f.begin < other.end) other.checksum.reset();
  flights().push_back(std::move(f));
  protect(flights().back().begin, flights().back().end);
}

bool in_flight(std::uintptr_t begin, std::uintptr_t end) {
  return std::any_of(flights().begin(), flights().end(),
                     [&](const Flight& f) { return f.begin < end && begin < f.end; });
}

std::string flight_text(std::uintptr_t begin, std::uintptr_t end) {
  for (const Flight& f : flights())
    if (f.begin < end && begin < f.end) return text_of(f);
  return "";
}

void land(const std::vector<std::uint64_t>& host_clock) {
  std::vector<Span> landed;
  std::erase_if(flights(), [&](const Flight& f) {
    if (f.stream >= host_clock.size() || host_clock[f.stream] < f.sequence) return false;
    if (f.checksum && *f.checksum != checksum(f.begin, f.end)) {
      const Allocation* a = find(f.begin);
      note(Severity::fault,
           text("ASY-002: the host changed bytes ", f.begin - a->base, " to ", f.end - a->base,
                " of ", text_of(*a), " while they were used by ", text_of(f)));
    }
    landed.push_back({f.begin, f.end});
    return true;
  });
  if (landed.empty()) return;
  if (flights().empty()) opened().clear();
  for (const Span& s : landed) protect(s.begin, s.end);
}

void install_handler() {
  if (installed) return;
  installed = true;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  // Nested, so that a fault inside of the report still ends the process.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, &previous);
}

}  // namespace chipset::sim
