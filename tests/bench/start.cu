/* From the start of a process to the end of its first kernel: the program runs itself and takes the time from outside.
 */
#include "bench.h"
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

__global__ void set(int *value)
{
    *value = 42;
}

static int child(int pipe_fd)
{
    int *device, host = 0;
    CHECK(cudaMalloc(&device, sizeof *device));
    set<<<1, 1>>>(device);
    CHECK(cudaDeviceSynchronize());
    char done = 1;
    if (write(pipe_fd, &done, 1) != 1)
        return 1;
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    return host == 42 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "child"))
        return child(atoi(argv[2]));
    const int rounds = argc > 1 ? atoi(argv[1]) : 7;
    std::vector<double> times;
    for (int round = 0; round < rounds; round++) {
        int fds[2];
        if (pipe(fds))
            return 1;
        char number[16];
        snprintf(number, sizeof number, "%d", fds[1]);
        double start = wall_us();
        pid_t pid = fork();
        if (pid == 0) {
            close(fds[0]);
            execl("/proc/self/exe", argv[0], "child", number, (char *)nullptr);
            _exit(127);
        }
        close(fds[1]);
        char done = 0;
        bool is_done = read(fds[0], &done, 1) == 1;
        double end = wall_us();
        close(fds[0]);
        int status;
        waitpid(pid, &status, 0);
        if (!is_done || status != 0) {
            fprintf(stderr, "start: the child failed\n");
            return 1;
        }
        times.push_back((end - start) * 1e-3);
        /* A warm server is made again while nobody waits. */
        usleep(1500000);
    }
    report("start_to_first_kernel", median(times), "ms");
    return 0;
}
