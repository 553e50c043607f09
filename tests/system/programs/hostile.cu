// A program that was taken over: it calls its server as every program does, and then writes random words over the memory that
// it shares with that. usage: hostile WHERE SEED
//
//   heads     of the rings: positions, ends, who sleeps
//   calls     near the place to which calls are written
//   replies   near the place from which replies are read
//   region    over the page-locked memory that copies and kernels use
//   all       each of these in turn
//
// It ends when it has lost its server, or after a second or two, and says how often it has written, how many rounds of calls it has
// made, how many of them ended with an error, and the last one: "writes N rounds N errors N code N". Calls may come to any
// error, and may wait for a reply that never comes.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Of rpc/transport/endpoint/rings.c: the server writes the first of two rings, the program the second one.
enum { HEADS_AT = 64, HEADS_BYTES = 384, BYTES_AT = 4096, RING_BYTES = 256 * 1024 };
static const unsigned written_at[2] = {64, 256};
enum { COUNT = 1 << 18, NEAR_BYTES = 512, SECONDS = 1, PAUSE_US = 20 };

__global__ void add(uint32_t *values, const uint32_t *more)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] += more[i];
}

static volatile unsigned rounds, errors, is_over;
static volatile int code;
static uint32_t *locked;
static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static cudaError_t work_once(cudaStream_t stream, cudaEvent_t event, uint32_t *device, uint32_t *plain)
{
    cudaError_t error = cudaMemcpyAsync(device, locked, COUNT * sizeof *device, cudaMemcpyHostToDevice, stream);
    if (!error)
        error = cudaMemcpyAsync(device, plain, 4096, cudaMemcpyHostToDevice, stream);
    for (int i = 0; i < 20 && !error; i++) {
        add<<<COUNT / 1024 / 64, 256, 0, stream>>>(device, i % 2 ? locked : device);
        error = cudaGetLastError();
    }
    if (!error)
        error = cudaMemcpyAsync(locked, device, COUNT * sizeof *device, cudaMemcpyDeviceToHost, stream);
    if (!error)
        error = cudaMemcpy(plain, device, COUNT * sizeof *device, cudaMemcpyDeviceToHost);
    if (!error)
        error = cudaEventRecord(event, stream);
    if (!error)
        error = cudaEventSynchronize(event);
    return error;
}

static void *work(void *unused)
{
    uint32_t *device, *plain = (uint32_t *)calloc(COUNT, sizeof *plain);
    cudaStream_t stream;
    cudaEvent_t event;
    cudaError_t error = cudaMalloc(&device, COUNT * sizeof *device);
    if (!error)
        error = cudaStreamCreate(&stream);
    if (!error)
        error = cudaEventCreate(&event);
    for (; error != cudaErrorDevicesUnavailable; rounds++) {
        error = work_once(stream, event, device, plain);
        if (error)
            errors++, code = error;
    }
    is_over = 1;
    return NULL;
}

// Where the rings begin in this process.
static char *find_rings(void)
{
    char line[512];
    uintptr_t begin = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !begin && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:flyt-rings"))
            begin = strtoull(line, NULL, 16);
    return (char *)begin;
}

static void write_word(char *place)
{
    const uint64_t word = next_random();
    *(volatile uint64_t *)place = word % 3 ? word : word % 5 ? word >> 60 : word >> 40; // small numbers are near what is right
}

static void write_near(char *rings, unsigned which)
{
    const uint64_t written = *(volatile uint64_t *)(rings + written_at[which]);
    const uint64_t at = (written + next_random() % NEAR_BYTES - NEAR_BYTES / 2) % RING_BYTES / 8 * 8;
    write_word(rings + BYTES_AT + which * RING_BYTES + at);
}

static void write_somewhere(char *rings, unsigned where)
{
    if (where == 0)
        write_word(rings + HEADS_AT + next_random() % HEADS_BYTES / 8 * 8);
    else if (where <= 2)
        write_near(rings, where == 1);
    else
        write_word((char *)locked + next_random() % (COUNT * sizeof *locked) / 8 * 8);
}

int main(int argc, char **argv)
{
    static const char *const places[] = {"heads", "calls", "replies", "region", "all"};
    unsigned where = 0, writes = 0;
    pthread_t worker;
    while (argc == 3 && where < 5 && strcmp(argv[1], places[where]))
        where++;
    if (argc != 3 || where == 5 || cudaMallocHost(&locked, COUNT * sizeof *locked))
        return 1;
    char *rings = find_rings();
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 88172645463325252u;
    if (!rings || pthread_create(&worker, NULL, work, NULL))
        return 2;
    while (!rounds && !is_over)
        usleep(PAUSE_US);
    const time_t end = time(NULL) + 1 + SECONDS;
    for (; !is_over && time(NULL) < end; writes++) {
        write_somewhere(rings, where < 4 ? where : writes % 4);
        usleep(PAUSE_US);
    }
    printf("writes %u rounds %u errors %u code %d\n", writes, rounds, errors, code);
    fflush(stdout);
    _exit(0);
}
