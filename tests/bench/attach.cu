/*
 * How long it takes until a program has its GPU.
 *
 *   attach once                           "NANOSECONDS NANOSECONDS": of the first CUDA call (cudaFree(0)), and of the
 *                                         first kernel from the process's first CUDA call on; then waits for the end of
 *                                         standard input
 *   attach many COUNT attach SOCKET…      starts COUNT processes, in turn with each client manager's socket, and prints
 *                                         "NANOSECONDS" from before the first fork until all have their GPU
 *   attach many COUNT nothing             the same with processes that ask for nothing
 */
#include "bench.h"
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

__global__ void set(int *value)
{
    *value = 42;
}

static void wait_for_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

static int once()
{
    int *device, host = 0;
    double start = wall_us();
    CHECK(cudaFree(nullptr));
    double attached = wall_us();
    CHECK(cudaMalloc(&device, sizeof *device));
    set<<<1, 1>>>(device);
    CHECK(cudaDeviceSynchronize());
    double computed = wall_us();
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    if (host != 42)
        return 1;
    printf("%.0f %.0f\n", (attached - start) * 1e3, (computed - start) * 1e3);
    fflush(stdout);
    wait_for_end(STDIN_FILENO);
    return 0;
}

/* Says so by a byte, and stays until the parent closes its pipe. */
static int child(int said_fd, int stay_fd, bool attaches)
{
    char done = 1;
    if (attaches)
        CHECK(cudaFree(nullptr));
    if (write(said_fd, &done, 1) != 1)
        return 1;
    wait_for_end(stay_fd);
    return 0;
}

static int many(int count, const char *what, int socket_count, char **sockets)
{
    int said[2], stay[2];
    char said_text[16], stay_text[16], done;
    std::vector<pid_t> pids;
    if (pipe(said) || pipe(stay))
        return 1;
    snprintf(said_text, sizeof said_text, "%d", said[1]);
    snprintf(stay_text, sizeof stay_text, "%d", stay[0]);
    double start = wall_us();
    for (int i = 0; i < count; i++) {
        if (socket_count)
            setenv("FLYT_CLIENT_SOCKET", sockets[i % socket_count], 1);
        pid_t pid = fork();
        if (pid == 0) {
            close(said[0]);
            close(stay[1]);
            execl("/proc/self/exe", "attach", "child", said_text, stay_text, what, (char *)nullptr);
            _exit(127);
        }
        pids.push_back(pid);
    }
    close(said[1]);
    int here = 0;
    while (here < count && read(said[0], &done, 1) == 1)
        here++;
    double end = wall_us();
    close(stay[1]);
    int failed = 0, status;
    for (pid_t pid : pids)
        failed += waitpid(pid, &status, 0) != pid || status != 0;
    if (here < count || failed) {
        fprintf(stderr, "attach: %d of %d got there, %d failed\n", here, count, failed);
        return 1;
    }
    printf("%.0f\n", (end - start) * 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "once"))
        return once();
    if (argc == 5 && !strcmp(argv[1], "child"))
        return child(atoi(argv[2]), atoi(argv[3]), !strcmp(argv[4], "attach"));
    if (argc >= 4 && !strcmp(argv[1], "many"))
        return many(atoi(argv[2]), argv[3], argc - 4, argv + 4);
    fprintf(stderr, "usage: attach once | many COUNT attach|nothing [SOCKET…]\n");
    return 2;
}
