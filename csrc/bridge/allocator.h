// SPDX-License-Identifier: Apache-2.0
// Device memory for torch, from the runtime's caching allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

namespace chipset::bridge {

c10::DeviceAllocator* device_allocator() noexcept;
// Memory of the device, owned by its current stream.
c10::DataPtr allocate(size_t bytes, int device);
// Grows or shrinks a storage in place; the contents that fit are kept.
void resize_storage(c10::StorageImpl* storage, size_t bytes);
void register_allocators();

}  // namespace chipset::bridge
