// Opens a library (the first argument) after its own use of the shared runtime, calls a function of it (the second) with
// 4 KiB of zeroes and the number 2, and prints what that returned and whether the runtime still works. The library may be
// absent: exit status 77.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static char zeroes[4096];
    void *memory;
    if (argc < 3 || cudaMalloc(&memory, 4096) != cudaSuccess)
        return 1;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 77;
    int (*function)(void *, int) = (int (*)(void *, int))dlsym(library, argv[2]);
    if (!function)
        return 1;
    printf("%s %d\n", argv[2], function(zeroes, 2));
    printf("cudaFree %d\n", (int)cudaFree(memory));
    return 0;
}
