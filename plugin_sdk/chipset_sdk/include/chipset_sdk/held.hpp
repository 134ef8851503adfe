// SPDX-License-Identifier: Apache-2.0
// Copies of argument structs. The core's structs and descriptors are read before a call returns
// (ASY-002), so work that runs later needs its own.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor.hpp"

namespace chipset::sdk {

namespace detail {
template <std::size_t N>
const chipset_tensor** slots(const chipset_tensor* (&field)[N]) {
  return field;
}
inline const chipset_tensor** slots(const chipset_tensor*& field) { return &field; }

// How many tensors stand behind each pointer of a struct.
template <class Args>
std::size_t tensors_per_pointer(const Args& args) {
  if constexpr (std::is_same_v<Args, chipset_adamw_args>)
    return args.num_tensors;
  else
    return 1;
}

// Calls function(slot) for each tensor pointer of the struct, NULL or not.
template <class Args, class Function>
void for_each_tensor_slot(Args& args, Function&& function) {
#define CHIPSET_TENSORS(args_of, field, count)                        \
  if constexpr (std::is_same_v<Args, chipset_##args_of>) {            \
    for (int k = 0; k < (count); ++k) function(slots(args.field)[k]); \
  }
#define CHIPSET_ADDRESS(args_of, field)
#include <chipset/pointers.inc>
}
// Likewise for its plain device addresses.
template <class Args, class Function>
void for_each_address(Args& args, Function&& function) {
#define CHIPSET_TENSORS(args_of, field, count)
#define CHIPSET_ADDRESS(args_of, field) \
  if constexpr (std::is_same_v<Args, chipset_##args_of>) function(args.field);
#include <chipset/pointers.inc>
  (void)args, (void)function;
}
}  // namespace detail

// An argument struct with everything it points to, its device addresses translated by
// map(address, bytes): the identity where kernels use the addresses that the core sees.
template <class Args>
class Held {
 public:
  template <class Map>
  Held(const Args* args, Map&& map) {
    std::memcpy(static_cast<void*>(&args_), args,
                std::min<std::size_t>(args->struct_size, sizeof args_));
    const std::size_t each = detail::tensors_per_pointer(args_);
    std::size_t total = 0;
    detail::for_each_tensor_slot(args_, [&](const chipset_tensor* slot) {
      if (slot != nullptr) total += each;
    });
    tensors_.reserve(total);  // pointers into it stay valid
    detail::for_each_tensor_slot(args_, [&](const chipset_tensor*& slot) {
      if (slot == nullptr) return;
      const std::size_t first = tensors_.size();
      tensors_.insert(tensors_.end(), slot, slot + each);
      for (std::size_t i = first; i < tensors_.size(); ++i)
        if (tensors_[i].data != nullptr)
          tensors_[i].data = map(tensors_[i].data, extent(tensors_[i]));
      slot = tensors_.data() + first;
    });
    detail::for_each_address(args_, [&](const void*& address) {
      if (address != nullptr) address = map(const_cast<void*>(address), sizeof(float));
    });
  }
  Held(Held&&) noexcept = default;
  // A copy points into tensors of its own.
  Held(const Held& other) : args_(other.args_), tensors_(other.tensors_) {
    detail::for_each_tensor_slot(args_, [&](const chipset_tensor*& slot) {
      if (slot != nullptr) slot = tensors_.data() + (slot - other.tensors_.data());
    });
  }

  const Args* operator->() const { return &args_; }
  const Args& operator*() const { return args_; }

 private:
  Args args_{};
  std::vector<chipset_tensor> tensors_;
};

}  // namespace chipset::sdk
