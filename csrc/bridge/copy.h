// SPDX-License-Identifier: Apache-2.0
// Copies within a chip, for kernels.
#pragma once

#include <ATen/core/Tensor.h>

namespace chipset::bridge {

// Copies source into destination, both on one chip and of one shape, converting the dtype. Strided;
// in the order of the current stream.
void copy_on_chip(const at::Tensor& destination, const at::Tensor& source);
// The tensor itself where it is contiguous, otherwise a contiguous copy.
at::Tensor contiguous(const at::Tensor& tensor);
// The bytes of a contiguous chip tensor, now, in host memory. Waits for the stream.
void read_bytes(void* destination, const at::Tensor& source);

}  // namespace chipset::bridge
