/* How a region comes to its server: with descriptors and without, and sides that end or say nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/region.h"
#include "rpc/transport/region_offer.h"
#include "rpc/transport/endpoint/rings.h"

struct ends {
    struct flyt_endpoint *client, *server;
    unsigned answer;
    bool came, is_same;
};

static void open_ends(struct ends *ends)
{
    int fds[2];
    *ends = (struct ends){.answer = FLYT_REGION_IS_SEEN};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(flyt_endpoint_of_socket(fds[0], &ends->client), 0);
    assert_int_equal(flyt_endpoint_of_socket(fds[1], &ends->server), 0);
}

static void close_ends(struct ends *ends)
{
    flyt_endpoint_close(ends->client);
    flyt_endpoint_close(ends->server);
}

static void *serve(void *argument)
{
    struct ends *ends = argument;
    struct flyt_region region = {0};
    int fd = -2;
    if (flyt_region_await(ends->server, &fd))
        return NULL;
    ends->came = fd >= 0;
    ends->is_same = fd >= 0 && !flyt_region_map(fd, &region) && region.base[4096] == 77;
    flyt_region_unmap(&region);
    flyt_close(fd);
    return flyt_region_answer(ends->server, ends->answer) ? NULL : ends;
}

static int offer(struct ends *ends, int fd, unsigned *ret_use)
{
    pthread_t thread;
    void *served;
    assert_int_equal(pthread_create(&thread, NULL, serve, ends), 0);
    int status = flyt_region_offer(ends->client, fd, flyt_clock_ms() + 60000, -1, ret_use);
    pthread_join(thread, &served);
    assert_ptr_equal(served, ends);
    return status;
}

static void the_server_has_what_was_offered(void **state)
{
    struct flyt_region region;
    struct ends ends;
    unsigned use = 0;
    int fd;
    assert_int_equal(flyt_region_new(&region, &fd), 0);
    region.base[4096] = 77;
    open_ends(&ends);
    ends.answer = FLYT_REGION_IS_SEEN | FLYT_REGION_IS_MAPPED | 64;
    assert_int_equal(offer(&ends, fd, &use), 0);
    assert_true(ends.came && ends.is_same);
    assert_int_equal(use, FLYT_REGION_IS_SEEN | FLYT_REGION_IS_MAPPED | 64);
    close_ends(&ends);
    flyt_region_unmap(&region);
    close(fd);
}

static void a_client_may_have_none(void **state)
{
    struct ends ends;
    unsigned use = 9;
    open_ends(&ends);
    ends.answer = 0;
    assert_int_equal(offer(&ends, -1, &use), 0);
    assert_false(ends.came);
    assert_int_equal(use, 0);
    close_ends(&ends);
}

static void whoever_goes_away_is_not_waited_for(void **state)
{
    struct ends ends;
    unsigned use;
    int fd;
    open_ends(&ends);
    flyt_endpoint_shut(ends.client, FLYT_ENDPOINT_BOTH);
    assert_int_equal(flyt_region_await(ends.server, &fd), -EPIPE);
    close_ends(&ends);
    open_ends(&ends);
    flyt_endpoint_shut(ends.server, FLYT_ENDPOINT_BOTH);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms() + 60000, -1, &use), -EPIPE);
    close_ends(&ends);
}

static void a_client_waits_as_long_as_it_has(void **state)
{
    struct ends ends;
    unsigned use;
    int cancel_fd = eventfd(1, EFD_CLOEXEC);
    open_ends(&ends);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms(), -1, &use), -ETIMEDOUT);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms() + 60000, cancel_fd, &use), -ECANCELED);
    close_ends(&ends);
    close(cancel_fd);
}

/* ---- rings in a VM's memory: here its two sides are two files' descriptors and two mappings ---- */

enum { VM_BYTES = 4 << 20 };

struct vm {
    struct ends ends;
    struct flyt_region guest, host;
    int host_fd, others_fd;
    unsigned asks_again; /* so often */
    unsigned offers;
    bool knows_mark, makes_rings;
};

static int open_anew(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static void open_vm(struct vm *vm)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *vm = (struct vm){.makes_rings = true};
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, VM_BYTES), 0);
    vm->host_fd = open_anew(fd);
    vm->others_fd = open_anew(fd);
    assert_int_equal(flyt_region_map_vm(vm->host_fd, &vm->host), 0);
    assert_int_equal(flyt_region_of_vm(fd, &vm->guest), 0);
    open_ends(&vm->ends);
}

static void close_vm(struct vm *vm)
{
    close_ends(&vm->ends);
    flyt_region_unmap(&vm->guest);
    flyt_region_unmap(&vm->host);
    close(vm->host_fd);
    close(vm->others_fd);
}

static void *serve_rings(void *argument)
{
    struct vm *vm = argument;
    struct flyt_region_place place;
    struct flyt_rings rings;
    for (;;) {
        if (flyt_region_await_rings(vm->ends.server, &place))
            return NULL;
        const bool is_none = !place.offset_bytes;
        vm->offers += !is_none;
        vm->knows_mark = !flyt_region_check_rings(&vm->host, &place);
        const bool is_again = vm->offers <= vm->asks_again && !is_none;
        if (!is_again && !is_none && vm->makes_rings)
            flyt_rings_place(vm->host.base + place.offset_bytes, &rings);
        const unsigned use = is_again ? FLYT_REGION_ASKS_AGAIN : is_none ? 0 : FLYT_REGION_IS_SEEN;
        if (flyt_region_answer(vm->ends.server, use))
            return NULL;
        if (!is_again)
            return vm;
    }
}

static unsigned offer_rings(struct vm *vm, const struct flyt_region *region, uint64_t *ret_place)
{
    pthread_t thread;
    void *served;
    unsigned use = 99;
    assert_int_equal(pthread_create(&thread, NULL, serve_rings, vm), 0);
    assert_int_equal(flyt_region_offer_rings(vm->ends.client, region, flyt_clock_ms() + 60000, -1, &use, ret_place), 0);
    pthread_join(thread, &served);
    assert_ptr_equal(served, vm);
    return use;
}

static void rings_are_where_the_client_says(void **state)
{
    struct flyt_rings rings;
    uint64_t place, second;
    struct vm vm;
    open_vm(&vm);
    assert_int_equal(offer_rings(&vm, &vm.guest, &place), FLYT_REGION_IS_SEEN);
    assert_true(vm.knows_mark && place >= FLYT_REGION_HEAD_BYTES);
    assert_int_equal(flyt_rings_join(vm.guest.base + place, &rings), 0);
    flyt_rings_close(&rings); /* which unmaps nothing */
    vm.offers = 0;
    vm.asks_again = 3;
    assert_int_equal(offer_rings(&vm, &vm.guest, &second), FLYT_REGION_IS_SEEN);
    assert_int_equal(vm.offers, 4);
    assert_true(second >= place + flyt_region_rings_bytes());
    memset(vm.guest.base + second, 0, sizeof(uint64_t));
    assert_int_equal(flyt_rings_join(vm.guest.base + second, &rings), -EBADMSG);
    uint64_t again; /* what was refused is free again: all but two */
    const uint64_t left = vm.guest.bytes - FLYT_REGION_HEAD_BYTES - 2 * flyt_region_rings_bytes();
    flyt_region_give(&vm.guest, place, flyt_region_rings_bytes());
    flyt_region_give(&vm.guest, second, flyt_region_rings_bytes());
    assert_int_equal(flyt_region_take(&vm.guest, left + 2 * flyt_region_rings_bytes(), &again), 0);
    close_vm(&vm);
}

static void a_client_without_a_place_says_so(void **state)
{
    uint64_t place = 5, all;
    struct vm vm;
    open_vm(&vm);
    assert_int_equal(offer_rings(&vm, NULL, &place), 0);
    assert_int_equal(place, 0);
    vm.offers = 0;
    vm.asks_again = 1000; /* more than there are */
    assert_int_equal(offer_rings(&vm, &vm.guest, &place), 0);
    assert_true(vm.offers > 1 && vm.offers <= FLYT_REGION_OFFERS_MAX);
    assert_int_equal(flyt_region_take(&vm.guest, vm.guest.bytes - FLYT_REGION_HEAD_BYTES, &all), 0);
    assert_int_equal(offer_rings(&vm, &vm.guest, &place), 0);
    close_vm(&vm);
}

static void what_is_no_place_for_rings(void **state)
{
    struct flyt_region_place place = {.offset_bytes = 8192, .mark = "a mark"};
    struct vm vm, other;
    open_vm(&vm);
    open_vm(&other);
    memcpy(vm.host.base + place.offset_bytes, place.mark, sizeof place.mark);
    assert_int_equal(flyt_region_check_rings(&vm.host, &place), 0);
    assert_int_equal(flyt_region_check_rings(&other.host, &place), -ENXIO); /* another VM's */
    static const uint64_t wrong[] = {0, 1, 4095, 8193, VM_BYTES, VM_BYTES - 4096, UINT64_MAX - 4095, 1ull << 63};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        place.offset_bytes = wrong[i];
        assert_int_equal(flyt_region_check_rings(&vm.host, &place), -EINVAL);
    }
    close_vm(&other);
    close_vm(&vm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_has_what_was_offered),     cmocka_unit_test(a_client_may_have_none),
        cmocka_unit_test(whoever_goes_away_is_not_waited_for), cmocka_unit_test(a_client_waits_as_long_as_it_has),
        cmocka_unit_test(rings_are_where_the_client_says),     cmocka_unit_test(a_client_without_a_place_says_so),
        cmocka_unit_test(what_is_no_place_for_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
