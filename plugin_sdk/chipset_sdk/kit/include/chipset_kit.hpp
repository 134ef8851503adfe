// SPDX-License-Identifier: Apache-2.0
// The kernel kit: every compute function of the interface, written once in a small C dialect that
// OpenCL C, CUDA C++ (NVRTC) and HIP (hipRTC) all compile. A plugin supplies a Backend for each of
// its devices and inherits the rest:
//
//   struct MyChip : chipset::kit::Functions<MyChip> {
//     static chipset::kit::Kit& kit(chipset_stream stream);  // of the stream's device
//     …                                                      // what the plugin does itself
//   };
//   CHIPSET_SDK_PLUGIN(MyChip, "mychip", "0.1.0")
//
// A function that MyChip defines itself (its own gemm, say) hides the kit's. Built by the CMake
// function chipset_add_kit(target), which compiles the host side and embeds the kernels' sources.
#pragma once

#include <chipset/chipset.h>

#include <array>
#include <atomic>
#include <chipset_sdk/error.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace chipset::kit {

enum class Language { kOpenCL, kCuda, kHip };

// What the kernels must know of a device. It never changes.
struct Traits {
  Language language = Language::kOpenCL;
  bool is_cpu = false;  // one work-item a group, wide vectors, few groups
  bool fp64 = false;    // without it, functions on F64 answer UNSUPPORTED
  uint32_t compute_units = 1;
  uint32_t vector_bytes = 16;          // of a processor's vector registers
  uint32_t max_group = 256;            // most work-items of a group
  uint64_t local_memory = 32768;       // bytes of a group's shared memory
  uint64_t max_allocation = 1u << 30;  // bytes that `scratch` may be asked for
  // Whatever makes a binary unusable elsewhere: device, driver and compiler versions.
  std::string identity;
  // Where binaries are kept; empty: nowhere. See default_cache_folder().
  std::string cache_folder;
};

// One argument of a kernel: a device address, or `bytes` of plain data that are copied.
struct Argument {
  const void* data;  // a device address: where the address lies (a `void* const*`)
  uint32_t bytes;
  bool is_address;
};

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
};

using Binary = std::vector<unsigned char>;

// What a plugin supplies for a device. Every member may be called from any thread; each throws
// sdk::Error. The NVRTC, hipRTC and OpenCL calls behind each are named.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Traits& traits() const = 0;

  // Compiles a source to what `load` takes (clBuildProgram and clGetProgramInfo; nvrtcGetCUBIN;
  // hiprtcGetCode). Failing, it throws INTERNAL with the compiler's log; the kit adds the source
  // lines that the log names.
  virtual Binary compile(const std::string& source, const std::string& options) = 0;

  // The kernel of a binary, kept for the life of the process (clCreateKernel; cuModuleGetFunction).
  // Throws when the driver refuses the binary; the kit then compiles anew.
  virtual void* load(const Binary& binary, const char* name) = 0;

  // Enqueues a kernel: `grid` groups of `block` work-items. The addresses among the arguments may
  // lie anywhere inside allocations of the device.
  virtual void launch(chipset_stream stream, void* kernel, Size3 grid, Size3 block,
                      const Argument* arguments, uint32_t count) = 0;

  // Device memory of at least so many bytes, aligned to 64, good until the stream's next call to
  // this (work in a stream is in order, so it may be handed out again at once).
  virtual void* scratch(chipset_stream stream, uint64_t bytes) = 0;

  // Waits for the stream's work, for measuring; faults surface at the next synchronisation all the
  // same. Only asked of processors.
  virtual void finish(chipset_stream stream) = 0;

  // The int32 in device memory that a kernel sets to 1 when an index is out of range; the plugin
  // answers OUT_OF_RANGE at the next synchronisation and clears it (ERR-003). Asking for it arms
  // the look.
  virtual void* fault_word(chipset_stream stream) = 0;
};

// ~/.cache/chipset/kernels (XDG_CACHE_HOME is followed), or what CHIPSET_KERNEL_CACHE names; empty
// when that is "off".
std::string default_cache_folder();

// What distinguishes one compiled kernel from another: small numbers, compared as a whole.
struct Signature {
  std::array<uint8_t, 48> value{};
  uint8_t size = 0;
  Signature(std::initializer_list<int64_t> numbers) {
    for (int64_t n : numbers) add(n);
  }
  void add(int64_t number) {
    if (size >= value.size() || number < 0 || number > 255)
      sdk::fail(CHIPSET_STATUS_INTERNAL, "kernel signature: entry %d is %lld", size,
                static_cast<long long>(number));
    value[size++] = static_cast<uint8_t>(number);
  }
  bool operator==(const Signature& other) const { return value == other.value; }
};
struct SignatureHash {
  std::size_t operator()(const Signature& signature) const {
    uint64_t hash = 1469598103934665603u;  // FNV-1a, eight bytes at a time
    for (std::size_t i = 0; i < sizeof signature.value; i += 8) {
      uint64_t word;
      __builtin_memcpy(&word, signature.value.data() + i, 8);
      hash = (hash ^ word) * 1099511628211u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// The functions of one device. Those that a chip may decline throw UNSUPPORTED for what the kit
// does not do; all throw INVALID for arguments that break the interface's rules.
class Kit {
 public:
  // Reports what was compiled (name, seconds) and what came from the cache; for tests and logs.
  struct Counts {
    uint64_t compiled = 0, from_cache = 0, refused = 0;  // refused: binaries that did not fit
  };

  explicit Kit(Backend& backend);
  ~Kit();
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

#define CHIPSET_KIT_FUNCTIONS(X)                \
  X(pointwise, pointwise_args)                  \
  X(reduce, reduce_args)                        \
  X(gemm, gemm_args)                            \
  X(gather, gather_args)                        \
  X(scatter, scatter_args)                      \
  X(attention, attention_args)                  \
  X(attention_backward, attention_args)         \
  X(softmax, softmax_args)                      \
  X(softmax_backward, softmax_args)             \
  X(norm, norm_args)                            \
  X(norm_backward, norm_args)                   \
  X(rotary, rotary_args)                        \
  X(cross_entropy, cross_entropy_args)          \
  X(cross_entropy_backward, cross_entropy_args) \
  X(adamw, adamw_args)                          \
  X(quantize, quantize_args)                    \
  X(dequantize, quantize_args)                  \
  X(gemm_quantized, gemm_quantized_args)        \
  X(attention_paged, attention_paged_args)      \
  X(scan, scan_args)                            \
  X(sort, sort_args)                            \
  X(random, random_args)
#define CHIPSET_KIT_DECLARE(name, args) \
  void name(chipset_stream stream, const chipset_##args& arguments);
  CHIPSET_KIT_FUNCTIONS(CHIPSET_KIT_DECLARE)
#undef CHIPSET_KIT_DECLARE

  // For kernels of the plugin's own (a GEMM variant): the kernel `name` of the source that `make`
  // gives, compiled or fetched once per signature. The signature's first number must be 200 or
  // more; the kit's own lie below. `make` returns the text that follows the language's prelude.
  void* kernel(const Signature& signature, const char* name,
               const std::function<std::string()>& make);

  const Traits& traits() const { return traits_; }
  Backend& backend() { return backend_; }
  Counts counts() const;

 private:
  void* build(const std::string& source, const char* name);
  Backend& backend_;
  const Traits& traits_;
  std::shared_mutex mutex_;  // over kernels_
  std::unordered_map<Signature, void*, SignatureHash> kernels_;
  std::mutex building_;
  Counts counts_;
  std::once_flag gemm_once_;
  std::atomic<int> gemm_rows_{8};  // of the register tile that a processor is fastest with
};

// The kit's functions as static ones, as CHIPSET_SDK_PLUGIN wants them.
template <class Chip>
struct Functions {
#define CHIPSET_KIT_FORWARD(name, args)                                      \
  static void name(chipset_stream stream, const chipset_##args* arguments) { \
    Chip::kit(stream).name(stream, *arguments);                              \
  }
  CHIPSET_KIT_FUNCTIONS(CHIPSET_KIT_FORWARD)
#undef CHIPSET_KIT_FORWARD
};

}  // namespace chipset::kit
