/* checkpoint, checkpoints, restore, as real processes against a manager with canned answers. */
#include "control/flytctl/test_command.h"

#define SAVING(kind_, phase_, reason_, leave_running_)                                                                 \
    "[{\"id\":\"000000000000beef\",\"kind\":\"" kind_                                                                  \
    "\",\"vm_ip\":\"10.0.0.1\",\"node\":\"n1\",\"folder\":\"/images\","                                                \
    "\"leave_running\":" leave_running_ ",\"phase\":\"" phase_ "\",\"reason\":" reason_ ",\"sessions\":2,"             \
    "\"memory_bytes\":4294967296,\"copied_bytes\":4294967296,\"kept_bytes\":1073741824,\"standstill_us\":41500,"       \
    "\"elapsed_ms\":2500,"                                                                                             \
    "\"started_ms\":1}]"

static const struct test_view suspended[] = {{"checkpoints", SAVING("checkpoint", "done", "null", "false"), 1},
                                             {NULL, NULL, 0}};
static const struct test_view running[] = {{"checkpoints", SAVING("checkpoint", "done", "null", "true"), 1},
                                           {NULL, NULL, 0}};
static const struct test_view failed[] = {
    {"checkpoints", SAVING("checkpoint", "failed", "\"solver did not stop\"", "false"), 1}, {NULL, NULL, 0}};
static const struct test_view copying[] = {{"checkpoints", SAVING("checkpoint", "copying", "null", "false"), 1},
                                           {NULL, NULL, 0}};
static const struct test_view restored[] = {{"checkpoints", SAVING("restore", "done", "null", "false"), 1},
                                            {NULL, NULL, 0}};
static const struct test_view damaged[] = {
    {"checkpoints", SAVING("restore", "failed", "\"an image is damaged\"", "false"), 1}, {NULL, NULL, 0}};

static void test_checkpoint(void **state)
{
    server.views = suspended;
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "--pack", "zstd", "--stop-timeout", "750", "--timeout", "1.5");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "2 programs with 4.0GiB (1.0GiB unchanged, in earlier images) written to /images "
                                    "on node n1 in 2.5 s; waiting for a restore\n");
    assert_string_equal(server.vm, "10.0.0.1");
    assert_string_equal(server.target, "/images");
    assert_string_equal(server.selector, "000000000000beef");
    assert_int_equal(server.checkpoint.session_id, 0);
    assert_int_equal(server.checkpoint.packing, 2);
    assert_int_equal(server.checkpoint.stop_ms, 750);
    assert_int_equal(server.checkpoint.timeout_s, 2);
    assert_false(server.checkpoint.leave_running || server.checkpoint.full);
    server.views = running;
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "--leave-running", "--full");
    EXPECT_STATUS(0);
    assert_true(server.checkpoint.full);
    EXPECT_IN(result.out, "in 2.5 s; running on, standstill 41.5 ms\n");
    assert_true(server.checkpoint.leave_running);
    assert_int_equal(server.checkpoint.packing, 1);
    assert_false(server.checkpoint.stop_ms || server.checkpoint.timeout_s);
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "--pack", "none", "-o", "json");
    EXPECT_STATUS(0);
    assert_int_equal(server.checkpoint.packing, 0);
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "phase")->valuestring, "done");
    cJSON_Delete(got);
    server.views = copying;
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "--detach");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "checkpoint 000000000000beef has begun: `flytctl checkpoints 000000000000beef` "
                                    "shows how far it is\n");
    RUN("checkpoints", "10.0.0.1");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "000000000000beef  checkpoint  10.0.0.1  n1");
    /* Who follows it may go: it goes on. */
    test_interrupt_after_ms = 1000;
    RUN("checkpoint", "10.0.0.1", "--to", "/images");
    test_interrupt_after_ms = 0;
    EXPECT_STATUS(6);
    EXPECT_IN(result.out, "VM 10.0.0.1 to /images: copying, 4.0GiB of 4.0GiB\n");
    EXPECT_IN(result.err, "`flytctl checkpoints 000000000000beef` shows it");
}

static void test_refused(void **state)
{
    server.views = failed;
    RUN("checkpoint", "10.0.0.1", "--to", "/images");
    EXPECT_STATUS(1);
    assert_string_equal(result.out, "");
    assert_string_equal(result.err, "flytctl: solver did not stop\n");
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "-o", "json");
    EXPECT_STATUS(1);
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "reason")->valuestring, "solver did not stop");
    cJSON_Delete(got);
    server.saving_status = FLYT_STATUS_CONFLICT;
    RUN("checkpoint", "10.0.0.1", "--to", "/images");
    EXPECT_STATUS(1);
    assert_string_equal(result.err, "flytctl: it is being resized\n");
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "-o", "json");
    EXPECT_STATUS(1);
    got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "status")->valuestring, "conflict");
    cJSON_Delete(got);
    server.saving_status = FLYT_STATUS_NOT_FOUND;
    RUN("restore", "/images");
    EXPECT_STATUS(3);
}

static const struct test_view programs[] = {
    {"vms", "[{\"vm_ip\":\"10.0.0.1\",\"name\":\"cafe\"}]", 1},
    {"sessions", "[{\"id\":\"00000000000000a1\"},{\"id\":\"00000000000000b2\"},{\"id\":\"1000000000000001\"}]", 1},
    {"checkpoints", SAVING("checkpoint", "done", "null", "false"), 1},
    {NULL, NULL, 0}};

/* A program by its id; a VM whose name looks like one is the VM. */
static void test_program(void **state)
{
    server.views = programs;
    RUN("checkpoint", "1000", "--to", "/images");
    EXPECT_STATUS(0);
    assert_string_equal(server.vm, "");
    assert_true(server.checkpoint.session_id == 0x1000000000000001);
    RUN("checkpoint", "cafe", "--to", "/images");
    EXPECT_STATUS(0);
    assert_string_equal(server.vm, "10.0.0.1");
    assert_true(server.checkpoint.session_id == 0);
    RUN("checkpoint", "0000", "--to", "/images");
    EXPECT_STATUS(2);
    RUN("checkpoint", "dead", "--to", "/images");
    EXPECT_STATUS(3);
    assert_int_equal(server.checkpoint_count, 2);
}

static void test_restore(void **state)
{
    server.views = restored;
    RUN("restore", "/images", "--node", "n1", "--timeout", "90");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "2 programs with 4.0GiB restored from /images on node n1 in 2.5 s\n");
    assert_string_equal(server.vm, "n1");
    assert_string_equal(server.target, "/images");
    assert_int_equal(server.restore.timeout_s, 90);
    server.views = damaged;
    RUN("restore", "/images");
    EXPECT_STATUS(1);
    assert_string_equal(server.vm, "");
    assert_string_equal(result.err, "flytctl: an image is damaged\n");
}

static void test_wrong_words(void **state)
{
    RUN("checkpoint", "10.0.0.1");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "--to");
    RUN("checkpoint", "10.0.0.1", "--to", "images");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "whole path");
    RUN("checkpoint", "10.0.0.1", "--to", "/images", "--pack", "gzip");
    EXPECT_STATUS(2);
    RUN("restore", "images");
    EXPECT_STATUS(2);
    RUN("restore");
    EXPECT_STATUS(2);
    assert_int_equal(server.checkpoint_count + server.restore_count, 0);
}

#define TEST(name_) cmocka_unit_test_setup(name_, test_command_begin)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_checkpoint), TEST(test_refused), TEST(test_program), TEST(test_restore), TEST(test_wrong_words),
    };

    return cmocka_run_group_tests(tests, test_command_begin_all, test_command_end_all);
}
