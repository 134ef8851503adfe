// SPDX-License-Identifier: Apache-2.0
// Faults of collectives. Those of order are seeded into the chip whose streams are queues.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "mutant.h"

namespace chipset::mutants {

namespace {

struct Membership {
  int32_t rank;
  int32_t size;
};

std::mutex& known_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::map<chipset_comm, Membership>& known() {
  static auto* const all = new std::map<chipset_comm, Membership>;
  return *all;
}

// For faults that need to know a communicator's ranks: remembers them.
void remember_ranks(chipset_api& api) {
  api.comm_create = [](int32_t device, const void* id, int32_t rank, int32_t size,
                       chipset_comm* comm) {
    const chipset_status status = good().comm_create(device, id, rank, size, comm);
    std::lock_guard lock(known_mutex());
    if (status == CHIPSET_STATUS_OK) known()[*comm] = {rank, size};
    return status;
  };
}
Membership ranks_of(chipset_comm comm) {
  std::lock_guard lock(known_mutex());
  return known().at(comm);
}

// All ranks' elements of an all_reduce, rank by rank.
std::vector<char> everything(chipset_stream stream, chipset_comm comm, const void* send,
                             uint64_t count, int32_t dtype) {
  const auto size = static_cast<std::size_t>(ranks_of(comm).size);
  std::vector<char> all(size * count * static_cast<std::size_t>(sdk::dtype_size(dtype)));
  good().all_gather(stream, comm, send, all.data(), count, dtype);
  return all;
}

// Sums of F32 or F16 in an order of ranks, each partial sum rounded to the dtype.
template <class Order>
chipset_status sum_in_order(chipset_stream stream, chipset_comm comm, const void* send,
                            void* receive, uint64_t count, int32_t dtype, Order&& order) {
  const Membership own = ranks_of(comm);
  const std::vector<char> all = everything(stream, comm, send, count, dtype);
  const auto item = static_cast<std::size_t>(sdk::dtype_size(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    char sum[8] = {};
    for (int32_t step = 0; step < own.size; ++step) {
      const auto from = static_cast<std::size_t>(order(own, step));
      float total = 0;
      float term = 0;
      sdk::loops::load(&term, all.data() + (from * count + i) * item, dtype, 1, 1);
      if (step > 0) sdk::loops::load(&total, sum, dtype, 1, 1);
      total += term;
      sdk::loops::store(sum, dtype, 1, &total, 1);
    }
    std::memcpy(static_cast<char*>(receive) + i * item, sum, item);
  }
  return CHIPSET_STATUS_OK;
}

#define ALL_REDUCE                                                                              \
  [](chipset_stream stream, chipset_comm comm, const void* send, void* receive, uint64_t count, \
     int32_t dtype, int32_t op)                                                                 \
      ->chipset_status
#define REDUCE_SCATTER ALL_REDUCE
#define ALL_GATHER                                                                              \
  [](chipset_stream stream, chipset_comm comm, const void* send, void* receive, uint64_t count, \
     int32_t dtype)                                                                             \
      ->chipset_status
#define BROADCAST                                                                           \
  [](chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count, int32_t dtype, \
     int32_t root)                                                                          \
      ->chipset_status

void add_reductions(List& list) {
  const auto add = [&](const char* name, const char* functions, const char* fault,
                       void (*seed)(chipset_api&)) {
    list.push_back({name, "5", functions, fault, seed});
  };
  add("all-reduce-avg-is-sum", "all_reduce", "AVG does not divide", [](chipset_api& api) {
    api.all_reduce = ALL_REDUCE {
      if (op == CHIPSET_COLLECTIVE_OP_AVG) op = CHIPSET_COLLECTIVE_OP_SUM;
      return good().all_reduce(stream, comm, send, receive, count, dtype, op);
    };
  });
  add("all-reduce-sum-is-avg", "all_reduce", "SUM divides by the number of ranks",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          if (op == CHIPSET_COLLECTIVE_OP_SUM) op = CHIPSET_COLLECTIVE_OP_AVG;
          return good().all_reduce(stream, comm, send, receive, count, dtype, op);
        };
      });
  add("all-reduce-max-is-min", "all_reduce", "MAX takes the smallest", [](chipset_api& api) {
    api.all_reduce = ALL_REDUCE {
      if (op == CHIPSET_COLLECTIVE_OP_MAX) op = CHIPSET_COLLECTIVE_OP_MIN;
      return good().all_reduce(stream, comm, send, receive, count, dtype, op);
    };
  });
  add("all-reduce-bor-is-bxor", "all_reduce", "BOR is BXOR", [](chipset_api& api) {
    api.all_reduce = ALL_REDUCE {
      if (op == CHIPSET_COLLECTIVE_OP_BOR) op = CHIPSET_COLLECTIVE_OP_BXOR;
      return good().all_reduce(stream, comm, send, receive, count, dtype, op);
    };
  });
  add("all-reduce-one-short", "all_reduce", "the last element is not reduced",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          return good().all_reduce(stream, comm, send, receive, count - (count > 1), dtype, op);
        };
      });
  add("all-reduce-first-half-of-large", "all_reduce",
      "of more than 65,536 elements only that many are reduced", [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          return good().all_reduce(stream, comm, send, receive, std::min<uint64_t>(count, 65536),
                                   dtype, op);
        };
      });
  add("all-reduce-i64-as-i32", "all_reduce", "I64 is reduced as pairs of I32",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          if (dtype == CHIPSET_DTYPE_I64) dtype = CHIPSET_DTYPE_I32, count *= 2;
          return good().all_reduce(stream, comm, send, receive, count, dtype, op);
        };
      });
  add("all-reduce-same-bits-not-on-every-rank", "all_reduce",
      "each rank adds its own number first, so that ranks differ in bits (COL-002)",
      [](chipset_api& api) {
        remember_ranks(api);
        api.all_reduce = ALL_REDUCE {
          if (dtype != CHIPSET_DTYPE_F32 || op != CHIPSET_COLLECTIVE_OP_SUM)
            return good().all_reduce(stream, comm, send, receive, count, dtype, op);
          return sum_in_order(
              stream, comm, send, receive, count, dtype,
              [](Membership own, int32_t step) { return (own.rank + step) % own.size; });
        };
      });
  add("all-reduce-same-bits-not-in-every-run", "all_reduce",
      "the order of a sum changes from call to call (COL-002)", [](chipset_api& api) {
        remember_ranks(api);
        api.all_reduce = ALL_REDUCE {
          if (dtype != CHIPSET_DTYPE_F32 || op != CHIPSET_COLLECTIVE_OP_SUM)
            return good().all_reduce(stream, comm, send, receive, count, dtype, op);
          static std::atomic<int32_t> calls{0};
          static thread_local int32_t first;
          first = calls++;
          return sum_in_order(
              stream, comm, send, receive, count, dtype,
              [](Membership own, int32_t step) { return (first + step) % own.size; });
        };
      });
  add("all-reduce-sum-f16-in-f16", "all_reduce",
      "partial sums of F16 and BF16 are rounded to it (COL-002)", [](chipset_api& api) {
        remember_ranks(api);
        api.all_reduce = ALL_REDUCE {
          if ((dtype != CHIPSET_DTYPE_F16 && dtype != CHIPSET_DTYPE_BF16) ||
              op != CHIPSET_COLLECTIVE_OP_SUM)
            return good().all_reduce(stream, comm, send, receive, count, dtype, op);
          return sum_in_order(stream, comm, send, receive, count, dtype,
                              [](Membership, int32_t step) { return step; });
        };
      });
  add("all-reduce-in-place-ignored", "all_reduce", "a call in place leaves the buffer as it is",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          if (send != receive)
            return good().all_reduce(stream, comm, send, receive, count, dtype, op);
          std::vector<char> lost(count * static_cast<std::size_t>(sdk::dtype_size(dtype)) + 1);
          return good().all_reduce(stream, comm, send, lost.data(), count, dtype, op);
        };
      });
  add("all-reduce-writes-what-is-sent", "all_reduce", "the buffer that is sent gets the result",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          const chipset_status status =
              good().all_reduce(stream, comm, send, receive, count, dtype, op);
          if (status == CHIPSET_STATUS_OK && send != receive && count > 0)
            std::memcpy(const_cast<void*>(send), receive,
                        count * static_cast<std::size_t>(sdk::dtype_size(dtype)));
          return status;
        };
      });
  add("all-reduce-nothing-refused", "all_reduce", "no elements are refused", [](chipset_api& api) {
    api.all_reduce = ALL_REDUCE {
      if (count == 0) return refuse(CHIPSET_STATUS_INVALID, "there is nothing to reduce");
      return good().all_reduce(stream, comm, send, receive, count, dtype, op);
    };
  });
  add("reduce-scatter-max-is-sum", "reduce_scatter", "MAX adds", [](chipset_api& api) {
    api.reduce_scatter = REDUCE_SCATTER {
      if (op == CHIPSET_COLLECTIVE_OP_MAX) op = CHIPSET_COLLECTIVE_OP_SUM;
      return good().reduce_scatter(stream, comm, send, receive, count, dtype, op);
    };
  });
  add("reduce-scatter-parts-turned", "reduce_scatter", "a rank gets the next rank's part",
      [](chipset_api& api) {
        remember_ranks(api);
        api.reduce_scatter = REDUCE_SCATTER {
          const Membership own = ranks_of(comm);
          const auto part = count * static_cast<std::size_t>(sdk::dtype_size(dtype));
          const auto* from = static_cast<const char*>(send);
          std::vector<char> turned(part * static_cast<std::size_t>(own.size) + 1);
          for (std::size_t r = 0; r < static_cast<std::size_t>(own.size); ++r)
            std::memcpy(&turned[r * part],
                        from + (r + 1) % static_cast<std::size_t>(own.size) * part, part);
          return good().reduce_scatter(stream, comm, turned.data(), receive, count, dtype, op);
        };
      });
  add("reduce-scatter-writes-too-much", "reduce_scatter",
      "four bytes behind the rank's part are written", [](chipset_api& api) {
        api.reduce_scatter = REDUCE_SCATTER {
          const chipset_status status =
              good().reduce_scatter(stream, comm, send, receive, count, dtype, op);
          const auto part = count * static_cast<std::size_t>(sdk::dtype_size(dtype));
          if (status == CHIPSET_STATUS_OK) std::memset(static_cast<char*>(receive) + part, 0, 4);
          return status;
        };
      });
}

void add_moves(List& list) {
  const auto add = [&](const char* name, const char* functions, const char* fault,
                       void (*seed)(chipset_api&)) {
    list.push_back({name, "5", functions, fault, seed});
  };
  add("broadcast-from-the-first", "broadcast", "the root is always rank 0", [](chipset_api& api) {
    api.broadcast = BROADCAST {
      (void)root;
      return good().broadcast(stream, comm, buffer, count, dtype, 0);
    };
  });
  add("broadcast-one-short", "broadcast", "the last element does not arrive", [](chipset_api& api) {
    api.broadcast = BROADCAST {
      return good().broadcast(stream, comm, buffer, count - (count > 1), dtype, root);
    };
  });
  add("all-gather-first-two-swapped", "all_gather", "the parts of ranks 0 and 1 change places",
      [](chipset_api& api) {
        api.all_gather = ALL_GATHER {
          const chipset_status status =
              good().all_gather(stream, comm, send, receive, count, dtype);
          const auto bytes = static_cast<int64_t>(count) * sdk::dtype_size(dtype);
          char* first = static_cast<char*>(receive);
          if (status == CHIPSET_STATUS_OK) std::swap_ranges(first, first + bytes, first + bytes);
          return status;
        };
      });
  add("all-gather-without-its-own", "all_gather", "a rank's own part is left out",
      [](chipset_api& api) {
        remember_ranks(api);
        api.all_gather = ALL_GATHER {
          const auto bytes = count * static_cast<std::size_t>(sdk::dtype_size(dtype));
          char* own =
              static_cast<char*>(receive) + static_cast<std::size_t>(ranks_of(comm).rank) * bytes;
          const std::vector<char> before(own, own + bytes);
          const std::vector<char> sent(static_cast<const char*>(send),
                                       static_cast<const char*>(send) + bytes);
          const chipset_status status =
              good().all_gather(stream, comm, sent.data(), receive, count, dtype);
          if (bytes > 0 && own != send) std::memcpy(own, before.data(), bytes);
          return status;
        };
      });
  add("all-to-all-even-parts", "all_to_all", "every part is taken to be as long as the first",
      [](chipset_api& api) {
        remember_ranks(api);
        api.all_to_all = [](chipset_stream stream, chipset_comm comm, const void* send,
                            const uint64_t* send_counts, void* receive,
                            const uint64_t* receive_counts, int32_t dtype) -> chipset_status {
          const auto size = static_cast<std::size_t>(ranks_of(comm).size);
          const auto item = static_cast<std::size_t>(sdk::dtype_size(dtype));
          const auto* from = static_cast<const char*>(send);
          std::vector<char> shifted;
          uint64_t total = 0;
          for (std::size_t r = 0; r < size; ++r) total += send_counts[r];
          for (std::size_t r = 0; r < size; ++r) {
            const uint64_t start = std::min(total - send_counts[r], send_counts[0] * r);
            shifted.insert(shifted.end(), from + start * item,
                           from + (start + send_counts[r]) * item);
          }
          shifted.push_back(0);
          return good().all_to_all(stream, comm, shifted.data(), send_counts, receive,
                                   receive_counts, dtype);
        };
      });
  add("recv-last-byte-lost", "recv", "the last byte that is received stays as it was",
      [](chipset_api& api) {
        api.recv = [](chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count,
                      int32_t dtype, int32_t peer) -> chipset_status {
          const auto bytes = count * static_cast<std::size_t>(sdk::dtype_size(dtype));
          if (bytes == 0) return good().recv(stream, comm, buffer, count, dtype, peer);
          // Sent as it is, received elsewhere; groups run at their end, so the copy is leaked.
          auto* elsewhere = new std::vector<char>(bytes);
          return good().recv(stream, comm, elsewhere->data(), count, dtype, peer);
        };
      });
  add("group-begin-runs-at-once", "group_begin send recv", "a group's calls run one by one",
      [](chipset_api& api) {
        api.group_begin = [](chipset_comm) -> chipset_status { return CHIPSET_STATUS_OK; };
        api.group_end = [](chipset_comm) -> chipset_status { return CHIPSET_STATUS_OK; };
      });
  add("group-end-drops-the-calls", "group_end send recv", "what a group held never runs",
      [](chipset_api& api) {
        api.group_begin = [](chipset_comm) -> chipset_status { return CHIPSET_STATUS_OK; };
        api.group_end = [](chipset_comm) -> chipset_status { return CHIPSET_STATUS_OK; };
        api.send = [](chipset_stream, chipset_comm, const void*, uint64_t, int32_t,
                      int32_t) -> chipset_status { return CHIPSET_STATUS_OK; };
        api.recv = [](chipset_stream, chipset_comm, void*, uint64_t, int32_t,
                      int32_t) -> chipset_status { return CHIPSET_STATUS_OK; };
      });
}

void add_communicators(List& list) {
  const auto add = [&](const char* name, const char* functions, const char* fault,
                       void (*seed)(chipset_api&)) {
    list.push_back({name, "5", functions, fault, seed});
  };
  add("comm-ranks-in-order-of-arrival", "comm_create all_gather",
      "the last rank of a communicator becomes its first", [](chipset_api& api) {
        api.comm_create = [](int32_t device, const void* id, int32_t rank, int32_t size,
                             chipset_comm* comm) -> chipset_status {
          if (rank >= 0 && size > 1 && rank < size) rank = size - 1 - rank;
          return good().comm_create(device, id, rank, size, comm);
        };
      });
  add("comm-leaked", "comm_destroy", "an ended communicator stays open", [](chipset_api& api) {
    api.comm_destroy = [](chipset_comm) -> chipset_status { return CHIPSET_STATUS_OK; };
  });
  add("comm-absent-rank-is-fine", "comm_create", "a rank that never comes is not waited for",
      [](chipset_api& api) {
        api.comm_create = [](int32_t device, const void* id, int32_t rank, int32_t size,
                             chipset_comm* comm) -> chipset_status {
          const chipset_status status = good().comm_create(device, id, rank, size, comm);
          return status == CHIPSET_STATUS_TIMEOUT ? CHIPSET_STATUS_OK : status;
        };
      });
  add("comm-dead-peer-is-fine", "all_reduce", "a peer that died goes unnoticed (COL-003)",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          const chipset_status status =
              good().all_reduce(stream, comm, send, receive, count, dtype, op);
          return status == CHIPSET_STATUS_TIMEOUT ? CHIPSET_STATUS_OK : status;
        };
      });
  add("comm-any-root-accepted", "broadcast", "a root that does not exist is accepted",
      [](chipset_api& api) {
        api.broadcast = BROADCAST {
          const chipset_status status = good().broadcast(stream, comm, buffer, count, dtype, root);
          return status == CHIPSET_STATUS_INVALID ? CHIPSET_STATUS_OK : status;
        };
      });
}

void add_order(List& list) {
  const auto add = [&](const char* name, const char* functions, const char* fault,
                       void (*seed)(chipset_api&)) {
    list.push_back({name, "5", functions, fault, seed, true});
  };
  add("all-reduce-ignores-stream", "all_reduce", "an all_reduce runs at once, not in its stream",
      [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          (void)stream;
          return good().all_reduce(good_stream(), comm, send, receive, count, dtype, op);
        };
      });
  add("all-gather-ignores-stream", "all_gather", "an all_gather runs at once, not in its stream",
      [](chipset_api& api) {
        api.all_gather = ALL_GATHER {
          (void)stream;
          return good().all_gather(good_stream(), comm, send, receive, count, dtype);
        };
      });
  add("broadcast-ignores-stream", "broadcast", "a broadcast runs at once, not in its stream",
      [](chipset_api& api) {
        api.broadcast = BROADCAST {
          (void)stream;
          return good().broadcast(good_stream(), comm, buffer, count, dtype, root);
        };
      });
  add("all-reduce-is-not-waited-for", "all_reduce",
      "later work of the stream does not wait for the all_reduce", [](chipset_api& api) {
        api.all_reduce = ALL_REDUCE {
          return sdk::guarded([&] {
            stream->queue->push([=] {
              std::thread([=] {
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
                good().all_reduce(good_stream(), comm, send, receive, count, dtype, op);
              }).detach();
            });
          });
        };
      });
}

}  // namespace

void add_collective(List& list) {
  add_reductions(list);
  add_moves(list);
  add_communicators(list);
  add_order(list);
}

// The good chip's collectives in the queues of the chip that is asynchronous.
void queue_collectives(chipset_api& api) {
  const chipset_api& whole = good();
  api.comm_id = whole.comm_id;
  api.comm_create = whole.comm_create;
  api.comm_destroy = whole.comm_destroy;
  api.all_reduce = ALL_REDUCE {
    return enqueue(stream, [=](chipset_stream inner) {
      return good().all_reduce(inner, comm, send, receive, count, dtype, op);
    });
  };
  api.reduce_scatter = REDUCE_SCATTER {
    return enqueue(stream, [=](chipset_stream inner) {
      return good().reduce_scatter(inner, comm, send, receive, count, dtype, op);
    });
  };
  api.all_gather = ALL_GATHER {
    return enqueue(stream, [=](chipset_stream inner) {
      return good().all_gather(inner, comm, send, receive, count, dtype);
    });
  };
  api.broadcast = BROADCAST {
    return enqueue(stream, [=](chipset_stream inner) {
      return good().broadcast(inner, comm, buffer, count, dtype, root);
    });
  };
}

}  // namespace chipset::mutants
