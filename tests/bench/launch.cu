/* Kernel launches: back to back (wall and client CPU per launch), and launch plus synchronize. */
#include "bench.h"

__global__ void touch(int *counter)
{
    if (threadIdx.x == 0 && counter)
        *counter += 1;
}

int main(int argc, char **argv)
{
    const int launches = argc > 1 ? atoi(argv[1]) : 20000;
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    const int pairs = argc > 3 ? atoi(argv[3]) : 2000;
    int *counter;
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    for (int i = 0; i < 200; i++)
        touch<<<1, 32>>>(counter);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> wall, thread, issue, process;
    for (int round = 0; round < rounds; round++) {
        double wall_start = wall_us(), thread_start = thread_us(), process_start = process_us();
        for (int i = 0; i < launches; i++)
            touch<<<1, 32>>>(counter);
        thread.push_back((thread_us() - thread_start) / launches);
        process.push_back((process_us() - process_start) / launches);
        issue.push_back((wall_us() - wall_start) / launches);
        CHECK(cudaDeviceSynchronize());
        wall.push_back((wall_us() - wall_start) / launches);
    }
    report("launch_back_to_back", median(wall), "us");
    report("launch_thread_cpu", median(thread), "us");
    report("launch_process_cpu", median(process), "us");
    report("launch_issue", median(issue), "us");

    std::vector<double> pair;
    for (int i = 0; i < pairs; i++) {
        double start = wall_us();
        touch<<<1, 32>>>(counter);
        CHECK(cudaDeviceSynchronize());
        pair.push_back(wall_us() - start);
    }
    report("launch_synchronize", median(pair), "us");

    int seen = 0;
    CHECK(cudaMemcpy(&seen, counter, sizeof seen, cudaMemcpyDeviceToHost));
    const int expected = 200 + launches * rounds + pairs;
    if (seen != expected) {
        fprintf(stderr, "launch: the kernel ran %d times, not %d\n", seen, expected);
        return 1;
    }
    return 0;
}
