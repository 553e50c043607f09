/*
 * How fast pages of device memory are hashed, by the server's own kernel through the driver API, all SMs and fewer; and
 * whether the GPU and the CPU agree.
 *
 * usage: page_hash [--soft] [--to GPU] [MIB] [ROUNDS]
 *        16384 MiB, 9 rounds. --soft: the software GPU, in ../lib as in a bundle. --to: copies go to another GPU's
 *        memory, which the first one can write.
 *
 * Prints "NAME VALUE UNIT" per figure: page_hash_N_sms (hashed in place, the results in host memory), page_copy_N_sms
 * (hashed and copied; each byte is read and written once, and counted once), page_copy_at_N_sms (the same, each page to
 * its place in a mirror of the memory), page_copy_scattered_N_sms (so of one page in 100, chosen at random),
 * page_hash_cpu (one thread). Medians of the rounds, by the GPU's clock. Exit status 1: an error, or a page of which
 * the two do not agree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/server/move/common/page_hasher.h"
#include "rpc/base/test_random.h"

enum {
    GRANULE = 2 << 20,
    SEED_MIB = 64,
    ROUNDS_MAX = 99,
    BATCHES_MAX = 64,
    SAMPLES = 512,
    GROUP_SMS = 8,
    SCATTER = 100
};

enum way { LOOK, COPY, COPY_AT, COPY_SCATTERED };

static struct flyt_driver driver;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != CUDA_SUCCESS) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: CUDA error %d\n", __FILE__, __LINE__, #call, (int)result_);                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct bench {
    uint64_t bytes, data, copies, work; /* addresses */
    unsigned rounds, batch_count;
    struct flyt_page_hasher hasher;
    struct flyt_page_batch batches[BATCHES_MAX];
    struct flyt_page_range ranges[BATCHES_MAX];
    struct flyt_page_hash_keys keys;
    struct flyt_page_range scattered[FLYT_PAGE_BATCH_PAGES_MAX]; /* one page in SCATTER of all memory */
    uint32_t scattered_count;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Memory of a device, for the first one. */
static uint64_t map(uint64_t bytes, int device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    CHECK(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK(driver.cuMemCreate(&handle, bytes, &properties, 0));
    CHECK(driver.cuMemMap(address, bytes, 0, handle, 0));
    CHECK(driver.cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

/* Random bytes, SEED_MIB of them again and again, and a number in each granule; some pages are zero. */
static void fill(struct bench *bench, CUstream stream)
{
    uint64_t x = TEST_RANDOM_SEED, seed_bytes = (uint64_t)SEED_MIB << 20;
    void *memory;
    if (seed_bytes > bench->bytes)
        seed_bytes = bench->bytes;
    CHECK(driver.cuMemHostAlloc(&memory, seed_bytes, 0));
    for (uint64_t i = 0; i < seed_bytes / 8; i++)
        ((uint64_t *)memory)[i] = test_random_next(&x);
    for (uint64_t at = 0; at < bench->bytes; at += seed_bytes) {
        uint64_t bytes = bench->bytes - at < seed_bytes ? bench->bytes - at : seed_bytes;
        CHECK(driver.cuMemcpyHtoDAsync(bench->data + at, memory, bytes, stream));
    }
    for (uint64_t at = 0; at < bench->bytes; at += GRANULE) {
        CHECK(driver.cuMemsetD32Async(bench->data + at + at / GRANULE % 1000 * 4, (unsigned)(at / GRANULE), 1, stream));
        CHECK(driver.cuMemsetD8Async(bench->data + at + 3 * FLYT_PAGE_BYTES, 0, FLYT_PAGE_BYTES, stream));
    }
    CHECK(driver.cuStreamSynchronize(stream));
    CHECK(driver.cuMemFreeHost(memory));
}

static uint64_t mirror_distance(const struct bench *bench)
{
    return bench->copies - bench->data;
}

static void submit(struct bench *bench, enum way way, unsigned sms, CUstream stream)
{
    if (way == COPY_SCATTERED) {
        CHECK(flyt_page_batch_copy_at(&bench->batches[0], bench->scattered, bench->scattered_count,
                                      mirror_distance(bench), sms, stream));
        return;
    }
    for (unsigned i = 0; i < bench->batch_count; i++) {
        struct flyt_page_batch *batch = &bench->batches[i];
        const struct flyt_page_range *range = &bench->ranges[i];
        if (way == COPY)
            CHECK(flyt_page_batch_copy(batch, range, 1, bench->copies + range->address - bench->data, sms, stream));
        else if (way == COPY_AT)
            CHECK(flyt_page_batch_copy_at(batch, range, 1, mirror_distance(bench), sms, stream));
        else
            CHECK(flyt_page_batch_look(batch, range, 1, sms, stream));
    }
}

static void measure(struct bench *bench, enum way way, unsigned sms, CUstream stream)
{
    static const char *const names[] = {"hash", "copy", "copy_at", "copy_scattered"};
    double rates[ROUNDS_MAX];
    uint64_t bytes = way == COPY_SCATTERED ? (uint64_t)bench->scattered_count * FLYT_PAGE_BYTES : bench->bytes;
    unsigned batch_count = way == COPY_SCATTERED ? 1 : bench->batch_count;
    CUevent begin, end;
    CHECK(driver.cuEventCreate(&begin, 0));
    CHECK(driver.cuEventCreate(&end, 0));
    submit(bench, way, sms, stream);
    for (unsigned round = 0; round < bench->rounds; round++) {
        float ms;
        /* A batch's addresses are written anew. */
        CHECK(driver.cuStreamSynchronize(stream));
        CHECK(driver.cuEventRecord(begin, stream));
        submit(bench, way, sms, stream);
        CHECK(driver.cuEventRecord(end, stream));
        CHECK(driver.cuStreamSynchronize(stream));
        CHECK(driver.cuEventElapsedTime(&ms, begin, end));
        rates[round] = (double)bytes / (double)ms / 1e6;
    }
    printf("page_%s_%u_sms %.4f GB/s\n", names[way], sms, median(rates, bench->rounds));
    fflush(stdout);
    for (unsigned i = 0; i < batch_count; i++)
        CHECK(flyt_page_batch_finish(&bench->batches[i]));
    CHECK(driver.cuEventDestroy(begin));
    CHECK(driver.cuEventDestroy(end));
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Of page n of the last submission. */
static void result_of(const struct bench *bench, enum way way, uint64_t n, struct flyt_page_hash *ret_hash,
                      bool *ret_is_zero)
{
    const struct flyt_page_batch *batch = &bench->batches[n / FLYT_PAGE_BATCH_PAGES_MAX];
    uint32_t page = (uint32_t)(n % FLYT_PAGE_BATCH_PAGES_MAX);
    if (way != LOOK) {
        struct flyt_page_sent sent = flyt_page_batch_sent(batch, page);
        *ret_hash = sent.hash;
        *ret_is_zero = sent.is_zero;
    } else {
        struct flyt_page_seen seen = flyt_page_batch_seen(batch, page);
        *ret_hash = seen.hash;
        *ret_is_zero = seen.is_zero;
    }
}

/* Pages all over the memory, among them the first, the last and zero ones. False: some differ. */
static bool verify(struct bench *bench, enum way way, CUstream stream)
{
    uint64_t pages = bench->bytes / FLYT_PAGE_BYTES, from = way == LOOK ? bench->data : bench->copies;
    unsigned wrong = 0, zeros = 0;
    uint32_t place = 0;
    double seconds = 0;
    void *page;
    CHECK(driver.cuMemHostAlloc(&page, FLYT_PAGE_BYTES, 0));
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t n = i == 0 ? pages - 1 : i % 8 == 1 ? i * 32 % pages + 3 : i * 2654435761ull % pages;
        if (way == COPY_SCATTERED) {
            place = i % bench->scattered_count;
            n = (bench->scattered[place].address - bench->data) / FLYT_PAGE_BYTES;
        }
        struct flyt_page_hash expected, hash;
        bool is_zero, is_expected_zero;
        CHECK(driver.cuMemcpyDtoHAsync(page, from + n * FLYT_PAGE_BYTES, FLYT_PAGE_BYTES, stream));
        CHECK(driver.cuStreamSynchronize(stream));
        seconds -= now_s();
        flyt_page_hash(&bench->keys, page, &expected, &is_expected_zero);
        seconds += now_s();
        result_of(bench, way, way == COPY_SCATTERED ? place : n, &hash, &is_zero);
        wrong += !flyt_page_hash_is_equal(&hash, &expected) || is_zero != is_expected_zero;
        zeros += is_zero;
    }
    CHECK(driver.cuMemFreeHost(page));
    if (way == LOOK)
        printf("page_hash_cpu %.4f GB/s\n", (double)SAMPLES * FLYT_PAGE_BYTES / seconds / 1e9);
    bool has_zeros = zeros || way == COPY_SCATTERED;
    if (wrong || !has_zeros)
        fprintf(stderr, "page_hash: of %u pages %u differ from the CPU's hash, %u are zero\n", (unsigned)SAMPLES, wrong,
                zeros);
    return !wrong && has_zeros;
}

/* In green contexts over ever fewer groups. */
static void measure_parts(struct bench *bench, CUdevice device)
{
    static const unsigned wanted[] = {64, 32, 16, 8};
    CUdevResource all, groups[64];
    unsigned count = sizeof groups / sizeof groups[0];
    CHECK(driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    if (driver.cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, GROUP_SMS) != CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CUdevResourceDesc desc;
        CUgreenCtx green;
        CUcontext context;
        CUstream stream;
        if (wanted[i] / GROUP_SMS > count)
            continue;
        CHECK(driver.cuDevResourceGenerateDesc(&desc, groups, wanted[i] / GROUP_SMS));
        CHECK(driver.cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(driver.cuCtxFromGreenCtx(&context, green));
        CHECK(driver.cuCtxSetCurrent(context));
        CHECK(driver.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        measure(bench, LOOK, wanted[i], stream);
        CHECK(driver.cuStreamSynchronize(stream));
        CHECK(driver.cuStreamDestroy(stream));
    }
}

/* One page of each SCATTER. */
static void scatter(struct bench *bench, uint64_t pages)
{
    uint64_t x = TEST_RANDOM_SEED;
    for (uint64_t first = 0; first < pages && bench->scattered_count < FLYT_PAGE_BATCH_PAGES_MAX; first += SCATTER) {
        uint64_t page = first + test_random_next(&x) % (pages - first < SCATTER ? pages - first : SCATTER);
        bench->scattered[bench->scattered_count++] = (struct flyt_page_range){bench->data + page * FLYT_PAGE_BYTES, 1};
    }
}

static void prepare(struct bench *bench, int target, CUstream stream)
{
    static const struct flyt_page_key key = {"page_hash bench"};
    uint64_t batch_bytes = (FLYT_PAGE_BATCH_BYTES(FLYT_PAGE_BATCH_PAGES_MAX) + 255) / 256 * 256;
    uint64_t pages = bench->bytes / FLYT_PAGE_BYTES;
    bench->batch_count = (unsigned)((pages + FLYT_PAGE_BATCH_PAGES_MAX - 1) / FLYT_PAGE_BATCH_PAGES_MAX);
    bench->data = map(bench->bytes, 0);
    bench->copies = map(bench->bytes, target);
    bench->work = map(FLYT_PAGE_HASHER_BYTES + bench->batch_count * batch_bytes, 0);
    scatter(bench, pages);
    fill(bench, stream);
    flyt_page_hash_prepare(&key, &bench->keys);
    CHECK(flyt_page_hasher_init(&bench->hasher, &driver, 0, &key, bench->work, stream));
    for (unsigned i = 0; i < bench->batch_count; i++) {
        uint64_t first = (uint64_t)i * FLYT_PAGE_BATCH_PAGES_MAX, count = pages - first;
        bench->ranges[i] =
            (struct flyt_page_range){bench->data + first * FLYT_PAGE_BYTES,
                                     count < FLYT_PAGE_BATCH_PAGES_MAX ? count : FLYT_PAGE_BATCH_PAGES_MAX};
        CHECK(flyt_page_batch_init(&bench->batches[i], &bench->hasher, FLYT_PAGE_BATCH_PAGES_MAX,
                                   bench->work + FLYT_PAGE_HASHER_BYTES + i * batch_bytes));
    }
    CHECK(driver.cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    static struct bench bench = {.bytes = 16384ull << 20, .rounds = 9};
    struct flyt_error err;
    CUcontext context;
    CUdevice device;
    CUdevResource all;
    CUgreenCtx green;
    CUdevResourceDesc desc;
    CUstream stream;
    int first = 1, target = 0;
    bool is_soft = first < argc && !strcmp(argv[first], "--soft");
    first += is_soft;
    if (first + 1 < argc && !strcmp(argv[first], "--to")) {
        target = atoi(argv[first + 1]);
        first += 2;
    }
    if (first < argc)
        bench.bytes = strtoull(argv[first], NULL, 10) << 20;
    if (first + 1 < argc)
        bench.rounds = (unsigned)strtoul(argv[first + 1], NULL, 10);
    if (bench.bytes < GRANULE || bench.bytes % GRANULE || !bench.rounds || bench.rounds > ROUNDS_MAX ||
        bench.bytes / FLYT_PAGE_BYTES > (uint64_t)BATCHES_MAX * FLYT_PAGE_BATCH_PAGES_MAX) {
        fprintf(stderr, "usage: page_hash [--soft] [--to GPU] [MIB, a multiple of 2 up to %u] [ROUNDS, up to %u]\n",
                BATCHES_MAX * 4096, (unsigned)ROUNDS_MAX);
        return 2;
    }
    if (flyt_driver_load(is_soft, &err, &driver)) {
        fprintf(stderr, "page_hash: %s\n", err.text);
        return 1;
    }
    driver.is_soft = false; /* the kernel, and not what stands in for it */
    CHECK(driver.cuInit(0));
    CHECK(driver.cuDeviceGet(&device, 0));
    CHECK(driver.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(driver.cuCtxSetCurrent(context));
    /* All SMs are a partition like any other. */
    CHECK(driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(driver.cuDevResourceGenerateDesc(&desc, &all, 1));
    CHECK(driver.cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(driver.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(driver.cuCtxFromGreenCtx(&context, green));
    CHECK(driver.cuCtxSetCurrent(context));
    prepare(&bench, target, stream);
    bool is_right = true;
    for (enum way way = LOOK; way <= COPY_SCATTERED; way++) {
        measure(&bench, way, all.sm.smCount, stream);
        is_right = verify(&bench, way, stream) && is_right;
    }
    measure_parts(&bench, device);
    return is_right ? 0 : 1;
}
