/*
 * ptx-bench: how many thread instructions per second of CPU time the PTX engine executes, by kind of code. Prints one
 * line each; takes the number of worker threads as optional argument (default: one).
 */
#include "cpu/softgpu/ptx/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Each kernel runs its body `n` times in each thread; %rd1 is the thread's place in an array of 8-byte elements. */
#define KERNEL(name, body)                                                                                             \
    ".visible .entry " name "(.param .u64 p, .param .u32 n) {\n"                                                       \
    ".reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %fd<16>;\n"                    \
    "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];\n"                                                                 \
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"               \
    "mul.wide.u32 %rd2, %r5, 8; add.s64 %rd1, %rd1, %rd2; mov.u32 %r6, %r5; cvt.rn.f32.s32 %f1, %r5;\n"                \
    "mov.f32 %f2, 0f3F000000; cvt.f64.f32 %fd1, %f1; mov.f64 %fd2, 0d3FE0000000000000;\n"                              \
    "LOOP:\n" body "sub.s32 %r1, %r1, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra LOOP;\n"                                    \
    "st.global.u32 [%rd1], %r6; st.global.f32 [%rd1+4], %f1; ret; }\n"

#define EIGHT(x) x x x x x x x x

static const char text[] = ".version 8.0\n.target sm_75\n.address_size 64\n" KERNEL(
    "integer", EIGHT("mad.lo.s32 %r6, %r6, 1664525, 1013904223; shr.u32 %r7, %r6, 7; xor.b32 %r6, %r6, %r7;\n"))
    KERNEL("f32", EIGHT("fma.rn.f32 %f1, %f1, %f2, %f2; add.f32 %f1, %f1, %f2; mul.f32 %f1, %f1, %f2;\n"))
        KERNEL("f64", EIGHT("fma.rn.f64 %fd1, %fd1, %fd2, %fd2; add.f64 %fd1, %fd1, %fd2; mul.f64 %fd1, %fd1, %fd2;\n"))
            KERNEL("special", EIGHT("ex2.approx.f32 %f1, %f1; sin.approx.f32 %f1, %f1;\n")) KERNEL(
                "memory", EIGHT("ld.global.u32 %r7, [%rd1]; add.s32 %r7, %r7, %r6; st.global.u32 [%rd1], %r7;\n"))
                KERNEL("divergent",
                       "and.b32 %r8, %r4, 1; setp.eq.s32 %p2, %r8, 0; @%p2 bra EVEN;\n"
                       "mad.lo.s32 %r6, %r6, 1664525, 7; shr.u32 %r7, %r6, 7; xor.b32 %r6, %r6, %r7; bra JOIN;\n"
                       "EVEN: mad.lo.s32 %r6, %r6, 1013904223, 3; shr.u32 %r7, %r6, 5; xor.b32 %r6, %r6, %r7;\n"
                       "JOIN:\n");

/* %rd3 is a texture; each thread fetches from its own place of it. */
static const char texture_text[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry fetch(.param .u64 p, .param .u32 n, .param .u64 t) {\n"
    ".reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;\n"
    "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u64 %rd3, [t];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "mul.wide.u32 %rd2, %r5, 8; add.s64 %rd1, %rd1, %rd2; cvt.rn.f32.u32 %f1, %r4; cvt.rn.f32.u32 %f2, %r2;\n"
    "LOOP:\n"
    "tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd3, {%f1, %f2}]; add.f32 %f8, %f8, %f4;\n"
    "sub.s32 %r1, %r1, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra LOOP;\n"
    "st.global.f32 [%rd1], %f8; ret; }\n";

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

enum { IMAGE_SIZE = 256, FETCHES = 1000 };

/* A texture of IMAGE_SIZE × IMAGE_SIZE texels of floats. */
static struct flyt_ptx_object make_texture(void *pixels, unsigned channels, CUfilter_mode filter)
{
    return (struct flyt_ptx_object){
        .image = {.format = CU_AD_FORMAT_FLOAT,
                  .channels = channels,
                  .texel_bytes = 4 * channels,
                  .level_count = 1,
                  .levels = {{(uint64_t)(uintptr_t)pixels, IMAGE_SIZE, IMAGE_SIZE, 1, IMAGE_SIZE * 4ull * channels,
                              IMAGE_SIZE * IMAGE_SIZE * 4ull * channels}}},
        .address_modes = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP},
        .filter = filter,
        .is_integer = true,
    };
}

static bool bench_textures(struct flyt_ptx_harness *harness, void *memory)
{
    static const struct {
        const char *name;
        unsigned channels;
        CUfilter_mode filter;
    } runs[] = {{"point", 1, CU_TR_FILTER_MODE_POINT},
                {"linear", 1, CU_TR_FILTER_MODE_LINEAR},
                {"linear4", 4, CU_TR_FILTER_MODE_LINEAR}};
    void *pixels = flyt_ptx_harness_alloc(harness, IMAGE_SIZE * IMAGE_SIZE * 16);
    static _Atomic(const struct flyt_ptx_object *) slots[2];

    if (flyt_ptx_harness_load(harness, texture_text) != CUDA_SUCCESS) {
        fprintf(stderr, "ptx-bench: %s\n", harness->diag.text);
        return false;
    }
    harness->objects.slots = slots;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        static struct flyt_ptx_object texture;
        double start, took;

        texture = make_texture(pixels, runs[i].channels, runs[i].filter);
        slots[1] = &texture;
        start = seconds();
        if (FLYT_PTX_RUN(harness, "fetch", 32, 256, (uint64_t)(uintptr_t)memory, FETCHES, 1) != CUDA_SUCCESS)
            return false;
        took = seconds() - start;
        printf("%-10s %8.1f million fetches/s per core\n", runs[i].name, 32.0 * 256 * FETCHES / took / 1e6);
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *kernel;
        uint32_t loops;
    } runs[] = {{"integer", 20000}, {"f32", 20000},   {"f64", 10000},
                {"special", 300},   {"memory", 5000}, {"divergent", 20000}};
    unsigned workers = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    static struct flyt_ptx_harness harness;
    void *memory;

    flyt_ptx_harness_init(&harness, workers ? workers : 1);
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS) {
        fprintf(stderr, "ptx-bench: %s\n", harness.diag.text);
        return 1;
    }
    memory = flyt_ptx_harness_alloc(&harness, 64 * 256 * 8);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        double start = seconds(), took;
        CUresult result = FLYT_PTX_RUN(&harness, runs[i].kernel, 32, 256, (uint64_t)(uintptr_t)memory, runs[i].loops);

        took = seconds() - start;
        if (result != CUDA_SUCCESS) {
            fprintf(stderr, "ptx-bench: %s ended with %d\n", runs[i].kernel, (int)result);
            return 1;
        }
        printf("%-10s %8.0f million thread-instructions/s per core\n", runs[i].kernel,
               (double)harness.counts.thread_instructions / took / 1e6);
    }
    if (!bench_textures(&harness, memory))
        return 1;
    flyt_ptx_harness_fini(&harness);
    return 0;
}
