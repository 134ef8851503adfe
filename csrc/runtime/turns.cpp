// SPDX-License-Identifier: Apache-2.0
// The innermost wrapper: a turn is held during the plugin's own function only, so that whoever
// holds one waits for no other lock of the runtime.
#include "turns.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "watched.h"

namespace chipset::runtime {
namespace {

using Key = std::pair<int, chipset_stream>;  // a plugin's slot: handles are unique within one

// A mutex for each stream there ever was. A handle that is given again finds the same one.
std::mutex& find_mutex(const Key& key) {
  static auto* lock = new std::mutex;  // both outlive whatever still calls at the process's end
  static auto* mutexes = new std::map<Key, std::mutex>;
  const std::lock_guard guard(*lock);
  return (*mutexes)[key];
}

// The streams that this thread used lately.
struct Recent {
  Key key;
  std::mutex* mutex;
};
constexpr std::size_t kRecent = 16;
thread_local constinit Recent recent[kRecent] = {};

std::mutex& mutex_of(const Key& key) {
  Recent& entry = recent[(reinterpret_cast<std::uintptr_t>(key.second) >> 4) % kRecent];
  if (entry.mutex == nullptr || entry.key != key) entry = {key, &find_mutex(key)};
  return *entry.mutex;
}

// Waits without Python's lock: the thread inside may need it, when the plugin is written in Python.
void wait_for(std::mutex& mutex) {
  static const auto held = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  static const auto release =
      reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
  static const auto acquire =
      reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
  const bool python = held != nullptr && release != nullptr && acquire != nullptr && held() == 1;
  void* thread = python ? release() : nullptr;
  mutex.lock();
  if (python) acquire(thread);
}

class Turn {
 public:
  Turn(int slot, chipset_stream stream) : mutex_(mutex_of({slot, stream})) {
    if (!mutex_.try_lock()) [[unlikely]]
      wait_for(mutex_);
  }
  ~Turn() { mutex_.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::mutex& mutex_;
};

template <class... A>
constexpr bool in_stream(chipset_status (*chipset_api::*)(A...)) {
  return (std::is_same_v<A, chipset_stream> || ...);
}

template <int Slot>
struct Turns {
  static inline chipset_api own;  // the plugin's functions

#define CHIPSET_FUNCTION(name, required, group, since) \
  template <class... A>                                \
  static chipset_status name(A... args) {              \
    const Turn turn(Slot, stream_of(args...));         \
    return own.name(args...);                          \
  }
#include "chipset/functions.inc"

  static void install(chipset_api& api) {
    own = api;
#define CHIPSET_FUNCTION(name, required, group, since) \
  if constexpr (in_stream(&chipset_api::name)) {       \
    if (own.name != nullptr) api.name = Turns::name;   \
  }
#include "chipset/functions.inc"
  }
};

template <int... Slots>
void install(Plugin& plugin, std::integer_sequence<int, Slots...>) {
  ((plugin.slot == Slots ? Turns<Slots>::install(plugin.base) : void()), ...);
}

}  // namespace

void take_turns(Plugin& plugin) { install(plugin, std::make_integer_sequence<int, kMaxPlugins>()); }

}  // namespace chipset::runtime
