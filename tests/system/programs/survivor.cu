// Makes one of everything that a program can have on its GPU, and says on command whether all of it is still there.
// usage: survivor
//
// The first line is "ready". Then commands come on standard input, a line each, answered by a line each:
//
//   check     looks at every byte and uses every object: "right N" (the N-th time), or "wrong WHAT" and exit status 8
//   leave     gives its GPU a little work and does not wait for it: "left"
//   later     writes a constant by a copy that nobody waits for at once: "written"
//   address   asks for the address of a constant: "told"
//   end       also the end of input: gives everything back: "ended", exit status 0
//
// A CUDA error is "error CODE NAME WHERE" and exit status 7. Between commands it makes no CUDA call.
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#define CHECK(call) check((call), __LINE__)

enum {
    SMALL_COUNT = 400,               // allocations of many sizes
    NODES = 500,                     // of a list whose links are device addresses
    STREAMS = 6,                     // of the program, besides the default ones
    THREADS = 2,                     // with default streams of their own
    SHARED_BYTES = 48 * 1024 + 1024, // more dynamic shared memory than is allowed without an attribute
    STACK_BYTES = 4096,
    ROWS = 37,
    ROW_BYTES = 1001,
    WORDS = 700, // of constants that the host writes
    LARGE_BYTES = 24 << 20,
    ADDED_BYTES = 3 << 20, // in each round,
    ADDED_COUNT = 16       // of which so many stay
};

static void check(cudaError_t error, int line)
{
    if (error == cudaSuccess)
        return;
    printf("error %d %s line %d\n", (int)error, cudaGetErrorName(error), line);
    exit(7);
}

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("wrong ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    exit(8);
}

__host__ __device__ static unsigned char pattern(size_t i, unsigned seed)
{
    unsigned x = (unsigned)i * 2654435761u + seed * 40503u;
    return (unsigned char)(x >> 24 ^ x >> 9);
}

__global__ void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        bytes[i] = pattern(i, seed);
}

__global__ void compare(const unsigned char *bytes, size_t count, unsigned seed, unsigned *differ)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (bytes[i] != pattern(i, seed))
            atomicAdd(differ, 1u);
}

struct node {
    struct node *next;
    unsigned value;
};

__global__ void link_nodes(struct node **places, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        places[i]->next = i + 1 < count ? places[i + 1] : NULL;
        places[i]->value = i * 3 + 1;
    }
}

/* Follows addresses that only device memory holds. */
__global__ void walk_nodes(const struct node *first, unsigned *ret_sum)
{
    unsigned sum = 0;
    for (; first; first = first->next)
        sum += first->value;
    *ret_sum = sum;
}

extern __shared__ unsigned shared_words[];

__global__ void reverse_shared(unsigned *values, unsigned count)
{
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        shared_words[i] = values[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        values[i] = shared_words[count - 1 - i];
}

__global__ void add(unsigned *value, unsigned by)
{
    *value += by;
}

__constant__ unsigned words[WORDS] = {5, 6, 7};
__constant__ unsigned image_words[4] = {11, 22, 33, 44}; // nobody writes these

__global__ void add_constants(unsigned *ret_sums)
{
    for (unsigned i = threadIdx.x; i < WORDS; i += blockDim.x)
        ret_sums[i] = words[i] + image_words[i % 4];
}

// A second module, whose text is gone when it has been loaded.
static const char triple_ptx[] = ".version 7.0\n"
                                 ".target sm_75\n"
                                 ".address_size 64\n"
                                 ".visible .entry triple(.param .u64 place)\n"
                                 "{\n"
                                 "    .reg .u32 %r<3>;\n"
                                 "    .reg .u64 %d<2>;\n"
                                 "    ld.param.u64 %d0, [place];\n"
                                 "    cvta.to.global.u64 %d1, %d0;\n"
                                 "    ld.global.u32 %r0, [%d1];\n"
                                 "    mul.lo.u32 %r1, %r0, 3;\n"
                                 "    st.global.u32 [%d1], %r1;\n"
                                 "    ret;\n"
                                 "}\n";

struct block {
    unsigned char *bytes;
    size_t count;
    unsigned seed;
};

/* A thread of the program with its own default stream, which works when it is told. */
struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned asked, done;
    bool is_ending;
    unsigned *value; /* counts its rounds, on the device */
};

static struct {
    std::vector<block> blocks;
    unsigned char *pitched;
    size_t pitch_bytes;
    struct node *first_node;
    std::vector<struct node *> nodes;
    unsigned *sums, *numbers, *left;
    unsigned words[WORDS]; /* what the constants hold */
    unsigned left_count;
    cudaStream_t streams[STREAMS];
    cudaEvent_t old_event, plain_event, timed_event, idle_event;
    cudaLibrary_t library;
    cudaKernel_t triple;
    unsigned char *pinned, *registered;
    struct worker workers[THREADS];
    unsigned rounds;
    volatile unsigned called; /* by host functions */
} made;

static void note_call(void *user)
{
    made.called += *(const unsigned *)user;
}

// ---- making

static unsigned char *take(size_t bytes, unsigned seed, cudaStream_t stream)
{
    block b = {NULL, bytes, seed};
    CHECK(cudaMalloc(&b.bytes, bytes));
    fill<<<4, 64, 0, stream>>>(b.bytes, bytes, seed);
    CHECK(cudaGetLastError());
    made.blocks.push_back(b);
    return b.bytes;
}

static void make_streams(void)
{
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < STREAMS; i++) {
        unsigned flags = i % 2 ? cudaStreamNonBlocking : cudaStreamDefault;
        CHECK(cudaStreamCreateWithPriority(&made.streams[i], flags, i % 3 ? least : greatest));
    }
    CHECK(cudaEventCreate(&made.old_event));
    CHECK(cudaEventCreate(&made.timed_event));
    CHECK(cudaEventCreate(&made.idle_event));
    CHECK(cudaEventCreateWithFlags(&made.plain_event, cudaEventDisableTiming | cudaEventBlockingSync));
}

static void make_memory(void)
{
    for (unsigned i = 0; i < SMALL_COUNT; i++)
        take(1 + i * 97 % 5000, i, made.streams[i % STREAMS]);
    take(LARGE_BYTES, 7777, made.streams[0]);
    // Holes between what stays, and memory that was used before.
    for (int i = SMALL_COUNT - 1; i > 0; i -= 3) {
        CHECK(cudaFree(made.blocks[i].bytes));
        made.blocks.erase(made.blocks.begin() + i);
    }
    for (unsigned i = 0; i < SMALL_COUNT / 10; i++)
        take(3000 + i, 1000 + i, 0);
    CHECK(cudaMallocPitch(&made.pitched, &made.pitch_bytes, ROW_BYTES, ROWS));
    std::vector<unsigned char> rows(ROWS * ROW_BYTES);
    for (size_t i = 0; i < rows.size(); i++)
        rows[i] = pattern(i, 4242);
    CHECK(
        cudaMemcpy2D(made.pitched, made.pitch_bytes, rows.data(), ROW_BYTES, ROW_BYTES, ROWS, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&made.sums, 2 * sizeof(unsigned)));
    CHECK(cudaMalloc(&made.numbers, SHARED_BYTES));
    CHECK(cudaMalloc(&made.left, sizeof *made.left));
    CHECK(cudaMemset(made.left, 0, sizeof *made.left));
}

static void make_list(void)
{
    struct node **places;
    for (int i = 0; i < NODES; i++) {
        struct node *one;
        CHECK(cudaMalloc(&one, sizeof *one));
        made.nodes.push_back(one);
    }
    CHECK(cudaMalloc(&places, NODES * sizeof *places));
    CHECK(cudaMemcpy(places, made.nodes.data(), NODES * sizeof *places, cudaMemcpyHostToDevice));
    link_nodes<<<1, 1>>>(places, NODES);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(places));
    made.first_node = made.nodes[0];
}

static void make_host_memory(void)
{
    CHECK(cudaMallocHost(&made.pinned, LARGE_BYTES));
    made.registered =
        (unsigned char *)mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made.registered == MAP_FAILED)
        wrong("no host memory");
    CHECK(cudaHostRegister(made.registered, LARGE_BYTES, cudaHostRegisterDefault));
    for (size_t i = 0; i < LARGE_BYTES; i++)
        made.pinned[i] = pattern(i, 99);
}

static void make_module(void)
{
    char *text = strdup(triple_ptx);
    CHECK(cudaLibraryLoadData(&made.library, text, NULL, NULL, 0, NULL, NULL, 0));
    memset(text, '?', sizeof triple_ptx - 1);
    free(text);
    CHECK(cudaLibraryGetKernel(&made.triple, made.library, "triple"));
}

/* Writes `count` constants from `first` on. */
static void write_words(unsigned first, unsigned count, unsigned seed)
{
    std::vector<unsigned> values(count);
    for (unsigned i = 0; i < count; i++)
        values[i] = made.words[first + i] = (first + i) * 7919 + seed;
    CHECK(cudaMemcpyToSymbol(words, values.data(), count * sizeof(unsigned), first * sizeof(unsigned),
                             cudaMemcpyHostToDevice));
    memset(values.data(), 0xdd, count * sizeof(unsigned));
}

static void make_constants(void)
{
    for (unsigned i = 0; i < 3; i++)
        made.words[i] = 5 + i;
    write_words(10, 500, 1);
    write_words(100, 20, 2); // within these,
    write_words(100, 5, 3);  // once more,
    write_words(505, 30, 4); // and over their end
}

static void make_settings(void)
{
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, STACK_BYTES));
    CHECK(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
    CHECK(cudaFuncSetAttribute(reverse_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    CHECK(cudaFuncSetCacheConfig(reverse_shared, cudaFuncCachePreferShared));
}

// ---- threads with their own default streams

static void work_once(struct worker *worker)
{
    add<<<1, 1, 0, cudaStreamPerThread>>>(worker->value, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
}

static void *run_worker(void *user)
{
    struct worker *worker = (struct worker *)user;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (worker->asked == worker->done && !worker->is_ending)
            pthread_cond_wait(&worker->changed, &worker->mutex);
        if (worker->asked == worker->done)
            break;
        work_once(worker);
        worker->done++;
        pthread_cond_broadcast(&worker->changed);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

static void ask_workers(void)
{
    for (struct worker &worker : made.workers) {
        pthread_mutex_lock(&worker.mutex);
        worker.asked++;
        pthread_cond_broadcast(&worker.changed);
        while (worker.asked != worker.done)
            pthread_cond_wait(&worker.changed, &worker.mutex);
        pthread_mutex_unlock(&worker.mutex);
    }
}

static void make_workers(void)
{
    for (struct worker &worker : made.workers) {
        pthread_mutex_init(&worker.mutex, NULL);
        pthread_cond_init(&worker.changed, NULL);
        CHECK(cudaMalloc(&worker.value, sizeof *worker.value));
        CHECK(cudaMemset(worker.value, 0, sizeof *worker.value));
        if (pthread_create(&worker.thread, NULL, run_worker, &worker))
            wrong("no thread");
    }
    ask_workers();
}

// ---- checking

static void check_memory(void)
{
    unsigned differ;
    CHECK(cudaMemset(made.sums, 0, 2 * sizeof(unsigned)));
    for (const block &b : made.blocks)
        compare<<<4, 64>>>(b.bytes, b.count, b.seed, made.sums);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&differ, made.sums, sizeof differ, cudaMemcpyDeviceToHost));
    if (differ)
        wrong("%u bytes of memory", differ);
    std::vector<unsigned char> rows(ROWS * ROW_BYTES);
    CHECK(
        cudaMemcpy2D(rows.data(), ROW_BYTES, made.pitched, made.pitch_bytes, ROW_BYTES, ROWS, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < rows.size(); i++)
        if (rows[i] != pattern(i, 4242))
            wrong("byte %zu of the rows", i);
}

static void check_list(void)
{
    unsigned sum, expected = 0;
    for (unsigned i = 0; i < NODES; i++)
        expected += i * 3 + 1;
    walk_nodes<<<1, 1>>>(made.first_node, made.sums + 1);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&sum, made.sums + 1, sizeof sum, cudaMemcpyDeviceToHost));
    if (sum != expected)
        wrong("the list's sum %u, not %u", sum, expected);
}

static void check_kernel_attributes(void)
{
    const unsigned count = SHARED_BYTES / sizeof(unsigned);
    std::vector<unsigned> values(count);
    struct cudaFuncAttributes attributes;
    size_t stack_bytes;
    for (unsigned i = 0; i < count; i++)
        values[i] = i + made.rounds;
    CHECK(cudaMemcpy(made.numbers, values.data(), SHARED_BYTES, cudaMemcpyHostToDevice));
    reverse_shared<<<1, 128, SHARED_BYTES>>>(made.numbers, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), made.numbers, SHARED_BYTES, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < count; i++)
        if (values[i] != count - 1 - i + made.rounds)
            wrong("word %u through shared memory", i);
    CHECK(cudaFuncGetAttributes(&attributes, reverse_shared));
    if (attributes.maxDynamicSharedSizeBytes != SHARED_BYTES)
        wrong("the kernel's attribute is %d", attributes.maxDynamicSharedSizeBytes);
    CHECK(cudaDeviceGetLimit(&stack_bytes, cudaLimitStackSize));
    if (stack_bytes < STACK_BYTES)
        wrong("the stack limit is %zu", stack_bytes);
}

static void check_module(void)
{
    unsigned value = 1000 + made.rounds;
    void *arguments[] = {&made.sums};
    CHECK(cudaMemcpy(made.sums, &value, sizeof value, cudaMemcpyHostToDevice));
    CHECK(cudaLaunchKernel((const void *)made.triple, dim3(1), dim3(1), arguments, 0, made.streams[2]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&value, made.sums, sizeof value, cudaMemcpyDeviceToHost));
    if (value != 3 * (1000 + made.rounds))
        wrong("the second module's result %u", value);
}

static void look_at_constants(void)
{
    static const unsigned image[4] = {11, 22, 33, 44};
    unsigned *sums;
    size_t bytes;
    std::vector<unsigned> seen(WORDS);
    CHECK(cudaMalloc(&sums, WORDS * sizeof(unsigned)));
    add_constants<<<1, 64>>>(sums);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(seen.data(), sums, WORDS * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(sums));
    for (unsigned i = 0; i < WORDS; i++)
        if (seen[i] != made.words[i] + image[i % 4])
            wrong("constant %u is %u, not %u", i, seen[i] - image[i % 4], made.words[i]);
    CHECK(cudaMemcpyFromSymbol(seen.data(), words, 300 * sizeof(unsigned), 400 * sizeof(unsigned)));
    for (unsigned i = 0; i < 300; i++)
        if (seen[i] != made.words[400 + i])
            wrong("constant %u is copied as %u, not %u", 400 + i, seen[i], made.words[400 + i]);
    CHECK(cudaGetSymbolSize(&bytes, words));
    if (bytes != sizeof made.words)
        wrong("the constants have %zu bytes", bytes);
}

static void check_constants(void)
{
    look_at_constants();
    write_words(made.rounds * 37 % (WORDS - 9), 9, 1000 * made.rounds);
    look_at_constants();
}

static void check_events(void)
{
    float ms;
    CHECK(cudaEventQuery(made.old_event)); // recorded once, at the beginning
    CHECK(cudaEventSynchronize(made.old_event));
    CHECK(cudaEventQuery(made.idle_event)); // never recorded but by "leave"
    CHECK(cudaStreamWaitEvent(made.streams[1], made.old_event, 0));
    CHECK(cudaEventRecord(made.timed_event, made.streams[2]));
    CHECK(cudaEventRecord(made.plain_event, made.streams[3]));
    CHECK(cudaStreamWaitEvent(made.streams[4], made.plain_event, 0));
    CHECK(cudaStreamSynchronize(made.streams[4]));
    CHECK(cudaEventSynchronize(made.timed_event));
    CHECK(cudaEventElapsedTime(&ms, made.timed_event, made.timed_event));
    if (ms != 0)
        wrong("elapsed %f ms", ms);
}

/* Each stream adds to its own number, then a host function is called in it. */
static void check_streams(void)
{
    static unsigned one = 1;
    unsigned *numbers, value, before = made.called;
    CHECK(cudaMalloc(&numbers, STREAMS * sizeof *numbers));
    CHECK(cudaMemset(numbers, 0, STREAMS * sizeof *numbers));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        for (int k = 0; k < 50; k++)
            add<<<1, 1, 0, made.streams[i]>>>(numbers + i, 1);
        CHECK(cudaGetLastError());
        CHECK(cudaLaunchHostFunc(made.streams[i], note_call, &one));
    }
    for (int i = 0; i < STREAMS; i++) {
        int priority;
        CHECK(cudaStreamGetPriority(made.streams[i], &priority));
        CHECK(cudaStreamSynchronize(made.streams[i]));
        CHECK(cudaStreamQuery(made.streams[i]));
        CHECK(cudaMemcpy(&value, numbers + i, sizeof value, cudaMemcpyDeviceToHost));
        if (value != 50)
            wrong("stream %d has added %u", i, value);
    }
    if (made.called != before + STREAMS)
        wrong("%u host functions were called", made.called - before);
    CHECK(cudaFree(numbers));
}

static void check_host_memory(void)
{
    unsigned char *device;
    memset(made.registered, 0, LARGE_BYTES);
    CHECK(cudaMalloc(&device, LARGE_BYTES));
    CHECK(cudaMemcpyAsync(device, made.pinned, LARGE_BYTES, cudaMemcpyHostToDevice, made.streams[0]));
    CHECK(cudaMemcpyAsync(made.registered, device, LARGE_BYTES, cudaMemcpyDeviceToHost, made.streams[0]));
    CHECK(cudaStreamSynchronize(made.streams[0]));
    if (memcmp(made.pinned, made.registered, LARGE_BYTES) != 0)
        wrong("what was copied there and back");
    CHECK(cudaFree(device));
}

/* What is new works as well, and lies in nothing that is there already. */
static void check_new_objects(void)
{
    unsigned seed = 50000 + made.rounds;
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    take(2000 + made.rounds, seed, stream);
    take(ADDED_BYTES, seed + 1, stream);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    const block last = made.blocks.back();
    for (size_t i = 0; i + 1 < made.blocks.size(); i++)
        if (made.blocks[i].bytes < last.bytes + last.count && last.bytes < made.blocks[i].bytes + made.blocks[i].count)
            wrong("new memory is in block %zu", i);
    CHECK(cudaFree(made.blocks[made.rounds].bytes)); // one of the first, another one each time
    made.blocks.erase(made.blocks.begin() + made.rounds);
    // However many rounds there are, the program does not outgrow its VM.
    for (size_t i = 0; made.rounds >= ADDED_COUNT && i < made.blocks.size(); i++) {
        if (made.blocks[i].count == ADDED_BYTES) {
            CHECK(cudaFree(made.blocks[i].bytes));
            made.blocks.erase(made.blocks.begin() + (long)i);
            break;
        }
    }
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
}

static void check_workers(void)
{
    ask_workers();
    for (const struct worker &worker : made.workers) {
        unsigned value;
        CHECK(cudaMemcpy(&value, worker.value, sizeof value, cudaMemcpyDeviceToHost));
        if (value != made.rounds + 1)
            wrong("a thread's stream has added %u", value);
    }
}

static void leave_work(void)
{
    for (int i = 0; i < 3; i++)
        add<<<1, 1, 0, made.streams[1]>>>(made.left, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(made.idle_event, made.streams[1]));
    made.left_count += 3;
    printf("left\n");
}

static void check_left_work(void)
{
    unsigned value;
    CHECK(cudaEventSynchronize(made.idle_event));
    CHECK(cudaMemcpy(&value, made.left, sizeof value, cudaMemcpyDeviceToHost));
    if (value != made.left_count)
        wrong("what was left has added %u, not %u", value, made.left_count);
}

static void write_later(void)
{
    made.words[3] += 17;
    CHECK(cudaMemcpyToSymbolAsync(words, &made.words[3], sizeof(unsigned), 3 * sizeof(unsigned), cudaMemcpyHostToDevice,
                                  made.streams[1]));
    CHECK(cudaStreamSynchronize(made.streams[1]));
    printf("written\n");
}

static void ask_for_address(void)
{
    void *address;
    CHECK(cudaGetSymbolAddress(&address, image_words));
    printf(address ? "told\n" : "wrong address\n");
}

static void check_all(void)
{
    made.rounds++;
    check_left_work();
    check_events();
    check_memory();
    check_list();
    check_kernel_attributes();
    check_module();
    check_constants();
    check_streams();
    check_host_memory();
    check_workers();
    check_new_objects();
    check_memory();
    printf("right %u\n", made.rounds);
}

// ---- the end

static void give_all_back(void)
{
    for (struct worker &worker : made.workers) {
        pthread_mutex_lock(&worker.mutex);
        worker.is_ending = true;
        pthread_cond_broadcast(&worker.changed);
        pthread_mutex_unlock(&worker.mutex);
        pthread_join(worker.thread, NULL);
        CHECK(cudaFree(worker.value));
    }
    for (const block &b : made.blocks)
        CHECK(cudaFree(b.bytes));
    for (struct node *one : made.nodes)
        CHECK(cudaFree(one));
    CHECK(cudaFree(made.pitched));
    CHECK(cudaFree(made.sums));
    CHECK(cudaFree(made.numbers));
    CHECK(cudaFree(made.left));
    for (cudaStream_t stream : made.streams)
        CHECK(cudaStreamDestroy(stream));
    for (cudaEvent_t event : {made.old_event, made.plain_event, made.timed_event, made.idle_event})
        CHECK(cudaEventDestroy(event));
    CHECK(cudaLibraryUnload(made.library));
    CHECK(cudaHostUnregister(made.registered));
    CHECK(cudaFreeHost(made.pinned));
    CHECK(cudaDeviceSynchronize());
}

int main(void)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_settings();
    make_module();
    make_streams();
    make_constants();
    make_memory();
    make_list();
    make_host_memory();
    make_workers();
    CHECK(cudaEventRecord(made.old_event, made.streams[0]));
    CHECK(cudaDeviceSynchronize());
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "check"))
            check_all();
        else if (!strcmp(line, "leave"))
            leave_work();
        else if (!strcmp(line, "later"))
            write_later();
        else if (!strcmp(line, "address"))
            ask_for_address();
        else if (!strcmp(line, "end"))
            break;
        else
            printf("unknown %s\n", line);
    }
    give_all_back();
    printf("ended\n");
    return 0;
}
