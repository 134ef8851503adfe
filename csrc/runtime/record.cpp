// SPDX-License-Identifier: Apache-2.0
// CHIPSET_RECORD=file: the calls of a run with the host data that they copy in, so that
// `python -m chipset.replay file --device X` can run them again without the program.
//
// The file: the 8 bytes "CHIPREC1"; a line of JSON; then one record per call:
//   u32 bytes after this field, u16 function (index into the JSON's "functions"), u16 plugin slot,
//   i32 status, then one entry per argument: a letter and its data (u64 unless said otherwise):
//   'i' an integer · 'h' a handle or an address · 'm' one that the call made ·
//   'd' length and bytes: host data · 'p' length: host data that cannot be kept ·
//   's' length and bytes: an argument struct, followed by
//   't' offset of a pointer in it, count, the tensors it points to; count 0 stands for NULL.
// All numbers are little-endian as the machine has them.
//
// Not recorded: queries, collectives, ONNX graphs, and what the host writes straight into UNIFIED
// memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "watch.h"

namespace chipset::runtime {
namespace {

struct Recording {
  std::mutex mutex;
  std::FILE* file = nullptr;
};

void write_head(std::FILE* file) {
  std::fputs("CHIPREC1{\"major\":", file);
  std::fprintf(file, "%d,\"minor\":%d,\"functions\":[", CHIPSET_VERSION_MAJOR,
               CHIPSET_VERSION_MINOR);
  for (int f = 0; f < kFunctionCount; ++f)
    std::fprintf(file, "%s\"%s\"", f ? "," : "", function_name(static_cast<Fn>(f)));
  std::fputs("]}\n", file);
}

Recording& recording_state() {
  static Recording* the = [] {
    auto* r = new Recording;
    const char* path = std::getenv("CHIPSET_RECORD");
    if (path == nullptr || *path == 0) return r;
    r->file = std::fopen(path, "wb");
    if (r->file == nullptr)
      std::fprintf(stderr, "chipset: CHIPSET_RECORD: cannot write '%s'; nothing is recorded\n",
                   path);
    else
      write_head(r->file);
    return r;
  }();
  return *the;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

bool recording() { return recording_state().file != nullptr; }

void flush_record() {
  Recording& r = recording_state();
  if (r.file == nullptr || in_bad_fork()) return;
  std::lock_guard lock(r.mutex);
  std::fflush(r.file);
}

CallRecord::CallRecord(const Plugin& plugin, Fn function) {
  append(bytes_, static_cast<std::uint16_t>(function));
  append(bytes_, static_cast<std::uint16_t>(plugin.slot));
  append(bytes_, std::int32_t{0});
}

void CallRecord::scalar(std::uint64_t value) {
  bytes_ += 'i';
  append(bytes_, value);
}
void CallRecord::handle(const void* value) {
  bytes_ += 'h';
  append(bytes_, reinterpret_cast<std::uint64_t>(value));
}
void CallRecord::made(const void* value) {
  bytes_ += 'm';
  append(bytes_, reinterpret_cast<std::uint64_t>(value));
}
void CallRecord::payload(const void* data, std::uint64_t bytes) {
  bytes_ += data == nullptr ? 'p' : 'd';
  append(bytes_, bytes);
  if (data != nullptr) bytes_.append(static_cast<const char*>(data), bytes);
}
void CallRecord::structure(const void* data, std::uint64_t bytes) {
  bytes_ += 's';
  append(bytes_, bytes);
  bytes_.append(static_cast<const char*>(data), bytes);
}
void CallRecord::tensor(std::uint64_t offset, const chipset_tensor* first, std::uint64_t count) {
  if (first == nullptr) count = 0;
  bytes_ += 't';
  append(bytes_, offset);
  append(bytes_, count);
  bytes_.append(reinterpret_cast<const char*>(first), count * sizeof(chipset_tensor));
}

void CallRecord::finish(chipset_status status) {
  std::memcpy(bytes_.data() + 2 * sizeof(std::uint16_t), &status, sizeof status);
  Recording& r = recording_state();
  std::lock_guard lock(r.mutex);
  const auto size = static_cast<std::uint32_t>(bytes_.size());
  std::fwrite(&size, sizeof size, 1, r.file);
  std::fwrite(bytes_.data(), 1, bytes_.size(), r.file);
  std::fflush(r.file);  // a run that crashes leaves all of its calls
}

}  // namespace chipset::runtime
