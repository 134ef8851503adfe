// A plugin for tests: the CPU chip's table with one fault, named by the option `fault`:
//   crash (mem_fill)  exit (mem_fill)  hang (event_query without end)  short (mem_fill of one byte
//   too few)  refuse (mem_fill is UNSUPPORTED)  none
// Option `good`: the path of the CPU chip's library.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chipset/chipset.h"

typedef const chipset_api* (*plugin_function)(const chipset_host*);

static const chipset_host* host;
static const chipset_api* good;
static chipset_api table;

static chipset_status crash(chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
  (void)stream, (void)to, (void)value, (void)bytes;
  abort();
}
static chipset_status quit(chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
  (void)stream, (void)to, (void)value, (void)bytes;
  _exit(3);
}
static chipset_status hang(chipset_event event, int64_t timeout_ns) {
  if (timeout_ns >= 0) return good->event_query(event, timeout_ns);
  for (;;) sleep(1);
}
static chipset_status short_fill(chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
  return good->mem_fill(stream, to, value, bytes == 0 ? 0 : bytes - 1);
}
static chipset_status refuse(chipset_stream stream, void* to, int32_t value, uint64_t bytes) {
  (void)stream, (void)to, (void)value, (void)bytes;
  host->set_error("this chip does not fill");
  return CHIPSET_STATUS_UNSUPPORTED;
}

__attribute__((visibility("default"))) const chipset_api* chipset_plugin(const chipset_host* h) {
  host = h;
  void* library = dlopen(h->option("good"), RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return NULL;
  plugin_function make;
  *(void**)&make = dlsym(library, "chipset_plugin");
  good = make(h);
  table = *good;
  const char* fault = h->option("fault");
  if (strcmp(fault, "crash") == 0) table.mem_fill = crash;
  if (strcmp(fault, "exit") == 0) table.mem_fill = quit;
  if (strcmp(fault, "hang") == 0) table.event_query = hang;
  if (strcmp(fault, "short") == 0) table.mem_fill = short_fill;
  if (strcmp(fault, "refuse") == 0) table.mem_fill = refuse;
  return &table;
}
