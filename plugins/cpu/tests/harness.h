// SPDX-License-Identifier: Apache-2.0
// Drives the plugin's table without Python. Each tensor lies in a heap block of exactly its size,
// so that a sanitizer sees every byte too many.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "chipset/chipset.h"
#include "require.h"

namespace harness {

inline thread_local std::string last_error;
inline const char* wanted_isa = nullptr;  // the option `isa`
inline const chipset_api* api = nullptr;

// Loads the plugin and sets `api`.
inline void load(const char* library, const char* isa) {
  wanted_isa = isa;
  static chipset_host host = {};
  host.struct_size = sizeof(host);
  host.major = CHIPSET_VERSION_MAJOR;
  host.minor = CHIPSET_VERSION_MINOR;
  host.set_error = [](const char* text) { last_error = text; };
  host.log = [](int32_t, const char* text) { std::fprintf(stderr, "log: %s\n", text); };
  host.option = [](const char* name) -> const char* {
    if (std::strcmp(name, "isa") == 0) return wanted_isa;
    return std::strcmp(name, "threads") == 0 ? "3" : nullptr;
  };
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  REQUIRE(handle != nullptr);
  auto* plugin = reinterpret_cast<const chipset_api* (*)(const chipset_host*)>(
      dlsym(handle, "chipset_plugin"));
  REQUIRE(plugin != nullptr);
  api = plugin(&host);
  REQUIRE(api != nullptr);
}

inline int size_of(int dtype) {
  static constexpr int kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 1, 1, 2, 4, 8, 16};
  return kSizes[dtype];
}
inline bool is_float(int dtype) {
  return dtype >= CHIPSET_DTYPE_F16 && dtype <= CHIPSET_DTYPE_F8E5M2;
}
inline bool is_small(int dtype) {
  return dtype == CHIPSET_DTYPE_F16 || dtype == CHIPSET_DTYPE_BF16;
}
// What sums of a dtype are evaluated in, and statistics stored in.
inline int wide(int dtype) { return is_small(dtype) ? CHIPSET_DTYPE_F32 : dtype; }

// How a tensor lies in memory.
enum Layout {
  kRows,      // contiguous
  kGaps,      // rows longer than they need to be, and an offset of one element
  kColumns,   // the last two dimensions exchanged
  kStrided,   // every second element
  kRepeated,  // stride 0 along the first dimension; inputs only
  kLayouts
};

using Shape = std::vector<int64_t>;

// The tensors of one call. Blocks are restored between two runs of it.
class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed) {}

  const chipset_tensor* tensor(int dtype, const Shape& shape, Layout layout = kRows) {
    auto t = std::make_unique<chipset_tensor>();
    *t = {};
    t->struct_size = sizeof(chipset_tensor);
    t->dtype = dtype;
    t->rank = static_cast<int32_t>(shape.size());
    const int rank = t->rank;
    for (int d = 0; d < rank; ++d) t->shape[d] = shape[static_cast<size_t>(d)];
    std::vector<int> order;  // innermost first
    for (int d = rank - 1; d >= 0; --d) order.push_back(d);
    if (layout == kColumns && rank >= 2) std::swap(order[0], order[1]);
    int64_t stride = layout == kStrided ? 2 : 1, last = 0;
    bool empty = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const int d = order[i];
      const bool repeated = layout == kRepeated && d == 0 && rank >= 2;
      t->stride[d] = repeated ? 0 : stride;
      empty = empty || t->shape[d] == 0;
      if (repeated) continue;
      last += (t->shape[d] - 1) * stride;
      stride *= t->shape[d] > 0 ? t->shape[d] : 1;
      if (layout == kGaps && i == 0) stride += 3;
    }
    const int64_t offset = layout == kGaps ? 1 : 0;
    int64_t bytes = empty ? 0 : (offset + last + 1) * size_of(dtype);
    if (dtype == CHIPSET_DTYPE_I4) {  // two a byte, rows of whole bytes
      const int64_t columns = (shape.back() + 1) / 2 * 2;
      t->stride[0] = columns;
      bytes = shape[0] * columns / 2;
    }
    char* memory = block(static_cast<size_t>(bytes));
    t->data = bytes == 0 ? nullptr : memory + offset * size_of(dtype);
    fill(dtype, memory, bytes);
    tensors_.push_back(std::move(t));
    return tensors_.back().get();
  }

  // A tensor of I32 or I64 with the given elements.
  const chipset_tensor* indices(int dtype, const Shape& shape, std::vector<int64_t> values) {
    const chipset_tensor* t = tensor(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == CHIPSET_DTYPE_I32) {
        static_cast<int32_t*>(t->data)[i] = static_cast<int32_t>(values[i]);
      } else {
        static_cast<int64_t*>(t->data)[i] = values[i];
      }
    }
    return t;
  }
  const chipset_tensor* random_indices(int dtype, const Shape& shape, int64_t size) {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n; ++i) {
      values.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(size)));
    }
    return indices(dtype, shape, values);
  }

  char* block(size_t bytes) {
    blocks_.push_back({std::unique_ptr<char[]>(new char[bytes == 0 ? 1 : bytes]), bytes});
    return blocks_.back().memory.get();
  }

  using Contents = std::vector<std::string>;
  Contents contents() const {
    Contents all;
    for (const Block& b : blocks_) all.emplace_back(b.memory.get(), b.bytes);
    return all;
  }
  void restore(const Contents& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].empty()) std::memcpy(blocks_[i].memory.get(), all[i].data(), all[i].size());
    }
  }

 private:
  // Numbers of about 1; for integers 0 to 7, which every operation and shift takes.
  void fill(int dtype, char* memory, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += size_of(dtype)) {
      const uint64_t bits = random_();
      const double number = static_cast<double>(bits % 4001) / 1000 - 2;
      const float single = static_cast<float>(number);
      uint64_t word = bits & 7;
      switch (dtype) {
        case CHIPSET_DTYPE_BOOL:
          word = bits & 1;
          break;
        case CHIPSET_DTYPE_F16:  // sign, exponent 11 to 15, mantissa
          word = (bits & 0x83ff) | (11 + (bits >> 20) % 5) << 10;
          break;
        case CHIPSET_DTYPE_BF16: {
          uint32_t whole;
          std::memcpy(&whole, &single, 4);
          word = whole >> 16;
          break;
        }
        case CHIPSET_DTYPE_F32: {
          uint32_t whole;
          std::memcpy(&whole, &single, 4);
          word = whole;
          break;
        }
        case CHIPSET_DTYPE_F64:
          std::memcpy(&word, &number, 8);
          break;
        case CHIPSET_DTYPE_F8E4M3:
        case CHIPSET_DTYPE_F8E5M2:
          word = bits & 0xbf;
          break;
        case CHIPSET_DTYPE_I4:
          word = bits & 0xff;
          break;
        default:
          break;
      }
      const int n = size_of(dtype) < 8 ? size_of(dtype) : 8;
      std::memset(memory + at, 0, static_cast<size_t>(size_of(dtype)));
      std::memcpy(memory + at, &word, static_cast<size_t>(n));
    }
  }

  struct Block {
    std::unique_ptr<char[]> memory;
    size_t bytes;
  };
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<chipset_tensor>> tensors_;
  std::vector<Block> blocks_;
};

// How often a function did its work and how often it declined.
struct Count {
  std::atomic<int> done{0}, declined{0};
};

// Runs a call twice from the same contents: it must succeed and give the same bits, or decline with
// UNSUPPORTED and have written nothing.
template <class Args>
void run(const char* name, Count& count, Case& c, chipset_stream stream,
         chipset_status (*function)(chipset_stream, const Args*), const Args& args) {
  REQUIRE(function != nullptr);
  const Case::Contents before = c.contents();
  const chipset_status status = function(stream, &args);
  const Case::Contents after = c.contents();
  if (status == CHIPSET_STATUS_UNSUPPORTED) {
    REQUIRE(after == before);
    count.declined.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (status != CHIPSET_STATUS_OK) {
    std::fprintf(stderr, "%s: status %d: %s\n", name, status, last_error.c_str());
    std::abort();
  }
  c.restore(before);
  REQUIRE(function(stream, &args) == CHIPSET_STATUS_OK);
  if (c.contents() != after) {
    std::fprintf(stderr, "%s: two runs gave different bits\n", name);
    std::abort();
  }
  count.done.fetch_add(1, std::memory_order_relaxed);
}

template <class Args>
Args make() {
  Args args = {};
  args.struct_size = sizeof(Args);
  return args;
}

}  // namespace harness
