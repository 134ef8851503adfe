// A libOpenCL that passes everything on to the real one, except for what the environment asks it to
// spoil. It links with the real library, so that whatever it does not define is found there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* real(const char* name) { return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name); }

#define DEVICE_NOT_AVAILABLE (-2)
#define OUT_OF_RESOURCES (-5)

// SHIM_LOSE_AFTER=N: the device is gone after N kernels.
static int kernels;
static int gone(void) {
  const char* after = getenv("SHIM_LOSE_AFTER");
  return after != NULL && kernels > atoi(after);
}

// The device's answers that are numbers: SHIM_LOCAL_MEMORY=32768 and so on.
static const struct {
  uint32_t what;
  const char* name;
} kAnswers[] = {
    {0x1004, "SHIM_MAX_GROUP"},  // work-items of a group
    {0x1010, "SHIM_MAX_ALLOCATION"},
    {0x1023, "SHIM_LOCAL_MEMORY"},
    {0x103A, "SHIM_VECTOR_WIDTH"},  // native, of float
    {0x1053, "SHIM_SVM"},
};

int32_t clGetDeviceInfo(void* id, uint32_t what, size_t size, void* value, size_t* needed) {
  static int32_t (*next)(void*, uint32_t, size_t, void*, size_t*);
  if (next == NULL) *(void**)&next = real("clGetDeviceInfo");
  const int32_t status = next(id, what, size, value, needed);
  if (value == NULL || status != 0) return status;
  for (size_t i = 0; i < sizeof kAnswers / sizeof *kAnswers; ++i) {
    const char* answer = what == kAnswers[i].what ? getenv(kAnswers[i].name) : NULL;
    if (answer == NULL) continue;
    const uint64_t number = strtoull(answer, NULL, 10);
    memcpy(value, &number, size < sizeof number ? size : sizeof number);
  }
  const char* hidden = getenv("SHIM_NO_EXTENSION");
  char* found = what == 0x1030 && hidden != NULL ? strstr(value, hidden) : NULL;
  if (found != NULL) memset(found, ' ', strlen(hidden));
  return status;
}

// SHIM_LAUNCHED=FILE: the name of each kernel that is launched, a line each.
static void note_launch(void* kernel) {
  static int32_t (*info)(void*, uint32_t, size_t, void*, size_t*);
  static int file = -1;
  const char* path = getenv("SHIM_LAUNCHED");
  if (path == NULL) return;
  if (info == NULL) *(void**)&info = real("clGetKernelInfo");
  if (file < 0) file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  char name[64];
  size_t size = 0;
  if (info(kernel, 0x1190, sizeof name, name, &size) != 0) abort();
  name[size - 1] = '\n';
  if (write(file, name, size) != (ssize_t)size) abort();
}

int32_t clEnqueueNDRangeKernel(void* queue, void* kernel, uint32_t rank, const size_t* offset,
                               const size_t* global, const size_t* local, uint32_t waits,
                               void* const* wait, void** event) {
  static int32_t (*next)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*,
                         uint32_t, void* const*, void**);
  if (next == NULL) *(void**)&next = real("clEnqueueNDRangeKernel");
  ++kernels;
  note_launch(kernel);
  if (gone()) return 0;  // accepted, and never run
  return next(queue, kernel, rank, offset, global, local, waits, wait, event);
}

// SHIM_SPOIL_SOURCE=TEXT: that part of a program's source reads "unknown" instead.
void* clCreateProgramWithSource(void* context, uint32_t count, const char** text,
                                const size_t* sizes, int32_t* status) {
  static void* (*next)(void*, uint32_t, const char**, const size_t*, int32_t*);
  if (next == NULL) *(void**)&next = real("clCreateProgramWithSource");
  const char* spoilt = getenv("SHIM_SPOIL_SOURCE");
  const char* found = spoilt != NULL ? strstr(text[0], spoilt) : NULL;
  if (found == NULL) return next(context, count, text, sizes, status);
  const char* after = found + strlen(spoilt);
  const size_t before = (size_t)(found - text[0]);
  char* whole = malloc(before + sizeof "unknown" + strlen(after));
  memcpy(whole, text[0], before);
  strcpy(whole + before, "unknown");
  strcat(whole, after);
  const char* changed = whole;
  void* program = next(context, 1, &changed, NULL, status);
  free(whole);
  return program;
}

int32_t clFinish(void* queue) {
  static int32_t (*next)(void*);
  if (next == NULL) *(void**)&next = real("clFinish");
  return gone() ? OUT_OF_RESOURCES : next(queue);
}

void* clSVMAlloc(void* context, uint64_t flags, size_t bytes, uint32_t alignment) {
  static void* (*next)(void*, uint64_t, size_t, uint32_t);
  if (next == NULL) *(void**)&next = real("clSVMAlloc");
  return getenv("SHIM_NO_MEMORY") && bytes > (1 << 20) ? NULL
                                                       : next(context, flags, bytes, alignment);
}
