// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "caller.h"

namespace chipset::runtime {
namespace {

constexpr std::size_t kMostPieces = 4096;
constexpr std::size_t kFreedRemembered = 4096;
constexpr std::size_t kMostOperandsCompared = 64;  // adamw may bring thousands

template <class... T>
std::string text(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Functions that may write over exactly what they read.
bool may_be_in_place(Fn f) {
  switch (f) {
    case Fn::gather:
    case Fn::attention:
    case Fn::attention_backward:
    case Fn::gemm_quantized:
    case Fn::reduce:
    case Fn::sort:
      return false;
    default:
      return true;
  }
}

bool same_view(const chipset_tensor& a, const chipset_tensor& b) {
  if (a.data != b.data || a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.stride[d] != b.stride[d])) return false;
  return true;
}

}  // namespace

// ---- clocks -----------------------------------------------------------------------------------

void Checker::join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool Checker::ordered(const Clock& clock, const Access1& access) {
  return access.stream < clock.size() && clock[access.stream] >= access.time;
}

// ---- small answers ----------------------------------------------------------------------------

bool Checker::has_capability(std::int32_t device, std::uint64_t bit) const {
  return (runtime::device(plugin_.first_device + device).info.capabilities & bit) != 0;
}

std::string Checker::device_text(std::int32_t device) const {
  return plugin_.spec.name + ":" + std::to_string(device);
}

// "64 bytes of toy:0, made 12 calls ago at …"
std::string Checker::memory_text(const Memory& memory) const {
  std::string out = text(memory.bytes, " bytes of ", device_text(memory.device), ", made ",
                         calls_.load() - memory.made, " calls ago");
  if (!memory.caller.empty()) out += " at\n" + memory.caller;
  return out;
}

std::string Checker::device_fault(std::int32_t device) const {
  if (device >= 0 && device < plugin_.device_count) return "";
  return text("STA-001: device ", device, " does not exist; ", plugin_.device_count,
              " present, numbered from 0");
}

std::string Checker::stream_fault(chipset_stream stream) const {
  std::lock_guard lock(mutex_);
  if (streams_.contains(stream)) return "";
  return text("HND-001: stream ", static_cast<void*>(stream),
              stream == nullptr ? " is NULL" : " was never made, or has been destroyed");
}

std::string Checker::event_fault(chipset_event event) const {
  std::lock_guard lock(mutex_);
  if (events_.contains(event)) return "";
  return text("HND-001: event ", static_cast<void*>(event),
              event == nullptr ? " is NULL" : " was never made, or has been destroyed");
}

std::string Checker::record_fault(chipset_event event, chipset_stream stream) const {
  std::lock_guard lock(mutex_);
  const std::int32_t of_event = events_.at(event).device;
  const std::int32_t of_stream = streams_.at(stream).device;
  if (of_event == of_stream) return "";
  return text("HND-001: an event of ", device_text(of_event), " cannot be recorded in a stream of ",
              device_text(of_stream));
}

std::string Checker::elapsed_fault(chipset_event start, chipset_event end) const {
  std::lock_guard lock(mutex_);
  for (chipset_event e : {start, end})
    if ((events_.at(e).flags & CHIPSET_EVENT_FLAG_TIMING) == 0)
      return "SHP-003: event_elapsed of an event made without CHIPSET_EVENT_FLAG_TIMING";
  return "";
}

// ---- lifetimes --------------------------------------------------------------------------------

void Checker::stream_created(std::int32_t device, chipset_stream stream) {
  std::lock_guard lock(mutex_);
  streams_[stream] = Stream{device, streams_made_++, host_, 0};
}
void Checker::stream_destroyed(chipset_stream stream) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  join(host_, found->second.clock);  // destroying waits
  ended().stream = streams_.extract(found);
}
void Checker::stream_synced(chipset_stream stream) {
  std::lock_guard lock(mutex_);
  if (const auto found = streams_.find(stream); found != streams_.end())
    join(host_, found->second.clock);
}
void Checker::device_synced(std::int32_t device) {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, stream] : streams_)
    if (stream.device == device) join(host_, stream.clock);
}
void Checker::event_created(std::int32_t device, std::uint32_t flags, chipset_event event) {
  std::lock_guard lock(mutex_);
  events_[event] = Event{device, flags, {}};
}
void Checker::event_recorded(chipset_event event, chipset_stream stream) {
  std::lock_guard lock(mutex_);
  const Stream& s = streams_.at(stream);
  Event& e = events_.at(event);
  e.clock = s.clock;
  e.capture = s.capture;
}
void Checker::event_passed(chipset_event event) {
  std::lock_guard lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end())
    join(host_, found->second.clock);
}
void Checker::event_destroyed(chipset_event event) {
  std::lock_guard lock(mutex_);
  ended().event = events_.extract(event);
}
void Checker::stream_waited(chipset_stream stream, chipset_event event) {
  std::lock_guard lock(mutex_);
  const Event& e = events_.at(event);
  Stream& s = streams_.at(stream);
  join(s.clock, e.clock);
  // Waiting for a captured point makes the stream part of the capture, while that lasts.
  const bool open = e.capture != 0 && std::any_of(streams_.begin(), streams_.end(), [&](auto& x) {
                      return x.second.capture == e.capture;
                    });
  if (open) s.capture = e.capture;
}
void Checker::comm_created(std::int32_t device, std::int32_t size, chipset_comm comm) {
  std::lock_guard lock(mutex_);
  comms_[comm] = Comm{device, size};
}
void Checker::comm_destroyed(chipset_comm comm) {
  std::lock_guard lock(mutex_);
  ended().comm = comms_.extract(comm);
}
std::string Checker::comm_fault(chipset_comm comm) const {
  std::lock_guard lock(mutex_);
  if (comms_.contains(comm)) return "";
  return text("HND-001: communicator ", static_cast<void*>(comm),
              comm == nullptr ? " is NULL" : " was never made, or has been destroyed");
}
std::string Checker::comm_stream_fault(chipset_comm comm, chipset_stream stream) const {
  std::lock_guard lock(mutex_);
  const std::int32_t of_comm = comms_.at(comm).device;
  const std::int32_t of_stream = streams_.at(stream).device;
  if (of_comm == of_stream) return "";
  return text("HND-001: the communicator is of ", device_text(of_comm), ", the stream of ",
              device_text(of_stream));
}
std::uint64_t Checker::comm_size(chipset_comm comm) const {
  std::lock_guard lock(mutex_);
  const auto found = comms_.find(comm);
  return found == comms_.end() ? 0 : static_cast<std::uint64_t>(found->second.size);
}
void Checker::copied_to_host(chipset_stream stream, const void* destination) {
  std::lock_guard lock(mutex_);
  std::uintptr_t base = 0;
  if (find(address(destination), &base) != nullptr) return;  // page-locked
  if (const auto found = streams_.find(stream); found != streams_.end())
    join(host_, found->second.clock);
}
void Checker::capture(chipset_stream stream, bool on) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  if (on) {
    found->second.capture = ++captures_made_;
    return;
  }
  const std::uint64_t ended = found->second.capture;
  for (auto& [handle, s] : streams_)
    if (s.capture == ended) s.capture = 0;
}

// ---- memory -----------------------------------------------------------------------------------

Checker::Memory* Checker::find(std::uintptr_t at, std::uintptr_t* base) {
  return const_cast<Memory*>(std::as_const(*this).find(at, base));
}

const Checker::Memory* Checker::find(std::uintptr_t at, std::uintptr_t* base) const {
  auto after = memory_.upper_bound(at);
  if (after == memory_.begin()) return nullptr;
  const auto& [start, memory] = *std::prev(after);
  if (at >= start + memory.bytes) return nullptr;
  *base = start;
  return &memory;
}

void Checker::allocated(std::int32_t device, std::int32_t kind, std::uint64_t bytes,
                        void* pointer) {
  if (pointer == nullptr) return;
  std::lock_guard lock(mutex_);
  memory_[address(pointer)] =
      Memory{bytes, device, kind, allocations_made_++, calls_.load(), python_frames(), {}};
  std::erase_if(freed_, [&](const Freed& f) {
    return f.base < address(pointer) + bytes && address(pointer) < f.base + f.bytes;
  });
}

std::string Checker::free_fault(std::int32_t device, void* pointer) {
  if (pointer == nullptr) return "";
  std::lock_guard lock(mutex_);
  const auto found = memory_.find(address(pointer));
  if (found == memory_.end()) {
    for (const Freed& f : freed_)
      if (f.base == address(pointer))
        return text("MEM-002: ", pointer, " (allocation ", f.id, " of ", f.bytes,
                    " bytes) has been freed before; it was made at\n", f.caller);
    return text("MEM-002: ", pointer, " is not the start of an allocation");
  }
  const Memory& memory = found->second;
  if (memory.device != device)
    return text("MEM-002: ", pointer, " belongs to ", device_text(memory.device), ", not to ",
                device_text(device));
  for (const auto& [begin, range] : memory.ranges)
    for (const Access1& a : range.accesses)
      if (!ordered(host_, a))
        return text("MEM-002: ", memory_text(memory), " is freed while ", function_name(a.function),
                    " of stream ", a.stream, " may still use bytes ", begin, " to ", range.end,
                    "; synchronise with that stream first, or tell the allocator of it "
                    "(record_stream)");
  return "";
}

void Checker::freed(void* pointer) {
  if (pointer == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto found = memory_.find(address(pointer));
  if (found == memory_.end()) return;
  freed_.push_back({found->first, found->second.bytes, found->second.id, found->second.caller});
  if (freed_.size() > kFreedRemembered) freed_.pop_front();
  ended().memory = memory_.extract(found);
}

// By thread and not in a thread_local: calls still come when a thread's own variables are gone.
Checker::Ended& Checker::ended() { return ended_[std::this_thread::get_id()]; }

void Checker::settle_end(bool refused) {
  std::lock_guard lock(mutex_);
  Ended back = std::move(ended());
  ended_.erase(std::this_thread::get_id());
  if (!refused) return;
  if (!back.memory.empty()) {
    std::erase_if(freed_, [&](const Freed& f) { return f.base == back.memory.key(); });
    memory_.insert(std::move(back.memory));
  }
  if (!back.stream.empty()) streams_.insert(std::move(back.stream));
  if (!back.event.empty()) events_.insert(std::move(back.event));
  if (!back.comm.empty()) comms_.insert(std::move(back.comm));
}

std::string Checker::copy_fault(const void* destination, const void* source,
                                std::int32_t kind) const {
  if (kind < CHIPSET_COPY_KIND_HOST_TO_DEVICE || kind > CHIPSET_COPY_KIND_DEVICE_TO_DEVICE)
    return text("SHP-003: copy kind ", kind, " is not a chipset_copy_kind");
  std::lock_guard lock(mutex_);
  const auto on_device = [&](const void* p) {
    std::uintptr_t base = 0;
    const Memory* m = find(address(p), &base);
    return m != nullptr && m->kind == CHIPSET_MEMORY_KIND_DEVICE;
  };
  if (kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE && on_device(source))
    return text("MEM-003: the source ", source, " of a HOST_TO_DEVICE copy is device memory");
  if (kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST && on_device(destination))
    return text("MEM-003: the destination ", destination,
                " of a DEVICE_TO_HOST copy is device memory");
  return "";
}

// ---- operands ---------------------------------------------------------------------------------

// The separate byte ranges of an operand in ascending order of the outer dimensions.
std::vector<Checker::Piece> Checker::pieces(const Operand& o) {
  if (o.tensor == nullptr) return {{address(o.data), address(o.data) + o.bytes}};
  const chipset_tensor& t = *o.tensor;
  if (empty(t) || t.data == nullptr) return {};
  if (dtype_bits(t.dtype) < 8) {  // two elements a byte, contiguous rows
    std::int64_t last = 0;
    for (int d = 0; d < t.rank; ++d) last += (t.shape[d] - 1) * t.stride[d];
    return {{address(t.data), address(t.data) + static_cast<std::uint64_t>(last) / 2 + 1}};
  }
  const auto size = static_cast<std::int64_t>(dtype_bits(t.dtype) / 8);
  // Dimensions by stride: the inner ones that leave no gap form one piece.
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (int d = 0; d < t.rank; ++d)
    if (t.shape[d] > 1 && t.stride[d] != 0) dims.emplace_back(t.stride[d] * size, t.shape[d]);
  std::sort(dims.begin(), dims.end());
  std::int64_t run = size;
  std::size_t inner = 0;
  while (inner < dims.size() && dims[inner].first <= run) {
    run = std::max(run, dims[inner].first * (dims[inner].second - 1) + run);
    ++inner;
  }
  std::size_t count = 1;
  std::int64_t extent = run;
  for (std::size_t d = inner; d < dims.size(); ++d) {
    count = count > kMostPieces ? count : count * static_cast<std::size_t>(dims[d].second);
    extent += dims[d].first * (dims[d].second - 1);
  }
  const std::uintptr_t start = address(t.data);
  if (count > kMostPieces) return {{start, start + static_cast<std::uint64_t>(extent)}};
  std::vector<Piece> out{{start, start + static_cast<std::uint64_t>(run)}};
  for (std::size_t d = inner; d < dims.size(); ++d) {
    const std::size_t have = out.size();
    for (std::int64_t i = 1; i < dims[d].second; ++i)
      for (std::size_t p = 0; p < have; ++p) {
        const auto shift = static_cast<std::uint64_t>(dims[d].first * i);
        out.push_back({out[p].begin + shift, out[p].end + shift});
      }
  }
  return out;
}

std::string Checker::bounds_fault(const Operand& o, std::uintptr_t begin, std::uintptr_t end,
                                  const Stream* stream) {
  std::uintptr_t base = 0;
  const Memory* memory = find(begin, &base);
  if (memory == nullptr) {
    if (o.host) return "";  // any memory of the host
    for (const Freed& f : freed_)
      if (begin >= f.base && begin < f.base + f.bytes)
        return text("MEM-004: '", o.name, "' at ", reinterpret_cast<void*>(begin),
                    " lies in allocation ", f.id, " of ", f.bytes,
                    " bytes, which has been freed; keep it until its last use. It was made at\n",
                    f.caller);
    if (stream != nullptr && has_capability(stream->device, CHIPSET_CAPABILITY_UNIFIED)) return "";
    return text("MEM-004: '", o.name, "' at ", reinterpret_cast<void*>(begin),
                " lies in no allocation of this plugin");
  }
  if (end > base + memory->bytes)
    return text("MEM-004: '", o.name, "' reaches bytes ", begin - base, " to ", end - base,
                " of allocation ", memory->id, ", which has ", memory->bytes, ": ",
                memory_text(*memory));
  if (stream != nullptr && !o.host && memory->kind == CHIPSET_MEMORY_KIND_HOST &&
      !has_capability(stream->device, CHIPSET_CAPABILITY_UNIFIED))
    return text("MEM-004: '", o.name, "' is page-locked host memory (", memory_text(*memory),
                "); copy it to the device first");
  if (stream != nullptr && !o.elsewhere && !o.host && memory->kind == CHIPSET_MEMORY_KIND_DEVICE &&
      memory->device != stream->device)
    return text("MEM-004: '", o.name, "' is memory of ", device_text(memory->device),
                ", but the stream is of ", device_text(stream->device),
                "; take the stream of the memory's device, not of a current device");
  return "";
}

std::string Checker::operand_fault(const Operand& o, const Stream* stream) {
  if (o.tensor != nullptr) {
    const std::string fault = tensor_fault(o.name, *o.tensor, o.access != Access::read);
    if (!fault.empty()) return fault;
  } else if (o.data == nullptr) {
    return text("MEM-004: '", o.name, "' is NULL");
  }
  for (const Piece& p : pieces(o)) {
    const std::string fault = bounds_fault(o, p.begin, p.end, stream);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string Checker::order_fault(const Operand& o, const Stream& stream, Fn function) {
  Clock now = stream.clock;
  join(now, host_);
  for (const Piece& p : pieces(o)) {
    std::uintptr_t base = 0;
    const Memory* memory = find(p.begin, &base);
    if (memory == nullptr) continue;
    const std::uint64_t begin = p.begin - base;
    const std::uint64_t end = p.end - base;
    auto at = memory->ranges.upper_bound(begin);
    if (at != memory->ranges.begin()) --at;
    for (; at != memory->ranges.end() && at->first < end; ++at) {
      if (at->second.end <= begin) continue;
      for (const Access1& a : at->second.accesses) {
        if (o.access == Access::read && !a.write) continue;
        if (a.stream == stream.number || ordered(now, a)) continue;
        return text("ORD-001: ", function_name(function), " in stream ", stream.number, " ",
                    o.access == Access::read ? "reads" : "writes", " '", o.name, "' (allocation ",
                    memory->id, ", bytes ", std::max(begin, at->first), " to ",
                    std::min(end, at->second.end), ": ", memory_text(*memory), ") which ",
                    function_name(a.function), " in stream ", a.stream,
                    a.write ? " wrote" : " read",
                    ", and nothing orders the two; record an event there and let this stream wait "
                    "for it");
      }
    }
  }
  return "";
}

// Remembers the access, splitting ranges where it begins and ends.
void Checker::note(const Operand& o, const Stream& stream, Fn function) {
  const bool write = o.access != Access::read;
  const Access1 access{stream.number, stream.clock[stream.number], function, write};
  for (const Piece& p : pieces(o)) {
    std::uintptr_t base = 0;
    Memory* memory = find(p.begin, &base);
    if (memory == nullptr) continue;
    const std::uint64_t begin = p.begin - base;
    const std::uint64_t end = std::min<std::uint64_t>(p.end - base, memory->bytes);
    auto& ranges = memory->ranges;
    const auto split_at = [&](std::uint64_t where) {
      auto after = ranges.upper_bound(where);
      if (after == ranges.begin()) return;
      auto& [first, range] = *std::prev(after);
      if (first == where || range.end <= where) return;
      ranges[where] = Range{range.end, range.accesses};
      range.end = where;
    };
    split_at(begin);
    split_at(end);
    std::uint64_t filled = begin;
    for (auto at = ranges.lower_bound(begin); at != ranges.end() && at->first < end; ++at) {
      if (at->first > filled) ranges[filled] = Range{at->first, {access}};
      filled = at->second.end;
      auto& list = at->second.accesses;
      if (write) list.clear();
      std::erase_if(list, [&](const Access1& a) { return !a.write && a.stream == access.stream; });
      list.push_back(access);
    }
    if (filled < end) ranges[filled] = Range{end, {access}};
  }
}

std::string Checker::overlap_fault(Fn function, const Operands& operands) {
  std::vector<std::vector<Piece>> of;
  for (const Operand& o : operands) of.push_back(pieces(o));
  for (std::size_t w = 0; w < operands.size(); ++w) {
    const Operand& out = operands[w];
    if (out.access == Access::read || out.tensor == nullptr) continue;
    for (std::size_t r = 0; r < operands.size(); ++r) {
      const Operand& in = operands[r];
      if (r == w || in.tensor == nullptr) continue;
      if (in.access == Access::read && may_be_in_place(function) &&
          same_view(*in.tensor, *out.tensor))
        continue;
      if (of[w].size() > 1 && of[r].size() > 1 && of[w].size() * of[r].size() > kMostPieces)
        continue;
      for (const Piece& a : of[w])
        for (const Piece& b : of[r])
          if (a.begin < b.end && b.begin < a.end)
            return text("SHP-002: '", out.name, "' ", text_of(*out.tensor), " overlaps '", in.name,
                        "' ", text_of(*in.tensor), " in memory");
    }
  }
  return "";
}

std::string Checker::before(Fn function, chipset_stream handle, const Operands& operands) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  const Stream* stream = found == streams_.end() ? nullptr : &found->second;
  for (const Operand& o : operands) {
    std::string fault = operand_fault(o, stream);
    if (!fault.empty()) return fault;
  }
  if (operands.size() <= kMostOperandsCompared) {
    std::string fault = overlap_fault(function, operands);
    if (!fault.empty()) return fault;
  }
  if (stream == nullptr || stream->capture != 0) return "";
  for (const Operand& o : operands) {
    std::string fault = order_fault(o, *stream, function);
    if (!fault.empty()) return fault;
  }
  return "";
}

void Checker::after(Fn function, chipset_stream handle, const Operands& operands) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end() || found->second.capture != 0) return;
  Stream& stream = found->second;
  join(stream.clock, host_);
  if (stream.clock.size() <= stream.number) stream.clock.resize(stream.number + 1);
  ++stream.clock[stream.number];
  for (const Operand& o : operands)
    if (o.access == Access::read) note(o, stream, function);
  for (const Operand& o : operands)
    if (o.access != Access::read) note(o, stream, function);
  // On such a device a call has run when it returns.
  if (has_capability(stream.device, CHIPSET_CAPABILITY_INLINE)) join(host_, stream.clock);
}

}  // namespace chipset::runtime
