#include "control/node/gpu/soft_account.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/gpu/gpu.h"

enum { LINE_BYTES = 512 };

static const char *find(const char *line, const char *name)
{
    const char *at = strstr(line, name);

    return at ? at + strlen(name) : "";
}

/* Sums up a process's contexts on the GPU. False: it has none, or no account. */
static bool add_up(const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us, uint64_t *ret_memory_bytes)
{
    char path[512], line[LINE_BYTES];
    uint64_t busy_us = 0, memory_bytes = 0;
    bool is_there = false;

    snprintf(path, sizeof path, "%s/%d", getenv("FLYT_SOFT_ACCOUNT"), (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strtoul(find(line, " device="), NULL, 10) != gpu->index)
            continue;
        is_there = true;
        busy_us += strtoull(find(line, " busy_us="), NULL, 10);
        if (strtoul(find(line, " alive="), NULL, 10)) /* each has that of the whole device */
            memory_bytes = strtoull(find(line, " memory="), NULL, 10);
    }
    if (file)
        fclose(file);
    *ret_busy_us = busy_us;
    *ret_memory_bytes = memory_bytes;
    return is_there;
}

static bool busy(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us)
{
    uint64_t memory_bytes;

    return add_up(gpu, pid, ret_busy_us, &memory_bytes);
}

static bool memory(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_bytes)
{
    uint64_t busy_us;

    return add_up(gpu, pid, &busy_us, ret_bytes);
}

struct flyt_node_gpu_account flyt_node_soft_account(void)
{
    static const struct flyt_node_gpu_account_ops ops = {busy, memory};

    return (struct flyt_node_gpu_account){.ops = getenv("FLYT_SOFT_ACCOUNT") ? &ops : NULL};
}
