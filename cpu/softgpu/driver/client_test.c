/* Client slots: how many processes may have contexts at once. Each child process is a client; this one never is. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

static char folder[] = "/tmp/flyt-soft-clients-XXXXXX";

struct client {
    pid_t pid;
    int order_fd, answer_fd; /* a byte to it; a result from it */
};

/* 'p' retains the primary context, 'c' makes one, 'f' leaves a child of its own behind. Answers each with the result.
 */
static void client_main(int order_fd, int answer_fd)
{
    CUcontext ctx;
    char order;

    while (read(order_fd, &order, 1) == 1) {
        int result = cuInit(0);

        if (order == 'f' && fork() == 0) {
            close(answer_fd);
            for (;;)
                pause();
        }
        if (result == CUDA_SUCCESS && order == 'p')
            result = cuDevicePrimaryCtxRetain(&ctx, 0);
        if (result == CUDA_SUCCESS && order == 'c')
            result = cuCtxCreate(&ctx, NULL, 0, 0);
        if (write(answer_fd, &result, sizeof(result)) != sizeof(result))
            break;
    }
    _exit(0);
}

static struct client client_new(void)
{
    struct client client;
    int order[2], answer[2];

    assert_int_equal(pipe(order), 0);
    assert_int_equal(pipe(answer), 0);
    client.pid = fork();
    assert_true(client.pid >= 0);
    if (!client.pid) {
        setpgid(0, 0);
        close(order[1]);
        close(answer[0]);
        client_main(order[0], answer[1]);
    }
    setpgid(client.pid, client.pid);
    close(order[0]);
    close(answer[1]);
    client.order_fd = order[1];
    client.answer_fd = answer[0];
    return client;
}

static int client_ask(const struct client *client, char order)
{
    int result;

    assert_int_equal(write(client->order_fd, &order, 1), 1);
    assert_int_equal(read(client->answer_fd, &result, sizeof(result)), sizeof(result));
    return result;
}

/* Only the process itself: what it has left behind lives on until its group is killed. */
static void client_kill(const struct client *client)
{
    assert_int_equal(kill(client->pid, SIGKILL), 0);
    assert_int_equal(waitpid(client->pid, NULL, 0), client->pid);
}

static void client_close(const struct client *client)
{
    close(client->order_fd);
    close(client->answer_fd);
}

static int start(void **state)
{
    assert_non_null(mkdtemp(folder));
    setenv("FLYT_SOFT_CLIENT_SLOTS", "2", 1);
    setenv("FLYT_SOFT_CLIENT_FOLDER", folder, 1);
    return 0;
}

static int stop(void **state)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/clients", folder);
    return unlink(path) || rmdir(folder) ? -1 : 0;
}

static void the_client_beyond_the_slots_is_refused(void **state)
{
    struct client clients[4];

    for (unsigned i = 0; i < 4; i++)
        clients[i] = client_new();
    assert_int_equal(client_ask(&clients[0], 'p'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&clients[0], 'c'), CUDA_SUCCESS); /* a process has one slot */
    assert_int_equal(client_ask(&clients[2], 'i'), CUDA_SUCCESS); /* without a context, none */
    assert_int_equal(client_ask(&clients[1], 'c'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&clients[2], 'p'), 808);
    assert_int_equal(client_ask(&clients[3], 'c'), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
    client_kill(&clients[1]);
    assert_int_equal(client_ask(&clients[3], 'c'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&clients[2], 'p'), 808);
    client_kill(&clients[0]);
    assert_int_equal(client_ask(&clients[2], 'p'), CUDA_SUCCESS);
    client_kill(&clients[2]);
    client_kill(&clients[3]);
    for (unsigned i = 0; i < 4; i++)
        client_close(&clients[i]);
}

/* A slot is the process's own: its children neither have it nor keep it. */
static void a_killed_client_leaves_no_slot_behind(void **state)
{
    struct client first = client_new(), second = client_new(), third = client_new();

    assert_int_equal(client_ask(&first, 'p'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&first, 'f'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&second, 'p'), CUDA_SUCCESS);
    assert_int_equal(client_ask(&third, 'p'), 808);
    client_kill(&first);
    assert_int_equal(client_ask(&third, 'p'), CUDA_SUCCESS);
    assert_int_equal(kill(-first.pid, SIGKILL), 0); /* its child, which is still there */
    client_kill(&second);
    client_kill(&third);
    client_close(&first);
    client_close(&second);
    client_close(&third);
}

static void a_configuration_without_sense_is_refused(void **state)
{
    static const struct {
        const char *slots, *folder;
    } cases[] = {{"2", ""}, {"", "/tmp"}, {"0", "/tmp"}, {"2", "/nowhere"}, {"x", "/tmp"}};
    struct client client;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv("FLYT_SOFT_CLIENT_SLOTS", cases[i].slots, 1);
        setenv("FLYT_SOFT_CLIENT_FOLDER", cases[i].folder, 1);
        client = client_new();
        assert_int_equal(client_ask(&client, 'i'), CUDA_ERROR_INVALID_VALUE);
        client_kill(&client);
        client_close(&client);
    }
    setenv("FLYT_SOFT_CLIENT_SLOTS", "", 1);
    setenv("FLYT_SOFT_CLIENT_FOLDER", "", 1);
    setenv("FLYT_SOFT_SM_RATE", "fast", 1);
    client = client_new();
    assert_int_equal(client_ask(&client, 'i'), CUDA_ERROR_INVALID_VALUE);
    client_kill(&client);
    client_close(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_client_beyond_the_slots_is_refused),
        cmocka_unit_test(a_killed_client_leaves_no_slot_behind),
        cmocka_unit_test(a_configuration_without_sense_is_refused),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
