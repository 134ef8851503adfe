// SPDX-License-Identifier: Apache-2.0
#include "comm.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "error.h"
#include "parallel.h"

namespace chipset::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Containers commonly have 64 MiB of shared memory; a communicator of 8 ranks takes 22, one of 256
// takes 40.
constexpr size_t kSlotsBudget = size_t{16} << 20;
constexpr size_t kMailboxBudget = size_t{8} << 20;
constexpr size_t kLineBytes = 64;
constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr auto kLook = std::chrono::milliseconds(50);  // between looks after peers

// Not private: the waiters are in other processes.
void futex_wait_shared(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec moment = {0, std::chrono::nanoseconds(kLook).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &moment, nullptr, 0);
}
void futex_wake_shared(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

size_t power_of_two_at_most(size_t n) {
  size_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

// A lock of the byte that stands for a rank. It belongs to the open file, so the kernel drops it
// when its process dies in whatever way, a zombie included.
struct flock lock_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

chipset_status Comm::create(int32_t device, const char* name, int rank, int size, Comm** out) {
  std::unique_ptr<Comm> comm(new (std::nothrow) Comm);
  if (comm == nullptr) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "comm_create: no memory");
  comm->device = device;
  comm->rank = rank;
  comm->size = size;
  comm->timeout_ms_ = option_number("comm_timeout_ms", 600000, 1, 1LL << 40);
  const auto n = static_cast<size_t>(size);
  comm->slot_bytes_ =
      std::clamp(power_of_two_at_most(kSlotsBudget / (2 * n)), size_t{32} << 10, size_t{1} << 20);
  comm->mailbox_bytes_ =
      std::clamp(power_of_two_at_most(kMailboxBudget / (n * n)), size_t{256}, size_t{64} << 10);
  if (const chipset_status s = comm->map(name); s != CHIPSET_STATUS_OK) return s;
  const chipset_status joined = comm->join(name);
  // All have the segment open now, or will never come together: either way its name has served.
  shm_unlink(name);
  if (joined != CHIPSET_STATUS_OK) return joined;
  *out = comm.release();
  return CHIPSET_STATUS_OK;
}

chipset_status Comm::map(const char* name) {
  const auto n = static_cast<size_t>(size);
  bytes_ =
      sizeof(SharedHeader) + n * n * (sizeof(Mailbox) + mailbox_bytes_) + 2 * (n + 1) * slot_bytes_;
  file_ = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) {
    return fail(CHIPSET_STATUS_INTERNAL, "comm_create: shared memory '/dev/shm%s': %s", name,
                std::strerror(errno));
  }
  // Reserved, not only sized: a full /dev/shm must be an answer here, not a bus error later.
  if (const int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes_)); error != 0) {
    shm_unlink(name);
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY,
                "comm_create: %zu bytes of shared memory in /dev/shm: %s; enlarge it "
                "(docker run --shm-size=1g)",
                bytes_, std::strerror(error));
  }
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    shm_unlink(name);
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "comm_create: mapping %zu bytes: %s", bytes_,
                std::strerror(errno));
  }
  base_ = static_cast<char*>(mapped);
  header_ = reinterpret_cast<SharedHeader*>(base_);
  return CHIPSET_STATUS_OK;
}

chipset_status Comm::join(const char*) {
  int32_t expected = 0;
  if (!header_->size.compare_exchange_strong(expected, size) && expected != size) {
    return fail(CHIPSET_STATUS_INVALID, "comm_create: rank %d says size %d, another rank said %d",
                rank, size, expected);
  }
  struct flock lock = lock_of(rank);
  int32_t nobody = 0;
  if (fcntl(file_, F_OFD_SETLK, &lock) != 0 ||
      !state(rank).pid.compare_exchange_strong(nobody, static_cast<int32_t>(getpid()))) {
    return fail(CHIPSET_STATUS_INVALID, "comm_create: rank %d has joined already (pid %d)", rank,
                state(rank).pid.load());
  }
  return barrier("comm_create");
}

Comm::~Comm() {
  if (base_ != nullptr) munmap(base_, bytes_);
  if (file_ >= 0) close(file_);
}

Mailbox& Comm::mailbox(int from, int to) const {
  auto* boxes = reinterpret_cast<Mailbox*>(base_ + sizeof(SharedHeader));
  return boxes[from * size + to];
}
char* Comm::mailbox_data(int from, int to) const {
  const auto n = static_cast<size_t>(size);
  char* data = base_ + sizeof(SharedHeader) + n * n * sizeof(Mailbox);
  return data + (static_cast<size_t>(from) * n + static_cast<size_t>(to)) * mailbox_bytes_;
}
char* Comm::slot(int of, uint64_t at) const {
  const auto n = static_cast<size_t>(size);
  char* slots = base_ + sizeof(SharedHeader) + n * n * (sizeof(Mailbox) + mailbox_bytes_);
  return slots + (static_cast<size_t>(at % 2) * (n + 1) + static_cast<size_t>(of)) * slot_bytes_;
}
char* Comm::result(uint64_t at) const { return slot(size, at); }

Comm::Deadline Comm::deadline() const {
  return Clock::now() + std::chrono::milliseconds(timeout_ms_);
}

int Comm::lost_peer(const std::vector<Transfer>* open) const {
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank || state(peer).pid.load() == 0) continue;
    if (open != nullptr && std::none_of(open->begin(), open->end(), [&](const Transfer& t) {
          return t.peer == peer && !t.complete();
        })) {
      continue;
    }
    struct flock lock = lock_of(peer);
    if (fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) return peer;
  }
  return -1;
}

chipset_status Comm::give_up(const char* function, const std::string& reason) {
  header_->broken.store(rank + 1);
  futex_wake_shared(header_->generation);
  for (int peer = 0; peer < size; ++peer) futex_wake_shared(state(peer).doorbell);
  return fail(CHIPSET_STATUS_TIMEOUT, "%s: rank %d of %d: %s (COL-003)", function, rank, size,
              reason.c_str());
}

chipset_status Comm::wait(const char* function, std::atomic<uint32_t>& word, uint32_t seen,
                          Deadline until, const std::vector<Transfer>* open) {
  // Spinning helps only while every rank has a core of its own.
  const int spins = size <= thread_count() ? 4000 : 0;
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != seen) return CHIPSET_STATUS_OK;
    __builtin_ia32_pause();
  }
  const auto look = Clock::now() + kLook / 2;
  futex_wait_shared(word, seen);
  if (word.load(std::memory_order_acquire) != seen) return CHIPSET_STATUS_OK;
  if (const int32_t broken = header_->broken.load(); broken != 0) {
    return fail(CHIPSET_STATUS_TIMEOUT,
                "%s: rank %d of %d: rank %d gave up before; make a new communicator", function,
                rank, size, broken - 1);
  }
  const auto now = Clock::now();
  if (now < look) return CHIPSET_STATUS_OK;  // an early wake; peers were looked after just before
  if (const int peer = lost_peer(open); peer >= 0) {
    // It may have gone after the last thing that it did for us.
    if (word.load(std::memory_order_acquire) != seen) return CHIPSET_STATUS_OK;
    return give_up(function, "rank " + std::to_string(peer) + " (pid " +
                                 std::to_string(state(peer).pid.load()) + ") has died or left");
  }
  if (now < until) return CHIPSET_STATUS_OK;
  std::string absent;
  for (int peer = 0; peer < size; ++peer) {
    if (state(peer).pid.load() == 0) absent += (absent.empty() ? "" : ", ") + std::to_string(peer);
  }
  return give_up(function, "waited " + std::to_string(timeout_ms_) + " ms" +
                               (absent.empty() ? " for a peer that lives but does not make the call"
                                               : " for rank " + absent + ", which never came") +
                               "; option comm_timeout_ms sets the limit");
}

chipset_status Comm::barrier(const char* function) {
  const uint32_t generation = header_->generation.load(std::memory_order_acquire);
  if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size)) {
    header_->arrived.store(0, std::memory_order_relaxed);
    header_->generation.fetch_add(1, std::memory_order_release);
    futex_wake_shared(header_->generation);
    return CHIPSET_STATUS_OK;
  }
  const Deadline until = deadline();
  while (header_->generation.load(std::memory_order_acquire) == generation) {
    if (const chipset_status s = wait(function, header_->generation, generation, until);
        s != CHIPSET_STATUS_OK) {
      return s;
    }
  }
  return CHIPSET_STATUS_OK;
}

// Moves what can be moved; whether anything was.
bool Comm::advance(Transfer& t) {
  const int from = t.send ? rank : t.peer;
  const int to = t.send ? t.peer : rank;
  Mailbox& box = mailbox(from, to);
  char* ring = mailbox_data(from, to);
  const uint64_t total = kLengthBytes + t.bytes;
  bool moved = false;
  if (t.send) t.announced = t.bytes;
  while (t.done < total) {
    const uint64_t written = box.written.load(std::memory_order_acquire);
    const uint64_t read = box.read.load(std::memory_order_acquire);
    const uint64_t position = t.send ? written : read;
    const uint64_t room = t.send ? mailbox_bytes_ - (written - read) : written - read;
    const uint64_t to_end = mailbox_bytes_ - position % mailbox_bytes_;
    const bool length = t.done < kLengthBytes;
    const uint64_t left = (length ? kLengthBytes : total) - t.done;
    const uint64_t n = std::min({room, to_end, left});
    if (n == 0) break;
    char* mine =
        length ? reinterpret_cast<char*>(&t.announced) + t.done : t.data + (t.done - kLengthBytes);
    char* shared = ring + position % mailbox_bytes_;
    std::memcpy(t.send ? shared : mine, t.send ? mine : shared, n);
    t.done += n;
    (t.send ? box.written : box.read).store(position + n, std::memory_order_release);
    moved = true;
    if (!t.send && t.done == kLengthBytes && t.announced != t.bytes) break;
  }
  if (moved && t.peer != rank) {
    state(t.peer).doorbell.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_shared(state(t.peer).doorbell);
  }
  return moved;
}

chipset_status Comm::transfer(const char* function, std::vector<Transfer>& transfers) {
  Deadline until = deadline();
  for (;;) {
    const uint32_t bell = state(rank).doorbell.load(std::memory_order_acquire);
    bool moved = false;
    bool all = true;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& t = transfers[i];
      if (t.complete()) continue;
      const bool first = std::none_of(
          transfers.begin(), transfers.begin() + static_cast<std::ptrdiff_t>(i),
          [&](const Transfer& earlier) {
            return earlier.send == t.send && earlier.peer == t.peer && !earlier.complete();
          });
      if (first) moved = advance(t) || moved;
      if (!t.send && t.done >= kLengthBytes && t.announced != t.bytes) {
        return fail(CHIPSET_STATUS_INVALID,
                    "%s: rank %d expects %" PRIu64 " bytes of rank %d, which sends %" PRIu64
                    " (COL-001)",
                    function, rank, t.bytes, t.peer, t.announced);
      }
      all = all && t.complete();
    }
    if (all) return CHIPSET_STATUS_OK;
    if (moved) {
      until = deadline();
      continue;
    }
    if (const chipset_status s = wait(function, state(rank).doorbell, bell, until, &transfers);
        s != CHIPSET_STATUS_OK) {
      return s;
    }
  }
}

static_assert(sizeof(Mailbox) % kLineBytes == 0 && sizeof(SharedHeader) % kLineBytes == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace chipset::cpu
