// SPDX-License-Identifier: Apache-2.0
// The checked layer (CHIPSET_CHECK=1 for every plugin, or a plugin's launch option check=1): holds
// callers, and the plugin itself, to the header's rules.
//
// It sees the calls of one plugin and keeps: live allocations and recently freed ones, streams and
// events, and for each byte range the most recent accesses as (stream, time). Vector clocks decide
// whether two accesses are ordered: a stream's clock joins an event's at stream_wait, and the
// host's joins what a synchronisation waited for. Every enqueued call happens after all that the
// host has synchronised with, whichever thread it comes from.
//
// Limits: strided views of more than 4,096 separate pieces are taken as one range; memory that the
// plugin did not allocate is tolerated on UNIFIED devices; replays of captured graphs are not
// followed.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "operands.h"

namespace chipset::runtime {

using Clock = std::vector<std::uint64_t>;  // by stream number

class Checker {
 public:
  explicit Checker(const Plugin& plugin) : plugin_(plugin) {}

  // Returns the fault of a call that is about to be made, or "". A fault begins with its rule id.
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  std::string before(Fn function, chipset_stream stream, const Operands& operands);
  // The call was enqueued.
  void after(Fn function, chipset_stream stream, const Operands& operands);

  // Calls that make, end or order things.
  std::string device_fault(std::int32_t device) const;
  void allocated(std::int32_t device, std::int32_t kind, std::uint64_t bytes, void* pointer);
  std::string free_fault(std::int32_t device, void* pointer);
  // The call that this thread noted as ending something has returned. Refused: it lives on.
  void settle_end(bool refused);
  void freed(void* pointer);
  void stream_created(std::int32_t device, chipset_stream stream);
  std::string stream_fault(chipset_stream stream) const;
  void stream_destroyed(chipset_stream stream);
  void stream_synced(chipset_stream stream);
  void device_synced(std::int32_t device);
  void event_created(std::int32_t device, std::uint32_t flags, chipset_event event);
  std::string event_fault(chipset_event event) const;
  std::string record_fault(chipset_event event, chipset_stream stream) const;
  std::string elapsed_fault(chipset_event start, chipset_event end) const;
  void event_recorded(chipset_event event, chipset_stream stream);
  void event_passed(chipset_event event);
  void event_destroyed(chipset_event event);
  void stream_waited(chipset_stream stream, chipset_event event);
  void comm_created(std::int32_t device, std::int32_t size, chipset_comm comm);
  void comm_destroyed(chipset_comm comm);
  std::string comm_fault(chipset_comm comm) const;
  std::string comm_stream_fault(chipset_comm comm, chipset_stream stream) const;
  std::uint64_t comm_size(chipset_comm comm) const;
  // Such a copy has been made when the call returns, and all before it in the stream (ASY-002).
  void copied_to_host(chipset_stream stream, const void* destination);
  void capture(chipset_stream stream, bool on);
  std::string copy_fault(const void* destination, const void* source, std::int32_t kind) const;

 private:
  struct Access1 {
    std::size_t stream;
    std::uint64_t time;
    Fn function;
    bool write;
  };
  struct Range {
    std::uint64_t end;
    std::vector<Access1> accesses;  // the last write, and the reads of each stream since
  };
  struct Memory {
    std::uint64_t bytes;
    std::int32_t device;
    std::int32_t kind;
    std::uint64_t id;
    std::uint64_t made;                     // number of the call
    std::string caller;                     // Python frames
    std::map<std::uint64_t, Range> ranges;  // by first byte
  };
  struct Freed {
    std::uintptr_t base;
    std::uint64_t bytes;
    std::uint64_t id;
    std::string caller;
  };
  struct Comm {
    std::int32_t device;
    std::int32_t size;
  };
  struct Stream {
    std::int32_t device;
    std::size_t number;
    Clock clock;
    std::uint64_t capture = 0;  // number of the capture that it is part of
  };
  struct Event {
    std::int32_t device;
    std::uint32_t flags;
    Clock clock;
    std::uint64_t capture = 0;  // recorded in it
  };
  struct Piece {
    std::uintptr_t begin;
    std::uintptr_t end;
  };

  // What the present call of this thread ends.
  struct Ended {
    std::map<std::uintptr_t, Memory>::node_type memory;
    std::unordered_map<chipset_stream, Stream>::node_type stream;
    std::unordered_map<chipset_event, Event>::node_type event;
    std::unordered_map<chipset_comm, Comm>::node_type comm;
  };
  Ended& ended();  // with mutex_ held

  static std::vector<Piece> pieces(const Operand& operand);
  std::string operand_fault(const Operand& operand, const Stream* stream);
  std::string bounds_fault(const Operand& operand, std::uintptr_t begin, std::uintptr_t end,
                           const Stream* stream);
  static std::string overlap_fault(Fn function, const Operands& operands);
  std::string order_fault(const Operand& operand, const Stream& stream, Fn function);
  void note(const Operand& operand, const Stream& stream, Fn function);
  Memory* find(std::uintptr_t address, std::uintptr_t* base);
  const Memory* find(std::uintptr_t address, std::uintptr_t* base) const;
  static void join(Clock& into, const Clock& from);
  static bool ordered(const Clock& clock, const Access1& access);
  bool has_capability(std::int32_t device, std::uint64_t bit) const;
  std::string device_text(std::int32_t device) const;
  std::string memory_text(const Memory& memory) const;

  const Plugin& plugin_;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Memory> memory_;
  std::deque<Freed> freed_;
  std::unordered_map<std::thread::id, Ended> ended_;
  std::unordered_map<chipset_stream, Stream> streams_;
  std::unordered_map<chipset_event, Event> events_;
  std::unordered_map<chipset_comm, Comm> comms_;
  Clock host_;
  std::size_t streams_made_ = 0;
  std::uint64_t allocations_made_ = 0;
  std::uint64_t captures_made_ = 0;
  mutable std::atomic<std::uint64_t> calls_{0};
};

// Faults in the values of one call's arguments alone (shapes, dtypes, options), or "".
template <Fn F, class... A>
std::string shape_fault(Tag<F>, A...) {
  return "";
}
std::string shape_fault(Tag<Fn::pointwise>, chipset_stream, const chipset_pointwise_args* a);
std::string shape_fault(Tag<Fn::reduce>, chipset_stream, const chipset_reduce_args* a);
std::string shape_fault(Tag<Fn::gemm>, chipset_stream, const chipset_gemm_args* a);
std::string shape_fault(Tag<Fn::gather>, chipset_stream, const chipset_gather_args* a);
std::string shape_fault(Tag<Fn::scatter>, chipset_stream, const chipset_scatter_args* a);
std::string shape_fault(Tag<Fn::attention>, chipset_stream, const chipset_attention_args* a);
std::string shape_fault(Tag<Fn::attention_backward>, chipset_stream,
                        const chipset_attention_args* a);
std::string shape_fault(Tag<Fn::softmax>, chipset_stream, const chipset_softmax_args* a);
std::string shape_fault(Tag<Fn::softmax_backward>, chipset_stream, const chipset_softmax_args* a);
std::string shape_fault(Tag<Fn::norm>, chipset_stream, const chipset_norm_args* a);
std::string shape_fault(Tag<Fn::rotary>, chipset_stream, const chipset_rotary_args* a);
std::string shape_fault(Tag<Fn::cross_entropy>, chipset_stream,
                        const chipset_cross_entropy_args* a);
std::string shape_fault(Tag<Fn::quantize>, chipset_stream, const chipset_quantize_args* a);
std::string shape_fault(Tag<Fn::dequantize>, chipset_stream, const chipset_quantize_args* a);
std::string shape_fault(Tag<Fn::gemm_quantized>, chipset_stream,
                        const chipset_gemm_quantized_args* a);

// A descriptor that breaks the rules by itself (SHP-001, SHP-002), or "".
std::string tensor_fault(const char* name, const chipset_tensor& t, bool written);
// "f32[2, 3]"
std::string text_of(const chipset_tensor& t);

}  // namespace chipset::runtime
