// SPDX-License-Identifier: Apache-2.0
// Collectives: the borrowed chip's, over shared memory, on the private addresses. A call that is
// made inside of group_begin and group_end is kept, and the whole group is one piece of work.
#include <thread>

#include "config.h"
#include "functions.h"

namespace chipset::sim {
namespace {

using Run = std::function<chipset_status(chipset_stream)>;

struct Comm {
  std::int32_t device = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  chipset_comm inner = nullptr;
  int depth = 0;
  std::vector<std::pair<std::shared_ptr<Stream>, Work>> held;
};
std::unordered_map<chipset_comm, std::shared_ptr<Comm>>& comms() {
  static auto* all = new std::unordered_map<chipset_comm, std::shared_ptr<Comm>>;
  return *all;
}
std::shared_ptr<Comm> comm_at(chipset_comm handle) {
  const auto found = comms().find(handle);
  return found == comms().end() ? nullptr : found->second;
}

chipset_status unknown_comm(chipset_comm comm) {
  return fault(text("HND-001: ", text_of(current_call()), ": communicator ",
                    static_cast<void*>(comm), " was never made, or has been destroyed"));
}

struct Buffers {
  const void* send = nullptr;
  std::uint64_t send_bytes = 0;
  void* receive = nullptr;
  std::uint64_t receive_bytes = 0;
};

// A communicator of one rank, on which a call's dtype and operation can be tried at once.
chipset_comm lonely() {
  static const chipset_comm comm = [] {
    char id[CHIPSET_COMM_ID_SIZE];
    chipset_comm made = nullptr;
    if (borrowed().comm_id(id) == CHIPSET_STATUS_OK) borrowed().comm_create(0, id, 0, 1, &made);
    return made;
  }();
  return comm;
}

chipset_status check_rank(const Comm& comm, const char* what, std::int32_t rank) {
  if (rank >= 0 && rank < comm.size) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, text(name_of(current_call().function), ": ", what, " ", rank,
                                           ", the communicator has ", comm.size, " ranks"));
}

// `call` is made with (stream, communicator, private send, private receive, count), first in trial
// on the lonely communicator with no elements.
template <class F>
chipset_status collect(Fn function, chipset_stream handle, chipset_comm comm_handle,
                       const Buffers& b, F&& call, bool tried = true) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Stream> stream = stream_at(handle);
  const std::shared_ptr<Comm> comm = comm_at(comm_handle);
  if (stream == nullptr) return unknown_stream(handle);
  if (comm == nullptr) return unknown_comm(comm_handle);
  if (stream->capture != nullptr) return spoil(*stream);
  if (stream->device != comm->device)
    return fault(text("HND-001: ", text_of(current_call()), ": the communicator is of sim:",
                      comm->device, ", the stream of sim:", stream->device));
  Operands operands;
  if (b.send_bytes > 0) operands.push_back({"send", nullptr, b.send, b.send_bytes, Access::read});
  if (b.receive_bytes > 0)
    operands.push_back({"receive", nullptr, b.receive, b.receive_bytes, Access::write});
  for (const Operand& o : operands)
    if (o.data == nullptr)
      return fail(CHIPSET_STATUS_INVALID, text(name_of(function), ": '", o.name, "' is NULL"));
  if (tried) {
    take_borrowed_error();
    const chipset_status s = call(rehearsal_stream(), lonely(), nullptr, nullptr, true);
    if (s != CHIPSET_STATUS_OK) return fail(s, take_borrowed_error());
  }
  if (const auto s = check_placement(operands, stream->device); s != CHIPSET_STATUS_OK) return s;
  if (const auto s = check_contents(operands); s != CHIPSET_STATUS_OK) return s;
  mark_outputs(operands);
  Work work;
  work.call = current_call();
  work.collective = true;
  work.comm = comm_handle;
  add_spans(work, operands);
  work.seconds = collective_seconds(function, comm->size,
                                    static_cast<double>(std::max(b.send_bytes, b.receive_bytes)));
  work.run = [call, comm, from = private_of(b.send), to = private_of(b.receive)](
                 chipset_stream inner) { return call(inner, comm->inner, from, to, false); };
  if (comm->depth > 0) {
    comm->held.emplace_back(stream, std::move(work));
    return CHIPSET_STATUS_OK;
  }
  submit(lock, stream, std::move(work));
  return CHIPSET_STATUS_OK;
}

std::int32_t size_of(chipset_comm handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Comm> comm = comm_at(handle);
  return comm == nullptr ? 1 : comm->size;
}

std::uint64_t bytes_for(std::uint64_t count, std::int32_t dtype) {
  return runtime::plain_bytes(count, dtype);
}

}  // namespace

std::int32_t comm_device(chipset_comm handle) {
  const std::shared_ptr<Comm> comm = comm_at(handle);
  return comm == nullptr ? kHost : comm->device;
}

chipset_status comm_id(void* id) {
  const chipset_status s = borrowed().comm_id(id);
  return s == CHIPSET_STATUS_OK ? s : fail(s, take_borrowed_error());
}

chipset_status comm_create(std::int32_t device, const void* id, std::int32_t rank,
                           std::int32_t size, chipset_comm* out) {
  if (out == nullptr) return fail(CHIPSET_STATUS_INVALID, "comm_create: comm is NULL");
  *out = nullptr;
  if (const std::string f = device_fault(device); !f.empty()) return fault(f);
  auto comm = std::make_shared<Comm>();
  comm->device = device;
  comm->rank = rank;
  comm->size = size;
  if (const auto s = borrowed().comm_create(device, id, rank, size, &comm->inner);
      s != CHIPSET_STATUS_OK)
    return fail(s, take_borrowed_error());
  Lock lock(simulator_mutex());
  *out = reinterpret_cast<chipset_comm>(comm.get());
  comms()[*out] = comm;
  return CHIPSET_STATUS_OK;
}

chipset_status comm_destroy(chipset_comm handle) {
  if (handle == nullptr) return CHIPSET_STATUS_OK;
  Lock lock(simulator_mutex());
  const std::shared_ptr<Comm> comm = comm_at(handle);
  if (comm == nullptr) return unknown_comm(handle);
  for (const auto& stream : streams_of(comm->device))
    for (const auto& command : stream->queue)
      if (command->collective && command->comm == handle)
        return fault(text("HND-001: ", text_of(current_call()), ": ", text_of(command->call),
                          " of stream ", stream->number,
                          " has yet to use the communicator; synchronise first"));
  comms().erase(handle);
  lock.unlock();
  const chipset_status s = borrowed().comm_destroy(comm->inner);
  return s == CHIPSET_STATUS_OK ? s : fail(s, take_borrowed_error());
}

chipset_status all_reduce(chipset_stream stream, chipset_comm comm, const void* send, void* receive,
                          std::uint64_t count, std::int32_t dtype, std::int32_t op) {
  const std::uint64_t bytes = bytes_for(count, dtype);
  return collect(Fn::all_reduce, stream, comm, {send, bytes, receive, bytes},
                 [=](chipset_stream s, chipset_comm c, const void* from, void* to, bool trial) {
                   return borrowed().all_reduce(s, c, from, to, trial ? 0 : count, dtype, op);
                 });
}

chipset_status all_gather(chipset_stream stream, chipset_comm comm, const void* send, void* receive,
                          std::uint64_t count, std::int32_t dtype) {
  const auto size = static_cast<std::uint64_t>(size_of(comm));
  return collect(Fn::all_gather, stream, comm,
                 {send, bytes_for(count, dtype), receive, bytes_for(size * count, dtype)},
                 [=](chipset_stream s, chipset_comm c, const void* from, void* to, bool trial) {
                   return borrowed().all_gather(s, c, from, to, trial ? 0 : count, dtype);
                 });
}

chipset_status reduce_scatter(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, std::uint64_t count, std::int32_t dtype,
                              std::int32_t op) {
  const auto size = static_cast<std::uint64_t>(size_of(comm));
  return collect(Fn::reduce_scatter, stream, comm,
                 {send, bytes_for(size * count, dtype), receive, bytes_for(count, dtype)},
                 [=](chipset_stream s, chipset_comm c, const void* from, void* to, bool trial) {
                   return borrowed().reduce_scatter(s, c, from, to, trial ? 0 : count, dtype, op);
                 });
}

chipset_status broadcast(chipset_stream stream, chipset_comm comm, void* buffer,
                         std::uint64_t count, std::int32_t dtype, std::int32_t root) {
  std::int32_t rank = 0;
  {
    Lock lock(simulator_mutex());
    if (const auto c = comm_at(comm); c != nullptr) {
      if (const auto s = check_rank(*c, "root", root); s != CHIPSET_STATUS_OK) return s;
      rank = c->rank;
    }
  }
  const std::uint64_t bytes = bytes_for(count, dtype);
  Buffers buffers;
  if (rank == root) {
    buffers.send = buffer;
    buffers.send_bytes = bytes;
  } else {
    buffers.receive = buffer;
    buffers.receive_bytes = bytes;
  }
  return collect(Fn::broadcast, stream, comm, buffers,
                 [=](chipset_stream s, chipset_comm c, const void* from, void* to, bool trial) {
                   return borrowed().broadcast(s, c, from != nullptr ? const_cast<void*>(from) : to,
                                               trial ? 0 : count, dtype, trial ? 0 : root);
                 });
}

chipset_status all_to_all(chipset_stream stream, chipset_comm comm, const void* send,
                          const std::uint64_t* send_counts, void* receive,
                          const std::uint64_t* receive_counts, std::int32_t dtype) {
  if (send_counts == nullptr || receive_counts == nullptr)
    return fail(CHIPSET_STATUS_INVALID, "all_to_all: the counts are NULL");
  const auto size = static_cast<std::size_t>(size_of(comm));
  const std::vector<std::uint64_t> out(send_counts, send_counts + size);
  const std::vector<std::uint64_t> in(receive_counts, receive_counts + size);
  Buffers b{send, 0, receive, 0};
  for (std::size_t i = 0; i < size; ++i) {
    b.send_bytes += bytes_for(out[i], dtype);
    b.receive_bytes += bytes_for(in[i], dtype);
  }
  return collect(Fn::all_to_all, stream, comm, b,
                 [=](chipset_stream s, chipset_comm c, const void* from, void* to, bool trial) {
                   constexpr std::uint64_t kNone = 0;
                   return borrowed().all_to_all(s, c, from, trial ? &kNone : out.data(), to,
                                                trial ? &kNone : in.data(), dtype);
                 });
}

namespace {
chipset_status check_peer(chipset_comm handle, std::int32_t peer) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Comm> comm = comm_at(handle);
  return comm == nullptr ? CHIPSET_STATUS_OK : check_rank(*comm, "peer", peer);
}
}  // namespace

chipset_status send(chipset_stream stream, chipset_comm comm, const void* buffer,
                    std::uint64_t count, std::int32_t dtype, std::int32_t peer) {
  if (const auto s = check_peer(comm, peer); s != CHIPSET_STATUS_OK) return s;
  return collect(
      Fn::send, stream, comm, {buffer, bytes_for(count, dtype), nullptr, 0},
      [=](chipset_stream s, chipset_comm c, const void* from, void*, bool) {
        return borrowed().send(s, c, from, count, dtype, peer);
      },
      false);
}

chipset_status recv(chipset_stream stream, chipset_comm comm, void* buffer, std::uint64_t count,
                    std::int32_t dtype, std::int32_t peer) {
  if (const auto s = check_peer(comm, peer); s != CHIPSET_STATUS_OK) return s;
  return collect(
      Fn::recv, stream, comm, {nullptr, 0, buffer, bytes_for(count, dtype)},
      [=](chipset_stream s, chipset_comm c, const void*, void* to, bool) {
        return borrowed().recv(s, c, to, count, dtype, peer);
      },
      false);
}

chipset_status group_begin(chipset_comm handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Comm> comm = comm_at(handle);
  if (comm == nullptr) return unknown_comm(handle);
  ++comm->depth;
  return CHIPSET_STATUS_OK;
}

chipset_status group_end(chipset_comm handle) {
  Lock lock(simulator_mutex());
  const std::shared_ptr<Comm> comm = comm_at(handle);
  if (comm == nullptr) return unknown_comm(handle);
  if (comm->depth == 0)
    return fail(CHIPSET_STATUS_INVALID, "group_end: no group was begun on this communicator");
  if (--comm->depth > 0 || comm->held.empty()) return CHIPSET_STATUS_OK;
  const auto held = std::exchange(comm->held, {});
  // One piece of work in the stream of the first call; the other streams wait for it, and it for
  // them.
  const std::shared_ptr<Stream> first = held.front().first;
  Work whole;
  whole.call = current_call();
  whole.collective = true;
  whole.comm = handle;
  std::vector<std::shared_ptr<Stream>> others;
  std::vector<Run> runs;
  for (const auto& [stream, work] : held) {
    if (stream != first && std::find(others.begin(), others.end(), stream) == others.end())
      others.push_back(stream);
    whole.touches.insert(whole.touches.end(), work.touches.begin(), work.touches.end());
    whole.writes.insert(whole.writes.end(), work.writes.begin(), work.writes.end());
    whole.seconds = std::max(whole.seconds, work.seconds);
    runs.push_back(work.run);
  }
  whole.run = [runs, comm](chipset_stream inner) {
    chipset_status status = borrowed().group_begin(comm->inner);
    for (const Run& run : runs)
      if (status == CHIPSET_STATUS_OK) status = run(inner);
    const chipset_status end = borrowed().group_end(comm->inner);
    return status == CHIPSET_STATUS_OK ? end : status;
  };
  const auto join = [&](const std::shared_ptr<Stream>& waiting, const std::shared_ptr<Stream>& on) {
    auto command = std::make_shared<Command>();
    command->call = current_call();
    command->after.push_back(present_end(on));
    enqueue(lock, waiting, std::move(command));
  };
  for (const auto& other : others) join(first, other);
  submit(lock, first, std::move(whole));
  for (const auto& other : others) join(other, first);
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::sim
