// SPDX-License-Identifier: Apache-2.0
// Collectives among ranks on one machine.
#pragma once

#include "chipset/chipset.h"

namespace chipset::cpu {

chipset_status cpu_comm_id(void* id);
chipset_status cpu_comm_create(int32_t device, const void* id, int32_t rank, int32_t size,
                               chipset_comm* comm);
chipset_status cpu_comm_destroy(chipset_comm comm);
chipset_status cpu_all_reduce(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, uint64_t count, int32_t dtype, int32_t op);
chipset_status cpu_all_gather(chipset_stream stream, chipset_comm comm, const void* send,
                              void* receive, uint64_t count, int32_t dtype);
chipset_status cpu_reduce_scatter(chipset_stream stream, chipset_comm comm, const void* send,
                                  void* receive, uint64_t count, int32_t dtype, int32_t op);
chipset_status cpu_broadcast(chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count,
                             int32_t dtype, int32_t root);
chipset_status cpu_all_to_all(chipset_stream stream, chipset_comm comm, const void* send,
                              const uint64_t* send_counts, void* receive,
                              const uint64_t* receive_counts, int32_t dtype);
chipset_status cpu_send(chipset_stream stream, chipset_comm comm, const void* buffer,
                        uint64_t count, int32_t dtype, int32_t peer);
chipset_status cpu_recv(chipset_stream stream, chipset_comm comm, void* buffer, uint64_t count,
                        int32_t dtype, int32_t peer);
chipset_status cpu_group_begin(chipset_comm comm);
chipset_status cpu_group_end(chipset_comm comm);

}  // namespace chipset::cpu
