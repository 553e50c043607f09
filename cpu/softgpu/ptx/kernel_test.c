/*
 * Whole kernels as nvcc compiles them, for two architectures: control flow, calls, memory, faults, atomics, barriers,
 * progress. The kernels are in test_kernels.cu.
 */
#include "cpu/softgpu/ptx/test.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int *out; /* 8192 integers of device memory, zeroed before each test */

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define RUN(...)         assert_int_equal(FLYT_PTX_RUN(&harness, __VA_ARGS__), CUDA_SUCCESS)

static void control_flow_diverges_and_joins(void **state)
{
    int before[512];

    (void)state;
    RUN("collatz", 4, 128, ADDRESS(out));
    for (int i = 0; i < 512; i++) {
        int steps = 0;

        for (int n = i + 1; n != 1; steps++)
            n = n & 1 ? 3 * n + 1 : n / 2;
        assert_int_equal(out[i], steps);
    }
    for (int i = 0; i < 512; i++)
        before[i] = out[i] = i * 977 - 100000;
    RUN("choose", 4, 128, ADDRESS(out));
    for (int i = 0; i < 512; i++) {
        int x = before[i];
        int wanted[] = {x + 1,  x * 3, __builtin_popcount((unsigned)x), x / 7, x ^ 0x55,
                        x % 11, -x,    (int)((unsigned)x << 3),         99};

        assert_int_equal(out[i], wanted[i % 9]);
    }
}

static void calls_pass_values(void **state)
{
    static const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144};
    struct {
        int values[9];
        double weight;
    } pair = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, 50};
    struct flyt_ptx_launch launch = {
        .module = harness.module, .grid = {1, 1, 1}, .block = {64, 1, 1}, .memory = &harness.memory};
    char params[64];

    (void)state;
    RUN("recurse", 1, 100, ADDRESS(out));
    for (int i = 0; i < 100; i++)
        assert_int_equal(out[i], fibonacci[i % 13]);
    RUN("dispatch", 1, 100, ADDRESS(out));
    for (int i = 0; i < 100; i++)
        assert_int_equal(out[i], i * (i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 3));
    RUN("indirect", 1, 100, ADDRESS(out));
    for (int i = 0; i < 100; i++)
        assert_int_equal(out[i], i & 1 ? i * 5 : i + 5);

    while (strcmp(flyt_ptx_module_kernel(harness.module, launch.kernel_index)->name, "structures"))
        launch.kernel_index++;
    memcpy(params, &out, 8);
    memcpy(params + 8, &pair, sizeof pair);
    memcpy(params + 8 + sizeof pair, &(int){2}, 4);
    launch.params = params;
    assert_int_equal(flyt_ptx_launch_run(harness.pool, &launch, NULL), CUDA_SUCCESS);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], 7 * i + 25 + 3);
}

static void memory_spaces_hold_values(void **state)
{
    float *vectors = (float *)(out + 1024);
    short *narrow = (short *)(out + 4096);

    (void)state;
    RUN("variables", 1, 64, ADDRESS(out));
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], (1 << (i & 7)) + 10 * ((i & 3) + 1) + 30);
    RUN("local_array", 1, 64, ADDRESS(out), 7);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], ((i * 7) & 63) * i + (unsigned char)(((((i & 31) * 7) & 63)) * i));
    harness.dynamic_shared_bytes = 1024;
    RUN("shared_reverse", 2, 256, ADDRESS(out));
    harness.dynamic_shared_bytes = 0;
    for (int i = 0; i < 512; i++)
        assert_int_equal(out[i], 255 - (i & 255) + (i & 1 ? 0 : 1000));
    for (int i = 0; i < 256; i++) {
        vectors[i] = (float)i;
        narrow[i] = (short)(i - 40);
    }
    RUN("vectors", 1, 64, ADDRESS(vectors + 512), ADDRESS(vectors), ADDRESS(narrow));
    for (int i = 0; i < 256; i++)
        assert_true(vectors[512 + i] == (float)(i / 4 * 4 + 3 - i % 4));
    for (int i = 0; i < 64; i++)
        assert_int_equal(narrow[i], (i - 40) * -3);
    RUN("heap", 1, 64, ADDRESS(out));
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], i + 1);
}

static void faults_end_the_launch_only(void **state)
{
    (void)state;
#define FAULT(code, ...) assert_int_equal(FLYT_PTX_RUN(&harness, __VA_ARGS__), code)
    FAULT(CUDA_ERROR_ILLEGAL_ADDRESS, "store_at", 1, 32, 0);
    FAULT(CUDA_ERROR_ILLEGAL_ADDRESS, "store_at", 100, 32, ADDRESS(harness.base) + FLYT_PTX_HARNESS_BYTES);
    FAULT(CUDA_ERROR_ILLEGAL_ADDRESS, "store_at", 1, 1, ~3ull);
    FAULT(CUDA_ERROR_MISALIGNED_ADDRESS, "store_at", 1, 32, ADDRESS(out) + 2);
    FAULT(CUDA_ERROR_ILLEGAL_ADDRESS, "shared_beyond", 1, 32, ADDRESS(out), 1 << 20);
    FAULT(CUDA_ERROR_LAUNCH_FAILED, "overflow", 4, 64, ADDRESS(out));
    assert_int_equal(flyt_ptx_harness_run(&harness, "trapped", 1, 32, 0, NULL), CUDA_ERROR_ILLEGAL_INSTRUCTION);
    harness.text_bytes = 0;
    FAULT(CUDA_ERROR_ASSERT, "fail", 1, 2, 4);
    assert_non_null(strstr(harness.text, "block: [0,0,0], thread: [1,0,0] Assertion `n == 3` failed.\n"));
    RUN("fail", 1, 2, 3);
    harness.mapped[16] = 1; /* read-only */
    FAULT(CUDA_ERROR_ILLEGAL_ADDRESS, "store_at", 1, 32, ADDRESS(harness.base) + 16 * FLYT_PTX_HARNESS_GRANULE);
    harness.mapped[16] = 3;
    RUN("store_at", 1, 32, ADDRESS(out));
}

static void printf_formats_like_c(void **state)
{
    char wanted[512];

    (void)state;
    harness.text_bytes = 0;
    RUN("prints", 1, 1, 42);
    snprintf(wanted, sizeof wanted, "%d %5d|%-5d|%05d %x %#o %u %lld %c %s %% %5.2f %e %g %*d\n", 42, 42, 42, 42, 255,
             8, 4000000000u, 1ll << 40, 'z', "text", 3.14159, 1e10, 0.5, 6, 7);
    assert_string_equal(harness.text, wanted);
    for (int n = -70000; n <= 70000; n += 28000) {
        harness.text_bytes = 0;
        RUN("prints_narrow", 1, 1, (uint32_t)n);
        snprintf(wanted, sizeof wanted, "%hd|%hu|%hhd|%02hhx|%hX|%.*f|%*d|%.*d\n", (short)n, (unsigned short)n,
                 (signed char)n, (unsigned char)n, (unsigned short)n, -1, 2.5, -6, n, 8, n);
        assert_string_equal(harness.text, wanted);
    }
}

static void atomics_lose_nothing(void **state)
{
    enum { THREADS = 64 * 96 };
    unsigned *u = (unsigned *)out, exclusive = 0;
    int *s = out + 16, *bins = out + 64;
    unsigned long long *l = (unsigned long long *)(out + 24);
    float *f = (float *)(out + 32);
    double *d = (double *)(out + 34);
    unsigned char *in = (unsigned char *)(out + 256);

    (void)state;
    u[6] = ~0u;
    RUN("atomics", 64, 96, ADDRESS(u), ADDRESS(s), ADDRESS(l), ADDRESS(f), ADDRESS(d));
    for (unsigned i = 0; i < THREADS; i++)
        exclusive ^= i;
    assert_int_equal(u[0], THREADS);
    assert_int_equal(u[1], (unsigned)-2 * THREADS);
    assert_int_equal(u[2], THREADS % 10);
    assert_int_equal(u[3], THREADS - 1);
    assert_int_equal(u[4], ~0u);
    assert_int_equal(u[5], exclusive);
    assert_int_equal(u[6], ~0xffu);
    assert_int_equal(u[7], 3 * THREADS);
    assert_int_equal(s[0], 1 - THREADS);
    assert_int_equal(s[1], THREADS - 101);
    assert_true(l[0] == (unsigned long long)THREADS << 33 && l[1] == (unsigned long long)(THREADS - 1) << 32);
    assert_true(*f == THREADS * 0.5f && *d == THREADS * 0.25);
    for (unsigned i = 0; i < 4096; i++)
        in[i] = (unsigned char)(i * i);
    RUN("histogram", 16, 256, ADDRESS(bins), ADDRESS(in));
    for (unsigned i = 0; i < 4096; i++)
        bins[(i * i) & 15]--;
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(bins[i], 0);
}

static void warps_exchange_values(void **state)
{
    (void)state;
    RUN("shuffles", 1, 64, ADDRESS(out));
    for (int i = 0; i < 64; i++) {
        const int *mine = out + 8 * i;
        int lane = i & 31, ballot = 0, group = 0;

        for (int k = 0; k < 32; k++) {
            ballot |= (k % 3 == 0) << k;
            group |= (int)((unsigned)(k / 5 == lane / 5) << k);
        }
        assert_int_equal(mine[0], 50);
        assert_int_equal(mine[1], lane < 3 ? lane : lane - 3);
        assert_int_equal(mine[2], (lane & 7) < 4 ? lane + 4 : lane);
        assert_int_equal(mine[3], lane ^ 16);
        assert_int_equal(mine[4], ballot);
        assert_int_equal(mine[5], 1);
        assert_int_equal(mine[6], group);
        assert_int_equal(mine[7], lane & 1 ? 9 : 16);
    }
    RUN("tiles", 1, 64, ADDRESS(out));
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], i & 8 ? (i & ~7) * 8 + 28 : (i & ~7) + 2);
}

static void blocks_meet_at_barriers(void **state)
{
    (void)state;
    RUN("barriers", 1, 70, ADDRESS(out));
    for (int i = 0; i < 70; i++)
        assert_int_equal(out[i], 24 * 4 + 2 + 1 + (i < 64 ? 77 : 0));
}

static void *run_in_thread(void *argument)
{
    return (void *)(intptr_t)FLYT_PTX_RUN(&harness, "forever", 3, 64, ADDRESS(argument));
}

static void waiting_kernels_make_progress(void **state)
{
    pthread_t thread;
    void *result;

    (void)state;
    RUN("locked", 8, 96, ADDRESS(out));
    assert_int_equal(out[1], 8 * 96);
    harness.is_cooperative = true;
    RUN("grid_rounds", 40, 64, ADDRESS(out + 8), 4);
    harness.is_cooperative = false;
    assert_int_equal(out[8], 160);
    assert_int_equal(out[9], 0);
    RUN("look_back", 200, 64, ADDRESS(out + 16));
    assert_int_equal(out[16 + 199], 200);
    RUN("wait_for", 60, 32, ADDRESS(out + 512));
    /* one launch waits for another, and then for the host */
    for (int by_host = 0; by_host < 2; by_host++) {
        int *flag = out + 600 + by_host;

        assert_int_equal(pthread_create(&thread, NULL, run_in_thread, flag), 0);
        usleep(10000);
        if (by_host)
            __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        else
            RUN("raise_flag", 1, 1, ADDRESS(flag));
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, CUDA_SUCCESS);
    }
}

static void cancelling_ends_a_launch(void **state)
{
    atomic_bool cancel = true;
    uint64_t param = ADDRESS(out);
    struct flyt_ptx_launch launch = {.module = harness.module,
                                     .grid = {1000, 1, 1},
                                     .block = {64, 1, 1},
                                     .memory = &harness.memory,
                                     .params = &param,
                                     .cancel = &cancel};

    (void)state;
    while (strcmp(flyt_ptx_module_kernel(harness.module, launch.kernel_index)->name, "forever"))
        launch.kernel_index++;
    assert_int_equal(flyt_ptx_launch_run(harness.pool, &launch, NULL), CUDA_ERROR_LAUNCH_FAILED);
}

static int load(const char *path)
{
    flyt_ptx_harness_init(&harness, 2);
    harness.isa = test_isa;
    if (flyt_ptx_harness_load_file(&harness, path) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    out = flyt_ptx_harness_alloc(&harness, 8192 * sizeof *out);
    return 0;
}

static int load_75(void **state)
{
    (void)state;
    return load(PTX_TEST_FOLDER "/test_kernels_75.ptx");
}

static int load_90(void **state)
{
    (void)state;
    return load(PTX_TEST_FOLDER "/test_kernels_90.ptx");
}

static int clear(void **state)
{
    (void)state;
    memset(out, 0, 8192 * sizeof *out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(control_flow_diverges_and_joins, clear),
        cmocka_unit_test_setup(calls_pass_values, clear),
        cmocka_unit_test_setup(memory_spaces_hold_values, clear),
        cmocka_unit_test_setup(faults_end_the_launch_only, clear),
        cmocka_unit_test_setup(printf_formats_like_c, clear),
        cmocka_unit_test_setup(atomics_lose_nothing, clear),
        cmocka_unit_test_setup(warps_exchange_values, clear),
        cmocka_unit_test_setup(blocks_meet_at_barriers, clear),
        cmocka_unit_test_setup(waiting_kernels_make_progress, clear),
        cmocka_unit_test_setup(cancelling_ends_a_launch, clear),
    };

    return RUN_WITH_EACH_ISA(tests, load_75) + RUN_WITH_EACH_ISA(tests, load_90);
}
