// SPDX-License-Identifier: Apache-2.0
// Deep copies of argument structs with other addresses in them. Which fields hold pointers comes
// from the interface table (pointers.inc), so that a new field cannot be forgotten.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "common.h"

namespace chipset::sim {

template <class T>
struct Owned {
  T args{};
  std::vector<chipset_tensor> tensors;  // what args points to
};

// Calls tensors(pointer&, count) and address(pointer&) for the pointers of the struct.
template <class T, class Tensors, class Address>
void each_pointer(T& args, Tensors&& tensors, [[maybe_unused]] Address&& address) {
  std::uint64_t each = 1;
  if constexpr (std::is_same_v<T, chipset_adamw_args>) each = args.num_tensors;
#define CHIPSET_TENSORS(name, field, count)                              \
  if constexpr (std::is_same_v<T, chipset_##name>) {                     \
    auto* first = reinterpret_cast<const chipset_tensor**>(&args.field); \
    for (int i = 0; i < count; ++i)                                      \
      if (first[i] != nullptr) tensors(first[i], each);                  \
  }
#define CHIPSET_ADDRESS(name, field)               \
  if constexpr (std::is_same_v<T, chipset_##name>) \
    if (args.field != nullptr) address(args.field);
#include "chipset/pointers.inc"
}

// `map` gives the new address for one of the struct's.
template <class T, class Map>
std::shared_ptr<Owned<T>> copy_args(const T& given, Map&& map) {
  auto out = std::make_shared<Owned<T>>();
  std::memcpy(&out->args, &given, std::min<std::size_t>(given.struct_size, sizeof(T)));
  out->args.struct_size = sizeof(T);
  std::uint64_t total = 0;
  each_pointer(
      out->args, [&](const chipset_tensor*&, std::uint64_t n) { total += n; }, [](const void*&) {});
  out->tensors.reserve(total);
  each_pointer(
      out->args,
      [&](const chipset_tensor*& tensors, std::uint64_t n) {
        const chipset_tensor* first = out->tensors.data() + out->tensors.size();
        for (std::uint64_t i = 0; i < n; ++i) {
          out->tensors.push_back(tensors[i]);
          if (tensors[i].data != nullptr) out->tensors.back().data = map(tensors[i].data);
        }
        tensors = first;
      },
      [&](const void*& address) { address = map(address); });
  return out;
}

}  // namespace chipset::sim
