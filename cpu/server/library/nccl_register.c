/* What a program has of NCCL's communicators under numbers of its client's: buffers that it registers, and operators.
 * NCCL's own handles stay here. What a communicator has of them ends with it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/library/library.h"
#include "cpu/server/library/nccl.h"
#include "flyt_lib_nccl.h"
#include "rpc/base/id.h"
#include "rpc/library/nccl_list.h"

enum { REGISTRATIONS_MAX = 1 << 16 };

struct registration {
    struct registration *next;
    uint64_t comm_id, number;
    bool is_op, is_there; /* is_there: NCCL has given what follows */
    void *handle;
    int op;
};

static struct {
    pthread_mutex_t mutex;
    struct registration *first;
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

static struct registration **place_of_locked(const struct registration *wanted)
{
    struct registration **place = &table.first;
    while (*place && ((*place)->comm_id != wanted->comm_id || (*place)->number != wanted->number ||
                      (*place)->is_op != wanted->is_op))
        place = &(*place)->next;
    return place;
}

/* A place for what NCCL is to give. false: the number is taken; no memory, or too many. */
static bool reserve(const struct registration *wanted)
{
    struct registration *fresh = calloc(1, sizeof *fresh);
    pthread_mutex_lock(&table.mutex);
    bool is_free = fresh && table.count < REGISTRATIONS_MAX && !*place_of_locked(wanted);
    if (is_free) {
        *fresh = *wanted;
        fresh->next = table.first;
        table.first = fresh;
        table.count++;
    }
    pthread_mutex_unlock(&table.mutex);
    if (!is_free)
        free(fresh);
    return is_free;
}

/* Fills the place. */
static void keep(const struct registration *made)
{
    pthread_mutex_lock(&table.mutex);
    struct registration *one = *place_of_locked(made);
    if (one) {
        one->handle = made->handle;
        one->op = made->op;
        one->is_there = true;
    }
    pthread_mutex_unlock(&table.mutex);
}

/* What is there of that number, and whether it is; is_taken: it is in the table no more. */
static bool get(struct registration *wanted, bool is_taken)
{
    pthread_mutex_lock(&table.mutex);
    struct registration **place = place_of_locked(wanted);
    bool is_there = *place && (*place)->is_there;
    if (is_there) {
        wanted->handle = (*place)->handle;
        wanted->op = (*place)->op;
    }
    if (*place && is_taken)
        remove_locked(place);
    pthread_mutex_unlock(&table.mutex);
    return is_there;
}

/* ---- buffers ---- */

/* Within the program's memory, of one device or where it maps some itself: NCCL would otherwise give peers what else is
 * mapped in this process. */
static bool is_of_program(uint64_t buffer, uint64_t bytes)
{
    int device = flyt_window_device(buffer);
    if (device < 0)
        return bytes && flyt_virtual_has(buffer, bytes);
    return bytes && bytes <= flyt_window_base((unsigned)device) + FLYT_WINDOW_BYTES - buffer;
}

CUresult flyt_server_resolve_ncclCommRegister(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclCommRegister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommRegister *sent = (const void *)call->arguments;
    if (!is_of_program(sent->buffer, sent->bytes) || !sent->number)
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_nccl_comm_find(sent->comm) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int flyt_server_run_ncclCommRegister(struct flyt_libcall *call);
int flyt_server_run_ncclCommRegister(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommRegister *sent = (const void *)call->arguments;
    uint64_t *ret_number = flyt_libcall_out(call, sent->handle_bytes, sizeof *ret_number);
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    struct registration one = {.comm_id = sent->comm, .number = sent->number};
    if (!ret_number || !comm.real)
        return call->library->invalid;
    if (!reserve(&one))
        return call->library->memory;
    int status = ((int (*)(void *, void *, size_t, void **))call->function)(comm.real, (void *)(uintptr_t)sent->buffer,
                                                                            sent->bytes, &one.handle);
    /* NCCL may succeed without a handle, where registering does not help. */
    bool is_made = status == call->library->success && one.handle;
    if (is_made)
        keep(&one);
    else
        get(&one, true);
    *ret_number = is_made ? one.number : 0;
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
    struct registration one = {.comm_id = sent->comm, .number = sent->handle};
    if (!comm.real || (sent->handle && !get(&one, true)))
        return call->library->invalid;
    return ((int (*)(void *, void *))call->function)(comm.real, one.handle);
}

/* ---- operators ---- */

int flyt_nccl_real_op(uint64_t comm_id, int op)
{
    struct registration one = {.comm_id = comm_id, .number = (uint64_t)(unsigned)op, .is_op = true};
    if (op < FLYT_NCCL_OPS_BUILT_IN)
        return op;
    return get(&one, false) ? one.op : -1;
}

CUresult flyt_server_resolve_ncclRedOpCreatePreMulSum(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclRedOpCreatePreMulSum(struct flyt_libcall *call)
{
    const struct flyt_args_ncclRedOpCreatePreMulSum *sent = (const void *)call->arguments;
    if (sent->op < FLYT_NCCL_OPS_BUILT_IN)
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_nccl_comm_find(sent->comm) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The scalar lies in host memory and came, or its address is the device's. */
int flyt_server_run_ncclRedOpCreatePreMulSum(struct flyt_libcall *call);
int flyt_server_run_ncclRedOpCreatePreMulSum(struct flyt_libcall *call)
{
    const struct flyt_args_ncclRedOpCreatePreMulSum *sent = (const void *)call->arguments;
    void *scalar = flyt_libcall_in(call, sent->scalar_bytes, flyt_nccl_type_bytes(sent->datatype));
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    struct registration one = {.comm_id = sent->comm, .number = (uint64_t)(unsigned)sent->op, .is_op = true};
    bool is_on_host = sent->residence == 1; /* ncclScalarHostImmediate */
    if (call->status || !comm.real || is_on_host != (scalar != NULL) || (!is_on_host && sent->residence))
        return call->library->invalid;
    if (!reserve(&one))
        return call->library->memory;
    int (*create)(int *, void *, int, int, void *) = (int (*)(int *, void *, int, int, void *))call->function;
    int status = create(&one.op, is_on_host ? scalar : (void *)(uintptr_t)sent->address, sent->datatype,
                        sent->residence, comm.real);
    if (status == call->library->success)
        keep(&one);
    else
        get(&one, true);
    return status;
}

CUresult flyt_server_resolve_ncclRedOpDestroy(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclRedOpDestroy(struct flyt_libcall *call)
{
    const struct flyt_args_ncclRedOpDestroy *sent = (const void *)call->arguments;
    return flyt_nccl_comm_find(sent->comm) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int flyt_server_run_ncclRedOpDestroy(struct flyt_libcall *call);
int flyt_server_run_ncclRedOpDestroy(struct flyt_libcall *call)
{
    const struct flyt_args_ncclRedOpDestroy *sent = (const void *)call->arguments;
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    struct registration one = {.comm_id = sent->comm, .number = (uint64_t)(unsigned)sent->op, .is_op = true};
    if (!comm.real || !get(&one, true))
        return call->library->invalid;
    return ((int (*)(int, void *))call->function)(one.op, comm.real);
}
