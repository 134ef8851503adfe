// SPDX-License-Identifier: Apache-2.0
// A communicator: ranks, in one process or in several on one machine, that share a memory segment.
// This file knows barriers, peers that die, and byte streams between two ranks; collectives.cpp
// builds the collectives on it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "chipset/chipset.h"

namespace chipset::cpu {

inline constexpr int kMaxRanks = 256;

// What the ranks of a call must agree on (COL-001).
struct CallDescription {
  int32_t function;
  int32_t dtype;
  int32_t op;
  int32_t root;
  uint64_t count;
  bool operator==(const CallDescription&) const = default;
};

struct alignas(64) RankState {
  std::atomic<int32_t> pid;        // 0: has not come yet
  std::atomic<uint32_t> doorbell;  // rung by peers that moved bytes of a stream of this rank
  CallDescription call[2];         // of the last two collective calls
};

// One direction between two ranks: a ring of bytes with one writer and one reader.
struct alignas(64) Mailbox {
  std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// The beginning of the segment; zero bytes are its initial state.
struct SharedHeader {
  std::atomic<int32_t> size;    // set by the first rank
  std::atomic<int32_t> broken;  // 1 + the rank that gave up
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;  // of the barrier
  RankState rank[kMaxRanks];
};

// One end of a transfer between two ranks, advanced bit by bit.
struct Transfer {
  bool send;
  int peer;
  char* data;  // not written when sending
  uint64_t bytes;
  uint64_t done = 0;       // of the 8 bytes of length, then of the data
  uint64_t announced = 0;  // the length as the peer sees it
  bool complete() const { return done == sizeof(uint64_t) + bytes; }
};

class Comm {
 public:
  // Blocks until all ranks have come (COL-003).
  static chipset_status create(int32_t device, const char* name, int rank, int size, Comm** out);
  ~Comm();

  // Waits for all ranks.
  chipset_status barrier(const char* function);
  // Advances all transfers until all are complete; opposite ones cannot deadlock. Transfers of one
  // direction between two ranks run in their order.
  chipset_status transfer(const char* function, std::vector<Transfer>& transfers);

  // Buffers for the data of one step; step() counts them, alike on every rank. A buffer may be
  // written again two steps later, when one barrier lies in each step.
  char* slot(int rank, uint64_t step) const;
  char* result(uint64_t step) const;
  size_t slot_bytes() const { return slot_bytes_; }
  uint64_t step = 0;
  uint64_t calls = 0;
  RankState& state(int rank) const { return header_->rank[rank]; }

  int rank = 0;
  int size = 1;
  int32_t device = 0;

  // Calls held between group_begin and group_end of the thread that opened the group.
  int group_depth = 0;
  std::thread::id group_thread;
  std::vector<Transfer> held_transfers;
  std::vector<std::function<chipset_status()>> held_calls;

 private:
  Comm() = default;
  chipset_status map(const char* name);
  chipset_status join(const char* name);
  // Sleeps until word is no longer `seen` or a moment has passed; then looks after peers and time.
  using Deadline = std::chrono::steady_clock::time_point;
  chipset_status wait(const char* function, std::atomic<uint32_t>& word, uint32_t seen,
                      Deadline deadline, const std::vector<Transfer>* open = nullptr);
  Deadline deadline() const;
  // A rank that came and is gone, or -1. Of `open` transfers only their peers count: another rank
  // may have finished and left.
  int lost_peer(const std::vector<Transfer>* open) const;
  chipset_status give_up(const char* function, const std::string& reason);
  bool advance(Transfer& transfer);
  Mailbox& mailbox(int from, int to) const;
  char* mailbox_data(int from, int to) const;

  int file_ = -1;
  char* base_ = nullptr;
  size_t bytes_ = 0;
  SharedHeader* header_ = nullptr;
  size_t slot_bytes_ = 0;
  size_t mailbox_bytes_ = 0;
  long long timeout_ms_ = 0;
};

}  // namespace chipset::cpu
