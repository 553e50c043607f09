#include "cpu/client/cuda/host_param.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/cuda/library.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

_Static_assert(FLYT_WINDOW_BASE >> 44 == 2 &&
                   (FLYT_WINDOW_BASE + FLYT_WINDOW_DEVICES * FLYT_WINDOW_BYTES - 1) >> 44 == 2,
               "the window is what begins with 2");

uint64_t flyt_host_param_lowest = 1ull << 16;

struct word {
    uint64_t kernel_id, sequence, address;
    uint32_t offset_bytes;
};

static struct {
    pthread_mutex_t mutex;
    struct word words[FLYT_HOST_PARAMS_MAX];
} noted = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A program that is linked to a fixed place has its heap behind it. With any other, sizes and counts are below all of
 * its memory. */
void flyt_host_param_init(void)
{
    uint64_t program = getauxval(AT_PHDR) & ~0xfffull;
    if (program >= 1 << 16)
        flyt_host_param_lowest = program >> 32 ? 1ull << 32 : program;
}

/* Of a few places for the kernel's words the same one, a free one, or the oldest. */
static struct word *place_locked(uint64_t kernel_id, uint32_t offset_bytes)
{
    enum { PLACES = 8 };
    uint64_t mixed = (kernel_id ^ (uint64_t)offset_bytes << 32) * 0x9e3779b97f4a7c15ull;
    struct word *best = NULL;
    for (unsigned i = 0; i < PLACES; i++) {
        struct word *one = &noted.words[((mixed >> 32) + i) % FLYT_HOST_PARAMS_MAX];
        if (one->kernel_id == kernel_id && one->offset_bytes == offset_bytes)
            return one;
        if (!best || one->sequence < best->sequence)
            best = one;
    }
    return best;
}

void flyt_host_param_note(const struct flyt_kernel *kernel, const void *params, uint64_t sequence)
{
    pthread_mutex_lock(&noted.mutex);
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        const struct flyt_kernel_param_place *param = &kernel->params[i];
        uint32_t end = param->offset_bytes + param->bytes;
        for (uint32_t at = (param->offset_bytes + 7) / 8 * 8; at + 8 <= end; at += 8) {
            uint64_t address;
            memcpy(&address, (const char *)params + at, sizeof address);
            if (flyt_host_param_may_be(address))
                *place_locked(kernel->kernel_id, at) = (struct word){kernel->kernel_id, sequence, address, at};
        }
    }
    pthread_mutex_unlock(&noted.mutex);
}

/* ---- telling ---- */

/* What is at the address, by the kernel's list; NULL: nothing that a program could use. */
static const char *kind_of_mapping(uint64_t address)
{
    const char *kind = NULL;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !kind && fgets(line, sizeof line, maps)) {
        uint64_t first, end;
        char rights[5], name[256] = "";
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %255s", &first, &end, rights, name) < 3)
            continue; /* the rest of a long line */
        if (address < first || address >= end)
            continue;
        if (rights[0] != 'r' && rights[1] != 'w')
            break;
        kind = !strcmp(name, "[heap]")              ? "memory of the program's heap"
               : !strncmp(name, "[stack", 6)        ? "memory of the program's stack"
               : name[0] == '/' && rights[1] != 'w' ? "constants or mapped files of the program"
               : name[0] == '/'                     ? "variables or mapped files of the program"
                                                    : "ordinary memory of the program (malloc, mmap)";
    }
    if (maps)
        fclose(maps);
    return kind;
}

static const char *kind_of(uint64_t address)
{
    struct flyt_range range;
    if (!flyt_range_find(address, &range))
        return kind_of_mapping(address);
    switch (range.kind) {
    case FLYT_RANGE_HOST_ALLOC:
        return "pinned memory of the program";
    case FLYT_RANGE_HOST_REGISTERED:
        return "registered memory of the program";
    default:
        return NULL;
    }
}

static void tell(const struct word *word)
{
    const char *kind = kind_of(word->address);
    const struct flyt_kernel *kernel = kind ? flyt_kernel_find(word->kernel_id, NULL) : NULL;
    uint32_t index = 0;
    if (!kernel)
        return;
    while (index < kernel->param_count &&
           word->offset_bytes >= kernel->params[index].offset_bytes + kernel->params[index].bytes)
        index++;
    if (index == kernel->param_count)
        return;
    flyt_warn(
        "kernel %s was given the address of %s, which a GPU cannot reach through Flyt: parameter=%u offset_bytes=%u",
        kernel->name, kind, index, word->offset_bytes - kernel->params[index].offset_bytes);
}

void flyt_host_param_tell(CUresult result, uint64_t completed)
{
    struct word words[FLYT_HOST_PARAMS_MAX];
    if (result != CUDA_ERROR_ILLEGAL_ADDRESS && result != CUDA_ERROR_INVALID_ADDRESS_SPACE &&
        result != CUDA_ERROR_LAUNCH_FAILED)
        return;
    pthread_mutex_lock(&noted.mutex);
    memcpy(words, noted.words, sizeof words);
    pthread_mutex_unlock(&noted.mutex);
    for (unsigned i = 0; i < FLYT_HOST_PARAMS_MAX; i++)
        if (words[i].kernel_id && words[i].sequence > completed)
            tell(&words[i]);
}
