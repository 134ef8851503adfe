// Checks for the small programs of this folder: each prints what is wrong and counts it.
#pragma once

#include <chipset_sdk.hpp>
#include <cstdio>
#include <map>
#include <string>

inline int failures = 0;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::printf("%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                               \
    }                                                                           \
  } while (false)

// Runs a statement that must throw an Error of the status whose text has `words` in it.
template <class Function>
void check_throws(int line, chipset_status status, const std::string& words, Function&& function) {
  try {
    function();
    std::printf("line %d: nothing was thrown; expected status %d, '%s'\n", line, status,
                words.c_str());
  } catch (const chipset::sdk::Error& error) {
    if (error.status() == status && std::string(error.what()).find(words) != std::string::npos)
      return;
    std::printf("line %d: status %d, '%s'; expected status %d, '%s'\n", line, error.status(),
                error.what(), status, words.c_str());
  }
  ++failures;
}
#define CHECK_THROWS(status, words, statement) \
  check_throws(__LINE__, status, words, [&] { statement; })

// What the core would be: it keeps the last text and knows launch options.
struct FakeHost {
  static std::string& text() {
    static thread_local std::string the;
    return the;
  }
  static std::map<std::string, std::string>& options() {
    static std::map<std::string, std::string> the;
    return the;
  }
  static void install() {
    static chipset_host host{};
    host.struct_size = sizeof host;
    host.set_error = [](const char* text) { FakeHost::text() = text; };
    host.log = [](int32_t, const char*) {};
    host.option = [](const char* name) -> const char* {
      const auto found = options().find(name);
      return found == options().end() ? nullptr : found->second.c_str();
    };
    chipset::sdk::host() = &host;
  }
};

inline chipset_tensor tensor(void* data, int32_t dtype, std::initializer_list<int64_t> shape,
                             std::initializer_list<int64_t> stride = {}) {
  chipset_tensor made{};
  made.struct_size = sizeof made;
  made.data = data;
  made.dtype = dtype;
  made.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), made.shape);
  std::copy(stride.begin(), stride.end(), made.stride);
  if (stride.size() == 0)
    for (int64_t d = made.rank - 1, step = 1; d >= 0; step *= made.shape[d--])
      made.stride[d] = step;
  return made;
}

inline int report() {
  if (failures == 0) std::printf("ok\n");
  return failures != 0;
}
