// cuSOLVER's refactorization of a batch, in the order of calls that its manual has: matrices with the pattern of one
// that was factored on the host, and their numbers, are in device memory. Solutions are compared with the matrices, on
// the host.
// nvcc: -lcusolver
#include <sys/wait.h>
#include <unistd.h>
#include "refactor.h"

enum { BATCH = 3 };

// The places, in device memory, of the parts of an array, each of which has `count` numbers.
static double **places(double *first, int count)
{
    std::vector<double *> out;
    for (int i = 0; i < BATCH; i++)
        out.push_back(first + i * count);
    return on_device(out);
}

static std::vector<double> numbers_of(const std::vector<Matrix<double>> &all)
{
    std::vector<double> out;
    for (const Matrix<double> &one : all)
        out.insert(out.end(), one.values.begin(), one.values.end());
    return out;
}

// L has a unit diagonal that is not stored.
static cusolverRfHandle_t set_up(Matrix<double> a, std::vector<Matrix<double>> all)
{
    std::vector<double> m = factored(permuted(a));
    Matrix<double> l = lower(m, false), u = upper(m);
    std::vector<double *> host;
    cusolverRfHandle_t handle;
    for (Matrix<double> &one : all)
        host.push_back(one.values.data());
    CHECK_SOLVER(cusolverRfCreate(&handle));
    CHECK_SOLVER(cusolverRfSetNumericProperties(handle, 0, 0));
    CHECK_SOLVER(cusolverRfSetAlgs(handle, CUSOLVERRF_FACTORIZATION_ALG0, CUSOLVERRF_TRIANGULAR_SOLVE_ALG1));
    CHECK_SOLVER(cusolverRfSetMatrixFormat(handle, CUSOLVERRF_MATRIX_FORMAT_CSR, CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_L));
    CHECK_SOLVER(cusolverRfSetResetValuesFastMode(handle, CUSOLVERRF_RESET_VALUES_FAST_MODE_ON));
    CHECK_SOLVER(cusolverRfBatchSetupHost(
        BATCH, N, a.nnz(), a.offsets.data(), a.indices.data(), host.data(), l.nnz(), l.offsets.data(), l.indices.data(),
        l.values.data(), u.nnz(), u.offsets.data(), u.indices.data(), u.values.data(), p.data(), q.data(), handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfBatchAnalyze(handle));
    CHECK(cudaDeviceSynchronize());
    return handle;
}

static void refactor(cusolverRfHandle_t handle, const DeviceMatrix<double> &pattern,
                     const std::vector<Matrix<double>> &all, const OnDevice &d)
{
    double *numbers = on_device(numbers_of(all)), **each = places(numbers, all[0].nnz());
    std::vector<int> positions(BATCH, 7);
    CHECK_SOLVER(
        cusolverRfBatchResetValues(BATCH, N, all[0].nnz(), pattern.offsets, pattern.indices, each, d.p, d.q, handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfBatchRefactor(handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfBatchZeroPivot(handle, positions.data()));
    for (int one : positions)
        EXPECT_EQ(one, -1);
    CHECK(cudaFree(each));
    CHECK(cudaFree(numbers));
}

static void expect_solved(cusolverRfHandle_t handle, const std::vector<Matrix<double>> &all, const OnDevice &d)
{
    std::vector<double> b = random_vector<double>(BATCH * N);
    double *x = on_device(b), *temp, **each = places(x, N);
    CHECK(cudaMalloc(&temp, 2 * BATCH * N * sizeof *temp));
    CHECK_SOLVER(cusolverRfBatchSolve(handle, d.p, d.q, 1, temp, N, each, N));
    CHECK(cudaDeviceSynchronize());
    std::vector<double> seen = from_device(x, BATCH * N);
    for (int i = 0; i < BATCH; i++)
        expect_near(times(all[i], std::vector<double>(&seen[i * N], &seen[i * N] + N)),
                    std::vector<double>(&b[i * N], &b[i * N] + N), "cusolverRfBatchSolve");
    for (void *one : {(void *)x, (void *)temp, (void *)each})
        CHECK(cudaFree(one));
}

static int run()
{
    cudaDeviceProp about;
    CHECK(cudaGetDeviceProperties(&about, 0));
    if (is_forwarded() && !IS_SOFT_NAME(about.name)) {
        puts("skip: NVIDIA's cusolverRfBatchAnalyze would end the server, as it ends a process natively");
        return 77;
    }
    Matrix<double> a = begin_matrix();
    std::vector<Matrix<double>> all;
    DeviceMatrix<double> pattern(a);
    OnDevice d;
    for (int i = 0; i < BATCH; i++)
        all.push_back(other_numbers(a, 1 + i));
    cusolverRfHandle_t handle = set_up(a, all);
    for (int turn = 0; turn < 3; turn++) {
        refactor(handle, pattern, all, d);
        expect_solved(handle, all, d);
        for (Matrix<double> &one : all)
            one = other_numbers(a, 2 + turn);
    }
    CHECK_SOLVER(cusolverRfDestroy(handle));
    CHECK(cudaDeviceSynchronize());
    return 0;
}

// In a child, for NVIDIA's library ends the process in cusolverRfBatchAnalyze (12.1 on an H200).
int main()
{
    int status;
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (!pid)
        exit(run());
    EXPECT(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status) && !is_forwarded()) {
        printf("skip: NVIDIA's library ends the process with signal %d\n", WTERMSIG(status));
        return 77;
    }
    EXPECT(WIFEXITED(status), "signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}
