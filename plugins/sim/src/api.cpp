// SPDX-License-Identifier: Apache-2.0
// The table, and what happens to every call before its function: it is counted, an injected fault
// may strike it, and a lost device answers nothing else.
#include "chipset/abi_check.h"
#include "config.h"
#include "functions.h"
#include "inject.h"
#include "kernels.h"

namespace chipset::sim {
namespace {

// The function's device: of its first argument that tells.
std::int32_t device_of() { return kHost; }
template <class T, class... A>
std::int32_t device_of(T first, A... rest) {
  if constexpr (std::is_same_v<T, chipset_stream>) {
    const auto stream = stream_at(first);
    return stream == nullptr ? kHost : stream->device;
  } else if constexpr (std::is_same_v<T, chipset_event>) {
    const auto event = event_at(first);
    return event == nullptr ? kHost : event->device;
  } else if constexpr (std::is_same_v<T, chipset_comm>) {
    return comm_device(first);
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return first >= 0 && first < config().devices ? first : kHost;
  } else {
    return device_of(rest...);
  }
}

// One stream is used by one thread at a time (THR-001).
class Use {
 public:
  explicit Use(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {
    if (stream_ == nullptr || stream_->callers.fetch_add(1) == 0) return;
    note(Severity::fault, text("THR-001: ", text_of(current_call()),
                               ": another thread is inside of a call on stream ", stream_->number,
                               "; a stream is used by one thread at a time"));
  }
  ~Use() {
    if (stream_ != nullptr) stream_->callers.fetch_sub(1);
  }
  Use(const Use&) = delete;

 private:
  std::shared_ptr<Stream> stream_;
};

std::shared_ptr<Stream> stream_among() { return nullptr; }
template <class T, class... A>
std::shared_ptr<Stream> stream_among(T first, A... rest) {
  if constexpr (std::is_same_v<T, chipset_stream>)
    return stream_at(first);
  else
    return stream_among(rest...);
}

// Functions that end something do so on a lost device too.
constexpr bool ends(Fn f) {
  return f == Fn::mem_free || f == Fn::stream_destroy || f == Fn::event_destroy ||
         f == Fn::graph_destroy || f == Fn::comm_destroy;
}
constexpr bool only_asks(Fn f) {
  return f == Fn::device_count || f == Fn::device_info || f == Fn::comm_id;
}

template <Fn F, class Function, class... A>
chipset_status enter(Function&& function, A... arguments) {
  current_call() = {F, next_call_number()};
  set_deferred(Deferred::none);
  std::int32_t device = kHost;
  std::shared_ptr<Stream> stream;
  {
    Lock lock(simulator_mutex());
    device = device_of(arguments...);
    stream = stream_among(arguments...);
  }
  const Use use(std::move(stream));
  if constexpr (!only_asks(F)) {
    const auto lost = [&] {
      Lock lock(simulator_mutex());
      return device == kHost ? CHIPSET_STATUS_OK : lost_status(device);
    };
    const Injection injected = injection_for(F, device);
    if (injected.status == CHIPSET_STATUS_DEVICE_LOST && device != kHost) {
      Lock lock(simulator_mutex());
      lose(device, text("injected by ", injected.rule));
    }
    if (const auto status = lost(); status != CHIPSET_STATUS_OK) {
      if (ends(F)) function(arguments...);
      return lost();  // its text again
    }
    if (injected.status != CHIPSET_STATUS_OK)
      return fail(injected.status, text(name_of(F), ": injected by ", injected.rule));
    set_deferred(injected.deferred);
  }
  return function(arguments...);
}

// No exception leaves a function of the interface (ERR-001).
template <Fn F, class Function, class... A>
chipset_status guarded(Function&& function, A... arguments) {
  try {
    return enter<F>(function, arguments...);
  } catch (const std::bad_alloc&) {
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, text(name_of(F), ": the host has no memory left"));
  } catch (const std::exception& error) {
    return fail(CHIPSET_STATUS_INTERNAL, text(name_of(F), ": ", error.what()));
  }
}

// The formatter has no stable form for such lists.
// clang-format off
// X(name): functions of the form (stream, args), whose kernels are borrowed.
#define SIM_KERNELS(X)                                                          \
  X(pointwise) X(reduce) X(gemm) X(gather) X(scatter) X(attention)              \
  X(attention_backward) X(softmax) X(softmax_backward) X(norm) X(norm_backward) \
  X(rotary) X(cross_entropy) X(cross_entropy_backward) X(adamw) X(quantize)     \
  X(dequantize) X(gemm_quantized) X(attention_paged) X(scan) X(sort) X(random)
// X(name): functions of this chip's own, which it has whatever the borrowed one has.
#define SIM_OWN(X)                                                                 \
  X(device_count) X(device_info) X(device_memory) X(device_sync) X(mem_alloc)      \
  X(mem_free) X(mem_copy) X(mem_fill) X(stream_create) X(stream_destroy)           \
  X(stream_sync) X(stream_wait) X(event_create) X(event_destroy) X(event_record)   \
  X(event_query) X(event_elapsed) X(mem_copy_peer) X(capture_begin) X(capture_end) \
  X(capture_replay) X(graph_destroy)
// X(name): functions that need the borrowed chip's function of that name.
#define SIM_FORWARDED(X)                                                           \
  X(graph_compile) X(graph_run) X(comm_id) X(comm_create) X(comm_destroy)          \
  X(all_reduce) X(all_gather) X(reduce_scatter) X(broadcast) X(all_to_all) X(send) \
  X(recv) X(group_begin) X(group_end)
// clang-format on

template <Fn F, class... A>
struct Own {
  template <chipset_status (*Function)(A...)>
  static chipset_status entry(A... arguments) {
    return guarded<F>(Function, arguments...);
  }
};
template <Fn F, class T>
struct Kernel {
  template <chipset_status (*chipset_api::*Member)(chipset_stream, const T*)>
  static chipset_status entry(chipset_stream stream, const T* args) {
    return guarded<F>(
        [](chipset_stream s, const T* a) { return run_kernel<F>(borrowed().*Member, s, a); },
        stream, args);
  }
};

template <Fn F, auto Function, class... A>
constexpr auto own_entry(chipset_status (*)(A...)) {
  return &Own<F, A...>::template entry<Function>;
}
template <Fn F, auto Member, class T>
constexpr auto kernel_entry(chipset_status (*chipset_api::*)(chipset_stream, const T*)) {
  return &Kernel<F, T>::template entry<Member>;
}

chipset_api make_api() {
  chipset_api api{};
  api.struct_size = sizeof api;
  api.major = CHIPSET_VERSION_MAJOR;
  api.minor = CHIPSET_VERSION_MINOR;
  api.name = "sim";
  api.version = "0.1.0";
  api.build_info = "compiler " __VERSION__;
#define X(name)                   \
  if (borrowed().name != nullptr) \
    api.name = kernel_entry<Fn::name, &chipset_api::name>(&chipset_api::name);
  SIM_KERNELS(X)
#undef X
#define X(name) api.name = own_entry<Fn::name, &sim::name>(&sim::name);
  SIM_OWN(X)
#undef X
#define X(name) \
  if (borrowed().name != nullptr) api.name = own_entry<Fn::name, &sim::name>(&sim::name);
  SIM_FORWARDED(X)
#undef X
  return api;
}

// What is still allocated when the process ends, and the exit status that findings ask for.
void at_exit() {
  {
    Lock lock(simulator_mutex(), std::try_to_lock);
    if (!lock.owns_lock()) return;
    const auto live = config().leaks ? live_allocations() : std::vector<const Allocation*>();
    constexpr std::size_t kMost = 20;
    for (std::size_t i = 0; i < live.size() && i < kMost; ++i)
      note(Severity::fault, "LEAK: " + text_of(*live[i]) + " was never freed");
    if (live.size() > kMost)
      note(Severity::fault, text("LEAK: ", live.size() - kMost, " more allocations"));
  }
  if (config().exitcode != 0 && finding_count() > 0) _exit(config().exitcode);
}

}  // namespace

// "" or why this chip cannot work.
std::string start() {
  if (std::string fault = read_config(); !fault.empty()) return fault;
  if (std::string fault = add_rules(config().inject); !fault.empty()) return fault;
  if (std::string fault = load_borrowed(); !fault.empty()) return fault;
  if (std::string fault = start_memory(); !fault.empty()) return fault;
  std::atexit(at_exit);
  return "";
}

}  // namespace chipset::sim

extern "C" CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* host) {
  using namespace chipset::sim;
  if (host == nullptr) return nullptr;
  g_host = host;
  if (host->major != CHIPSET_VERSION_MAJOR) {
    fail(CHIPSET_STATUS_INVALID, text("built for interface version ", CHIPSET_VERSION_MAJOR,
                                      ", the core has ", host->major, " (VER-001)"));
    return nullptr;
  }
  if (const std::string fault = start(); !fault.empty()) {
    fail(CHIPSET_STATUS_INVALID, fault);
    return nullptr;
  }
  static const chipset_api api = make_api();
  return &api;
}
