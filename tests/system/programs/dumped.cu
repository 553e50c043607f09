// Asks for a core dump of the GPU, and lets a kernel fault. What it holds on the GPU is told by arguments:
//   dumped HOW FILE BYTES WORD
// HOW: "set" (the process's attributes, before a context begins), "skip" (as "set", without global memory), "flag" (a
// context made for it), "flag after" (the same, after the runtime's context has memory), "environment" (variables say
// it), "late" (the context's attributes, when it has begun: nothing comes of it), "off" (as "set", and the context's is
// off again when work is to begin), "gone" (as "set"; it ends with the fault). FILE is the file that it names;
// "-": none. BYTES of memory, the first word of which is WORD. It prints "ready", then faults when a line comes, and
// prints what the runtime says of that.
// nvcc: -lcuda
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__global__ void fault(int *nowhere)
{
    *nowhere = 1;
}

static void check(const char *what, int code)
{
    if (!code)
        return;
    printf("%s: %d\n", what, code);
    fflush(stdout);
    _exit(3);
}

typedef CUresult set_fn(CUcoredumpSettings, void *, size_t *);

static int set(set_fn *fn, CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    return fn(attribute, (void *)value, &bytes);
}

static void ask(set_fn *fn, const char *how, const char *file)
{
    bool is_on = true, is_host = false;
    int flags = CU_COREDUMP_SKIP_ABORT;

    if (!strcmp(how, "skip"))
        flags |= CU_COREDUMP_SKIP_GLOBAL_MEMORY;
    check("host", set(fn, CU_COREDUMP_TRIGGER_HOST, &is_host, sizeof is_host));
    check("flags", set(fn, CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags));
    if (strcmp(file, "-"))
        check("file", set(fn, CU_COREDUMP_FILE, file, strlen(file) + 1));
    check("enable", set(fn, CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, sizeof is_on));
}

static bool is_one_of(const char *how, const char *one, const char *other, const char *third)
{
    return !strcmp(how, one) || !strcmp(how, other) || !strcmp(how, third);
}

int main(int argc, char **argv)
{
    CUcontext context;
    bool is_off = false;
    unsigned word = (unsigned)strtoul(argv[4], NULL, 0);
    void *memory;

    check("init", cuInit(0));
    if (is_one_of(argv[1], "set", "skip", "off") || !strcmp(argv[1], "gone"))
        ask(cuCoredumpSetAttributeGlobal, argv[1], argv[2]);
    if (!strcmp(argv[1], "flag after")) {
        check("free", cudaFree(NULL));
        check("first", cudaMalloc(&memory, 1));
    }
    if (!strncmp(argv[1], "flag", 4))
        check("create", cuCtxCreate(&context, NULL, CU_CTX_COREDUMP_ENABLE, 0));
    else
        check("free", cudaFree(NULL));
    if (!strcmp(argv[1], "late"))
        ask(cuCoredumpSetAttribute, argv[1], argv[2]);
    check("malloc", cudaMalloc(&memory, strtoul(argv[3], NULL, 0)));
    check("copy", cudaMemcpy(memory, &word, sizeof word, cudaMemcpyHostToDevice));
    if (!strcmp(argv[1], "off"))
        check("off", set(cuCoredumpSetAttribute, CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_off, sizeof is_off));
    puts("ready");
    fflush(stdout);
    getchar();
    fault<<<1, 1>>>((int *)16);
    if (!strcmp(argv[1], "gone"))
        _exit(cudaDeviceSynchronize() != 0); /* and unloads nothing */
    for (int i = 0; i < 6000 && !cudaDeviceSynchronize(); i++)
        usleep(10000); /* the driver tells of the fault when the dump is there */
    printf("fault %d\n", (int)cudaDeviceSynchronize());
    fflush(stdout);
    getchar();
    return 0;
}
