// SPDX-License-Identifier: Apache-2.0
// The table, and what every entry does before its function: checks stream and args, and records
// instead of running while the stream is captured.
#include "chipset/abi_check.h"
#include "chipset/chipset.h"
#include "collectives.h"
#include "device.h"
#include "error.h"
#include "functions.h"
#include "record.h"
#include "stream.h"

namespace chipset::cpu {
namespace {

#define CPU_ENTRY(name, args_struct)                                                            \
  chipset_status replay_##name(chipset_stream stream, const void* args) {                       \
    return cpu_##name(stream, static_cast<const args_struct*>(args));                           \
  }                                                                                             \
  chipset_status entry_##name(chipset_stream stream, const args_struct* args) {                 \
    if (stream == nullptr) [[unlikely]]                                                         \
      return fail(CHIPSET_STATUS_INVALID, #name ": the stream is missing (NULL)");              \
    if (args == nullptr) [[unlikely]]                                                           \
      return fail(CHIPSET_STATUS_INVALID, #name ": args is missing (NULL)");                    \
    if (args->struct_size < sizeof(args_struct)) [[unlikely]]                                   \
      return fail(CHIPSET_STATUS_INVALID, #name ": args.struct_size is %u, need %zu (VER-002)", \
                  args->struct_size, sizeof(args_struct));                                      \
    if (CapturedGraph* graph = as_stream(stream)->capture; graph != nullptr) [[unlikely]] {     \
      record(*graph, replay_##name, *args);                                                     \
      return CHIPSET_STATUS_OK;                                                                 \
    }                                                                                           \
    return cpu_##name(stream, args);                                                            \
  }
CPU_ARGS_FUNCTIONS(CPU_ENTRY)
#undef CPU_ENTRY

chipset_api make_api() {
  chipset_api api = {};
  api.struct_size = sizeof(chipset_api);
  api.major = CHIPSET_VERSION_MAJOR;
  api.minor = CHIPSET_VERSION_MINOR;
  api.name = "cpu";
  api.version = "0.1.0";
  api.build_info = "compiler " __VERSION__;

  api.device_count = cpu_device_count;
  api.device_info = cpu_device_info;
  api.device_memory = cpu_device_memory;
  api.device_sync = cpu_device_sync;
  api.mem_alloc = cpu_mem_alloc;
  api.mem_free = cpu_mem_free;
  api.mem_copy = cpu_mem_copy;
  api.mem_fill = cpu_mem_fill;
  api.mem_copy_peer = cpu_mem_copy_peer;
  api.stream_create = cpu_stream_create;
  api.stream_destroy = cpu_stream_destroy;
  api.stream_sync = cpu_stream_sync;
  api.stream_wait = cpu_stream_wait;
  api.event_create = cpu_event_create;
  api.event_destroy = cpu_event_destroy;
  api.event_record = cpu_event_record;
  api.event_query = cpu_event_query;
  api.event_elapsed = cpu_event_elapsed;
  api.capture_begin = cpu_capture_begin;
  api.capture_end = cpu_capture_end;
  api.capture_replay = cpu_capture_replay;
  api.graph_compile = cpu_graph_compile;
  api.graph_run = cpu_graph_run;
  api.graph_destroy = cpu_graph_destroy;

  api.comm_id = cpu_comm_id;
  api.comm_create = cpu_comm_create;
  api.comm_destroy = cpu_comm_destroy;
  api.all_reduce = cpu_all_reduce;
  api.all_gather = cpu_all_gather;
  api.reduce_scatter = cpu_reduce_scatter;
  api.broadcast = cpu_broadcast;
  api.all_to_all = cpu_all_to_all;
  api.send = cpu_send;
  api.recv = cpu_recv;
  api.group_begin = cpu_group_begin;
  api.group_end = cpu_group_end;

#define CPU_SLOT(name, args_struct) api.name = entry_##name;
  CPU_ARGS_FUNCTIONS(CPU_SLOT)
#undef CPU_SLOT
  return api;
}

}  // namespace
}  // namespace chipset::cpu

extern "C" CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* host) {
  using namespace chipset::cpu;
  if (host == nullptr) return nullptr;
  g_host = host;
  if (host->major != CHIPSET_VERSION_MAJOR) {
    fail(CHIPSET_STATUS_INVALID, "built for interface version %d, the core has %d (VER-001)",
         CHIPSET_VERSION_MAJOR, host->major);
    return nullptr;
  }
  static const chipset_api api = make_api();
  return &api;
}
