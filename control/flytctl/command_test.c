/*
 * Every command as a real process against a cluster manager with canned answers: what it asks, what it prints, how it
 * ends; and managers that do not lead, do not answer, close, or talk nonsense.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/flytctl/test_command.h"
#include "rpc/base/clock.h"

static const struct test_view views[] = {
    {"status",
     "[{\"manager\":\"m1\",\"build\":\"b\",\"epoch\":3,\"leader\":true,\"store\":\"sqlite\",\"store_ok\":true,"
     "\"uptime_ms\":3600000,\"nodes\":2,\"nodes_up\":1,\"gpus\":4,\"gpus_healthy\":3,\"vms\":2,"
     "\"allocations\":1,\"sessions\":5,\"sms_total\":528,\"sms_allocated\":24,"
     "\"memory_total_bytes\":603019280384,\"memory_allocated_bytes\":8589934592}]",
     1},
    {"nodes",
     "[{\"name\":\"n1\",\"state\":\"up\",\"schedule\":\"active\",\"gpus\":2,\"allocations\":1,\"sessions\":5,"
     "\"host_ip\":null,\"data_urls\":[\"tcp://10.1.0.1:9810\",\"tcp://10.2.0.1:9810\"],\"build\":\"b\","
     "\"last_seen_ms\":null}]",
     1},
    {"gpus",
     "[{\"uuid\":\"GPU-aa11\",\"node\":\"n1\",\"index\":0,\"type\":\"NVIDIA H200\",\"health\":\"ok\","
     "\"health_text\":null,\"schedule\":\"active\",\"isolation\":\"shared\",\"group_size\":8,\"sms\":132,"
     "\"sms_allocated\":24,\"groups\":16,\"groups_allocated\":3,\"memory_bytes\":150754820096,"
     "\"memory_allocated_bytes\":8589934592,\"memory_used_bytes\":1073741824,\"client_slots\":47,"
     "\"client_slots_allocated\":4,\"busy_pct\":37,\"power_w\":300,\"temperature_c\":55,\"allocations\":1},"
     "{\"uuid\":\"GPU-aa22\",\"node\":\"n1\",\"index\":1,\"type\":\"NVIDIA H200\"}]",
     1},
    {"vms",
     "[{\"vm_ip\":\"10.0.0.1\",\"name\":\"web\",\"tenant\":\"t\",\"state\":\"granted\",\"sms\":24,"
     "\"memory_bytes\":8589934592,\"devices\":1,\"connected\":true,\"programs\":2,\"node\":\"n1\"},"
     "{\"vm_ip\":\"10.0.0.2\",\"name\":\"twin\"},{\"vm_ip\":\"10.0.0.3\",\"name\":\"twin\"}]",
     1},
    {"allocations",
     "[{\"id\":\"0000000000000abc\",\"vm_ip\":\"10.0.0.1\",\"node\":\"n1\",\"gpu\":\"GPU-aa11\",\"slot\":0,"
     "\"state\":\"active\",\"sms\":24,\"sms_now\":24,\"memory_bytes\":8589934592,"
     "\"memory_now_bytes\":8589934592,\"memory_used_bytes\":1073741824,\"sessions\":1,\"sessions_max\":4,"
     "\"created_ms\":1}]",
     1},
    {"sessions",
     "[{\"id\":\"f000000000000001\",\"allocation\":\"0000000000000abc\",\"vm_ip\":\"10.0.0.1\","
     "\"node\":\"n1\",\"program\":\"train\",\"client_pid\":77,\"gpu_time_us\":1500000,\"calls\":9,"
     "\"memory_bytes\":1073741824,\"encrypted\":false,\"started_ms\":1},"
     "{\"id\":\"f100000000000001\",\"program\":\"other\"}]",
     1},
    {"tenants",
     "[{\"name\":\"t\",\"compute_units\":100,\"memory_bytes\":null,\"sessions\":null,\"vms\":3,"
     "\"sms_allocated\":24,\"memory_allocated_bytes\":8589934592,\"sessions_allocated\":4,"
     "\"vms_allocated\":1}]",
     1},
    {"events",
     "[{\"sequence\":8,\"time_ms\":1000,\"kind\":\"vm.added\",\"who\":\"operator:root\",\"object\":"
     "\"10.0.0.1\",\"text\":\"first\",\"before\":\"\",\"after\":\"\"},{\"sequence\":9,\"time_ms\":2000,"
     "\"kind\":\"vm.set\",\"who\":\"operator:root\",\"object\":\"10.0.0.1\",\"text\":\"second\"}]",
     1},
    {"explain",
     "[{\"vm_ip\":\"10.0.0.1\",\"sentence\":\"It has a document.\"},{\"vm_ip\":\"10.0.0.1\",\"sentence\":"
     "\"It runs.\"}]",
     1},
    {NULL, NULL, 0},
};

static int begin(void **state)
{
    server.views = views;
    return test_command_begin(state);
}

/* ---- views ---- */

static void test_views(void **state)
{
    RUN("gpus");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "GPU   TYPE         HEALTH  SCHEDULE     SMS        MEMORY    USED  BUSY  SLOTS\n"
                                    "n1:0  NVIDIA H200  ok      active    24/132  8.0/140.4GiB  1.0GiB   37%   4/47\n"
                                    "n1:1  NVIDIA H200  -       -            -/-           -/-       -     -    -/-\n");
    assert_string_equal(result.err, "");
    assert_int_equal(server.kind, FLYT_PEER_OPERATOR);
    assert_string_not_equal(server.name, "");
    RUN("gpus", "-o", "wide");
    EXPECT_IN(result.out, "GPU-aa11");
    RUN("status");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "GPUs healthy      3/4\n");
    EXPECT_IN(result.out, "memory allocated  8.0/561.6GiB\n");
    EXPECT_IN(result.out, "up                1h00m\n");
    RUN("nodes", "n1");
    EXPECT_STATUS(0);
    assert_string_equal(server.selector, "n1");
    RUN("tenants");
    EXPECT_IN(result.out, "t       1/3  24/100  8.0GiB/-       4/-\n");
    RUN("events", "--last", "1", "-o", "wide");
    assert_string_equal(result.out,
                        "TIME                 KIND    OBJECT    WHO            NUMBER  TEXT    BEFORE  AFTER\n"
                        "1970-01-01 00:00:02  vm.set  10.0.0.1  operator:root       9  second  -       -\n");
    RUN("session", "show", "f0");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "PROGRAM      train\n");
    EXPECT_IN(result.out, "GPU-TIME     1.5s\n");
    RUN("session", "show", "f");
    EXPECT_STATUS(2);
    RUN("session", "show", "e");
    EXPECT_STATUS(3);
    RUN("explain", "web");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "It has a document.\nIt runs.\n");
    assert_string_equal(server.selector, "10.0.0.1");
}

/* JSON is what was sent, in every view; on a terminal indented. */
static void test_view_json(void **state)
{
    for (const struct test_view *view = views; view->name; view++) {
        RUN(view->name, !strcmp(view->name, "explain") ? "10.0.0.1" : "-ojson", "-o", "json");
        if (!strcmp(view->name, "explain")) {
            EXPECT_STATUS(0);
        } else {
            EXPECT_STATUS(2); /* given twice */
            RUN(view->name, "-ojson");
            EXPECT_STATUS(0);
        }
        cJSON *sent = cJSON_Parse(view->json), *got = test_command_output();
        assert_true(cJSON_Compare(sent, got, true));
        assert_int_equal(strcspn(result.out, "\n"), result.out_bytes - 1);
        cJSON_Delete(sent);
        cJSON_Delete(got);
    }
    RUN_ON_TERMINAL("nodes", "-o", "json");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "[\r\n  {\r\n    \"name\": \"n1\",\r\n");
    RUN("session", "show", "f0", "-o", "json");
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "program")->valuestring, "train");
    cJSON_Delete(got);
}

static void test_empty_views(void **state)
{
    static const struct test_view none[] = {{NULL, NULL, 0}};

    server.views = none;
    RUN("vms");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "VM  NAME  TENANT  STATE  SMS  MEMORY  GPUS  CONNECTED  PROGRAMS  NODE  REASON\n");
    assert_string_equal(result.err, "flytctl: there are no vms\n");
    RUN("vms", "-o", "json");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "[]\n");
    RUN("vms", "web");
    EXPECT_STATUS(3);
    RUN("events");
    EXPECT_STATUS(0);
    assert_string_equal(result.err, "flytctl: there are no events\n");
    RUN("session", "show", "f0");
    EXPECT_STATUS(3);
    server.views = views;
}

/* 10,000 VMs over several pages: all come, once each, in order. */
static void test_huge_view(void **state)
{
    enum { ROWS = 2500, PAGES = 4 };
    char *json = malloc(ROWS * 200);
    size_t bytes = 0;

    assert_non_null(json);
    for (int i = 0; i < ROWS; i++)
        bytes += (size_t)sprintf(json + bytes, "%s{\"vm_ip\":\"10.0.%d.%d\",\"name\":\"vm-%d\",\"sms\":%d}",
                                 i ? "," : "[", i / 250, i % 250, i, i);
    sprintf(json + bytes, "]");
    const struct test_view huge[] = {{"vms", json, PAGES}, {NULL, NULL, 0}};
    server.views = huge;
    RUN("vms", "-o", "json");
    EXPECT_STATUS(0);
    assert_int_equal(server.view_count, PAGES);
    cJSON *got = test_command_output();
    assert_int_equal(cJSON_GetArraySize(got), ROWS * PAGES);
    int at = 0;
    for (const cJSON *row = got->child; row; row = row->next, at++)
        assert_int_equal(cJSON_GetObjectItem(row, "sms")->valueint, at % ROWS);
    cJSON_Delete(got);
    RUN("vms");
    EXPECT_STATUS(0);
    unsigned lines = 0;
    for (const char *c = result.out; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, ROWS * PAGES + 1);
    server.views = views;
    free(json);
}

/* What a tenant may write into a name does not reach a terminal. */
static void test_odd_names(void **state)
{
    static const struct test_view odd[] = {
        {"vms",
         "[{\"vm_ip\":\"10.0.0.1\",\"name\":\"\\u001b[2J\\u009b31m\\u202eX\\nY\\u0000Z\",\"tenant\":\"raw\x1b]0;"
         "t\x07\","
         "\"reason\":\"bad \xff byte\"},{\"vm_ip\":\"10.0.0.2\",\"name\":\"gr\xc3\xbc\xc3\x9f \xe6\xbc\xa2\"}]",
         1},
        {NULL, NULL, 0}};

    server.views = odd;
    RUN("vms");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "\\x1b[2J\\u{009b}31m\\u{202e}X\\nY");
    EXPECT_IN(result.out, "raw\\x1b]0;t\\x07");
    EXPECT_IN(result.out, "bad \\xff byte");
    EXPECT_IN(result.out, "gr\xc3\xbc\xc3\x9f \xe6\xbc\xa2");
    for (const char *c = result.out; *c; c++)
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
    RUN("vms", "-o", "json");
    EXPECT_STATUS(0);
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got->child, "tenant")->valuestring, "raw\x1b]0;t\x07");
    cJSON_Delete(got);
    for (const char *c = result.out; *c; c++)
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
    server.views = views;

    server.status = FLYT_STATUS_CONFLICT;
    server.text = "no\x1b[2J way \xff";
    RUN("vms");
    EXPECT_STATUS(1);
    assert_string_equal(result.err, "flytctl: no\\x1b[2J way \\xff\n");
    RUN("vm", "remove", "10.0.0.1", "-o", "json");
    EXPECT_STATUS(1);
    assert_string_equal(result.out, "{\"status\":\"conflict\",\"text\":\"no\\u001b[2J way \\ufffd\"}\n");
}

/* Nor what a program, a VM, a node or a manager is called, or an event says, in whatever command prints it. */
static void test_odd_words(void **state)
{
    static const struct test_view odd[] = {
        {"vms", "[{\"vm_ip\":\"10.0.0.1\\u001b[31m\",\"name\":\"web\"}]", 1},
        {"gpus", "[{\"uuid\":\"GPU-aa11\\u001b[31m\",\"node\":\"n1\\u009b2J\",\"index\":0}]", 1},
        {"sessions", "[{\"id\":\"0000000000000abc\",\"program\":\"x\\u001b]0;t\\u0007\",\"vm_ip\":\"10.0.0.1\"}]", 1},
        {"events",
         "[{\"sequence\":1,\"time_ms\":1,\"kind\":\"k\\u001b[1m\",\"who\":\"w\\u001b[1m\",\"object\":\"o\\u001b[1m\","
         "\"text\":\"t\\u001b[2J\\u009b\"}]",
         1},
        {NULL, NULL, 0}};
    static const char *const commands[][8] = {{"resize", "web", "--sm", "24"},
                                              {"suspend", "web"},
                                              {"resume", "web"},
                                              {"vms"},
                                              {"gpus"},
                                              {"sessions"},
                                              {"events"},
                                              {"version"},
                                              {"vm", "remove", "web"},
                                              {"cordon", "n\x1b[31m"}};

    server.views = odd;
    server.draining_sms = 16;
    server.program_name = "so\x1b[2Jlver\xc2\x9b";
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++) {
        test_command_run(0, NULL, commands[i]);
        for (const char *c = result.out; *c; c++)
            assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        for (const char *c = result.err; *c; c++)
            assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        assert_null(strstr(result.out, "\xc2\x9b"));
        if (!i)
            EXPECT_IN(result.out, "so\\x1b[2Jlver\\u{009b} (pid 12, ");
        if (i < 3)
            EXPECT_IN(result.out, "VM 10.0.0.1\\x1b[31m ");
    }
    server.views = views;
    server.program_name = NULL;
    server.draining_sms = 0;
}

static void test_terminal(void **state)
{
    test_command_run(50, NULL, (const char *const[]){"vms", NULL});
    EXPECT_STATUS(0);
    RUN_ON_TERMINAL("gpus");
    EXPECT_STATUS(0);
    for (char *line = strtok(result.out, "\r\n"); line; line = strtok(NULL, "\r\n"))
        assert_true(strlen(line) <= 80 + 2); /* an ellipsis is one column and three bytes */
    test_command_run(60, NULL, (const char *const[]){"explain", "web", NULL});
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "It has a document.\r\n");
}

/* ---- again and again ---- */

static void test_top(void **state)
{
    RUN("top");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "m1: up 1h00m, 1 of 2 nodes, 4 GPUs, 2 VMs, 5 sessions, ");
    EXPECT_IN(result.out, "GPU   TYPE         BUSY    USED");
    EXPECT_IN(result.out, "\n10.0.0.1  web   n1       -  1.0/8.0GiB   24       1/4\n");
    assert_null(strstr(result.out, "\033"));
    RUN("top", "-n", "2", "-d", "0.1");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "\n10.0.0.1  web   n1      0%  1.0/8.0GiB   24       1/4\n");
    RUN("top", "-o", "json");
    cJSON *got = test_command_output();
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(got, "vms")->child, "sms")->valueint, 24);
    cJSON_Delete(got);
    RUN_ON_TERMINAL("top", "-n", "1");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "\033[2J\033[Hm1: up");
    assert_string_equal(result.out + result.out_bytes - 3, "\033[J");
    test_command_run(80, "q", (const char *const[]){"top", "-d", "50", NULL}); /* ends at once, not after 50 s */
    EXPECT_STATUS(0);
}

static void test_watch(void **state)
{
    test_interrupt_after_ms = 700;
    RUN("vms", "--watch=0.1", "-o", "json");
    EXPECT_STATUS(0);
    assert_true(server.view_count >= 2);
    unsigned lines = 0;
    for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        cJSON *one = cJSON_Parse(line);
        assert_int_equal(cJSON_GetArraySize(one), 3);
        cJSON_Delete(one);
    }
    assert_int_equal(lines, server.view_count);
}

static void test_follow(void **state)
{
    test_interrupt_after_ms = 500;
    RUN("events", "--follow", "-o", "json");
    EXPECT_STATUS(128 + 2);
    assert_int_equal(strchr(result.out, '\n') - result.out + 1 <= (long)result.out_bytes, 1);
    char *second = strchr(result.out, '\n') + 1;
    cJSON *one = cJSON_Parse(result.out), *other = cJSON_Parse(second);
    assert_string_equal(cJSON_GetObjectItem(one, "text")->valuestring, "first");
    assert_string_equal(cJSON_GetObjectItem(other, "text")->valuestring, "second");
    cJSON_Delete(one);
    cJSON_Delete(other);
}

/* ---- commands that change something ---- */

static void test_vm_commands(void **state)
{
    RUN("vm", "add", "10.0.0.9", "--sm", "24", "--memory", "8G", "--name", "new", "--include-type", "H200",
        "--include-type", "B200", "--library", "cudnn 9.10", "--reserved", "--priority", "3", "--policy", "spread");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "VM 10.0.0.9 is added\n");
    assert_false(server.set.must_exist);
    assert_string_equal(server.vm, "10.0.0.9");
    assert_string_equal(server.set_name, "new");
    assert_int_equal(server.set.compute_units.value, 24);
    assert_true(server.set.memory_bytes.value == 8ull << 30);
    assert_true(server.set.is_reserved.is_set && server.set.is_reserved.value == 1);
    assert_true(server.set.priority.is_set && server.set.priority.value == 3);
    assert_false(server.set.sessions_max.is_set);
    assert_false(server.set.tenant.is_set);
    assert_int_equal(server.include_count, 2);
    assert_string_equal(server.library, "cudnn 9.10");

    RUN("vm", "set", "web", "--include-type", "", "--no-reserved", "-o", "json");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "{\"status\":\"ok\",\"text\":\"\"}\n");
    assert_true(server.set.must_exist);
    assert_string_equal(server.vm, "10.0.0.1");
    assert_true(server.has_includes && server.include_count == 0);
    assert_true(server.set.is_reserved.is_set && server.set.is_reserved.value == 0);

    RUN("vm", "set", "10.0.0.1", "--priority", "-1000");
    EXPECT_STATUS(0);
    assert_true(server.set.priority.is_set && server.set.priority.value == (uint64_t)-1000);

    RUN("vm", "remove", "web", "--kill");
    EXPECT_STATUS(0);
    assert_string_equal(server.vm, "10.0.0.1");
    assert_true(server.kill);
    RUN("vm", "remove", "10.0.0.7");
    EXPECT_STATUS(0);
    assert_string_equal(server.vm, "10.0.0.7");
    assert_false(server.kill);

    unsigned calls = server.call_count;
    RUN("vm", "add", "web", "--sm", "1", "--memory", "1");
    EXPECT_STATUS(2);
    RUN("vm", "add", "10.0.0.9", "--sm", "1");
    EXPECT_STATUS(2);
    RUN("vm", "set", "10.0.0.9");
    EXPECT_STATUS(2);
    RUN("vm", "set", "10.0.0.9", "--reserved", "--no-reserved");
    EXPECT_STATUS(2);
    assert_int_equal(server.call_count, calls);
    RUN("vm", "remove", "twin");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "several VMs have the name twin");
    RUN("vm", "remove", "nobody");
    EXPECT_STATUS(3);
}

static void test_suspend(void **state)
{
    RUN("suspend", "web");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "VM 10.0.0.1 is suspended, revision 7\n");
    assert_true(server.resize.is_suspended.is_set && server.resize.is_suspended.value == 1);
    assert_false(server.resize.compute_units.is_set || server.resize.priority.is_set);
    assert_int_equal(server.resize.timeout_ms, 30000);
    RUN("resume", "10.0.0.1", "--timeout", "2", "-o", "json");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "\"status\":\"ok\"");
    EXPECT_IN(result.out, "\"revision\":7");
    assert_true(server.resize.is_suspended.is_set && server.resize.is_suspended.value == 0);
    assert_int_equal(server.resize.timeout_ms, 2000);
    RUN("suspend");
    EXPECT_STATUS(2);
}

static void test_resize(void **state)
{
    RUN("resize", "web", "--sm", "24", "--memory", "8G", "--when-free", "--force", "--timeout", "2.5");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "VM 10.0.0.1 is resized, revision 7\n"
                                    "allocation 0000000000000abc, device 0: 24 SMs, 8.0GiB, of which 1.0GiB in use\n");
    assert_string_equal(server.vm, "10.0.0.1");
    assert_true(server.resize.when_free && server.resize.force);
    assert_int_equal(server.resize.timeout_ms, 2500);
    assert_int_equal(server.resize.compute_units.value, 24);
    RUN("resize", "10.0.0.1", "--sm", "20");
    EXPECT_IN(result.out, "device 0: 24 SMs (20 rounded up to whole groups), 8.0GiB");
    RUN("resize", "10.0.0.1", "--memory", "4");
    assert_int_equal(server.resize.timeout_ms, 30000);
    assert_false(server.resize.compute_units.is_set || server.resize.when_free || server.resize.force);

    RUN("resize", "10.0.0.1", "--minimum-share", "20", "--maximum-share", "80", "--window", "0.05", "--priority", "-7");
    EXPECT_STATUS(0);
    assert_false(server.resize.compute_units.is_set || server.resize.memory_bytes.is_set ||
                 server.resize.is_suspended.is_set);
    assert_int_equal(server.resize.minimum_share_pct.value, 20);
    assert_int_equal(server.resize.maximum_share_pct.value, 80);
    assert_int_equal(server.resize.window_ms.value, 50);
    assert_true(server.resize.priority.value == (uint64_t)-7);
    RUN("resize", "10.0.0.1", "--minimum-share", "101");
    EXPECT_STATUS(2);
    server.status = FLYT_STATUS_TIMEOUT;
    server.text = "1 of 2 servers";
    RUN("resize", "10.0.0.1", "--sm", "8", "--timeout", "0");
    EXPECT_STATUS(6);
    assert_int_equal(server.resize.timeout_ms, 1);
    EXPECT_IN(result.err, "1 of 2 servers");
    RUN("resize", "10.0.0.1", "--sm", "8", "-o", "json");
    EXPECT_STATUS(6);
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "status")->valuestring, "timeout");
    assert_int_equal(cJSON_GetObjectItem(got, "revision")->valueint, 7);
    cJSON_Delete(got);
    server.status = FLYT_STATUS_IN_USE;
    RUN("resize", "10.0.0.1", "--memory", "512M");
    EXPECT_STATUS(1);
    RUN("resize", "10.0.0.1");
    EXPECT_STATUS(2);
}

/* SMs that were taken away and are not free yet: said; waited for where that is wished; their programs ended. */
static void test_drain(void **state)
{
    RUN("resize", "web", "--sm", "24", "--wait", "vacated");
    EXPECT_STATUS(0);
    assert_int_equal(server.drain_count, 0); /* the resize itself says that nothing is */
    server.draining_sms = 16;
    RUN("resize", "web", "--sm", "24");
    EXPECT_STATUS(0);
    assert_int_equal(server.drain.timeout_ms, 0);
    EXPECT_IN(result.out, "VM 10.0.0.1 is resized, revision 7\n");
    EXPECT_IN(result.out,
              "\n16 SMs draining\nsolver (pid 12, session 0000000000000def) has work on SMs that were taken");
    RUN("resize", "web", "--sm", "24", "--wait", "switched", "-o", "json");
    EXPECT_STATUS(0);
    cJSON *got = test_command_output();
    assert_int_equal(cJSON_GetObjectItem(got, "sms_draining")->valueint, 16);
    const cJSON *one = cJSON_GetArrayItem(cJSON_GetObjectItem(got, "draining"), 0);
    assert_string_equal(cJSON_GetObjectItem(one, "program")->valuestring, "solver");
    assert_string_equal(cJSON_GetObjectItem(one, "session")->valuestring, "0000000000000def");
    cJSON_Delete(got);
    RUN("resize", "web", "--sm", "24", "--wait", "vacated");
    EXPECT_STATUS(6);
    assert_int_equal(server.drain.timeout_ms, 60000);
    EXPECT_IN(result.err, "16 SMs draining: solver (pid 12)");
    RUN("resize", "web", "--sm", "24", "--wait", "vacated", "--deadline", "7.5");
    EXPECT_STATUS(6);
    assert_int_equal(server.drain.timeout_ms, 7500);
    assert_false(server.drain.kill);
    RUN("resize", "web", "--sm", "24", "--deadline", "2", "--kill");
    EXPECT_STATUS(0);
    assert_int_equal(server.drain.timeout_ms, 2000);
    assert_true(server.drain.kill);
    EXPECT_IN(result.out,
              "solver (pid 12, session 0000000000000def) was ended: it had work on SMs that were taken away");
    RUN("resize", "web", "--sm", "24", "--kill", "-o", "json");
    EXPECT_STATUS(0);
    got = test_command_output();
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(got, "ended")), 1);
    cJSON_Delete(got);
    RUN("resize", "web", "--sm", "24", "--kill", "--wait", "switched");
    EXPECT_STATUS(2);
    RUN("resize", "web", "--sm", "24", "--wait", "never");
    EXPECT_STATUS(2);
}

static void test_nodes_and_gpus(void **state)
{
    RUN("drain", "n1");
    EXPECT_STATUS(0);
    assert_int_equal(server.schedule.kind, FLYT_TARGET_NODE);
    assert_int_equal(server.schedule.schedule, FLYT_SCHEDULE_DRAINING);
    assert_string_equal(server.target, "n1");
    assert_string_equal(result.out, "ID                VM        NODE  GPU    STATE\n"
                                    "0000000000000abc  10.0.0.1  n1    GPU-1  active\n");
    RUN("cordon", "n1:1");
    EXPECT_STATUS(0);
    assert_int_equal(server.schedule.kind, FLYT_TARGET_GPU);
    assert_int_equal(server.schedule.schedule, FLYT_SCHEDULE_CORDONED);
    assert_string_equal(server.target, "GPU-aa22");
    assert_string_equal(result.out, "n1:1 is cordoned\n");
    RUN("uncordon", "aa1");
    EXPECT_STATUS(0);
    assert_int_equal(server.schedule.schedule, FLYT_SCHEDULE_ACTIVE);
    assert_string_equal(server.target, "GPU-aa11");
    RUN("uncordon", "aa");
    EXPECT_STATUS(2);
    RUN("uncordon", "zz");
    EXPECT_STATUS(3);

    RUN("gpu", "set", "n1:0", "--group-size", "2");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "GPU-aa11");
    assert_int_equal(server.group_size, 2);
    RUN("gpu", "set", "n1:0", "--group-size=8");
    assert_int_equal(server.group_size, 8);
    RUN("gpu", "set", "n1:0", "--group-size", "4");
    EXPECT_STATUS(2);
    RUN("gpu", "set", "n1:0");
    EXPECT_STATUS(2);

    RUN("node", "fence", "n1");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "--confirmed-dead");
    RUN("node", "fence", "n1", "--confirmed-dead");
    EXPECT_STATUS(0);
    assert_true(server.is_confirmed);
    RUN("node", "adopt", "n1");
    EXPECT_STATUS(2);
    RUN("node", "adopt", "n1", "n0:1", "GPU-aa");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "n1 <- GPU-aa (2)");
    EXPECT_IN(result.out, "2 GPUs are n1's now");
    RUN("node", "join-token", "n9", "--valid", "60");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "flyt1.abc.def\n");
    assert_int_equal(server.valid_s, 60);
    assert_int_equal(server.token_kind, FLYT_PEER_NODE);
    RUN("vm", "join-token", "10.0.0.9", "-o", "json");
    EXPECT_STATUS(0);
    assert_string_equal(result.out, "{\"status\":\"ok\",\"token\":\"flyt1.abc.def\"}\n");
    assert_int_equal(server.token_kind, FLYT_PEER_VM);
    assert_int_equal(server.valid_s, 3600);
    RUN("vm", "join-token", "web");
    EXPECT_STATUS(2);

    RUN("vm", "device", "10.0.0.9");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "--node");
    RUN("vm", "device", "10.0.0.9", "--node", "n1");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "10.0.0.9 n1");
    EXPECT_IN(result.out, "-object memory-backend-file,id=flyt-memory,mem-path=/dev/shm/flyt-10.0.0.9,share=on,"
                          "size=268435456 -device ivshmem-plain,memdev=flyt-memory\n");
    EXPECT_IN(result.out, "<shmem name=\"flyt-10.0.0.9\"><model type=\"ivshmem-plain\"/><size unit=\"b\">268435456"
                          "</size></shmem>\n");
    RUN("vm", "device", "10.0.0.9", "--node", "n1", "-o", "json");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out,
              "{\"status\":\"ok\",\"path\":\"/dev/shm/flyt-10.0.0.9\",\"bytes\":268435456,\"qemu\":[\"-object\","
              "\"memory-backend-file,");
    server.path = "/dev/hugepages/flyt-10.0.0.9";
    RUN("vm", "device", "10.0.0.9", "--node", "n1");
    EXPECT_IN(result.out, "<qemu:commandline><qemu:arg value=\"-object\"/><qemu:arg value=\"memory-backend-file,");
    EXPECT_IN(result.out, "xmlns:qemu");
    server.path = "/a,b";
    RUN("vm", "device", "10.0.0.9", "--node", "n1");
    EXPECT_STATUS(1);
    assert_string_equal(result.out, "");
    server.path = NULL;
    RUN("vm", "device", "10.0.0.9", "--node", "n1", "--remove");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "10.0.0.9 n1 remove");
    EXPECT_IN(result.out, "VM 10.0.0.9 shares no memory with n1");
    RUN("node", "revoke", "n1");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "n1");
    assert_int_equal(server.token_kind, FLYT_PEER_NODE);
    RUN("vm", "revoke", "web");
    EXPECT_STATUS(0);
    assert_string_equal(server.target, "10.0.0.1");
    assert_int_equal(server.token_kind, FLYT_PEER_VM);
}

static void test_other_commands(void **state)
{
    RUN("tenant", "set", "t", "--sm", "0", "--memory", "64G", "--vms", "3");
    EXPECT_STATUS(0);
    assert_string_equal(server.tenant, "t");
    assert_true(server.quotas.compute_units.is_set && server.quotas.compute_units.value == 0);
    assert_true(server.quotas.memory_bytes.value == 64ull << 30);
    assert_false(server.quotas.sessions_max.is_set || server.quotas.remove);
    RUN("tenant", "set", "t", "--memory", "0");
    EXPECT_STATUS(0);
    assert_true(server.quotas.memory_bytes.is_set && server.quotas.memory_bytes.value == 0);
    RUN("tenant", "set", "t", "--remove");
    EXPECT_STATUS(0);
    assert_true(server.quotas.remove);
    RUN("tenant", "set", "t", "--remove", "--sm", "3");
    EXPECT_STATUS(2);
    RUN("tenant", "set", "t");
    EXPECT_STATUS(2);
    RUN("allocation", "adopt", "abc0000000000000");
    EXPECT_STATUS(0);
    assert_true(server.id == 0xabc0000000000000ull && server.action == FLYT_ALLOCATION_ADOPT);
    RUN("allocation", "kill", "00000");
    EXPECT_STATUS(0);
    assert_true(server.id == 0xabc && server.action == FLYT_ALLOCATION_KILL);
    RUN("session", "kill", "f0");
    EXPECT_STATUS(0);
    assert_true(server.id == 0xf000000000000001ull);
    RUN("session", "kill", "f");
    EXPECT_STATUS(2);
    RUN("session", "kill", "xyz");
    EXPECT_STATUS(2);
    RUN("version");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "flyt-cluster-manager test-build at unix://");
    RUN("version", "-o", "json");
    cJSON *got = test_command_output();
    assert_string_equal(cJSON_GetObjectItem(got, "manager")->valuestring, "test-build");
    cJSON_Delete(got);
}

/* Each status of the protocol, and what a script sees of it. */
static void test_exit_statuses(void **state)
{
    static const struct {
        flyt_status status;
        int exit;
    } cases[] = {
        {FLYT_STATUS_OK, 0},          {FLYT_STATUS_INVALID, 2},  {FLYT_STATUS_NOT_FOUND, 3},
        {FLYT_STATUS_EXISTS, 1},      {FLYT_STATUS_CONFLICT, 1}, {FLYT_STATUS_DENIED, 5},
        {FLYT_STATUS_NO_CAPACITY, 1}, {FLYT_STATUS_QUOTA, 1},    {FLYT_STATUS_IN_USE, 1},
        {FLYT_STATUS_UNAVAILABLE, 4}, {FLYT_STATUS_TIMEOUT, 4},  {FLYT_STATUS_NOT_SUPPORTED, 1},
        {FLYT_STATUS_STALE, 1},       {FLYT_STATUS_HELD, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        server.status = cases[i].status;
        server.text = cases[i].status ? "because" : "";
        RUN("vm", "remove", "10.0.0.1");
        EXPECT_STATUS(cases[i].exit);
        assert_string_equal(result.err, cases[i].status ? "flytctl: because\n" : "");
    }
}

/* ---- backup ---- */

static void test_backup(void **state)
{
    struct stat about;
    char path[100];

    server.backup_bytes = 1234567;
    snprintf(path, sizeof path, "%s/copy", server.folder);
    RUN("backup", path);
    EXPECT_STATUS(0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 1234567);
    assert_int_equal(about.st_mode & 07777, 0600);
    FILE *in = fopen(path, "r");
    for (uint64_t i = 0; i < server.backup_bytes; i++)
        if (fgetc(in) != (unsigned char)(i * 7 + (i >> 9)))
            fail_msg("byte %llu differs", (unsigned long long)i);
    fclose(in);
    RUN("backup", path);
    EXPECT_STATUS(1);
    EXPECT_IN(result.err, "is there already");
    assert_int_equal(unlink(path), 0);

    server.backup_cut_bytes = 300000; /* the copy ends before its end: nothing is left */
    RUN("backup", path);
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "300000 of 1234567 bytes");
    assert_int_not_equal(stat(path, &about), 0);
    server.manner = TEST_CLOSES;
    RUN("backup", path);
    EXPECT_STATUS(4);
    assert_int_not_equal(stat(path, &about), 0);
    RUN("backup", "/nonexistent/copy");
    EXPECT_STATUS(3);
}

/* ---- managers that are not well ---- */

static void test_leader(void **state)
{
    static struct test_server other;

    test_server_init(&other, server.event);
    other.views = views;
    server.manner = TEST_DOES_NOT_LEAD;
    server.leaders[0] = other.url;
    RUN("vms");
    EXPECT_STATUS(0);
    assert_int_equal(server.view_count, 0);
    assert_int_equal(other.view_count, 1);

    server.manner = TEST_LEADS_NO_MORE; /* one that has just lost its lease refuses a change, the other one does it */
    RUN("vm", "remove", "10.0.0.1");
    EXPECT_STATUS(0);
    assert_string_equal(server.vm, "10.0.0.1");
    assert_string_equal(other.vm, "10.0.0.1");

    server.manner = other.manner = TEST_DOES_NOT_LEAD; /* each names the other one */
    other.leaders[0] = server.url;
    RUN("--deadline", "0.4", "vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "they name each other");

    server.leaders[0] = "unix:///nonexistent/leader";
    server.leaders[1] = other.url; /* the first one named is gone, the second one leads */
    other.manner = TEST_ANSWERS;
    RUN("vms");
    EXPECT_STATUS(0);
    server.leaders[0] = "unix:///nonexistent/leader"; /* the one that led was killed */
    server.leaders[1] = NULL;
    RUN("--deadline", "0.6", "vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "no manager leads at present, and none has taken over within 0.6 s");
    server.leaders[0] = NULL;
    server.hello_count = 0;
    RUN("--deadline", "0.6", "vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "knows nobody who does\n");
    EXPECT_IN(result.err, "no manager leads at present");
    assert_in_range(server.hello_count, 2, 10);
    assert_ptr_equal(strstr(strstr(result.err, "knows nobody") + 1, "knows nobody"), NULL); /* said once */
    server.manner = TEST_LEADS_FROM_THIRD_HELLO;
    server.hello_count = 0;
    RUN("vms");
    EXPECT_STATUS(0);
    assert_int_equal(server.hello_count, 3);
    assert_string_equal(result.err, "");
    RUN("--manager", other.url, "vms");
    EXPECT_STATUS(0);
    test_server_fini(&other);
}

static void test_silence(void **state)
{
    server.manner = TEST_IS_SILENT;
    RUN("--deadline", "0.3", "vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "no answer within 0.3 s\n");
    RUN("--deadline", "0.3", "vm", "remove", "10.0.0.1");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "no answer within 0.3 s; whether it was done is not known");
    server.manner = TEST_IS_SILENT_FROM_HELLO;
    RUN("--deadline", "0.3", "status");
    EXPECT_STATUS(4);
}

static void test_closing(void **state)
{
    server.manner = TEST_CLOSES;
    RUN("vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "the connection was lost before the answer");
    RUN("vm", "remove", "10.0.0.1");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "whether it was done is not known");
    assert_int_equal(server.hello_count, 2); /* it was sent once */
    server.manner = TEST_IS_GARBAGE;
    RUN("vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "is not the JSON that was expected");
    assert_string_equal(result.out, "");
    server.manner = TEST_REPEATS;
    RUN("vms");
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "the same page again and again");
    RUN("events");
    EXPECT_STATUS(0);
}

static void test_no_manager(void **state)
{
    test_result_fini(&result);
    setenv("FLYT_MANAGER", "unix:///nonexistent/socket", 1);
    test_run(NULL, 0, NULL, &result, (const char *const[]){"vms", NULL});
    EXPECT_STATUS(4);
    EXPECT_IN(result.err, "unix:///nonexistent/socket: there is no such socket: flyt-cluster-manager does not run");
    test_result_fini(&result);
    char both[700];
    snprintf(both, sizeof both, "unix:///nonexistent/socket, %s", server.url);
    setenv("FLYT_MANAGER", both, 1);
    RUN("--version");
    EXPECT_STATUS(0);
    unsetenv("FLYT_MANAGER");

    RUN("--manager", "tcp://192.0.2.1:1", "vms"); /* the first one serves */
    EXPECT_STATUS(0);
    test_result_fini(&result);
    test_run(NULL, 0, NULL, &result, (const char *const[]){"--manager", "tcp://192.0.2.1:1", "vms", NULL});
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "needs TLS");
    test_result_fini(&result);
    test_run(NULL, 0, NULL, &result, (const char *const[]){"--manager", "nonsense", "vms", NULL});
    EXPECT_STATUS(2);
    RUN("--key", "/nonexistent", "vms");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "all three or none");
}

/* Root passes every permission, so another user's process must ask. */
static void test_permission(void **state)
{
    struct stat about;

    if (geteuid())
        skip();
    assert_int_equal(stat(server.folder, &about), 0);
    chmod(server.folder, 0755);
    test_as_uid = 65534;
    RUN("vms");
    test_as_uid = 0;
    chmod(server.folder, about.st_mode & 07777);
    if (result.status == 127) /* that user cannot even reach the program */
        skip();
    EXPECT_STATUS(5);
    EXPECT_IN(result.err, "permission denied: operators are root and the members of the socket's group, usually flyt");
}

/* ---- usage ---- */

static void test_usage(void **state)
{
    RUN("--help");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "usage: flytctl [OPTION");
    RUN("help", "vm", "add");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "usage: flytctl vm add VM_IP [OPTION");
    RUN("resize", "--help");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "--when-free");
    RUN("vm", "--help");
    EXPECT_STATUS(0);
    EXPECT_IN(result.out, "flytctl vm join-token VM_IP");
    RUN("vm");
    EXPECT_STATUS(2);
    RUN("statsu");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "is 'status' meant?");
    RUN("vms", "--wtach");
    EXPECT_STATUS(2);
    EXPECT_IN(result.err, "is --watch meant?");
    RUN("vm", "remove");
    EXPECT_STATUS(2);
    RUN("vms", "a", "b");
    EXPECT_STATUS(2);
    RUN("vms", "");
    EXPECT_STATUS(2);
    RUN("doctor", "--config", "/nonexistent/node.conf", "--node");
    EXPECT_STATUS(1);
    assert_int_equal(server.call_count, 0);
}

#define TEST(name_) cmocka_unit_test_setup(name_, begin)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(test_views),         TEST(test_view_json),      TEST(test_empty_views),
        TEST(test_huge_view),     TEST(test_odd_names),      TEST(test_terminal),
        TEST(test_huge_view),     TEST(test_odd_words),      TEST(test_terminal),
        TEST(test_top),           TEST(test_watch),          TEST(test_follow),
        TEST(test_vm_commands),   TEST(test_resize),         TEST(test_suspend),
        TEST(test_drain),         TEST(test_nodes_and_gpus), TEST(test_other_commands),
        TEST(test_exit_statuses), TEST(test_backup),         TEST(test_leader),
        TEST(test_silence),       TEST(test_closing),        TEST(test_no_manager),
        TEST(test_permission),    TEST(test_usage),
    };

    return cmocka_run_group_tests(tests, test_command_begin_all, test_command_end_all);
}
