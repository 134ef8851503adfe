// SPDX-License-Identifier: Apache-2.0
#include "composed.h"

namespace chipset::runtime {

chipset_status composed(Tag<Fn::mem_copy_peer>, Plugin& plugin, chipset_stream stream,
                        void* destination, const void* source, std::int32_t source_device,
                        std::uint64_t bytes) {
  if (bytes == 0) return CHIPSET_STATUS_OK;
  const Device& to = device_of(stream);
  const int from = plugin.first_device + source_device;
  // The copy out runs in a stream of the source's device, and waits for what the caller's stream
  // has been made to wait for, since the caller ordered the source's writer before this one.
  chipset_stream out = pool_stream(from, 0, kStreamsPerPriority - 1);
  const chipset_api* api = to.api;
  chipset_event reached = acquire_event(to.index, 0);
  chipset_event copied = acquire_event(from, 0);
  void* staging = allocate_host(to.index, bytes);
  chipset_status status = api->event_record(reached, stream);
  if (status == CHIPSET_STATUS_OK) status = api->stream_wait(out, reached);
  if (status == CHIPSET_STATUS_OK)
    status = api->mem_copy(out, staging, source, bytes, CHIPSET_COPY_KIND_DEVICE_TO_HOST);
  if (status == CHIPSET_STATUS_OK) status = api->event_record(copied, out);
  if (status == CHIPSET_STATUS_OK) status = api->stream_wait(stream, copied);
  if (status == CHIPSET_STATUS_OK)
    status = api->mem_copy(stream, destination, staging, bytes, CHIPSET_COPY_KIND_HOST_TO_DEVICE);
  record_host(staging, out);
  record_host(staging, stream);
  deallocate_host(staging);
  release_event(to.index, 0, reached);
  release_event(from, 0, copied);
  return status;
}

}  // namespace chipset::runtime
