/* Calls functions of cuDNN's parts, to which it is linked in the place of libcudnn.so.9, and compares what they give
 * with what follows from their arguments. `parts opened` finds functions in each part that it opens instead;
 * `parts versions` tells the library's version twice: before it uses the GPU, and when it does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int);
/* libcudnn_graph.so.9 */
extern size_t cudnnGetVersion(void);
extern int cudnnGetProperty(int, int *);
extern int cudnnCreate(void **), cudnnDestroy(void *);
/* libcudnn_ops.so.9 */
extern int cudnnCreateTensorDescriptor(void **), cudnnSetTensor4dDescriptor(void *, int, int, int, int, int, int),
    cudnnCreateFilterDescriptor(void **), cudnnSetFilter4dDescriptor(void *, int, int, int, int, int, int);
/* libcudnn_cnn.so.9 */
extern int cudnnCreateConvolutionDescriptor(void **),
    cudnnSetConvolution2dDescriptor(void *, int, int, int, int, int, int, int, int),
    cudnnConvolutionForward(void *, const void *, void *, const void *, void *, const void *, void *, int, void *,
                            size_t, const void *, void *, void *);
/* libcudnn_adv.so.9 */
extern int cudnnCreateCTCLossDescriptor(void **), cudnnSetCTCLossDescriptor(void *, int),
    cudnnGetCTCLossDescriptor(void *, int *);

enum { FLOAT = 0, DOUBLE = 1, NCHW = 0, CROSS_CORRELATION = 1, TO_DEVICE = 1, TO_HOST = 2, SIDE = 4 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (call);                                                                                          \
        if (status_) {                                                                                                 \
            printf("error %d of %s\n", status_, #call);                                                                \
            exit(7);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *on_device(const float *values, size_t count)
{
    void *made;
    CHECK(cudaMalloc(&made, count * sizeof *values));
    CHECK(cudaMemcpy(made, values, count * sizeof *values, TO_DEVICE));
    return made;
}

static void *tensor(int side)
{
    void *desc;
    CHECK(cudnnCreateTensorDescriptor(&desc));
    CHECK(cudnnSetTensor4dDescriptor(desc, NCHW, FLOAT, 1, 1, side, side));
    return desc;
}

/* A filter of 2 by 2 over an image. */
static void convolve(void)
{
    const float filter[4] = {1, 10, 100, 1000}, one = 1, zero = 0;
    float image[SIDE * SIDE], result[(SIDE - 1) * (SIDE - 1)] = {0};
    for (int i = 0; i < SIDE * SIDE; i++)
        image[i] = (float)(i % 7);
    void *handle, *filter_desc, *convolution, *at = on_device(result, (SIDE - 1) * (SIDE - 1));
    CHECK(cudnnCreate(&handle));
    CHECK(cudnnCreateFilterDescriptor(&filter_desc));
    CHECK(cudnnSetFilter4dDescriptor(filter_desc, FLOAT, NCHW, 1, 1, 2, 2));
    CHECK(cudnnCreateConvolutionDescriptor(&convolution));
    CHECK(cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, CROSS_CORRELATION, FLOAT));
    CHECK(cudnnConvolutionForward(handle, &one, tensor(SIDE), on_device(image, SIDE * SIDE), filter_desc,
                                  on_device(filter, 4), convolution, 0, NULL, 0, &zero, tensor(SIDE - 1), at));
    CHECK(cudaMemcpy(result, at, sizeof result, TO_HOST));
    CHECK(cudnnDestroy(handle));
    for (int y = 0; y < SIDE - 1; y++)
        for (int x = 0; x < SIDE - 1; x++) {
            const float *i = image + y * SIDE + x, wanted = i[0] + 10 * i[1] + 100 * i[SIDE] + 1000 * i[SIDE + 1];
            if (result[y * (SIDE - 1) + x] != wanted) {
                printf("%g at %d %d, not %g\n", result[y * (SIDE - 1) + x], y, x, wanted);
                exit(8);
            }
        }
}

static void keep_a_setting(void)
{
    void *desc;
    int type = FLOAT;
    CHECK(cudnnCreateCTCLossDescriptor(&desc));
    CHECK(cudnnSetCTCLossDescriptor(desc, DOUBLE));
    CHECK(cudnnGetCTCLossDescriptor(desc, &type));
    CHECK(type != DOUBLE);
}

/* Opens a part, and asks it for one of its own functions, by its version, and for the library's version. */
static void open_part(const char *part, const char *create)
{
    void *file = dlopen(part, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        printf("%s\n", dlerror());
        exit(9);
    }
    int (*of_version)(void **) = (int (*)(void **))dlvsym(file, create, part);
    size_t (*version)(void) = (size_t(*)(void))dlsym(file, "cudnnGetVersion");
    Dl_info of_part, of_library;
    void *made = NULL, *whole = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!of_version || !version || !whole || !dladdr((void *)of_version, &of_part) ||
        !dladdr(dlsym(whole, create), &of_library)) {
        printf("%s: %s\n", part, dlerror());
        exit(10);
    }
    CHECK(of_version(&made));
    printf("%s %zu %s %s\n", part, version(), strrchr(of_part.dli_fname, '/') + 1,
           strrchr(of_library.dli_fname, '/') + 1);
}

static void tell_version(void)
{
    int parts[3];
    for (int i = 0; i < 3; i++)
        CHECK(cudnnGetProperty(i, &parts[i]));
    printf("%zu %d.%d.%d\n", cudnnGetVersion(), parts[0], parts[1], parts[2]);
}

static void tell_versions(void)
{
    void *memory;
    tell_version();
    CHECK(cudaMalloc(&memory, 4));
    tell_version();
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "versions")) {
        tell_versions();
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "opened")) {
        open_part("libcudnn_graph.so.9", "cudnnCreate");
        open_part("libcudnn_ops.so.9", "cudnnCreateTensorDescriptor");
        open_part("libcudnn_cnn.so.9", "cudnnCreateConvolutionDescriptor");
        open_part("libcudnn_adv.so.9", "cudnnCreateCTCLossDescriptor");
        return 0;
    }
    convolve();
    keep_a_setting();
    printf("version %zu\n", cudnnGetVersion());
    return 0;
}
