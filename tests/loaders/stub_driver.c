/* A CUDA driver without a device: it keeps what it was told, and refuses what a real one refuses.

   Parameters are read through the sizes that `stub_sizes` was given, as a device would from the loaded code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
enum { MAJOR = 75, MINOR = 76, MAX_DYNAMIC_SHARED = 8 };

typedef struct { unsigned id; char pad[4]; unsigned value[16]; } attribute;
typedef struct { unsigned grid[3], block[3], shared; void *stream; attribute *attrs; unsigned count; } config;

static pid_t owner;
static __thread uintptr_t context;
static int limit = 49152, answer;
static unsigned sizes[64], params;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct { uint64_t launches, loads, unloads, limits_set, stream, function; unsigned grid[3], block[3], shared, attrs;
         unsigned ids[8], values[8][4]; unsigned char bytes[65536]; } stub_seen;

static unsigned offsets[64], told = ~0u;

void stub_sizes(unsigned count, const unsigned *of) { params = count; memcpy(sizes, of, count * sizeof *of); }
/* From now on the driver tells where parameters lie; with a count of ~0 it is too old to. */
void stub_tells(unsigned count, const unsigned *at) { told = count; if (~count) memcpy(offsets, at, count * sizeof *at); }
void stub_answer(int code) { answer = code; }

static int nope(void) { return NOT_SUPPORTED; }

int cuInit(unsigned flags) {
  const char *told = getenv("STUB_INIT");
  if (told) return atoi(told);
  if (!owner) owner = getpid();
  return owner == getpid() ? OK : NOT_INITIALIZED;
}
int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
int cuDeviceGetCount(int *n) { *n = 2; return OK; }
int cuDeviceGet(int *d, int i) { *d = i; return i >= 0 && i < 2 ? OK : INVALID_DEVICE; }
int cuDeviceGetName(char *name, int size, int d) { strncpy(name, "Stand-in", size); return OK; }
int cuDeviceGetAttribute(int *v, int which, int d) {
  const char *told = getenv("STUB_CAPABILITY");
  int number = told ? atoi(told) : 90;
  *v = which == MAJOR ? number / 10 : which == MINOR ? number % 10 : 1;
  return OK;
}
int cuCtxGetCurrent(void **c) { *c = (void *)context; return OK; }
int cuCtxSetCurrent(void *c) { context = (uintptr_t)c; return OK; }
static __thread uintptr_t below[8];
static __thread int depth;
int cuCtxPushCurrent_v2(void *c) { below[depth++ & 7] = context; context = (uintptr_t)c; return OK; }
int cuCtxPopCurrent_v2(void **c) { *c = (void *)context; context = below[--depth & 7]; return OK; }
int cuCtxPushCurrent(void *c) { return cuCtxPushCurrent_v2(c); }
int cuCtxPopCurrent(void **c) { return cuCtxPopCurrent_v2(c); }
int cuCtxGetDevice(int *d) { *d = (int)(context - 0x1000); return context ? OK : INVALID_CONTEXT; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(uintptr_t)(0x1000 + d); return OK; }

int cuLibraryLoadData(void **l, const char *image) {
  int ptx = !strncmp(image, "//", 2) || !strncmp(image, ".version", 8), fat = !memcmp(image, "\x50\xed\x55\xba", 4);
  if (!ptx && !fat && (memcmp(image, "\177ELF", 4) || *(uint16_t *)(image + 18) != 190)) return INVALID_IMAGE;
  *l = (void *)image;
  __atomic_add_fetch(&stub_seen.loads, 1, __ATOMIC_SEQ_CST);
  return OK;
}
int cuLibraryGetModule(void **m, void *l) { *m = l; return context ? OK : INVALID_CONTEXT; }
int cuLibraryUnload(void *l) { __atomic_add_fetch(&stub_seen.unloads, 1, __ATOMIC_SEQ_CST); return OK; }
int cuLibraryGetKernel(void **k, const char *image, const char *name) {
  size_t size = *(uint64_t *)(image + 40) + 64 * (size_t) * (uint16_t *)(image + 60);
  if (image[0] != '\177') { *k = (void *)0x4000; return strstr(image, name) ? OK : NOT_FOUND; }
  char *at = memmem(image, size, name, strlen(name) + 1);
  if (!at) return NOT_FOUND; /* names may be tails of longer ones */
  *k = at;
  return OK;
}
int cuKernelGetAttribute(int *v, int which, void *k, int d) { *v = which == MAX_DYNAMIC_SHARED ? limit : 1; return OK; }
int cuKernelSetAttribute(int which, int v, void *k, int d) {
  if (which != MAX_DYNAMIC_SHARED) return OK;
  if (v > 232448) return INVALID_VALUE;
  limit = v;
  stub_seen.limits_set++;
  return OK;
}
int cuKernelGetParamInfo(void *k, size_t i, size_t *offset, size_t *size) {
  if (!~told) return NOT_SUPPORTED;
  if (i >= told) return INVALID_VALUE;
  *offset = offsets[i], *size = sizes[i];
  return OK;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int block, size_t shared) {
  *n = 2048 / block;
  return OK;
}

int cuLaunchKernelEx(const config *c, void *f, void **table, void **extra) {
  if (!context) return INVALID_CONTEXT;
  if (answer) return answer;
  if (c->shared > (unsigned)limit) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  stub_seen.stream = (uintptr_t)c->stream, stub_seen.function = (uintptr_t)f;
  memcpy(stub_seen.grid, c->grid, 12), memcpy(stub_seen.block, c->block, 12);
  stub_seen.shared = c->shared, stub_seen.attrs = c->count;
  for (unsigned i = 0; i < c->count && i < 8; i++)
    stub_seen.ids[i] = c->attrs[i].id, memcpy(stub_seen.values[i], c->attrs[i].value, 16);
  for (unsigned i = 0, at = 0; i < params; at += sizes[i++]) memcpy(stub_seen.bytes + at, table[i], sizes[i]);
  stub_seen.launches++;
  pthread_mutex_unlock(&lock);
  return OK;
}
/* As cuda.core launches: without attributes. */
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **table, void **extra) {
  config c = {{gx, gy, gz}, {bx, by, bz}, shared, stream, 0, 0};
  return cuLaunchKernelEx(&c, f, table, extra);
}

int cuGetErrorName(int code, const char **text) {
  *text = code == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
          : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return OK;
}
int cuGetErrorString(int code, const char **text) { *text = "as the stand-in says"; return OK; }

int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status) {
  Dl_info here;
  dladdr((void *)cuInit, &here);
  void *self = dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_NOW), *got = dlsym(self, symbol);
  *found = got ? got : (void *)nope;
  if (status) *status = 0;
  return OK;
}
int cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, found, version, flags, NULL);
}
