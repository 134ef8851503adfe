/* The smallest plugin: a make-believe chip whose memory is host memory and whose streams run at
 * once. It has every required function; of the arithmetic it does two pointwise operations and
 * leaves the rest to the core (UNSUPPORTED). Replace the bodies, one group at a time, by calls of
 * your driver. docs/write-a-plugin.md goes through it. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chipset/chipset.h"

enum { DEVICES = 1 };
static const uint64_t MEMORY = 1ull << 30;
static const chipset_host* host;
static atomic_ullong used;

/* A stream and an event need no content here: a call has completed when it returns. */
struct chipset_stream_s {
  int32_t device;
};
struct chipset_event_s {
  int32_t device;
};

static chipset_status fail(chipset_status status, const char* text) {
  host->set_error(text);
  return status;
}

static chipset_status check_device(int32_t device) {
  if (device >= 0 && device < DEVICES) return CHIPSET_STATUS_OK;
  char text[80];
  snprintf(text, sizeof text, "device %d does not exist; there is %d", (int)device, (int)DEVICES);
  return fail(CHIPSET_STATUS_INVALID, text);
}

/* ---- device -------------------------------------------------------------------------------- */

static chipset_status device_count(int32_t* count) {
  *count = DEVICES;
  return CHIPSET_STATUS_OK;
}

static chipset_status device_info(int32_t device, chipset_device_info* info) {
  chipset_status status = check_device(device);
  if (status != CHIPSET_STATUS_OK) return status;
  chipset_device_info mine = {
      .compute_units = 1,
      .name = "make-believe chip",
      .vendor = "minimal",
      .architecture = "none",
      .driver = "none",
      /* No UNIFIED, although it would be true: so nobody may touch our memory but through us. */
      .capabilities = CHIPSET_CAPABILITY_EMULATED | CHIPSET_CAPABILITY_INLINE,
      .total_memory = MEMORY,
      .max_allocation = MEMORY,
      .dtypes = 1ull << CHIPSET_DTYPE_F32,
      .alignment = 64,
      .preferred_vector_bytes = 4,
  };
  /* Fill only what the caller's struct has room for (VER-002). */
  mine.struct_size = info->struct_size;
  memcpy(info, &mine, info->struct_size < sizeof mine ? info->struct_size : sizeof mine);
  return CHIPSET_STATUS_OK;
}

static chipset_status device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
  *total_bytes = MEMORY;
  *free_bytes = MEMORY - atomic_load(&used);
  return check_device(device);
}

static chipset_status device_sync(int32_t device) { return check_device(device); }

/* ---- memory -------------------------------------------------------------------------------- */

/* The 64 bytes before each block hold its size, so that mem_free can give the bytes back. */
static chipset_status mem_alloc(int32_t device, int32_t kind, uint64_t bytes, void** pointer) {
  (void)kind; /* page-locked host memory is plain memory too */
  *pointer = NULL;
  chipset_status status = check_device(device);
  if (status != CHIPSET_STATUS_OK || bytes == 0) return status;
  if (bytes > MEMORY || atomic_fetch_add(&used, bytes) + bytes > MEMORY) {
    if (bytes <= MEMORY) atomic_fetch_sub(&used, bytes);
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "the make-believe chip has 1 GiB");
  }
  char* block = aligned_alloc(64, 64 + (bytes + 63) / 64 * 64);
  if (!block) {
    atomic_fetch_sub(&used, bytes);
    return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "the host has no memory left");
  }
  memcpy(block, &bytes, sizeof bytes);
  *pointer = block + 64;
  return CHIPSET_STATUS_OK;
}

static chipset_status mem_free(int32_t device, void* pointer) {
  chipset_status status = check_device(device);
  if (status != CHIPSET_STATUS_OK || !pointer) return status;
  uint64_t bytes;
  char* block = (char*)pointer - 64;
  memcpy(&bytes, block, sizeof bytes);
  atomic_fetch_sub(&used, bytes);
  free(block);
  return CHIPSET_STATUS_OK;
}

static chipset_status mem_copy(chipset_stream stream, void* destination, const void* source,
                               uint64_t bytes, int32_t kind) {
  (void)stream, (void)kind;
  if (bytes) memcpy(destination, source, bytes);
  return CHIPSET_STATUS_OK;
}

static chipset_status mem_fill(chipset_stream stream, void* destination, int32_t value,
                               uint64_t bytes) {
  (void)stream;
  if (bytes) memset(destination, value, bytes);
  return CHIPSET_STATUS_OK;
}

/* ---- streams and events -------------------------------------------------------------------- */

static chipset_status stream_create(int32_t device, int32_t priority, chipset_stream* stream) {
  (void)priority;
  *stream = NULL;
  chipset_status status = check_device(device);
  if (status != CHIPSET_STATUS_OK) return status;
  *stream = calloc(1, sizeof **stream);
  if (!*stream) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "no memory for a stream");
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
  (void)stream, (void)event;
  return CHIPSET_STATUS_OK;
}

static chipset_status event_create(int32_t device, uint32_t flags, chipset_event* event) {
  (void)flags;
  *event = NULL;
  chipset_status status = check_device(device);
  if (status != CHIPSET_STATUS_OK) return status;
  *event = calloc(1, sizeof **event);
  if (!*event) return fail(CHIPSET_STATUS_OUT_OF_MEMORY, "no memory for an event");
  (*event)->device = device;
  return CHIPSET_STATUS_OK;
}

static chipset_status event_destroy(chipset_event event) {
  free(event);
  return CHIPSET_STATUS_OK;
}

static chipset_status event_record(chipset_event event, chipset_stream stream) {
  (void)event, (void)stream;
  return CHIPSET_STATUS_OK;
}

static chipset_status event_query(chipset_event event, int64_t timeout_ns) {
  (void)event, (void)timeout_ns;
  return CHIPSET_STATUS_OK;
}

/* ---- compute ------------------------------------------------------------------------------- */

static float read_operand(const chipset_pointwise_args* args, int k, const int64_t* index) {
  const chipset_tensor* t = args->input[k];
  if (!t) return (float)args->immediate[k].f; /* a number given from the host */
  int64_t offset = 0;
  for (int d = 0; d < t->rank; ++d) offset += index[d] * t->stride[d];
  return ((const float*)t->data)[offset];
}

/* COPY and ADD, f32 only. Strides, broadcast operands (stride 0), rank 0 and no elements at all
 * need no special case (SHP-001). */
static chipset_status pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
  (void)stream;
  const chipset_tensor* out = args->output;
  const int32_t op = args->op;
  if (op != CHIPSET_POINTWISE_OP_COPY && op != CHIPSET_POINTWISE_OP_ADD)
    return fail(CHIPSET_STATUS_UNSUPPORTED, "only COPY and ADD");
  int is_f32 = args->compute_dtype == CHIPSET_DTYPE_F32 && out->dtype == CHIPSET_DTYPE_F32;
  for (int k = 0; k < args->num_inputs; ++k)
    is_f32 &= !args->input[k] || args->input[k]->dtype == CHIPSET_DTYPE_F32;
  if (!is_f32) return fail(CHIPSET_STATUS_UNSUPPORTED, "only F32");

  int64_t index[CHIPSET_MAX_RANK] = {0};
  int64_t count = 1;
  for (int d = 0; d < out->rank; ++d) count *= out->shape[d];
  for (int64_t n = 0; n < count; ++n) {
    float x = read_operand(args, 0, index);
    if (op == CHIPSET_POINTWISE_OP_ADD) x += (float)args->param[0].f * read_operand(args, 1, index);
    int64_t offset = 0;
    for (int d = 0; d < out->rank; ++d) offset += index[d] * out->stride[d];
    ((float*)out->data)[offset] = x;
    for (int d = out->rank - 1; d >= 0 && ++index[d] == out->shape[d]; --d) index[d] = 0;
  }
  return CHIPSET_STATUS_OK;
}

/* Required functions must be present, but may decline: the core finds another way. */
static chipset_status reduce(chipset_stream stream, const chipset_reduce_args* args) {
  (void)stream, (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "not written yet");
}

static chipset_status gemm(chipset_stream stream, const chipset_gemm_args* args) {
  (void)stream, (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "not written yet");
}

static chipset_status gather(chipset_stream stream, const chipset_gather_args* args) {
  (void)stream, (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "not written yet");
}

static chipset_status scatter(chipset_stream stream, const chipset_scatter_args* args) {
  (void)stream, (void)args;
  return fail(CHIPSET_STATUS_UNSUPPORTED, "not written yet");
}

/* ---- the table ----------------------------------------------------------------------------- */

static const chipset_api api = {
    .struct_size = sizeof(chipset_api),
    .major = CHIPSET_VERSION_MAJOR,
    .minor = CHIPSET_VERSION_MINOR,
    .name = "minimal",
    .version = "0.1.0",
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
    .gemm = gemm,
    .gather = gather,
    .scatter = scatter,
};

const chipset_api* chipset_plugin(const chipset_host* the_host) {
  host = the_host;
  return &api;
}
