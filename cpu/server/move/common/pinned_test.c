/* Page-locked memory that a thread touches ahead (pinned.h), over a driver that notes what it is asked for. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/move/common/pinned.h"

enum { PIECES = 4, WAIT_MS_MAX = 60000 };
static const size_t PIECE_BYTES = 2 << 20;

static struct {
    void *locked[PIECES];
    unsigned locked_count, unlocked_count;
    size_t resident_bytes; /* of the last one, when it was locked */
    CUresult result;
    atomic_uint kicks;
} calls;

static size_t resident_bytes(const unsigned char *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = malloc(bytes / page);
    size_t found = 0;
    assert_non_null(pages);
    assert_int_equal(mincore((void *)memory, bytes, pages), 0);
    for (size_t i = 0; i < bytes / page; i++)
        found += pages[i] & 1 ? page : 0;
    free(pages);
    return found;
}

static CUresult lock(void *memory, size_t bytes, unsigned flags)
{
    assert_int_equal(bytes, PIECE_BYTES);
    assert_int_equal(flags, CU_MEMHOSTREGISTER_PORTABLE);
    if (calls.result == CUDA_SUCCESS) {
        calls.resident_bytes = resident_bytes(memory, bytes);
        calls.locked[calls.locked_count++] = memory;
    }
    return calls.result;
}

static CUresult unlock(void *memory)
{
    bool is_locked = false;
    for (unsigned i = 0; i < calls.locked_count; i++)
        is_locked |= calls.locked[i] == memory;
    assert_true(is_locked);
    calls.unlocked_count++;
    return CUDA_SUCCESS;
}

static void kick(void *user)
{
    assert_ptr_equal(user, &calls);
    atomic_fetch_add(&calls.kicks, 1);
}

static const struct flyt_driver driver = {.cuMemHostRegister = lock, .cuMemHostUnregister = unlock};

static struct flyt_pinned *begin(void)
{
    struct flyt_pinned *pinned;
    memset(&calls, 0, sizeof calls);
    assert_int_equal(flyt_pinned_new(&driver, PIECE_BYTES, PIECES, kick, &calls, &pinned), 0);
    return pinned;
}

static void *take(struct flyt_pinned *pinned, bool may_wait)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    void *piece = NULL;
    for (unsigned i = 0; result == CUDA_ERROR_NOT_READY && i < WAIT_MS_MAX; i++) {
        result = flyt_pinned_take(pinned, may_wait, &piece);
        if (result == CUDA_ERROR_NOT_READY)
            usleep(1000);
    }
    assert_int_equal(result, CUDA_SUCCESS);
    return piece;
}

/* Each is there, all of it, before the driver is asked to lock it; none lies in another. */
static void pieces_are_touched_before_they_are_locked(void **state)
{
    struct flyt_pinned *pinned = begin();
    unsigned char *pieces[PIECES];
    void *none = NULL;
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = take(pinned, i % 2 == 0);
        assert_int_equal(calls.resident_bytes, PIECE_BYTES);
        memset(pieces[i], (int)i + 1, PIECE_BYTES);
    }
    for (unsigned i = 0; i < PIECES; i++)
        assert_true(pieces[i][0] == i + 1 && pieces[i][PIECE_BYTES - 1] == i + 1);
    assert_int_equal(flyt_pinned_take(pinned, true, &none), CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(none);
    assert_int_equal(atomic_load(&calls.kicks), PIECES);
    assert_null(flyt_pinned_free(pinned));
    assert_int_equal(calls.unlocked_count, PIECES);
}

/* One ahead of what was taken, and no more: the machine's memory is not for what nobody needs. */
static void one_piece_is_touched_ahead(void **state)
{
    struct flyt_pinned *pinned = begin();
    unsigned char *piece = take(pinned, true);
    for (unsigned i = 0; atomic_load(&calls.kicks) < 2 && i < WAIT_MS_MAX; i++)
        usleep(1000);
    assert_int_equal(resident_bytes(piece + PIECE_BYTES, PIECE_BYTES), PIECE_BYTES);
    assert_int_equal(resident_bytes(piece + 2 * PIECE_BYTES, PIECE_BYTES), 0);
    flyt_pinned_free(pinned);
    assert_int_equal(calls.unlocked_count, 1);
}

/* The driver's error is told, and the piece may be asked for again. */
static void what_the_driver_refuses_is_told(void **state)
{
    struct flyt_pinned *pinned = begin();
    void *piece = NULL;
    calls.result = CUDA_ERROR_OPERATING_SYSTEM;
    assert_int_equal(flyt_pinned_take(pinned, true, &piece), CUDA_ERROR_OPERATING_SYSTEM);
    assert_null(piece);
    calls.result = CUDA_SUCCESS;
    take(pinned, true);
    flyt_pinned_free(pinned);
    assert_int_equal(calls.unlocked_count, 1);
    assert_null(flyt_pinned_free(NULL));
}

/* Where there is no room for them the caller hears it, and lives. */
static void what_cannot_be_mapped_is_told(void **state)
{
    struct flyt_pinned *pinned = NULL;
    assert_int_equal(flyt_pinned_new(&driver, SIZE_MAX / 4, 2, kick, &calls, &pinned), -ENOMEM);
    assert_null(pinned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_touched_before_they_are_locked),
        cmocka_unit_test(one_piece_is_touched_ahead),
        cmocka_unit_test(what_the_driver_refuses_is_told),
        cmocka_unit_test(what_cannot_be_mapped_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
