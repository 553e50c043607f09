// Asks for a core dump of the GPU, and lets a kernel fault. What it holds on the GPU is told by arguments:
//   dumped HOW FILE BYTES WORD
// HOW: "set" (the context's attributes), "flag" (a context made for it), "environment" (neither: variables say it),
// "skip" (as "set", without global memory). FILE is the file that it names; "-": none. BYTES of memory, the first word of
// which is WORD. It prints "ready", then faults when a line comes, and prints what the runtime says of that.
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

static int set(CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    return cuCoredumpSetAttribute(attribute, (void *)value, &bytes);
}

static void ask(const char *how, const char *file)
{
    bool is_on = true;
    int flags = CU_COREDUMP_SKIP_GLOBAL_MEMORY | CU_COREDUMP_SKIP_ABORT;
    char name[1024];
    size_t bytes = sizeof name;

    if (!strcmp(how, "skip"))
        check("flags", set(CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags));
    if (strcmp(file, "-")) {
        check("file", set(CU_COREDUMP_FILE, file, strlen(file) + 1));
        check("name", cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &bytes));
        check("another name", strcmp(name, file));
    }
    if (!strcmp(how, "set") || !strcmp(how, "skip"))
        check("enable", set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, sizeof is_on));
}

int main(int argc, char **argv)
{
    CUcontext context;
    unsigned word = (unsigned)strtoul(argv[4], NULL, 0);
    void *memory;

    check("init", cuInit(0));
    if (!strcmp(argv[1], "flag"))
        check("create", cuCtxCreate(&context, NULL, CU_CTX_COREDUMP_ENABLE, 0));
    else
        check("free", cudaFree(NULL));
    ask(argv[1], argv[2]);
    check("malloc", cudaMalloc(&memory, strtoul(argv[3], NULL, 0)));
    check("copy", cudaMemcpy(memory, &word, sizeof word, cudaMemcpyHostToDevice));
    puts("ready");
    fflush(stdout);
    getchar();
    fault<<<1, 1>>>((int *)16);
    printf("fault %d\n", (int)cudaDeviceSynchronize());
    fflush(stdout);
    getchar();
    return 0;
}
