// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "state.h"

namespace chipset::bridge {

ChipGenerator::ChipGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(chip(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void ChipGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t ChipGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void ChipGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  // CUDA also takes the seed alone; so do we.
  TORCH_CHECK(state.numel() == sizeof(PhiloxState) || state.numel() == sizeof(uint64_t),
              "RNG state of a chip must have ", sizeof(PhiloxState),
              " bytes (seed and offset), but it has ", state.numel());
  PhiloxState values{0, 0};
  std::memcpy(&values, state.data(), static_cast<size_t>(state.numel()));
  seed_ = values.seed;
  offset_ = values.offset;
}

c10::intrusive_ptr<c10::TensorImpl> ChipGenerator::get_state() const {
  const PhiloxState values{seed_, offset_};
  const at::Tensor out = at::empty({sizeof(values)}, at::TensorOptions(at::kCPU).dtype(at::kByte));
  std::memcpy(out.mutable_data_ptr(), &values, sizeof(values));
  return out.getIntrusivePtr();
}

PhiloxState ChipGenerator::draw(int64_t elements) {
  return advance(static_cast<uint64_t>(elements + 1) / 2);
}

PhiloxState ChipGenerator::advance(uint64_t blocks) {
  const std::lock_guard lock(mutex_);
  const PhiloxState state{seed_, offset_};
  offset_ += blocks;
  return state;
}

ChipGenerator* ChipGenerator::clone_impl() const {
  auto* copy = new ChipGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device) {
  existing_index(device);
  static auto* mutex = new std::mutex();
  static auto* generators = new std::deque<at::Generator>();  // stable addresses; never destroyed
  const std::lock_guard lock(*mutex);
  while (generators->size() <= static_cast<size_t>(device)) {
    generators->push_back(
        at::make_generator<ChipGenerator>(static_cast<c10::DeviceIndex>(generators->size())));
  }
  return (*generators)[static_cast<size_t>(device)];
}

ChipGenerator* generator_for(const std::optional<at::Generator>& generator, int device) {
  if (!generator || !generator->defined()) {
    return static_cast<ChipGenerator*>(default_generator(device).unsafeGetGeneratorImpl());
  }
  TORCH_CHECK(generator->device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'chip' device type for generator but found '", generator->device().type(),
              "'");
  return static_cast<ChipGenerator*>(generator->unsafeGetGeneratorImpl());
}

}  // namespace chipset::bridge
