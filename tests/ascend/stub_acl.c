/* A stand-in for libascendcl.so, compiled against the vendor's own header so that no signature can drift.
 *
 * It launches nothing. It keeps one line a call in a text that the test reads, and refuses what the runtime
 * refuses (read from the runtime's public source): bytes that are no AI core ELF, an unknown magic, a magic for
 * LoadFromFile, a path that is not absolute, an unknown kernel, no blocks, unloading or launching in another
 * context. As little as the runtime, it compares the object with the device, or counts argument bytes.
 *
 * -DWITHOUT_DATA leaves out aclrtBinaryLoadFromData and aclrtLaunchKernelWithHostArgs, as CANN 8.1 does.
 * -DWITHOUT_ARGUMENTS leaves out aclrtKernelArgs* and aclrtLaunchKernelWithConfig, which no release does.
 */
#include "acl/acl_rt.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <elf.h>

enum { MOST = 256, PARAM_INVALID = 107000, CONTEXT_NULL = 107002, INVALID_DEVICE = 107001, INVALID_HANDLE = 107017 };

typedef struct { int used; unsigned char *data; size_t size; uintptr_t context; uint32_t magic; } Binary;
typedef struct { int used; int binary; char name[512]; } Function;
typedef struct { int used; int done; unsigned char bytes[8192]; size_t size; } Args;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 20], message[512], soc[64] = "Ascend910B1";
static size_t length;
static Binary binaries[MOST];
static Function functions[MOST];
static Args args_of[MOST];
static int initialized, devices = 2, npu_arch = 2201, fail_code;
static char fail_call[64];
static uintptr_t epoch; /* handles of before a reset stay unknown */
static __thread int device = -1;
static __thread uintptr_t context;

#define FIRST_CONTEXT 0xC0

/* --- for the test -------------------------------------------------------------------------------- */

const char *stub_text(void) { return text; }
int stub_loaded(void) { int n = 0; for (int i = 1; i < MOST; i++) n += binaries[i].used; return n; }
void stub_soc(const char *name) { snprintf(soc, sizeof soc, "%s", name); }
void stub_devices(int count) { devices = count; }
void stub_npu_arch(int number) { npu_arch = number; }
void stub_fail(const char *call, int code) { snprintf(fail_call, sizeof fail_call, "%s", call); fail_code = code; }
void stub_leave(void) { device = -1; context = 0; }
void stub_reset(void) {
    epoch += 0x100000;
    length = 0; text[0] = 0; message[0] = 0; fail_call[0] = 0; initialized = 0; devices = 2; npu_arch = 2201;
    stub_soc("Ascend910B1"); stub_leave();
    for (int i = 0; i < MOST; i++) { free(binaries[i].data); memset(&binaries[i], 0, sizeof binaries[i]); }
    memset(functions, 0, sizeof functions);
    memset(args_of, 0, sizeof args_of);
}

/* --- helpers ------------------------------------------------------------------------------------- */

static void put(const char *format, ...) {
    va_list more;
    va_start(more, format);
    if (length < sizeof text - 1) {
        int n = vsnprintf(text + length, sizeof text - length, format, more);
        if (n > 0) length += (size_t)n < sizeof text - length ? (size_t)n : sizeof text - length - 1;
    }
    va_end(more);
}

static void put_hex(const unsigned char *data, size_t size) {
    for (size_t i = 0; i < size; i++) put("%02x", data[i]);
}

static int failing(const char *call) {
    if (strcmp(call, fail_call)) return 0;
    fail_call[0] = 0;
    snprintf(message, sizeof message, "EZ9999: told to fail\n\tby the test");
    return fail_code;
}

static aclError refuse(const char *why, int code) { snprintf(message, sizeof message, "EE1001: %s", why); return code; }

#define ENTER(name)                                                                                          \
    pthread_mutex_lock(&lock);                                                                                \
    aclError result = failing(name);                                                                          \
    if (result) { pthread_mutex_unlock(&lock); return result; }                                               \
    if (!initialized) { pthread_mutex_unlock(&lock); return ACL_ERROR_UNINITIALIZE; }
#define LEAVE pthread_mutex_unlock(&lock); return result

/* Whether a function of this name, or of one half of it, is in the object: the runtime's own rule. */
static int has_kernel(const Binary *b, const char *name) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)b->data;
    if (head->e_shoff > b->size || (size_t)head->e_shnum * sizeof(Elf64_Shdr) > b->size - head->e_shoff) return 0;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(b->data + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= head->e_shnum) continue;
        const Elf64_Shdr *names = &sections[sections[i].sh_link];
        if (sections[i].sh_offset + sections[i].sh_size > b->size || names->sh_offset + names->sh_size > b->size) return 0;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(b->data + sections[i].sh_offset);
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
            if (symbols[s].st_name >= names->sh_size || ELF64_ST_TYPE(symbols[s].st_info) != STT_FUNC) continue;
            if (ELF64_ST_BIND(symbols[s].st_info) != STB_GLOBAL || symbols[s].st_shndx == SHN_UNDEF) continue;
            char entry[512];
            snprintf(entry, sizeof entry, "%s", (const char *)(b->data + names->sh_offset + symbols[s].st_name));
            size_t n = strlen(entry);
            if (n > 8 && (!strcmp(entry + n - 8, "_mix_aic") || !strcmp(entry + n - 8, "_mix_aiv"))) entry[n - 8] = 0;
            if (!strcmp(entry, name)) return 1;
        }
    }
    return 0;
}

static aclError add_binary(const void *data, size_t size, uint32_t magic, const char *how, aclrtBinHandle *out) {
    const Elf64_Ehdr *head = data;
    if (!context) return refuse("current context null", CONTEXT_NULL);
    if (!data || size < sizeof *head || memcmp(data, ELFMAG, SELFMAG)) return refuse("not an ELF file", PARAM_INVALID);
    for (int i = 1; i < MOST; i++) {
        if (binaries[i].used) continue;
        binaries[i] = (Binary){1, malloc(size), size, context, magic};
        memcpy(binaries[i].data, data, size);
        *out = (void *)(epoch + 0xB000 + (uintptr_t)i);
        put("load %s size=%zu magic=%#x context=%#zx -> %d\n", how, size, magic, (size_t)context, i);
        return 0;
    }
    return refuse("too many", PARAM_INVALID);
}

static Binary *binary_of(aclrtBinHandle handle) {
    uintptr_t i = (uintptr_t)handle - epoch - 0xB000;
    return i > 0 && i < MOST && binaries[i].used ? &binaries[i] : NULL;
}

static Function *function_of(aclrtFuncHandle handle) {
    uintptr_t i = (uintptr_t)handle - epoch - 0xF000;
    return i > 0 && i < MOST && functions[i].used ? &functions[i] : NULL;
}

__attribute__((unused)) static aclError launch(const char *how, aclrtFuncHandle handle, uint32_t blocks, aclrtStream stream,
                       const aclrtLaunchKernelCfg *cfg, const void *data, size_t size) {
    Function *function = function_of(handle);
    if (!context) return refuse("current context null", CONTEXT_NULL);
    if (!function || !binaries[function->binary].used) return refuse("no such function", INVALID_HANDLE);
    if (binaries[function->binary].context != context) return refuse("function of another context", PARAM_INVALID);
    if (!blocks) return refuse("numBlocks must be positive", PARAM_INVALID);
    put("launch %s %s blocks=%u stream=%#zx attrs=", how, function->name, blocks, (size_t)stream);
    for (size_t i = 0; cfg && i < cfg->numAttrs; i++) {
        const aclrtLaunchKernelAttrValue *v = &cfg->attrs[i].value;
        unsigned long long number = 0;
        switch ((int)cfg->attrs[i].id) { /* each through its own member: that is what the runtime reads */
        case ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE: number = v->schemMode; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE: number = v->dynUBufSize; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE: number = v->engineType; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET: number = v->blockDimOffset; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH: number = v->isBlockTaskPrefetch; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP: number = v->isDataDump; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT: number = v->timeout; break;
        case ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US:
            number = v->timeoutUs.timeoutLow | (unsigned long long)v->timeoutUs.timeoutHigh << 32;
        }
        put("%s%d:%llu", i ? "," : "", (int)cfg->attrs[i].id, number);
    }
    put(" args=");
    put_hex(data, size);
    put("\n");
    return 0;
}

/* --- the runtime --------------------------------------------------------------------------------- */

aclError aclInit(const char *configPath) {
    int failed = failing("aclInit");
    if (failed) return failed;
    put("init %s\n", configPath ? configPath : "NULL");
    if (initialized++) return ACL_ERROR_REPEAT_INITIALIZE;
    return 0;
}

const char *aclGetRecentErrMsg(void) {
    static __thread char said[sizeof message];
    memcpy(said, message, sizeof said);
    message[0] = 0; /* read once, like the runtime's */
    return said;
}

const char *aclrtGetSocName(void) { return soc[0] ? soc : NULL; }

aclError aclrtGetDevice(int32_t *deviceId) {
    if (device < 0) return CONTEXT_NULL;
    *deviceId = device;
    return 0;
}

aclError aclrtGetDeviceCount(uint32_t *count) { ENTER("aclrtGetDeviceCount") *count = (uint32_t)devices; LEAVE; }

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    if ((int)attr != ACL_DEV_ATTR_NPU_ARCH || !npu_arch || (int)deviceId >= devices) return PARAM_INVALID;
    *value = npu_arch;
    return 0;
}

aclError aclrtSetDevice(int32_t deviceId) {
    ENTER("aclrtSetDevice")
    if (deviceId < 0 || deviceId >= devices) result = refuse("no such device", INVALID_DEVICE);
    else { device = deviceId; context = FIRST_CONTEXT + (uintptr_t)deviceId; put("device %d\n", deviceId); }
    LEAVE;
}

aclError aclrtGetCurrentContext(aclrtContext *out) {
    if (!context) return CONTEXT_NULL;
    *out = (void *)context;
    return 0;
}

aclError aclrtSetCurrentContext(aclrtContext given) {
    ENTER("aclrtSetCurrentContext")
    if (!given) result = refuse("context null", PARAM_INVALID);
    else {
        context = (uintptr_t)given;
        device = (int)((context - FIRST_CONTEXT) & 0xF); /* 0xD0 and up: more contexts of the same devices */
        put("context %#zx\n", (size_t)context);
    }
    LEAVE;
}

aclError aclrtSynchronizeDevice(void) { ENTER("aclrtSynchronizeDevice") put("synchronize\n"); LEAVE; }

#ifndef WITHOUT_DATA
aclError aclrtBinaryLoadFromData(const void *data, size_t size, const aclrtBinaryLoadOptions *options,
                                 aclrtBinHandle *binHandle) {
    uint32_t magic = 0;
    ENTER("aclrtBinaryLoadFromData")
    for (size_t i = 0; options && i < options->numOpt && !result; i++) {
        if (options->options[i].type != ACL_RT_BINARY_LOAD_OPT_MAGIC) result = refuse("unknown option", PARAM_INVALID);
        magic = options->options[i].value.magic;
        if (magic != ACL_RT_BINARY_MAGIC_ELF_AICORE && magic != ACL_RT_BINARY_MAGIC_ELF_VECTOR_CORE &&
            magic != ACL_RT_BINARY_MAGIC_ELF_CUBE_CORE)
            result = refuse("bad magic", PARAM_INVALID);
    }
    if (!result) result = add_binary(data, size, magic, "data", binHandle);
    LEAVE;
}

aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                       aclrtLaunchKernelCfg *cfg, void *hostArgs, size_t argsSize,
                                       aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum) {
    ENTER("aclrtLaunchKernelWithHostArgs")
    if (placeHolderArray || placeHolderNum) result = refuse("placeholders were not expected", PARAM_INVALID);
    else result = launch("hostargs", funcHandle, numBlocks, stream, cfg, hostArgs, argsSize);
    LEAVE;
}
#endif

aclError aclrtBinaryLoadFromFile(const char *binPath, aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle) {
    ENTER("aclrtBinaryLoadFromFile")
    char sidecar[4096];
    snprintf(sidecar, sizeof sidecar, "%.*s.json", (int)strlen(binPath) - 2, binPath);
    FILE *beside = fopen(sidecar, "rb"), *file = fopen(binPath, "rb");
    if (binPath[0] != '/') result = refuse("the path is not absolute", PARAM_INVALID);
    else if (options) result = refuse("LoadFromFile takes no magic", PARAM_INVALID);
    else if (!file) result = refuse("no such file", PARAM_INVALID);
    else {
        static unsigned char data[8 << 20];
        size_t size = fread(data, 1, sizeof data, file);
        result = add_binary(data, size, 0, beside ? "file+sidecar" : "file", binHandle);
    }
    if (file) fclose(file);
    if (beside) fclose(beside);
    LEAVE;
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char *kernelName, aclrtFuncHandle *funcHandle) {
    ENTER("aclrtBinaryGetFunction")
    Binary *b = binary_of(binHandle);
    if (!b) result = refuse("no such binary", INVALID_HANDLE);
    else if (!has_kernel(b, kernelName)) result = refuse("kernel not found", PARAM_INVALID);
    else {
        int i = 1;
        while (i < MOST && functions[i].used) i++;
        if (i == MOST) result = refuse("too many", PARAM_INVALID);
        else {
            functions[i].used = 1;
            functions[i].binary = (int)(b - binaries);
            snprintf(functions[i].name, sizeof functions[i].name, "%s", kernelName);
            *funcHandle = (void *)(epoch + 0xF000 + (uintptr_t)i);
            put("function %s\n", kernelName);
        }
    }
    LEAVE;
}

aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle) {
    ENTER("aclrtBinaryUnLoad")
    Binary *b = binary_of(binHandle);
    if (!b) result = refuse("no such binary", INVALID_HANDLE);
    else if (b->context != context) result = refuse("binary of another context", PARAM_INVALID);
    else { free(b->data); b->data = NULL; b->used = 0; put("unload %d\n", (int)(b - binaries)); }
    LEAVE;
}

#ifndef WITHOUT_ARGUMENTS
aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle) {
    ENTER("aclrtKernelArgsInit")
    if (!function_of(funcHandle)) result = refuse("no such function", INVALID_HANDLE);
    else {
        int i = 1;
        while (i < MOST && args_of[i].used) i++;
        if (i == MOST) result = refuse("too many", PARAM_INVALID);
        else { args_of[i] = (Args){1, 0, {0}, 0}; *argsHandle = (void *)(uintptr_t)(0xA000 + i); }
    }
    LEAVE;
}

aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void *param, size_t paramSize, aclrtParamHandle *paramHandle) {
    ENTER("aclrtKernelArgsAppend")
    Args *a = &args_of[(uintptr_t)argsHandle - 0xA000];
    size_t at = (a->size + 7) / 8 * 8; /* each parameter starts at a multiple of 8 here */
    if (at + paramSize > sizeof a->bytes) result = refuse("arguments too long", PARAM_INVALID);
    else { memcpy(a->bytes + at, param, paramSize); a->size = at + paramSize; *paramHandle = (void *)(uintptr_t)1; }
    LEAVE;
}

aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle) {
    ENTER("aclrtKernelArgsFinalize")
    args_of[(uintptr_t)argsHandle - 0xA000].done = 1;
    LEAVE;
}

aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                     aclrtLaunchKernelCfg *cfg, aclrtArgsHandle argsHandle, void *reserve) {
    ENTER("aclrtLaunchKernelWithConfig")
    Args *a = &args_of[(uintptr_t)argsHandle - 0xA000];
    if (reserve) result = refuse("reserve must be null", PARAM_INVALID);
    else if (!a->done) result = refuse("arguments not finalized", PARAM_INVALID);
    else result = launch("config", funcHandle, numBlocks, stream, cfg, a->bytes, a->size);
    a->used = 0;
    LEAVE;
}
#endif
