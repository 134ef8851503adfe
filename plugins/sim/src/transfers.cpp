// SPDX-License-Identifier: Apache-2.0
// Copies and fills, and what all functions with operands share.
#include <algorithm>
#include <cstring>
#include <vector>

#include "config.h"
#include "functions.h"

namespace chipset::sim {

chipset_status check_placement(const Operands& operands, std::int32_t device) {
  for (const Operand& o : operands) {
    if (o.tensor != nullptr) {
      const chipset_tensor& t = *o.tensor;
      if (t.rank < 0 || t.rank > CHIPSET_MAX_RANK)
        return fault(
            text("SHP-001: ", text_of(current_call()), ": '", o.name, "' has rank ", t.rank));
      for (int d = 0; d < t.rank; ++d)
        if (t.shape[d] < 0 || t.stride[d] < 0)
          return fault(text("SHP-001: ", text_of(current_call()), ": '", o.name,
                            "' has a negative size or stride in dimension ", d));
      if (runtime::dtype_bits(t.dtype) == 0)
        return fault(text("SHP-003: ", text_of(current_call()), ": '", o.name, "' has dtype ",
                          t.dtype, ", which is none"));
    }
    if (const std::string f = placement_fault(o, device); !f.empty()) return fault(f);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check_contents(const Operands& operands, Severity most) {
  const Severity severity = std::min(config().uninitialised, most);
  for (const Operand& o : operands) {
    if (o.access == Access::write) continue;
    const std::string found = unwritten_fault(o);
    if (found.empty()) continue;
    if (severity == Severity::fault) return fault(found);
    note(severity, found);
  }
  return CHIPSET_STATUS_OK;
}

void mark_outputs(const Operands& operands) {
  for (const Operand& o : operands)
    if (o.access != Access::read) mark_written(o);
}

void add_spans(Work& work, const Operands& operands) {
  for (const Operand& o : operands) {
    const Span span = span_of(o);
    if (span.empty()) continue;
    work.touches.push_back(span);
    if (o.access != Access::read) work.writes.push_back(span);
  }
}

double bytes_of(const Operands& operands) {
  double total = 0;
  for (const Operand& o : operands) {
    const double once = o.tensor == nullptr
                            ? static_cast<double>(o.bytes)
                            : static_cast<double>(runtime::element_count(*o.tensor)) *
                                  static_cast<double>(runtime::dtype_bits(o.tensor->dtype)) / 8;
    total += o.access == Access::update ? 2 * once : once;
  }
  return total;
}

namespace {

// Copies between page-locked and device memory run later, and the host must keep off meanwhile.
void fly(const Stream& stream, const void* host, std::uint64_t bytes, bool device_writes) {
  if (!is_pinned(host) || stream.capture != nullptr) return;
  Flight flight;
  flight.begin = address(host);
  flight.end = flight.begin + bytes;
  flight.device_writes = device_writes;
  flight.stream = stream.number;
  flight.sequence = stream.submitted;
  flight.call = current_call();
  take_off(std::move(flight));
}

std::string copy_kind_fault(const void* destination, const void* source, std::uint64_t bytes,
                            std::int32_t kind) {
  if (kind < CHIPSET_COPY_KIND_HOST_TO_DEVICE || kind > CHIPSET_COPY_KIND_DEVICE_TO_DEVICE)
    return text("mem_copy: kind ", kind, " is no copy kind");
  if (destination == nullptr || source == nullptr)
    return text("mem_copy: ", bytes, " bytes at address NULL");
  return "";
}

}  // namespace

chipset_status mem_copy(chipset_stream handle, void* destination, const void* source,
                        std::uint64_t bytes, std::int32_t kind) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (bytes == 0) return CHIPSET_STATUS_OK;
  if (const std::string f = copy_kind_fault(destination, source, bytes, kind); !f.empty())
    return fail(CHIPSET_STATUS_INVALID, f);
  const bool to_host = kind == CHIPSET_COPY_KIND_DEVICE_TO_HOST;
  const bool from_host = kind == CHIPSET_COPY_KIND_HOST_TO_DEVICE;
  if (stream->capture != nullptr && (to_host || from_host)) return spoil(*stream);
  const auto operands =
      runtime::operands_of<Fn::mem_copy>(handle, destination, source, bytes, kind);
  if (const auto s = check_placement(operands, stream->device); s != CHIPSET_STATUS_OK) return s;

  Work work;
  work.call = current_call();
  void* to = private_of(destination);
  const void* from = private_of(source);
  add_spans(work, operands);
  work.seconds =
      copy_seconds(to_host || from_host ? Path::host : Path::device, static_cast<double>(bytes));
  if (to_host) {
    // To copy undefined bytes is legal, to compute with them hardly ever meant.
    check_contents(operands, Severity::warning);
  } else if (from_host) {
    mark_outputs(operands);
  } else {
    copy_written(destination, source, bytes);
  }
  std::shared_ptr<std::vector<char>> kept;
  if (from_host && !is_pinned(source)) {  // read before the call returns (ASY-002)
    const char* bytes_now = static_cast<const char*>(source);
    kept = std::make_shared<std::vector<char>>(bytes_now, bytes_now + bytes);
    from = kept->data();
  }
  work.run = [to, from, bytes, kept](chipset_stream) {
    std::memmove(to, from, bytes);
    return CHIPSET_STATUS_OK;
  };
  const bool wait = to_host && !is_pinned(destination);  // written before the call returns
  if (to_host && !wait && config().poison &&
      !in_flight(address(destination), address(destination) + bytes))
    std::memset(to, 0xFF, bytes);
  submit(lock, stream, std::move(work));
  if (to_host) fly(*stream, destination, bytes, true);
  if (from_host) fly(*stream, source, bytes, false);
  if (!wait) return CHIPSET_STATUS_OK;
  const std::vector end{present_end(stream)};
  drive(lock, end);
  host_passes(end);
  return stream->error == CHIPSET_STATUS_OK ? lost_status(stream->device) : surface(*stream);
}

chipset_status mem_fill(chipset_stream handle, void* destination, std::int32_t value,
                        std::uint64_t bytes) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (bytes == 0) return CHIPSET_STATUS_OK;
  const auto operands = runtime::operands_of<Fn::mem_fill>(handle, destination, value, bytes);
  if (operands.empty()) return fail(CHIPSET_STATUS_INVALID, "mem_fill: the address is NULL");
  if (const auto s = check_placement(operands, stream->device); s != CHIPSET_STATUS_OK) return s;
  mark_outputs(operands);
  Work work;
  work.call = current_call();
  add_spans(work, operands);
  work.seconds = kernel_seconds(0, CHIPSET_DTYPE_F32, static_cast<double>(bytes));
  work.run = [to = private_of(destination), value, bytes](chipset_stream) {
    std::memset(to, value & 0xff, bytes);
    return CHIPSET_STATUS_OK;
  };
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

chipset_status mem_copy_peer(chipset_stream handle, void* destination, const void* source,
                             std::int32_t source_device, std::uint64_t bytes) {
  if (const std::string f = device_fault(source_device); !f.empty()) return fault(f);
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (bytes == 0) return CHIPSET_STATUS_OK;
  const Operands from{{"source", nullptr, source, bytes, Access::read}};
  const Operands to{{"destination", nullptr, destination, bytes, Access::write}};
  if (const auto s = check_placement(from, source_device); s != CHIPSET_STATUS_OK) return s;
  if (const auto s = check_placement(to, stream->device); s != CHIPSET_STATUS_OK) return s;
  copy_written(destination, source, bytes);
  Work work;
  work.call = current_call();
  add_spans(work, to);
  add_spans(work, from);
  work.seconds = copy_seconds(Path::peer, static_cast<double>(bytes));
  work.run = [d = private_of(destination), s = private_of(source), bytes](chipset_stream) {
    std::memmove(d, s, bytes);
    return CHIPSET_STATUS_OK;
  };
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
