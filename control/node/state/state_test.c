/* Tests of what is kept over restarts: all of it comes back, a damaged file is refused, a failed write changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/gpu/gpu.h"
#include "control/node/state/checkpointed.h"
#include "control/node/state/departed.h"
#include "control/node/state/image_uncommitted.h"
#include "control/node/state/killed.h"
#include "control/node/state/receive_record.h"
#include "control/node/state/state.h"

static char folder[64], file[80];

static int set_up(void **state)
{
    strcpy(folder, "/tmp/flyt-state-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/state.json", folder);
    return 0;
}

static int tear_down(void **state)
{
    char part[96];

    snprintf(part, sizeof part, "%s.part", file);
    unlink(part);
    rmdir(part);
    unlink(file);
    return rmdir(folder);
}

static flyt_allocation example(void)
{
    static u_int groups[] = {3, 5, 255};
    static flyt_slot slots[2] = {
        {.gpu_uuid = (char *)"GPU-1",
         .device_index = 0,
         .sm_count = 24,
         .sm_groups = {3, groups},
         .memory_bytes = 0xfedcba9876543210ull,
         .priority = -3},
        {.gpu_uuid = (char *)"GPU-2", .device_index = 1, .memory_bytes = 1, .maximum_share_pct = 50, .window_ms = 100},
    };

    return (flyt_allocation){.id = 0x8000000000000001ull,
                             .vm_ip = (char *)"fe80::1",
                             .tenant = (char *)"a \"quoted\" tenant",
                             .state = FLYT_ALLOCATION_BLOCKED,
                             .isolation = FLYT_ISOLATION_STRICT,
                             .revision = UINT64_MAX - 1,
                             .generation = 7,
                             .sessions_max = 9,
                             .when_free = TRUE,
                             .slots = {2, slots}};
}

static void test_all_comes_back(void **state)
{
    struct flyt_node_state one, other;
    const flyt_allocation allocation = example(), *all[] = {&allocation, &allocation};
    struct flyt_error err;
    struct stat info;
    bool is_new;

    assert_int_equal(flyt_node_state_read(folder, &err, &one, &is_new), 0);
    assert_true(is_new);
    assert_int_equal(one.key_number, 1);
    assert_int_equal(one.allocation_count, 0);
    one.epoch = FLYT_NODE_EPOCH_MAX; /* a double holds it exactly, and no more */
    one.key_number = 4000000000u;
    strcpy(one.boot_id, "boot-1");
    strcpy(one.group_sizes[0].uuid, "GPU-1");
    one.group_sizes[0].group_size = 2;
    one.group_size_count = 1;
    assert_int_equal(flyt_node_state_write(folder, &one, all, 2, &err), 0);
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600); /* there is a key in it */
    assert_int_equal(flyt_node_state_read(folder, &err, &other, &is_new), 0);
    assert_false(is_new);
    assert_memory_equal(one.node_key, other.node_key, sizeof one.node_key);
    assert_true(other.epoch == one.epoch);
    assert_int_equal(other.key_number, one.key_number);
    assert_string_equal(other.boot_id, "boot-1");
    assert_int_equal(other.group_size_count, 1);
    assert_int_equal(other.group_sizes[0].group_size, 2);
    assert_int_equal(other.allocation_count, 2);
    const flyt_allocation *back = &other.allocations[1];
    assert_true(back->id == allocation.id && back->revision == allocation.revision);
    assert_string_equal(back->tenant, allocation.tenant);
    assert_int_equal(back->state, FLYT_ALLOCATION_BLOCKED);
    assert_int_equal(back->slots.slots_len, 2);
    assert_true(back->slots.slots_val[0].memory_bytes == 0xfedcba9876543210ull);
    assert_int_equal(back->slots.slots_val[0].sm_groups.sm_groups_val[2], 255);
    assert_int_equal(back->slots.slots_val[0].priority, -3);
    assert_int_equal(back->slots.slots_val[1].maximum_share_pct, 50);
    assert_int_equal(back->slots.slots_val[1].window_ms, 100);
    assert_true(back->when_free && !back->is_encrypted && !back->is_suspended);
    assert_int_equal(back->generation, 7);
    assert_int_equal(back->sessions_max, 9);
    assert_int_equal(back->isolation, FLYT_ISOLATION_STRICT);
    flyt_node_state_fini(&other);
    flyt_node_state_fini(&one);
}

/* The file as text with `from` replaced by `to`, read again. */
static int read_changed_why(const char *from, const char *to, struct flyt_node_state *ret_state, struct flyt_error *err)
{
    char text[16384], changed[16384];
    bool is_new;
    FILE *in = fopen(file, "r");
    size_t bytes = fread(text, 1, sizeof text - 1, in);

    fclose(in);
    text[bytes] = 0;
    char *at = strstr(text, from);
    assert_non_null(at);
    int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_true(length < (int)sizeof changed);
    FILE *out = fopen(file, "w");
    assert_int_equal(fwrite(changed, 1, (size_t)length, out), length);
    fclose(out);
    int status = flyt_node_state_read(folder, err, ret_state, &is_new);
    out = fopen(file, "w");
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    fclose(out);
    return status;
}

static int read_changed(const char *from, const char *to, struct flyt_node_state *ret_state)
{
    struct flyt_error err;

    return read_changed_why(from, to, ret_state, &err);
}

/* A build that knew less, and one that knows more; and one whose allocations this one cannot read. */
static void test_other_builds(void **state)
{
    struct flyt_node_state one = {.key_number = 3, .epoch = 9}, other;
    const flyt_allocation allocation = example(), *all[] = {&allocation};
    struct flyt_error err;

    assert_int_equal(flyt_node_state_write(folder, &one, all, 1, &err), 0);
    assert_int_equal(read_changed("\"when_free\":\t\"1\",", "", &other), 0);
    assert_false(other.allocations[0].when_free);
    assert_true(other.allocations[0].revision == allocation.revision);
    flyt_node_state_fini(&other);
    assert_int_equal(read_changed("\"when_free\":", "\"colour\":\t\"red\",\n\"when_free\":", &other), 0);
    assert_true(other.allocations[0].when_free);
    flyt_node_state_fini(&other);
    assert_int_equal(read_changed("\"version\":\t\"2\"", "\"version\":\t\"1\"", &other), 0);
    assert_int_equal(other.allocation_count, 0);
    assert_int_equal(other.epoch, 9);
    flyt_node_state_fini(&other);
    /* What it cannot be. */
    assert_int_equal(read_changed("\"version\":\t\"2\"", "\"version\":\t\"3\"", &other), -EBADMSG);
    assert_int_equal(read_changed("\"state\":\t\"2\"", "\"state\":\t\"5\"", &other), -EBADMSG);
    assert_int_equal(read_changed("\"revision\":", "\"no_revision\":", &other), -EBADMSG);
    assert_int_equal(read_changed("\"epoch\":\t\"9\"", "\"epoch\":\t\"18446744073709551615\"", &other), -EBADMSG);
    assert_int_equal(read_changed("255]", "256]", &other), -EBADMSG);
    assert_int_equal(read_changed("\"device_index\":\t\"1\"", "\"device_index\":\t\"15\"", &other), -EBADMSG);
}

/* The file as it is written, byte for byte: other builds read it. */
static void test_the_format_stays(void **state)
{
    struct flyt_node_state one;
    struct flyt_error err = {0};
    bool is_new;
    char golden[4096];
    FILE *in = fopen(FLYT_STATE_GOLDEN, "r");

    assert_non_null(in);
    golden[fread(golden, 1, sizeof golden - 1, in)] = 0;
    fclose(in);
    assert_int_equal(symlink(FLYT_STATE_GOLDEN, file), 0);
    if (flyt_node_state_read(folder, &err, &one, &is_new))
        fail_msg("%s", err.text);
    assert_int_equal(one.node_key[31], 31 * 9 % 256);
    assert_true(one.checkpointed->session_id == UINT64_MAX && one.checkpointed->is_encrypted &&
                one.checkpointed->leaves_coredumps);
    assert_int_equal(one.checkpointed->token[1], 254);
    assert_true(one.left->allocation_id == UINT64_MAX && one.left->next->migration_id == 2 && !one.left->next->next);
    assert_true(one.receiving->is_switched && one.receiving->moved[1] == UINT64_MAX);
    assert_string_equal(one.uncommitted->folder, "/images");
    assert_int_equal(one.killed->session_id, 9);
    char *text = flyt_node_state_print(&one, (const flyt_allocation *const[]){one.allocations}, one.allocation_count);
    assert_string_equal(text, golden);
    free(text);
    flyt_node_state_fini(&one);
}

static void expect_damage(const char *from, const char *to, const char *sentence)
{
    struct flyt_node_state other;
    struct flyt_error err;

    assert_int_equal(read_changed_why(from, to, &other, &err), -EBADMSG);
    if (!strstr(err.text, sentence))
        fail_msg("%s", err.text);
}

static void test_damage_is_named(void **state)
{
    struct flyt_node_state one = {.key_number = 1, .epoch = 9};
    const flyt_allocation allocation = example(), *all[] = {&allocation};
    struct flyt_error err;

    assert_int_equal(flyt_node_state_write(folder, &one, all, 1, &err), 0);
    expect_damage("\"epoch\":\t\"9\"", "\"epoch\":\t9", "(epoch is not a number as text)");
    expect_damage("\"epoch\":", "\"epocs\":", "(epoch is missing)");
    expect_damage("255]", "256]", "(allocations[0].slots[0].sm_groups[2] is 256, not between 0 and 255)");
    expect_damage("\"revision\":\t\"1", "\"revision\":\t\"91", "(allocations[0].revision is 9");
    expect_damage("\"vm_ip\":\t\"fe80::1\"", "\"vm_ip\":\t[]", "(allocations[0].vm_ip is not text)");
    expect_damage("\"version\"", "version", "(it is not JSON)");
}

static void test_keys_are_random(void **state)
{
    struct flyt_node_state one, other;
    struct flyt_error err;
    bool is_new;

    assert_int_equal(flyt_node_state_read(folder, &err, &one, &is_new), 0);
    assert_int_equal(flyt_node_state_read(folder, &err, &other, &is_new), 0);
    assert_memory_not_equal(one.node_key, other.node_key, sizeof one.node_key);
}

/* Cut anywhere, or with any one byte changed: refused or still whole, never a crash or half of it. */
static void test_damage_is_noticed(void **state)
{
    struct flyt_node_state one = {.key_number = 1}, other;
    const flyt_allocation allocation = example(), *all[] = {&allocation};
    struct flyt_error err;
    bool is_new;
    char text[8192];

    assert_int_equal(flyt_node_state_write(folder, &one, all, 1, &err), 0);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    ssize_t bytes = read(fd, text, sizeof text);
    assert_true(bytes > 100 && bytes < (ssize_t)sizeof text);
    for (ssize_t cut = 0; cut < bytes - 1; cut++) { /* the last byte is a brace, perhaps behind a newline */
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, text, (size_t)cut, 0), cut);
        if (flyt_node_state_read(folder, &err, &other, &is_new) != -EBADMSG)
            fail_msg("%zd of %zd bytes are taken", cut, bytes);
        assert_non_null(strstr(err.text, file));
    }
    for (ssize_t at = 0; at < bytes; at++) {
        char spoilt = (char)(text[at] ^ 0x15);
        assert_int_equal(pwrite(fd, text, (size_t)bytes, 0), bytes);
        assert_int_equal(pwrite(fd, &spoilt, 1, at), 1);
        if (!flyt_node_state_read(folder, &err, &other, &is_new))
            flyt_node_state_fini(&other);
    }
    close(fd);
}

static void test_failed_write_changes_nothing(void **state)
{
    struct flyt_node_state one = {.key_number = 1, .epoch = 5}, other;
    struct flyt_error err = {0};
    bool is_new;
    char part[96];

    assert_int_equal(flyt_node_state_write(folder, &one, NULL, 0, &err), 0);
    snprintf(part, sizeof part, "%s.part", file);
    assert_int_equal(mkdir(part, 0700), 0); /* in the way */
    one.epoch = 6;
    assert_int_equal(flyt_node_state_write(folder, &one, NULL, 0, &err), -EISDIR);
    assert_non_null(strstr(err.text, "cannot be written"));
    assert_int_equal(flyt_node_state_read(folder, &err, &other, &is_new), 0);
    assert_int_equal(other.epoch, 5);
    flyt_node_state_fini(&other);
    assert_int_equal(flyt_node_state_write("/nowhere", &one, NULL, 0, &err), -ENOENT);
}

static uint64_t epoch_there(void)
{
    struct flyt_node_state there;
    struct flyt_error err = {0};
    bool is_new;

    assert_int_equal(flyt_node_state_read(folder, &err, &there, &is_new), 0);
    uint64_t epoch = is_new ? 0 : there.epoch;
    flyt_node_state_fini(&there);
    return epoch;
}

/* What is written ahead changes nothing, and is put in its place, the very file, where the state is that one. */
static int become(struct flyt_node_state *state, struct flyt_error *err)
{
    char *text = flyt_node_state_print(state, NULL, 0);

    assert_non_null(text);
    int status = flyt_node_state_become(folder, state, text, err);
    free(text);
    return status;
}

static void test_a_state_is_written_ahead(void **state)
{
    struct flyt_node_state one = {.key_number = 1, .epoch = 5};
    struct flyt_error err = {0};
    struct stat ahead, there;
    char next[96];

    snprintf(next, sizeof next, "%s.next", file);
    assert_int_equal(flyt_node_state_write(folder, &one, NULL, 0, &err), 0);
    one.epoch = 6;
    assert_int_equal(flyt_node_state_write_ahead(folder, &one, flyt_node_state_print(&one, NULL, 0), &err), 0);
    assert_int_equal(epoch_there(), 5);
    assert_int_equal(stat(next, &ahead), 0);
    assert_int_equal(ahead.st_mode & 0777, 0600); /* there is a key in it */
    assert_int_equal(become(&one, &err), 0);
    assert_int_equal(stat(file, &there), 0);
    assert_int_equal(there.st_ino, ahead.st_ino);
    assert_int_equal(epoch_there(), 6);
    assert_true(one.is_sync_due);
    assert_int_equal(flyt_node_state_settle(folder, &one, &err), 0);
    assert_false(one.is_sync_due);
    /* Once. */
    one.epoch = 7;
    assert_int_equal(become(&one, &err), 0);
    assert_int_equal(epoch_there(), 7);
    assert_false(one.is_sync_due);
    flyt_node_state_fini(&one);
}

/* The state has become another one than was written ahead, or what was written is not there any more. */
static void test_a_state_is_written_ahead_in_vain(void **state)
{
    struct flyt_node_state one = {.key_number = 1, .epoch = 5};
    struct flyt_error err = {0};
    char next[96];

    snprintf(next, sizeof next, "%s.next", file);
    assert_int_equal(flyt_node_state_write_ahead(folder, &one, flyt_node_state_print(&one, NULL, 0), &err), 0);
    one.epoch = 6;
    assert_int_equal(become(&one, &err), 0);
    assert_int_equal(epoch_there(), 6);
    assert_int_equal(flyt_node_state_settle(folder, &one, &err), 0);
    assert_int_equal(access(next, F_OK), -1);
    assert_null(one.ahead);
    assert_int_equal(flyt_node_state_write_ahead(folder, &one, flyt_node_state_print(&one, NULL, 0), &err), 0);
    assert_int_equal(unlink(next), 0);
    assert_int_equal(become(&one, &err), 0);
    assert_int_equal(epoch_there(), 6);
    /* It cannot be written: then it is written when it has to be. */
    assert_int_equal(mkdir(next, 0700), 0);
    one.epoch = 7;
    assert_int_equal(flyt_node_state_write_ahead(folder, &one, flyt_node_state_print(&one, NULL, 0), &err), -EISDIR);
    assert_null(one.ahead);
    assert_int_equal(become(&one, &err), 0);
    assert_int_equal(epoch_there(), 7);
    assert_int_equal(rmdir(next), 0);
    flyt_node_state_fini(&one);
}

static void test_uuids(void **state)
{
    static const char *const bad[] = {"",
                                      "GPU-",
                                      "MIG-11111111-2222-3333-4444-555555555555",
                                      "GPU-11111111-2222-3333-4444-55555555555",
                                      "GPU-1111111g-2222-3333-4444-555555555555",
                                      "GPU-11111111-2222-3333-4444-5555555555556",
                                      "GPU-111111112222-3333-4444-5555555555555"};
    unsigned char bytes[FLYT_UUID_BYTES];
    char text[FLYT_NODE_UUID_BYTES];

    assert_int_equal(flyt_node_uuid_parse("GPU-01234567-89ab-cdef-0123-456789abcdef", bytes), 0);
    assert_int_equal(bytes[0], 0x01);
    assert_int_equal(bytes[15], 0xef);
    flyt_node_uuid_print(bytes, text);
    assert_string_equal(text, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (flyt_node_uuid_parse(bad[i], bytes) != -EINVAL)
            fail_msg("%s is taken", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_builds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_format_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys_are_random, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failed_write_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_state_is_written_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_state_is_written_ahead_in_vain, set_up, tear_down),
        cmocka_unit_test(test_uuids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
