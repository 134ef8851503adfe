// SPDX-License-Identifier: Apache-2.0
// The random generator: Philox4x32-10, of which a state is a seed and an offset (RND-001).
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace chipset::bridge {

struct PhiloxState {
  uint64_t seed;
  uint64_t offset;
};

class ChipGenerator final : public c10::GeneratorImpl {
 public:
  explicit ChipGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  // 16 bytes: seed, offset; as CUDA's, which DTensor relies on.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The state for `elements` numbers, of two words each at most; the offset moves past them.
  PhiloxState draw(int64_t elements);
  // The state now; the offset moves on by so many blocks.
  PhiloxState advance(uint64_t blocks);
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  ChipGenerator* clone_impl() const override;
  uint64_t seed_ = 67280421310721;  // c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(int device);
// The generator given, or the device's default. Checks that it belongs to a chip.
ChipGenerator* generator_for(const std::optional<at::Generator>& generator, int device);

}  // namespace chipset::bridge
