// SPDX-License-Identifier: Apache-2.0
// The functions behind the table. Each is entered from api.cpp, which has counted the call,
// injected faults and looked whether the device is lost.
#pragma once

#include "rehearse.h"
#include "report.h"
#include "scheduler.h"
#include "timing.h"
#include "watch.h"  // csrc/runtime: floating-point operations of a call

namespace chipset::sim {

// device.cpp
chipset_status device_count(std::int32_t* count);
chipset_status device_info(std::int32_t device, chipset_device_info* info);
chipset_status device_memory(std::int32_t device, std::uint64_t* free, std::uint64_t* total);
chipset_status device_sync(std::int32_t device);
chipset_status mem_alloc(std::int32_t device, std::int32_t kind, std::uint64_t bytes, void** out);
chipset_status mem_free(std::int32_t device, void* pointer);
std::string device_fault(std::int32_t device);

// streams.cpp
chipset_status stream_create(std::int32_t device, std::int32_t priority, chipset_stream* out);
chipset_status stream_destroy(chipset_stream stream);
chipset_status stream_sync(chipset_stream stream);
chipset_status stream_wait(chipset_stream stream, chipset_event event);
chipset_status event_create(std::int32_t device, std::uint32_t flags, chipset_event* out);
chipset_status event_destroy(chipset_event event);
chipset_status event_record(chipset_event event, chipset_stream stream);
chipset_status event_query(chipset_event event, std::int64_t timeout_ns);
chipset_status event_elapsed(chipset_event start, chipset_event end, double* milliseconds);

// transfers.cpp
chipset_status mem_copy(chipset_stream stream, void* destination, const void* source,
                        std::uint64_t bytes, std::int32_t kind);
chipset_status mem_fill(chipset_stream stream, void* destination, std::int32_t value,
                        std::uint64_t bytes);
chipset_status mem_copy_peer(chipset_stream stream, void* destination, const void* source,
                             std::int32_t source_device, std::uint64_t bytes);

// graphs.cpp
chipset_status capture_begin(chipset_stream stream);
chipset_status capture_end(chipset_stream stream, chipset_graph* graph);
chipset_status capture_replay(chipset_graph graph, chipset_stream stream);
chipset_status graph_compile(std::int32_t device, const void* onnx, std::uint64_t bytes,
                             chipset_graph* graph);
chipset_status graph_run(chipset_stream stream, chipset_graph graph, std::uint32_t num_inputs,
                         const chipset_tensor* inputs, std::uint32_t num_outputs,
                         const chipset_tensor* outputs);
chipset_status graph_destroy(chipset_graph graph);
// Marks the stream's capture as spoilt by a call that cannot be captured.
chipset_status spoil(Stream& stream);
// A captured point makes the waiting stream part of the capture. False if the event has none.
bool join_capture(Stream& stream, const Event& event);
void leave_capture(Stream& stream);

// collectives.cpp
chipset_status comm_id(void* id);
chipset_status comm_create(std::int32_t device, const void* id, std::int32_t rank,
                           std::int32_t size, chipset_comm* out);
chipset_status comm_destroy(chipset_comm comm);
chipset_status all_reduce(chipset_stream stream, chipset_comm comm, const void* send, void* receive,
                          std::uint64_t count, std::int32_t dtype, std::int32_t op);
chipset_status all_gather(chipset_stream stream, chipset_comm comm, const void* send, void* receive,
                          std::uint64_t count, std::int32_t dtype);
chipset_status reduce_scatter(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, std::uint64_t count, std::int32_t dtype,
                              std::int32_t op);
chipset_status broadcast(chipset_stream stream, chipset_comm comm, void* buffer,
                         std::uint64_t count, std::int32_t dtype, std::int32_t root);
chipset_status all_to_all(chipset_stream stream, chipset_comm comm, const void* send,
                          const std::uint64_t* send_counts, void* receive,
                          const std::uint64_t* receive_counts, std::int32_t dtype);
chipset_status send(chipset_stream stream, chipset_comm comm, const void* buffer,
                    std::uint64_t count, std::int32_t dtype, std::int32_t peer);
chipset_status recv(chipset_stream stream, chipset_comm comm, void* buffer, std::uint64_t count,
                    std::int32_t dtype, std::int32_t peer);
chipset_status group_begin(chipset_comm comm);
chipset_status group_end(chipset_comm comm);
std::int32_t comm_device(chipset_comm comm);

// ---- what they share ----------------------------------------------------------------------------

chipset_status unknown_stream(chipset_stream stream);
chipset_status unknown_event(chipset_event event);
// Places, then contents: the first fault of the operands, else OK. Call with the lock.
chipset_status check_placement(const Operands& operands, std::int32_t device);
chipset_status check_contents(const Operands& operands, Severity most = Severity::fault);
void mark_outputs(const Operands& operands);
void add_spans(Work& work, const Operands& operands);
double bytes_of(const Operands& operands);

// kernels.h: functions of the form (stream, args).
template <Fn F, class T>
chipset_status run_kernel(chipset_status (*kernel)(chipset_stream, const T*), chipset_stream handle,
                          const T* given);

}  // namespace chipset::sim
