// SPDX-License-Identifier: Apache-2.0
// Each collective moves its data in steps through the ranks' slots of shared memory. A rank writes
// its own slot, all meet at a barrier, each reads what it needs; the next step uses the other half
// of the slots, so that one barrier a step is enough. Reductions add rank by rank in ascending
// order, each element on one rank only: the same bits everywhere and every time (COL-002).
#include "collectives.h"

#include <sys/random.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "comm.h"
#include "device.h"
#include "error.h"
#include "kernels.h"
#include "stream.h"
#include "tensor.h"

namespace chipset::cpu {
namespace {

constexpr char kMagic[] = "chipset-cpu-comm";
constexpr int64_t kBlock = 1024;

Comm* as_comm(chipset_comm handle) { return reinterpret_cast<Comm*>(handle); }

enum Function : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

// The interface's operation as one of pointwise.
struct Reduction {
  int32_t op;
  bool integers_only;
};
constexpr Reduction kReductions[] = {
    {CHIPSET_POINTWISE_OP_ADD, false},       {CHIPSET_POINTWISE_OP_MUL, false},
    {CHIPSET_POINTWISE_OP_MINIMUM, false},   {CHIPSET_POINTWISE_OP_MAXIMUM, false},
    {CHIPSET_POINTWISE_OP_ADD, false},       {CHIPSET_POINTWISE_OP_BITWISE_AND, true},
    {CHIPSET_POINTWISE_OP_BITWISE_OR, true}, {CHIPSET_POINTWISE_OP_BITWISE_XOR, true},
};

chipset_status check_reduction(const char* function, int32_t dtype, int32_t op) {
  if (op < CHIPSET_COLLECTIVE_OP_SUM || op > CHIPSET_COLLECTIVE_OP_BXOR) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: unknown operation %d", function, op);
  }
  if (kComputeOf[dtype] < 0 || (kReductions[op].integers_only && is_float(dtype))) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: operation %d is not defined for %s", function, op,
                dtype_name(dtype));
  }
  return CHIPSET_STATUS_OK;
}

// output[i] = op over ranks of parts[rank][i], evaluated in the compute type, rounded once.
void reduce_parts(const std::vector<const char*>& parts, char* output, int64_t n, int32_t dtype,
                  int32_t op) {
  const int c = kComputeOf[dtype];
  const auto compute = static_cast<Compute>(c);
  const int64_t size = dtype_size(dtype);
  const LoadKernel load = convert_table().load[c][dtype];
  const OpKernel combine = op_table(compute).kernel[kReductions[op].op];
  const OpParams params = {{1, 0, 0, 0}, {1, 0, 0, 0}};
  alignas(64) char sum[kBlock * 8];
  alignas(64) char term[kBlock * 8];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    load(parts[0] + at * size, size, sum, count);
    for (size_t r = 1; r < parts.size(); ++r) {
      load(parts[r] + at * size, size, term, count);
      const void* const in[3] = {sum, term, nullptr};
      combine(sum, in, count, params);
    }
    if (op == CHIPSET_COLLECTIVE_OP_AVG) {
      const bool floating = is_float(dtype);
      const auto ranks = static_cast<int64_t>(parts.size());
      const double ranks_f = static_cast<double>(ranks);
      convert_table().load[c][floating ? CHIPSET_DTYPE_F64 : CHIPSET_DTYPE_I64](
          floating ? static_cast<const void*>(&ranks_f) : &ranks, 0, term, count);
      const void* const in[3] = {sum, term, nullptr};
      op_table(compute).kernel[floating ? CHIPSET_POINTWISE_OP_DIV
                                        : CHIPSET_POINTWISE_OP_DIV_TRUNC](sum, in, count, params);
    }
    convert_table().store[c][dtype](sum, output + at * size, size, count);
  }
}

// The checks that every call shares.
chipset_status check_call(const char* function, chipset_stream stream, chipset_comm comm,
                          const void* a, const void* b, uint64_t count, int32_t dtype) {
  Stream* s = as_stream(stream);
  if (s == nullptr || comm == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "%s: the %s is missing (NULL)", function,
                s == nullptr ? "stream" : "communicator");
  }
  if (s->capture != nullptr) return spoil_capture(*s, function);
  if (!valid_dtype(dtype) || dtype == CHIPSET_DTYPE_I4) {
    return fail(CHIPSET_STATUS_UNSUPPORTED, "%s: no transfer of dtype %s (%d)", function,
                dtype_name(dtype), dtype);
  }
  if (count > 0 && (a == nullptr || b == nullptr)) {
    return fail(CHIPSET_STATUS_INVALID, "%s: %" PRIu64 " elements at address NULL", function,
                count);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status check_rank(const char* function, const Comm& comm, const char* what, int32_t rank) {
  if (rank >= 0 && rank < comm.size) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: %s %d, the communicator has %d ranks", function, what,
              rank, comm.size);
}

// A barrier after which every rank knows whether all make the same call.
chipset_status meet(const char* function, Comm& comm, const CallDescription& call) {
  const uint64_t parity = comm.calls++ % 2;
  comm.state(comm.rank).call[parity] = call;
  if (const chipset_status s = comm.barrier(function); s != CHIPSET_STATUS_OK) return s;
  for (int r = 0; r < comm.size; ++r) {
    const CallDescription& other = comm.state(r).call[parity];
    if (comm.state(0).call[parity] == other) continue;
    return fail(CHIPSET_STATUS_INVALID,
                "%s: the ranks' calls differ: rank 0 has function %d, %" PRIu64
                " elements, dtype %s, op %d, root %d; rank %d has %d, %" PRIu64
                ", %s, %d, %d (COL-001)",
                function, comm.state(0).call[parity].function, comm.state(0).call[parity].count,
                dtype_name(comm.state(0).call[parity].dtype), comm.state(0).call[parity].op,
                comm.state(0).call[parity].root, r, other.function, other.count,
                dtype_name(other.dtype), other.op, other.root);
  }
  return CHIPSET_STATUS_OK;
}

bool held(const Comm& comm) {
  return comm.group_depth > 0 && comm.group_thread == std::this_thread::get_id();
}

// Runs now, or at group_end.
template <typename Call>
chipset_status run_or_hold(Comm& comm, Call&& call) {
  if (!held(comm)) return call();
  comm.held_calls.emplace_back(std::forward<Call>(call));
  return CHIPSET_STATUS_OK;
}

chipset_status all_reduce(Comm& comm, const char* send, char* receive, uint64_t count,
                          int32_t dtype, int32_t op) {
  const char* const name = "all_reduce";
  if (const chipset_status s = meet(name, comm, {kAllReduce, dtype, op, 0, count});
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  const auto size = static_cast<uint64_t>(dtype_size(dtype));
  const uint64_t most = comm.slot_bytes() / size;
  std::vector<const char*> parts(static_cast<size_t>(comm.size));
  for (uint64_t at = 0; at < count; at += most) {
    const uint64_t n = std::min(most, count - at);
    const uint64_t step = comm.step++;
    std::memcpy(comm.slot(comm.rank, step), send + at * size, n * size);
    if (const chipset_status s = comm.barrier(name); s != CHIPSET_STATUS_OK) return s;
    // This rank's share of the elements, in whole cache lines.
    const uint64_t share = (n / static_cast<uint64_t>(comm.size) + 64) / 64 * 64;
    const uint64_t begin = std::min(n, share * static_cast<uint64_t>(comm.rank));
    const uint64_t end = std::min(n, begin + share);
    for (int r = 0; r < comm.size; ++r) {
      parts[static_cast<size_t>(r)] = comm.slot(r, step) + begin * size;
    }
    reduce_parts(parts, comm.result(step) + begin * size, static_cast<int64_t>(end - begin), dtype,
                 op);
    if (const chipset_status s = comm.barrier(name); s != CHIPSET_STATUS_OK) return s;
    std::memcpy(receive + at * size, comm.result(step), n * size);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status all_gather(Comm& comm, const char* send, char* receive, uint64_t count,
                          int32_t dtype) {
  const char* const name = "all_gather";
  if (const chipset_status s = meet(name, comm, {kAllGather, dtype, 0, 0, count});
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  const auto size = static_cast<uint64_t>(dtype_size(dtype));
  const uint64_t most = comm.slot_bytes() / size;
  for (uint64_t at = 0; at < count; at += most) {
    const uint64_t n = std::min(most, count - at);
    const uint64_t step = comm.step++;
    std::memcpy(comm.slot(comm.rank, step), send + at * size, n * size);
    if (const chipset_status s = comm.barrier(name); s != CHIPSET_STATUS_OK) return s;
    for (int r = 0; r < comm.size; ++r) {
      // A rank's own part may be the send buffer itself; it holds the same bytes already then.
      std::memcpy(receive + (static_cast<uint64_t>(r) * count + at) * size, comm.slot(r, step),
                  n * size);
    }
  }
  return CHIPSET_STATUS_OK;
}

chipset_status reduce_scatter(Comm& comm, const char* send, char* receive, uint64_t count,
                              int32_t dtype, int32_t op) {
  const char* const name = "reduce_scatter";
  if (const chipset_status s = meet(name, comm, {kReduceScatter, dtype, op, 0, count});
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  const auto size = static_cast<uint64_t>(dtype_size(dtype));
  const auto ranks = static_cast<uint64_t>(comm.size);
  const uint64_t most = comm.slot_bytes() / size / ranks;
  // The receive buffer may be a part of send, so results go there when all of send has been read.
  const bool overlap = receive < send + ranks * count * size && send < receive + count * size;
  std::vector<char> kept(overlap ? count * size : 0);
  char* const target = overlap ? kept.data() : receive;
  std::vector<const char*> parts(ranks);
  for (uint64_t at = 0; at < count; at += most) {
    const uint64_t n = std::min(most, count - at);
    const uint64_t step = comm.step++;
    for (uint64_t r = 0; r < ranks; ++r) {
      std::memcpy(comm.slot(comm.rank, step) + r * n * size, send + (r * count + at) * size,
                  n * size);
    }
    if (const chipset_status s = comm.barrier(name); s != CHIPSET_STATUS_OK) return s;
    for (uint64_t r = 0; r < ranks; ++r) {
      parts[r] = comm.slot(static_cast<int>(r), step) + static_cast<uint64_t>(comm.rank) * n * size;
    }
    reduce_parts(parts, target + at * size, static_cast<int64_t>(n), dtype, op);
  }
  if (overlap) std::memcpy(receive, kept.data(), kept.size());
  return CHIPSET_STATUS_OK;
}

chipset_status broadcast(Comm& comm, char* buffer, uint64_t count, int32_t dtype, int32_t root) {
  const char* const name = "broadcast";
  if (const chipset_status s = meet(name, comm, {kBroadcast, dtype, 0, root, count});
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  const uint64_t bytes = count * static_cast<uint64_t>(dtype_size(dtype));
  const uint64_t most = comm.slot_bytes();
  for (uint64_t at = 0; at < bytes; at += most) {
    const uint64_t n = std::min(most, bytes - at);
    const uint64_t step = comm.step++;
    if (comm.rank == root) std::memcpy(comm.slot(root, step), buffer + at, n);
    if (const chipset_status s = comm.barrier(name); s != CHIPSET_STATUS_OK) return s;
    if (comm.rank != root) std::memcpy(buffer + at, comm.slot(root, step), n);
  }
  return CHIPSET_STATUS_OK;
}

chipset_status run_transfers(const char* function, Comm& comm, std::vector<Transfer> transfers) {
  if (held(comm)) {
    comm.held_transfers.insert(comm.held_transfers.end(), transfers.begin(), transfers.end());
    return CHIPSET_STATUS_OK;
  }
  return comm.transfer(function, transfers);
}

}  // namespace

chipset_status cpu_comm_id(void* id) {
  if (id == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "comm_id: the out parameter is missing (NULL)");
  }
  uint64_t random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
    return fail(CHIPSET_STATUS_INTERNAL, "comm_id: the system gives no random bytes");
  }
  char text[CHIPSET_COMM_ID_SIZE] = {};
  std::snprintf(text, sizeof(text), "%s/chipset-%016" PRIx64 "%016" PRIx64, kMagic, random[0],
                random[1]);
  std::memcpy(id, text, sizeof(text));
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_comm_create(int32_t device, const void* id, int32_t rank, int32_t size,
                               chipset_comm* comm) {
  if (comm == nullptr || id == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "comm_create: the %s is missing (NULL)",
                id == nullptr ? "id" : "out parameter");
  }
  *comm = nullptr;
  if (const chipset_status s = check_device("comm_create", device); s != CHIPSET_STATUS_OK) {
    return s;
  }
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) {
    return fail(CHIPSET_STATUS_INVALID,
                "comm_create: rank %d of %d; ranks run from 0 to size-1, sizes to %d", rank, size,
                kMaxRanks);
  }
  const char* text = static_cast<const char*>(id);
  const size_t magic = sizeof(kMagic) - 1;
  if (std::memcmp(text, kMagic, magic) != 0 || text[magic] != '/' ||
      std::memchr(text, '\0', CHIPSET_COMM_ID_SIZE) == nullptr) {
    return fail(CHIPSET_STATUS_INVALID,
                "comm_create: the id is not one that comm_id of this plugin made");
  }
  Comm* made = nullptr;
  const chipset_status s = Comm::create(device, text + magic, rank, size, &made);
  if (s == CHIPSET_STATUS_OK) *comm = reinterpret_cast<chipset_comm>(made);
  return s;
}

chipset_status cpu_comm_destroy(chipset_comm comm) {
  delete as_comm(comm);
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_all_reduce(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, uint64_t count, int32_t dtype, int32_t op) {
  chipset_status s = check_call("all_reduce", stream, comm, send, receive, count, dtype);
  if (s == CHIPSET_STATUS_OK) s = check_reduction("all_reduce", dtype, op);
  if (s != CHIPSET_STATUS_OK) return s;
  Comm& c = *as_comm(comm);
  return run_or_hold(c, [=, &c] {
    return all_reduce(c, static_cast<const char*>(send), static_cast<char*>(receive), count, dtype,
                      op);
  });
}

chipset_status cpu_all_gather(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, uint64_t count, int32_t dtype) {
  if (const chipset_status s = check_call("all_gather", stream, comm, send, receive, count, dtype);
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  Comm& c = *as_comm(comm);
  return run_or_hold(c, [=, &c] {
    return all_gather(c, static_cast<const char*>(send), static_cast<char*>(receive), count, dtype);
  });
}

chipset_status cpu_reduce_scatter(chipset_stream stream, chipset_comm comm, const void* send,
                                  void* receive, uint64_t count, int32_t dtype, int32_t op) {
  chipset_status s = check_call("reduce_scatter", stream, comm, send, receive, count, dtype);
  if (s == CHIPSET_STATUS_OK) s = check_reduction("reduce_scatter", dtype, op);
  if (s != CHIPSET_STATUS_OK) return s;
  Comm& c = *as_comm(comm);
  return run_or_hold(c, [=, &c] {
    return reduce_scatter(c, static_cast<const char*>(send), static_cast<char*>(receive), count,
                          dtype, op);
  });
}

chipset_status cpu_broadcast(chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count,
                             int32_t dtype, int32_t root) {
  chipset_status s = check_call("broadcast", stream, comm, buffer, buffer, count, dtype);
  if (s == CHIPSET_STATUS_OK) s = check_rank("broadcast", *as_comm(comm), "root", root);
  if (s != CHIPSET_STATUS_OK) return s;
  Comm& c = *as_comm(comm);
  return run_or_hold(
      c, [=, &c] { return broadcast(c, static_cast<char*>(buffer), count, dtype, root); });
}

chipset_status cpu_all_to_all(chipset_stream stream, chipset_comm comm, const void* send,
                              const uint64_t* send_counts, void* receive,
                              const uint64_t* receive_counts, int32_t dtype) {
  if (const chipset_status s =
          check_call("all_to_all", stream, comm, send_counts, receive_counts, 1, dtype);
      s != CHIPSET_STATUS_OK) {
    return s;
  }
  Comm& c = *as_comm(comm);
  const auto size = static_cast<uint64_t>(dtype_size(dtype));
  std::vector<Transfer> transfers;
  auto* from = static_cast<char*>(const_cast<void*>(send));
  auto* to = static_cast<char*>(receive);
  for (int r = 0; r < c.size; ++r) {
    const uint64_t out = send_counts[r] * size;
    const uint64_t in = receive_counts[r] * size;
    if ((out > 0 && send == nullptr) || (in > 0 && receive == nullptr)) {
      return fail(CHIPSET_STATUS_INVALID, "all_to_all: data for rank %d at address NULL", r);
    }
    transfers.push_back({true, r, from, out});
    transfers.push_back({false, r, to, in});
    from += out;
    to += in;
  }
  return run_transfers("all_to_all", c, std::move(transfers));
}

chipset_status cpu_send(chipset_stream stream, chipset_comm comm, const void* buffer,
                        uint64_t count, int32_t dtype, int32_t peer) {
  chipset_status s = check_call("send", stream, comm, buffer, buffer, count, dtype);
  if (s == CHIPSET_STATUS_OK) s = check_rank("send", *as_comm(comm), "peer", peer);
  if (s != CHIPSET_STATUS_OK) return s;
  return run_transfers("send", *as_comm(comm),
                       {{true, peer, static_cast<char*>(const_cast<void*>(buffer)),
                         count * static_cast<uint64_t>(dtype_size(dtype))}});
}

chipset_status cpu_recv(chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count,
                        int32_t dtype, int32_t peer) {
  chipset_status s = check_call("recv", stream, comm, buffer, buffer, count, dtype);
  if (s == CHIPSET_STATUS_OK) s = check_rank("recv", *as_comm(comm), "peer", peer);
  if (s != CHIPSET_STATUS_OK) return s;
  return run_transfers("recv", *as_comm(comm),
                       {{false, peer, static_cast<char*>(buffer),
                         count * static_cast<uint64_t>(dtype_size(dtype))}});
}

chipset_status cpu_group_begin(chipset_comm comm) {
  Comm* c = as_comm(comm);
  if (c == nullptr) {
    return fail(CHIPSET_STATUS_INVALID, "group_begin: the communicator is missing (NULL)");
  }
  if (c->group_depth == 0) c->group_thread = std::this_thread::get_id();
  ++c->group_depth;
  return CHIPSET_STATUS_OK;
}

chipset_status cpu_group_end(chipset_comm comm) {
  Comm* c = as_comm(comm);
  if (c == nullptr || !held(*c)) {
    return fail(CHIPSET_STATUS_INVALID,
                "group_end: this thread has no open group on the communicator");
  }
  if (--c->group_depth > 0) return CHIPSET_STATUS_OK;
  std::vector<Transfer> transfers;
  std::vector<std::function<chipset_status()>> calls;
  transfers.swap(c->held_transfers);
  calls.swap(c->held_calls);
  if (const chipset_status s = c->transfer("group_end", transfers); s != CHIPSET_STATUS_OK) {
    return s;
  }
  for (const auto& call : calls) {
    if (const chipset_status s = call(); s != CHIPSET_STATUS_OK) return s;
  }
  return CHIPSET_STATUS_OK;
}

}  // namespace chipset::cpu
