/*
 * What managed memory (managed.h) does around the GPU's work, for the sources of this library that give it work and
 * that wait for it. They are below managed memory and do not know it: it installs a table with the first piece of it.
 * Where a program has none, each of these costs one load.
 */
#ifndef FLYT_CLIENT_WATCH_H
#define FLYT_CLIENT_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_range;
struct flyt_stream;

struct flyt_watch {
    /* The stream is about to get work that may use any memory: what the host has changed goes to the GPU first. */
    CUresult (*before)(struct flyt_stream *stream);
    /* The same of work that uses the allocation that holds the address, and no other that is managed. */
    CUresult (*before_use)(struct flyt_stream *stream, uint64_t address);
    /* The host is about to wait for the device: whether its streams had work since they were last waited for. */
    bool (*take_device)(int device);
    /* The host has waited for the stream, or (NULL) for something that it does not know the stream of: what the GPU has
     * changed comes to the host. had_work: the stream, or the device, had some since it was last waited for
     * (flyt_stream_take_watched). */
    CUresult (*after)(struct flyt_stream *stream, bool had_work);
    /* The allocation that begins there is about to be freed: the host has it no more. Nothing where it is not managed.
     */
    void (*release)(uint64_t address);
    /* Frees managed memory that lies on the host, which no other member is ever called for. False: none begins there.
     */
    bool (*free)(uint64_t address, CUresult *ret_result);
    /* Of pools (pool.c): managed memory of the context and the device, wherever such lies, and its end. is_later: what
     * is to be unlocked goes when nothing uses it any more, and nobody waits. */
    CUresult (*take)(uint64_t context_id, int device, uint64_t bytes, CUdeviceptr *ret_address);
    CUresult (*give)(uint64_t address, bool is_later);
    /* A managed variable of a module, whose range was entered: the program gets memory there. Without it there is none
     * of the table's others to call. CUDA_ERROR_MAP_FAILED: it cannot have it. */
    CUresult (*adopt)(const struct flyt_range *range);
    /* The library's variables (on a device; −1: on all) are about to go. */
    void (*forget)(uint64_t library_id, int device);
};

/* The table, from the beginning on, for `adopt`, `free`, `take` and `give`; and the same for all else, once there is
 * managed memory. */
extern const struct flyt_watch *flyt_watch_table __attribute__((visibility("hidden")));
extern const struct flyt_watch *_Atomic flyt_watch_installed __attribute__((visibility("hidden")));

static inline const struct flyt_watch *flyt_watch(void)
{
    return atomic_load_explicit(&flyt_watch_installed, memory_order_acquire);
}

static inline CUresult flyt_watch_before(struct flyt_stream *stream)
{
    const struct flyt_watch *watch = flyt_watch();
    return __builtin_expect(watch != NULL, 0) ? watch->before(stream) : CUDA_SUCCESS;
}

static inline CUresult flyt_watch_before_use(struct flyt_stream *stream, uint64_t address)
{
    const struct flyt_watch *watch = flyt_watch();
    return watch ? watch->before_use(stream, address) : CUDA_SUCCESS;
}

static inline bool flyt_watch_take_device(int device)
{
    const struct flyt_watch *watch = flyt_watch();
    return watch && watch->take_device(device);
}

static inline void flyt_watch_release(uint64_t address)
{
    const struct flyt_watch *watch = flyt_watch();
    if (watch)
        watch->release(address);
}

static inline CUresult flyt_watch_after(struct flyt_stream *stream, bool had_work)
{
    const struct flyt_watch *watch = flyt_watch();
    return __builtin_expect(watch != NULL, 0) ? watch->after(stream, had_work) : CUDA_SUCCESS;
}

#endif
