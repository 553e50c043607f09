/* Fault domains: one process's fault ends the others' contexts, but not of those outside and of those that come later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

static char folder[] = "/tmp/flyt-soft-faults-XXXXXX";

struct member {
    pid_t pid;
    int order_fd, answer_fd;
};

/* 's' begins a kernel that never ends, 'f' one that faults, 'q' asks how it is, 'm' whether the device is shared. Each
 * is answered with a result. Nothing of CUDA has run before in this process. */
static void member_main(int order_fd, int answer_fd, const char *pipe_folder)
{
    CUdeviceptr word;
    CUlibrary library;
    char order;

    if (pipe_folder)
        setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_folder, 1);
    test_start();
    library = test_library();
    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(cuMemsetD32(word, 0, 1));
    while (read(order_fd, &order, 1) == 1) {
        int result = CUDA_SUCCESS;

        if (order == 's')
            result = test_launch(test_kernel(library, "spin"), NULL, word, 0);
        if (order == 'f')
            result = test_launch(test_kernel(library, "fault"), NULL, word, 1);
        if (order == 'f' || order == 'w')
            result = cuCtxSynchronize();
        if (order == 'q')
            result = cuMemsetD32(word, 1, 1);
        if (order == 'm')
            cuDeviceGetAttribute(&result, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0);
        if (write(answer_fd, &result, sizeof(result)) != sizeof(result))
            break;
    }
    _exit(0);
}

static struct member member_new(const char *pipe_folder)
{
    struct member member;
    int order[2], answer[2];

    assert_int_equal(pipe(order), 0);
    assert_int_equal(pipe(answer), 0);
    member.pid = fork();
    assert_true(member.pid >= 0);
    if (!member.pid) {
        close(order[1]);
        close(answer[0]);
        member_main(order[0], answer[1], pipe_folder);
    }
    close(order[0]);
    close(answer[1]);
    member.order_fd = order[1];
    member.answer_fd = answer[0];
    return member;
}

static void say(const struct member *member, char order)
{
    assert_int_equal(write(member->order_fd, &order, 1), 1);
}

static int hear(const struct member *member)
{
    int result;

    assert_int_equal(read(member->answer_fd, &result, sizeof(result)), sizeof(result));
    return result;
}

static int ask(const struct member *member, char order)
{
    say(member, order);
    return hear(member);
}

static void member_end(const struct member *member)
{
    int status;

    close(member->order_fd);
    close(member->answer_fd);
    assert_int_equal(waitpid(member->pid, &status, 0), member->pid);
    assert_int_equal(status, 0);
}

static void a_fault_ends_its_domain(void **state)
{
    struct member busy = member_new(NULL), idle = member_new(folder), outside = member_new("/elsewhere");
    struct member culprit = member_new(NULL);

    assert_int_equal(ask(&busy, 'm'), 1);
    assert_int_equal(ask(&outside, 'm'), 0);
    assert_int_equal(ask(&busy, 's'), CUDA_SUCCESS);
    say(&busy, 'w');
    assert_int_equal(ask(&idle, 'q'), CUDA_SUCCESS);
    assert_int_equal(ask(&outside, 'q'), CUDA_SUCCESS);
    assert_int_equal(ask(&culprit, 'f'), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(hear(&busy), CUDA_ERROR_ILLEGAL_ADDRESS); /* in the middle of its kernel */
    for (unsigned i = 0; i < 3000 && ask(&idle, 'q') == CUDA_SUCCESS; i++)
        usleep(10000);
    assert_int_equal(ask(&idle, 'q'), CUDA_ERROR_ILLEGAL_ADDRESS); /* and for ever */
    assert_int_equal(ask(&outside, 'q'), CUDA_SUCCESS);
    struct member late = member_new(NULL);
    assert_int_equal(ask(&late, 'q'), CUDA_SUCCESS);
    /* A fault outside is nobody's but its own. */
    assert_int_equal(ask(&outside, 'f'), CUDA_ERROR_ILLEGAL_ADDRESS);
    struct member later = member_new(NULL);
    assert_int_equal(ask(&later, 'q'), CUDA_SUCCESS);
    assert_int_equal(ask(&late, 'q'), CUDA_SUCCESS);
    member_end(&later);
    member_end(&late);
    member_end(&culprit);
    member_end(&outside);
    member_end(&idle);
    member_end(&busy);
}

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    setenv("FLYT_SOFT_FAULT_FOLDER", folder, 1);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    return 0;
}

static int remove_folder(void **state)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/faults", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_fault_ends_its_domain)};

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
