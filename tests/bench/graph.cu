/* Graphs of kernels: captured, instantiated, launched (client CPU and wall per launch), changed in one node and
 * launched. */
#include "bench.h"

__global__ void touch(int *counter)
{
    if (threadIdx.x == 0 && counter)
        *counter += 1;
}

int main(int argc, char **argv)
{
    const int nodes = argc > 1 ? atoi(argv[1]) : 1000;
    const int launches = argc > 2 ? atoi(argv[2]) : 20;
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *counter;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    touch<<<1, 32, 0, stream>>>(counter);
    CHECK(cudaDeviceSynchronize());

    double start = wall_us();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < nodes; i++)
        touch<<<1, 32, 0, stream>>>(counter);
    CHECK(cudaStreamEndCapture(stream, &graph));
    report("graph_capture_per_node", (wall_us() - start) / nodes, "us");
    start = wall_us();
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    report("graph_first_launch_per_node", (wall_us() - start) / nodes, "us");

    std::vector<double> wall, thread, changed;
    for (int round = 0; round < rounds; round++) {
        double wall_start = wall_us(), thread_start = thread_us();
        for (int i = 0; i < launches; i++)
            CHECK(cudaGraphLaunch(exec, stream));
        thread.push_back((thread_us() - thread_start) / launches);
        CHECK(cudaStreamSynchronize(stream));
        wall.push_back((wall_us() - wall_start) / launches / nodes);
    }
    report("graph_launch_per_node", median(wall), "us");
    report("graph_launch_thread_cpu", median(thread), "us");

    size_t count = 1;
    cudaGraphNode_t node;
    cudaKernelNodeParams params;
    CHECK(cudaGraphGetNodes(graph, &node, &count));
    CHECK(cudaGraphKernelNodeGetParams(node, &params));
    for (int round = 0; round < rounds; round++) {
        double wall_start = wall_us();
        CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        changed.push_back((wall_us() - wall_start) / nodes);
    }
    report("graph_changed_launch_per_node", median(changed), "us");

    int seen = 0;
    CHECK(cudaMemcpy(&seen, counter, sizeof seen, cudaMemcpyDeviceToHost));
    const int expected = 1 + nodes * (1 + launches * rounds + rounds);
    if (seen != expected) {
        fprintf(stderr, "graph: the kernel ran %d times, not %d\n", seen, expected);
        return 1;
    }
    return 0;
}
