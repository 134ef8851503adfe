// SPDX-License-Identifier: Apache-2.0
// Whether the borrowed kernels would do a call. The answer must be known when the call is made
// (UNSUPPORTED means "compose it"), while its work may run much later. So the kernel runs once on
// scratch memory: inputs read as zeros, outputs go to a small file that is mapped again and again.
// Answers are kept by everything that the call says apart from addresses.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "borrowed.h"
#include "memory.h"
#include "translate.h"

namespace chipset::sim {

// Scratch addresses for one rehearsal.
class Scratch {
 public:
  // Operands at one address share their scratch; written ones get memory that may be written.
  explicit Scratch(const Operands& operands);
  void* address_of(const void* original);

 private:
  std::unordered_map<const void*, void*> places_;
};

struct Answer {
  chipset_status status;
  std::string text;
};
// None when the call has not been rehearsed yet.
std::optional<Answer> known_answer(const std::string& key);
void keep_answer(const std::string& key, const Answer& answer);
// A stream of the CPU chip for this thread.
chipset_stream rehearsal_stream();

template <class T>
std::string key_of(Fn function, const Owned<T>& call) {
  T plain = call.args;
  each_pointer(
      plain, [](const chipset_tensor*& t, std::uint64_t) { t = nullptr; },
      [](const void*& p) { p = nullptr; });
  if constexpr (std::is_same_v<T, chipset_random_args>) plain.seed = plain.offset = 0;
  std::string key(1, static_cast<char>(function));
  each_pointer(
      const_cast<T&>(call.args),
      [&](const chipset_tensor*& t, std::uint64_t) {
        key += std::to_string(t - call.tensors.data()) + ',';
        key += std::to_string(reinterpret_cast<const char*>(&t) -
                              reinterpret_cast<const char*>(&call.args));
        key += ';';
      },
      [&](const void*&) { key += 'a'; });
  key.append(reinterpret_cast<const char*>(&plain), sizeof plain);
  key.append(reinterpret_cast<const char*>(call.tensors.data()),
             call.tensors.size() * sizeof(chipset_tensor));
  return key;
}

template <class T>
Answer rehearse(Fn function, chipset_status (*kernel)(chipset_stream, const T*), const T& given,
                const Operands& operands) {
  Scratch scratch(operands);
  const auto call = copy_args(given, [&](const void* p) { return scratch.address_of(p); });
  const std::string key = key_of(function, *call);
  if (auto known = known_answer(key)) return *known;
  take_borrowed_error();
  Answer answer{kernel(rehearsal_stream(), &call->args), ""};
  answer.text = take_borrowed_error();
  // Zeros for indices say nothing about the real ones.
  if (answer.status == CHIPSET_STATUS_OUT_OF_RANGE) answer = {CHIPSET_STATUS_OK, ""};
  keep_answer(key, answer);
  return answer;
}

}  // namespace chipset::sim
