// Kernels in a shared library that is opened after CUDA has long been in use, closed, and opened again.
#include "check.h"
#include <dlfcn.h>

__global__ void own_kernel(int *p)
{
    p[threadIdx.x] = threadIdx.x + 1;
}

typedef int (*multiply_fn)(int *, int);

static int *values;

static void check_values(int factor)
{
    int back[32];

    CHECK(cudaMemcpy(back, values, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        EXPECT_EQ(back[i], (i + 1) * factor);
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *slash = strrchr(argv[0], '/');
    int factor = 1;

    snprintf(path, sizeof(path), "%.*s/libplugin.so", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    CHECK(cudaMalloc(&values, 32 * sizeof(int)));
    own_kernel<<<1, 32>>>(values);
    CHECK_LAUNCH();
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        multiply_fn multiply;

        EXPECT(library, "%s", dlerror());
        multiply = (multiply_fn)dlsym(library, "plugin_multiply");
        EXPECT(multiply, "%s", dlerror());
        /* Its variables are new each time. */
        EXPECT_EQ(multiply(values, 3), 1);
        EXPECT_EQ(multiply(values, 2), 2);
        factor *= 6;
        check_values(factor);
        EXPECT(dlclose(library) == 0, "%s", dlerror());
    }
    own_kernel<<<1, 32>>>(values);
    CHECK_LAUNCH();
    check_values(1);
    CHECK(cudaFree(values));
    return 0;
}
