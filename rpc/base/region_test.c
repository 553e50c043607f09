/* Regions: what they are made of, what a client takes for one, and which spans lie in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/region.h"

static void both_ends_see_the_same(void **state)
{
    struct flyt_region made = {0}, mapped = {0};
    int fd;
    assert_int_equal(flyt_region_new(&made, &fd), 0);
    assert_int_equal(made.id, FLYT_REGION_ID);
    assert_int_equal(flyt_region_map(fd, &mapped), 0);
    assert_int_equal(mapped.bytes, made.bytes);
    assert_int_equal(mapped.id, made.id);
    assert_ptr_not_equal(mapped.base, made.base);
    assert_true(flyt_region_is_of(&made, fd));
    assert_true(flyt_region_is_of(&mapped, fd));
    assert_false(flyt_region_is_of(&mapped, STDIN_FILENO));
    assert_false(flyt_region_is_of(&mapped, -1));
    strcpy(made.base + 8192, "here");
    assert_string_equal(mapped.base + 8192, "here");
    memset(mapped.base, 7, 4096);
    assert_int_equal(made.base[4095], 7);
    /* Pages of it are the same at another address. */
    char *again = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(flyt_region_map_again(&made, 4096, 8192, (uint64_t)(uintptr_t)again), 0);
    assert_string_equal(again + 4096, "here");
    again[1] = 9;
    assert_int_equal(mapped.base[4097], 9);
    assert_int_equal(munmap(again, 8192), 0);
    /* Nobody makes it shorter, or takes that promise back. */
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    close(fd);
    assert_int_equal(flyt_region_discard(&mapped, 8192, 4096), 0);
    assert_int_equal(made.base[8192], 0);
    assert_int_equal(made.base[4095], 7);
    flyt_region_unmap(&mapped);
    flyt_region_unmap(&made);
    assert_int_equal(made.id, 0);
    flyt_region_unmap(&made); /* there may be none */
}

static void what_is_none_is_not_mapped(void **state)
{
    struct flyt_region region = {0};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(flyt_region_map(fd, &region), -EINVAL); /* without seals */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(flyt_region_map(fd, &region), -EINVAL); /* could still be cut */
    close(fd);
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
    assert_int_equal(flyt_region_map(fd, &region), -EINVAL); /* empty */
    close(fd);
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    assert_int_equal(flyt_region_map(fd, &region), -EPERM); /* not to be written */
    close(fd);
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd >= 0 && !ftruncate(fd, 2 << 20) && !fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK))
        assert_int_equal(flyt_region_map(fd, &region), -EINVAL); /* of pages that may be missing */
    if (fd >= 0)
        close(fd);
    fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    assert_int_equal(flyt_region_map(fd, &region), -EINVAL);
    close(fd);
    assert_int_equal(flyt_region_map(-1, &region), -EBADF);
    assert_int_equal(region.id, 0);
}

static void spans(void **state)
{
    static const struct {
        struct flyt_region_span span;
        uint64_t bytes; /* 0: it is none */
    } cases[] = {
        {{.width_bytes = 5, .height = 1, .depth = 1}, 5},
        {{.width_bytes = 5, .height = 3, .depth = 1, .pitch_bytes = 8}, 21},
        {{.width_bytes = 5, .height = 3, .depth = 2, .pitch_bytes = 8, .slice_bytes = 21}, 42},
        {{.width_bytes = 5, .height = 3, .depth = 2, .pitch_bytes = 8, .slice_bytes = 20}, 0},
        {{.width_bytes = 5, .height = 3, .depth = 1, .pitch_bytes = 4}, 0},
        {{.width_bytes = 0, .height = 3, .depth = 1, .pitch_bytes = 4}, 0},
        {{.width_bytes = 5, .height = 0, .depth = 1, .pitch_bytes = 8}, 0},
        {{.width_bytes = 5, .height = 1, .depth = 0}, 0},
        {{.width_bytes = UINT64_MAX, .height = 1, .depth = 1}, UINT64_MAX},
        {{.width_bytes = 1, .height = UINT64_MAX, .depth = 1, .pitch_bytes = UINT64_MAX}, 0},
        {{.width_bytes = 1, .height = UINT64_MAX, .depth = 1, .pitch_bytes = 2}, 0},
        {{.width_bytes = 1, .height = 1, .depth = UINT64_MAX, .slice_bytes = UINT64_MAX}, 0},
        {{.width_bytes = UINT64_MAX, .height = 2, .depth = 1, .pitch_bytes = UINT64_MAX}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        if (flyt_region_span_bytes(&cases[i].span, &bytes) != (cases[i].bytes != 0) || bytes != cases[i].bytes)
            fail_msg("case %zu: %llu", i, (unsigned long long)bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_see_the_same),
        cmocka_unit_test(what_is_none_is_not_mapped),
        cmocka_unit_test(spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
