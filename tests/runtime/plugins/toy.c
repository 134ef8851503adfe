// A make-believe chip for tests: host memory, work done inside the call, F32 only. Macros spoil it
// in one way each, so that the loader's answers can be seen:
//   TOY_WRONG_MAJOR  TOY_MISSING_GEMM  TOY_CRASH  TOY_NULL  TOY_EXIT  TOY_TINY_TABLE
//   TOY_OLD_TABLE (ends after the required functions)  TOY_NO_DRIVER  TOY_NO_DEVICE
// TOY_PLAIN gives it all required functions for many dtypes; TOY_THROWS lets it call throws.cpp.
// Options: devices (count), capacity (bytes per device), answer (what is wrong with its answers).
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chipset/abi_check.h"

#define MAX_DEVICES 8
#define MAX_ALLOCATIONS 4096

struct chipset_stream_s {
  int32_t device;
};
struct chipset_event_s {
  int32_t device;
};
typedef struct {
  void* pointer;
  uint64_t bytes;
} allocation;

static const chipset_host* host;
static allocation allocations[MAX_DEVICES][MAX_ALLOCATIONS];
static uint64_t used[MAX_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static chipset_status fail(chipset_status status, const char* text) {
  host->set_error(text);
  return status;
}
static int32_t option(const char* name, int32_t otherwise) {
  const char* text = host->option(name);
  return text == NULL ? otherwise : (int32_t)strtol(text, NULL, 10);
}
static int answers(const char* fault) {
  const char* text = host->option("answer");
  return text != NULL && strcmp(text, fault) == 0;
}
static uint64_t capacity(void) { return (uint64_t)option("capacity", 64 << 20); }

static chipset_status device_count(int32_t* count) {
#if defined(TOY_NO_DRIVER)
  (void)count;
  return fail(CHIPSET_STATUS_INTERNAL, "libtoydriver.so.1 was not found in /usr/lib/toy");
#elif defined(TOY_NO_DEVICE)
  *count = 0;
#else
  *count = option("devices", 1);
#endif
  return CHIPSET_STATUS_OK;
}
static chipset_status device_info(int32_t device, chipset_device_info* info) {
  if (device < 0 || device >= MAX_DEVICES) return fail(CHIPSET_STATUS_INVALID, "no such device");
  const uint32_t size = info->struct_size;
  chipset_device_info full;
  memset(&full, 0, sizeof full);
  strcpy(full.name, "Toy");
  strcpy(full.vendor, "Chipset tests");
  full.capabilities = CHIPSET_CAPABILITY_UNIFIED | CHIPSET_CAPABILITY_EMULATED;
  full.total_memory = capacity();
  full.max_allocation = capacity();
  full.dtypes = 1u << CHIPSET_DTYPE_F32;
  full.alignment = 64;
  full.struct_size = size;
  memcpy(info, &full, size < sizeof full ? size : sizeof full);
  return CHIPSET_STATUS_OK;
}
static chipset_status device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total) {
  *total = capacity();
  *free_bytes = capacity() - used[device];
  return CHIPSET_STATUS_OK;
}
#if defined(TOY_THROWS)
void toy_throw(const char* what);
#endif
static chipset_status device_sync(int32_t device) {
  (void)device;
  if (answers("wordless")) return CHIPSET_STATUS_INTERNAL;
  if (answers("unknown")) return fail(99, "this is no status");
  if (answers("not ready")) return CHIPSET_STATUS_NOT_READY;
#if defined(TOY_THROWS)
  toy_throw(host->option("answer"));
#endif
  return CHIPSET_STATUS_OK;
}

static chipset_status allocate(int32_t device, uint64_t bytes, void** pointer) {
  if (bytes == 0) return CHIPSET_STATUS_OK;
  if (used[device] + bytes > capacity())
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "the toy's memory is full");
  for (int i = 0; i < MAX_ALLOCATIONS; ++i) {
    allocation* a = &allocations[device][i];
    if (a->pointer != NULL) continue;
    a->pointer = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (a->pointer == NULL) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "aligned_alloc failed");
    a->bytes = bytes;
    used[device] += bytes;
    *pointer = a->pointer;
    return CHIPSET_STATUS_OK;
  }
  return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "too many allocations");
}
static chipset_status mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
  (void)kind;
  *pointer = NULL;
  if (answers("no memory")) return CHIPSET_STATUS_OK;
  pthread_mutex_lock(&mutex);
  const chipset_status status = allocate(device, bytes, pointer);
  pthread_mutex_unlock(&mutex);
  return status;
}
static chipset_status release(int32_t device, void* pointer) {
  if (pointer == NULL) return CHIPSET_STATUS_OK;
  for (int i = 0; i < MAX_ALLOCATIONS; ++i) {
    allocation* a = &allocations[device][i];
    if (a->pointer != pointer) continue;
    free(pointer);
    used[device] -= a->bytes;
    a->pointer = NULL;
    return CHIPSET_STATUS_OK;
  }
  return fail(CHIPSET_STATUS_INVALID, "mem_free: not allocated here");
}
static chipset_status mem_free(int32_t device, void* pointer) {
  pthread_mutex_lock(&mutex);
  const chipset_status status = release(device, pointer);
  pthread_mutex_unlock(&mutex);
  return status;
}
static chipset_status mem_copy(chipset_stream stream, void* destination, const void* source,
                               uint64_t bytes, int32_t kind) {
  (void)stream;
  (void)kind;
  memmove(destination, source, bytes);
  return CHIPSET_STATUS_OK;
}
static chipset_status mem_fill(chipset_stream stream, void* destination, int32_t value,
                               uint64_t bytes) {
  (void)stream;
  memset(destination, value, bytes);
  return CHIPSET_STATUS_OK;
}

static chipset_status stream_create(int32_t device, int32_t priority, chipset_stream* stream) {
  (void)priority;
  *stream = malloc(sizeof **stream);
  (*stream)->device = device;
  return CHIPSET_STATUS_OK;
}
static chipset_status stream_destroy(chipset_stream stream) {
  free(stream);
  return CHIPSET_STATUS_OK;
}
static chipset_status stream_sync(chipset_stream stream) {
  (void)stream;
  return CHIPSET_STATUS_OK;
}
static chipset_status stream_wait(chipset_stream stream, chipset_event event) {
  (void)stream;
  (void)event;
  return CHIPSET_STATUS_OK;
}
static chipset_status event_create(int32_t device, uint32_t flags, chipset_event* event) {
  (void)flags;
  *event = NULL;
  if (answers("no event")) return CHIPSET_STATUS_OK;
  *event = malloc(sizeof **event);
  (*event)->device = device;
  return CHIPSET_STATUS_OK;
}
static chipset_status event_destroy(chipset_event event) {
  free(event);
  return CHIPSET_STATUS_OK;
}
static chipset_status event_record(chipset_event event, chipset_stream stream) {
  (void)event;
  (void)stream;
  return CHIPSET_STATUS_OK;
}
static chipset_status event_query(chipset_event event, int64_t timeout_ns) {
  (void)event;
  (void)timeout_ns;
  return CHIPSET_STATUS_OK;
}

#if defined(TOY_PLAIN)
#include "plain_math.h"
#else
static float* at(const chipset_tensor* t, const int64_t* index) {
  float* p = t->data;
  for (int d = 0; d < t->rank; ++d) p += t->shape[d] == 1 ? 0 : index[d] * t->stride[d];
  return p;
}
static int step(const chipset_tensor* t, int64_t* index) {
  for (int d = t->rank - 1; d >= 0; --d) {
    if (++index[d] < t->shape[d]) return 1;
    index[d] = 0;
  }
  return 0;
}
static int64_t count_of(const chipset_tensor* t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; ++d) n *= t->shape[d];
  return n;
}

static chipset_status pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
  (void)stream;
  const chipset_tensor* out = args->output;
  if (out->dtype != CHIPSET_DTYPE_F32)
    return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy knows F32 only");
  if (count_of(out) == 0) return CHIPSET_STATUS_OK;
  int64_t index[CHIPSET_MAX_RANK] = {0};
  do {
    float x[4] = {0};
    for (int k = 0; k < args->num_inputs; ++k)
      x[k] = args->input[k] ? *at(args->input[k], index) : (float)args->immediate[k].f;
    float* y = at(out, index);
    switch (args->op) {
      case CHIPSET_POINTWISE_OP_COPY:
        *y = x[0];
        break;
      case CHIPSET_POINTWISE_OP_FILL:
        *y = (float)args->param[0].f;
        break;
      case CHIPSET_POINTWISE_OP_ADD:
        *y = x[0] + (float)args->param[0].f * x[1];
        break;
      case CHIPSET_POINTWISE_OP_MUL:
        *y = x[0] * x[1];
        break;
      default:
        return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy knows COPY, FILL, ADD and MUL");
    }
  } while (step(out, index));
  return CHIPSET_STATUS_OK;
}
static chipset_status gemm(chipset_stream stream, const chipset_gemm_args* args) {
  (void)stream;
  if (args->d->dtype != CHIPSET_DTYPE_F32 || args->d->rank != 2 || args->c || args->bias)
    return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy knows plain F32 matrices only");
  for (int64_t i = 0; i < args->d->shape[0]; ++i)
    for (int64_t j = 0; j < args->d->shape[1]; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < args->a->shape[1]; ++k)
        sum += *at(args->a, (int64_t[]){i, k}) * *at(args->b, (int64_t[]){k, j});
      *at(args->d, (int64_t[]){i, j}) = (float)args->alpha * sum;
    }
  return CHIPSET_STATUS_OK;
}
static chipset_status reduce(chipset_stream stream, const chipset_reduce_args* args) {
  (void)stream;
  (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy does not reduce");
}
static chipset_status gather(chipset_stream stream, const chipset_gather_args* args) {
  (void)stream;
  (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy does not gather");
}
static chipset_status scatter(chipset_stream stream, const chipset_scatter_args* args) {
  (void)stream;
  (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "the toy does not scatter");
}
#endif

static chipset_api api = {
#if defined(TOY_TINY_TABLE)
    .struct_size = 4,
#elif defined(TOY_OLD_TABLE)
    .struct_size = offsetof(chipset_api, scatter) + sizeof(void*),
#else
    .struct_size = sizeof(chipset_api),
#endif
#if defined(TOY_WRONG_MAJOR)
    .major = CHIPSET_VERSION_MAJOR + 1,
#else
    .major = CHIPSET_VERSION_MAJOR,
#endif
    .minor = CHIPSET_VERSION_MINOR,
    .name = "toy",
    .version = "0.1",
    .build_info = "for tests",
    .device_count = device_count,
    .device_info = device_info,
    .device_memory = device_memory,
    .device_sync = device_sync,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
    .mem_fill = mem_fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .pointwise = pointwise,
    .reduce = reduce,
#if !defined(TOY_MISSING_GEMM)
    .gemm = gemm,
#endif
    .gather = gather,
    .scatter = scatter,
};

CHIPSET_EXPORT const chipset_api* chipset_plugin(const chipset_host* given) {
  host = given;
#if defined(TOY_CRASH)
  abort();
#elif defined(TOY_EXIT)
  exit(7);
#elif defined(TOY_NULL)
  host->set_error("this host is too old for the toy");
  return NULL;
#endif
  return &api;
}
