/* Buffers that a program registers with NCCL's communicators. The client has numbers of them, and NCCL's own handles
 * stay here. What a communicator has of them ends with it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/library/library.h"
#include "cpu/server/library/nccl.h"
#include "flyt_lib_nccl.h"
#include "rpc/base/id.h"

enum { REGISTRATIONS_MAX = 1 << 16 };

struct registration {
    struct registration *next;
    uint64_t comm_id, number;
    void *real;
};

static struct {
    pthread_mutex_t mutex;
    struct registration *first;
    uint64_t last_number;
    unsigned count;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void remove_locked(struct registration **place)
{
    struct registration *gone = *place;
    *place = gone->next;
    table.count--;
    free(gone);
}

void flyt_nccl_registrations_drop(uint64_t comm_id)
{
    pthread_mutex_lock(&table.mutex);
    for (struct registration **place = &table.first; *place;)
        if ((*place)->comm_id == comm_id)
            remove_locked(place);
        else
            place = &(*place)->next;
    pthread_mutex_unlock(&table.mutex);
}

/* A place for NCCL's handle, which is to come; 0: no memory, or too many. */
static uint64_t reserve(uint64_t comm_id)
{
    struct registration *fresh = calloc(1, sizeof *fresh);
    uint64_t number = 0;
    pthread_mutex_lock(&table.mutex);
    if (fresh && table.count < REGISTRATIONS_MAX) {
        number = ++table.last_number;
        *fresh = (struct registration){.next = table.first, .comm_id = comm_id, .number = number};
        table.first = fresh;
        table.count++;
        fresh = NULL;
    }
    pthread_mutex_unlock(&table.mutex);
    free(fresh);
    return number;
}

static struct registration **place_of_locked(uint64_t comm_id, uint64_t number)
{
    struct registration **place = &table.first;
    while (*place && ((*place)->comm_id != comm_id || (*place)->number != number))
        place = &(*place)->next;
    return place;
}

/* Gives the place its handle. */
static void keep(uint64_t comm_id, uint64_t number, void *real)
{
    pthread_mutex_lock(&table.mutex);
    struct registration *one = *place_of_locked(comm_id, number);
    if (one)
        one->real = real;
    pthread_mutex_unlock(&table.mutex);
}

/* NCCL's handle, which is in the table no more; NULL: there is none. */
static void *take(uint64_t comm_id, uint64_t number)
{
    pthread_mutex_lock(&table.mutex);
    struct registration **place = place_of_locked(comm_id, number);
    void *real = *place ? (*place)->real : NULL;
    if (*place)
        remove_locked(place);
    pthread_mutex_unlock(&table.mutex);
    return real;
}

/* Within the program's memory of one device: NCCL would otherwise give peers what else is mapped in this process. */
static bool is_of_program(uint64_t buffer, uint64_t bytes)
{
    int device = flyt_window_device(buffer);
    return device >= 0 && bytes && bytes <= flyt_window_base((unsigned)device) + FLYT_WINDOW_BYTES - buffer;
}

CUresult flyt_server_resolve_ncclCommRegister(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclCommRegister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommRegister *sent = (const void *)call->arguments;
    if (!is_of_program(sent->buffer, sent->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_nccl_comm_find(sent->comm) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int flyt_server_run_ncclCommRegister(struct flyt_libcall *call);
int flyt_server_run_ncclCommRegister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommRegister *sent = (const void *)call->arguments;
    uint64_t *ret_number = flyt_libcall_out(call, sent->handle_bytes, sizeof *ret_number);
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    void *real = NULL;
    if (!ret_number || !comm.real)
        return call->library->invalid;
    uint64_t number = reserve(sent->comm);
    if (!number)
        return call->library->memory;
    int status = ((int (*)(void *, void *, size_t, void **))call->function)(comm.real, (void *)(uintptr_t)sent->buffer,
                                                                            sent->bytes, &real);
    /* NCCL may succeed without a handle, where registering does not help. */
    if (status != call->library->success || !real)
        take(sent->comm, number);
    else
        keep(sent->comm, number, real);
    *ret_number = status == call->library->success && real ? number : 0;
    return status;
}

CUresult flyt_server_resolve_ncclCommDeregister(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclCommDeregister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommDeregister *sent = (const void *)call->arguments;
    return flyt_nccl_comm_find(sent->comm) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int flyt_server_run_ncclCommDeregister(struct flyt_libcall *call);
int flyt_server_run_ncclCommDeregister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommDeregister *sent = (const void *)call->arguments;
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    void *real = sent->handle ? take(sent->comm, sent->handle) : NULL;
    if (!comm.real || (sent->handle && !real))
        return call->library->invalid;
    return ((int (*)(void *, void *))call->function)(comm.real, real);
}
