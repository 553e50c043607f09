#include "rpc/transport/call_record.h"

#include <errno.h>

#include "rpc/base/sealed.h"

int flyt_call_record_new(struct flyt_call_record **ret_record, int *ret_fd)
{
    void *memory;

    int status = flyt_sealed_new("flyt-calls", FLYT_CALL_RECORD_BYTES, &memory, ret_fd);
    if (status)
        return status;
    *ret_record = memory;
    (*ret_record)->magic = FLYT_CALL_RECORD_MAGIC;
    return 0;
}

int flyt_call_record_map(int fd, const struct flyt_call_record **ret_record)
{
    const void *memory;

    int status = flyt_sealed_map(fd, FLYT_CALL_RECORD_BYTES, &memory);
    if (status)
        return status;
    const struct flyt_call_record *record = memory;
    if (record->magic != FLYT_CALL_RECORD_MAGIC) {
        flyt_call_record_unmap(record);
        return -EPROTO;
    }
    *ret_record = record;
    return 0;
}

struct flyt_call_state flyt_call_record_read(const struct flyt_call_record *record)
{
    return (struct flyt_call_state){
        .begun = atomic_load_explicit(&record->begun, memory_order_acquire),
        .executed = atomic_load_explicit(&record->executed, memory_order_acquire),
        .completed = atomic_load_explicit(&record->completed, memory_order_acquire),
        .error_count = atomic_load_explicit(&record->error_count, memory_order_acquire),
    };
}

void flyt_call_record_unmap(const struct flyt_call_record *record)
{
    flyt_sealed_unmap(record, FLYT_CALL_RECORD_BYTES);
}
