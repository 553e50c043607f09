/* migrate, migrations, and what drain and resize move, as real processes against a manager with canned answers. */
#include "control/flytctl/test_command.h"

#define MIGRATION(phase_, reason_)                                                                                     \
    "[{\"id\":\"000000000000feed\",\"allocation\":\"0000000000000abc\",\"vm_ip\":\"10.0.0.1\",\"source\":\"n1:0\","    \
    "\"target\":\"n1:1\",\"phase\":\"" phase_ "\",\"reason\":" reason_ ",\"sessions\":2,\"round\":3,"                  \
    "\"memory_bytes\":4294967296,\"copied_bytes\":6442450944,\"left_bytes\":0,\"dirty_bytes\":1048576,"                \
    "\"bytes_per_s\":1073741824,\"elapsed_ms\":2500,\"standstill_us\":41500,\"started_ms\":1}]"

static const struct test_view moved[] = {{"migrations", MIGRATION("done", "null"), 1}, {NULL, NULL, 0}};
static const struct test_view stayed[] = {{"migrations", MIGRATION("failed", "\"solver did not stop\""), 1},
                                          {NULL, NULL, 0}};
static const struct test_view moving[] = {{"migrations", MIGRATION("copying", "null"), 1}, {NULL, NULL, 0}};

static void test_migrate(void **state)
{
    server.views = moved;
    RUN("migrate", "10.0.0.1", "--to", "n1:1", "--rounds", "4", "--stop-timeout", "750", "--timeout", "1.5", "--rest",
        "32M", "--force", "--streams", "8", "--pack", "zstd");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "10.0.0.1 has moved to n1:1: 2 programs, 6.0GiB copied in 3 rounds and 2.5 s, "
                                    "standstill 41.5 ms\n");
    assert_string_equal(server.vm, "10.0.0.1");
    assert_string_equal(server.target, "n1:1");
    assert_string_equal(server.selector, "000000000000feed");
    assert_int_equal(server.migrate.bounds.rounds_max, 4);
    assert_int_equal(server.migrate.bounds.stop_ms, 750);
    assert_int_equal(server.migrate.bounds.timeout_s, 2);
    assert_int_equal(server.migrate.bounds.rest_bytes, 32 << 20);
    assert_true(server.migrate.force);
    assert_int_equal(server.migrate.stream_count, 8);
    assert_int_equal(server.migrate.packing, 2);
    assert_false(server.migrate.compute_units.is_set || server.migrate.memory_bytes.is_set);
    RUN("migrate", "10.0.0.1", "-o", "json");
    EXPECT_STATUS(0);
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "phase")->valuestring, "done");
    cJSON_Delete(got);
    assert_string_equal(server.target, "");
    assert_false(server.migrate.force || server.migrate.bounds.rounds_max || server.migrate.bounds.timeout_s);
    assert_false(server.migrate.stream_count || server.migrate.packing);
    RUN("migrate", "10.0.0.1", "--streams", "9");
    EXPECT_STATUS(2);
    RUN("migrate", "10.0.0.1", "--streams", "0");
    EXPECT_STATUS(2);
    RUN("migrate", "10.0.0.1", "--pack", "gzip");
    EXPECT_STATUS(2);
    assert_int_equal(server.migrate_count, 2);
    server.views = stayed;
    RUN("migrate", "10.0.0.1");
    EXPECT_STATUS(1);
    assert_string_equal(result.err, "flytctl: VM 10.0.0.1 stays where it is: solver did not stop\n");
    server.migrate_status = FLYT_STATUS_NO_CAPACITY;
    RUN("migrate", "10.0.0.1", "-o", "json");
    EXPECT_STATUS(1);
    EXPECT_IN(result.err, "there is no room");
    got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "status")->valuestring, "no_capacity");
    cJSON_Delete(got);
    server.migrate_status = FLYT_STATUS_NOT_FOUND;
    RUN("migrate", "10.0.0.1");
    EXPECT_STATUS(3);
    server.migrate_status = FLYT_STATUS_OK;
    /* Who does not wait. */
    server.views = moving;
    RUN("migrate", "10.0.0.1", "--detach");
    EXPECT_STATUS(0);
    assert_string_equal(result.out,
                        "VM 10.0.0.1 moves to n1:1: `flytctl migrations 000000000000feed` shows how far it is\n");
    RUN("migrations");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "000000000000feed  10.0.0.1  n1:0  n1:1  copying");
    EXPECT_IN(result.out, "41.5ms");
}

static unsigned round_now = 3, dirty_mib_now = 1;

static char *line_after(const char *phase, const char *reason, unsigned left_mib)
{
    static char json[512];
    const struct test_view views[] = {{"migrations", json, 1}, {NULL, NULL, 0}};

    snprintf(json, sizeof json,
             "[{\"id\":\"000000000000feed\",\"vm_ip\":\"10.0.0.1\",\"target\":\"n1:1\",\"phase\":\"%s\",\"reason\":%s,"
             "\"round\":%u,\"rounds_max\":2,\"memory_bytes\":4294967296,\"copied_bytes\":6442450944,"
             "\"left_bytes\":%llu,\"dirty_bytes\":%llu,\"bytes_per_s\":1073741824}]",
             phase, reason, round_now, (unsigned long long)left_mib << 20, (unsigned long long)dirty_mib_now << 20);
    server.views = views;
    test_interrupt_after_ms = 1;
    RUN("migrate", "10.0.0.1");
    test_interrupt_after_ms = 0;
    server.views = NULL;
    EXPECT_STATUS(6);
    EXPECT_IN(result.err, "`flytctl migrations 000000000000feed` shows it");
    return result.out;
}

/* What who follows one sees, until Ctrl-C: that ends no migration. */
static void test_progress(void **state)
{
    assert_string_equal(line_after("copying", "null", 2048),
                        "VM 10.0.0.1 to n1:1: copying round 3, 6.0GiB copied of 4.0GiB, 1MiB changed, 1.0GiB/s, about "
                        "2s more\n");
    /* What changes is not known before the first round has ended; nothing is said where nothing is. */
    round_now = 1;
    assert_string_equal(line_after("copying", "null", 2048),
                        "VM 10.0.0.1 to n1:1: copying round 1, 6.0GiB copied of 4.0GiB, 1MiB changed, 1.0GiB/s, at "
                        "least 2s more\n");
    /* 2 GiB of 3 that it has copied since have changed in its first round. */
    round_now = 2;
    dirty_mib_now = 2048;
    assert_string_equal(line_after("copying", "null", 2048),
                        "VM 10.0.0.1 to n1:1: copying round 2, 6.0GiB copied of 4.0GiB, 2.0GiB changed, 1.0GiB/s, "
                        "about 2s more (ends by the round limit)\n");
    round_now = 3;
    dirty_mib_now = 1;
    assert_string_equal(line_after("stopping", "null", 0), "VM 10.0.0.1 to n1:1: stopping\n");
    assert_string_equal(line_after("switching", "\"node n2 is away\"", 0),
                        "VM 10.0.0.1 to n1:1: switching, node n2 is away\n");
    assert_int_equal(server.cancel_count, 0);
}

static void test_migrate_cancel(void **state)
{
    server.views = moved;
    RUN("migrate", "10.0.0.1", "--cancel");
    EXPECT_STATUS(3);
    assert_int_equal(server.cancel_count, 0);
    server.views = moving;
    RUN("migrate", "10.0.0.1", "--cancel", "--detach");
    EXPECT_STATUS(0);
    assert_int_equal(server.cancel_count, 1);
    EXPECT_IN(result.out, "is to end");
    server.status = FLYT_STATUS_OK;
    RUN("migrate", "10.0.0.1", "--cancel", "--to", "n1");
    EXPECT_STATUS(2);
    RUN("migrate", "10.0.0.1", "--rounds", "0");
    EXPECT_STATUS(2);
    assert_int_equal(server.migrate_count, 0);
}

static const struct test_view drained[] = {
    {"nodes", "[{\"name\":\"n1\",\"state\":\"up\"}]", 1},
    {"gpus",
     "[{\"uuid\":\"GPU-aa11\",\"node\":\"n1\",\"index\":0},{\"uuid\":\"GPU-aa22\",\"node\":\"n1\",\"index\":1}]", 1},
    {"migrations", MIGRATION("done", "null"), 1},
    {NULL, NULL, 0},
};

/* drain --migrate, and resize --migrate where there is no room. */
static void test_migrate_instead(void **state)
{
    server.views = drained;
    RUN("drain", "n1:0", "--migrate", "--stop-timeout", "10", "--pack", "lz4");
    EXPECT_STATUS(0);
    assert_int_equal(server.migrate.packing, 1);
    assert_int_equal(server.migrate_count, 1);
    assert_int_equal(server.migrate.bounds.stop_ms, 10);
    assert_int_equal(server.schedule.schedule, FLYT_SCHEDULE_DRAINING);
    EXPECT_IN(result.out, "10.0.0.1 has moved to n1:1");
    server.migrate_status = FLYT_STATUS_NO_CAPACITY;
    RUN("drain", "n1:0", "--migrate");
    EXPECT_STATUS(1);
    assert_string_equal(result.out, "10.0.0.1 stays where it is: there is no room\n");
    EXPECT_IN(result.err, "0 moved, 1 not");
    RUN("drain", "n1:0");
    EXPECT_STATUS(0);
    assert_int_equal(server.migrate_count, 2);
    /* The resize has room: nothing moves. */
    server.migrate_status = FLYT_STATUS_OK;
    RUN("resize", "10.0.0.1", "--sm", "24", "--migrate");
    EXPECT_STATUS(0);
    assert_int_equal(server.migrate_count, 2);
    server.status = FLYT_STATUS_NO_CAPACITY;
    RUN("resize", "10.0.0.1", "--sm", "24");
    EXPECT_STATUS(1);
    assert_int_equal(server.migrate_count, 2);
    RUN("resize", "10.0.0.1", "--sm", "24", "--migrate");
    assert_int_equal(server.migrate_count, 3);
    assert_true(server.migrate.compute_units.is_set && server.migrate.compute_units.value == 24);
    assert_false(server.migrate.memory_bytes.is_set);
    RUN("resize", "10.0.0.1", "--priority", "1", "--migrate");
    EXPECT_STATUS(2);
}

#define TEST(name_) cmocka_unit_test_setup(name_, test_command_begin)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_migrate),
        TEST(test_progress),
        TEST(test_migrate_cancel),
        TEST(test_migrate_instead),
    };

    return cmocka_run_group_tests(tests, test_command_begin_all, test_command_end_all);
}
