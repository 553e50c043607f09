// One rank of a communicator over several processes. It writes or reads the communicator's id in a file, answers lines of its
// standard input, and says what came of them:
//     reduce     all ranks' numbers are added; "sum N"
//     reduce.    the same, without waiting for the sum
//     replay     the same by a graph that the first such line has captured
//     error      waits for an asynchronous error; "error N"
//     abort      "aborted N", the status
//     end        destroys the communicator and ends
// usage: communicator RANK RANKS FILE
// nvcc: -ldl
#include <string.h>
#include <string>
#include "../../apps/nccl_interface.h"
#include "../../apps/check.h"

static ncclComm_t comm;
static cudaStream_t stream;
static int *numbers;

static void write_id(const char *path)
{
    ncclUniqueId id;
    CHECK_NCCL(ncclGetUniqueId(&id));
    std::string fresh = std::string(path) + ".new";
    FILE *file = fopen(fresh.c_str(), "wb");
    EXPECT(file && fwrite(&id, sizeof id, 1, file) == 1 && !fclose(file), "the id is written");
    EXPECT(!rename(fresh.c_str(), path), "the id has its name");
}

static ncclUniqueId read_id(const char *path)
{
    ncclUniqueId id;
    FILE *file;
    while (!(file = fopen(path, "rb")))
        usleep(10000);
    EXPECT(fread(&id, sizeof id, 1, file) == 1, "the id is read");
    fclose(file);
    return id;
}

static void reduce(int rank)
{
    int number = rank + 1, sum = 0;
    CHECK(cudaMemcpyAsync(numbers, &number, sizeof number, cudaMemcpyHostToDevice, stream));
    CHECK_NCCL(ncclAllReduce(numbers, numbers + 1, 1, ncclInt32, ncclSum, comm, stream));
    CHECK(cudaMemcpyAsync(&sum, numbers + 1, sizeof sum, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("sum %d\n", sum);
}

static void replay(int rank)
{
    static cudaGraphExec_t exec;
    int number = rank + 1, sum = 0;
    if (!exec) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        CHECK_NCCL(ncclAllReduce(numbers, numbers + 1, 1, ncclInt32, ncclSum, comm, stream));
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaMemcpyAsync(numbers, &number, sizeof number, cudaMemcpyHostToDevice, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(&sum, numbers + 1, sizeof sum, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("sum %d\n", sum);
}

static void await_error(void)
{
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
        usleep(10000);
    }
    printf("error %d\n", (int)error);
}

int main(int argc, char **argv)
{
    char line[64];
    EXPECT(argc == 4, "usage: communicator RANK RANKS FILE");
    int rank = atoi(argv[1]), ranks = atoi(argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    nccl_open();
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&numbers, 2 * sizeof *numbers));
    if (!rank)
        write_id(argv[3]);
    CHECK_NCCL(ncclCommInitRank(&comm, ranks, read_id(argv[3]), rank));
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "reduce\n")) {
            reduce(rank);
        } else if (!strcmp(line, "replay\n")) {
            replay(rank);
        } else if (!strcmp(line, "reduce.\n")) {
            printf("begun %d\n", (int)ncclAllReduce(numbers, numbers + 1, 1, ncclInt32, ncclSum, comm, stream));
        } else if (!strcmp(line, "error\n")) {
            await_error();
        } else if (!strcmp(line, "abort\n")) {
            printf("aborted %d\n", (int)ncclCommAbort(comm));
            CHECK(cudaStreamSynchronize(stream));
        } else if (!strcmp(line, "end\n")) {
            CHECK_NCCL(ncclCommDestroy(comm));
            break;
        }
    }
    CHECK(cudaFree(numbers));
    return 0;
}
