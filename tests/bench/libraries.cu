// nvcc: -lcublas -lcublasLt -lcufft -lcusolver -lcusparse -ldl -Xcompiler -Wno-missing-field-initializers
/*
 * Calls of NVIDIA's libraries that nobody waits for, of each as many back to back as it is told: what one costs the program's
 * thread, and the process with the threads of the library, in CPU time. They are small, so that it is the calls that count.
 *
 *     libraries CALLS ROUNDS [NAME]       of all, or of the one that is named
 *
 * cuDNN and NCCL are left out where this machine or the node has none.
 */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cufft.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <string.h>

#include "bench.h"
#include "tests/apps/cudnn_interface.h"
#include "tests/apps/nccl_interface.h"

enum { N = 8, POINTS = 64, VECTOR = 256 };

/* Statuses of all libraries are 0 for success. */
#define DO(call)                                                                                                       \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, status_);                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

static std::vector<float> identity()
{
    std::vector<float> matrix(N * N);
    for (int i = 0; i < N; i++)
        matrix[i * (N + 1)] = 1;
    return matrix;
}

/* Operands that all have: the identity, ones, and results that each call makes greater by 1. */
static float *one_matrix, *ones, *sums, *device_one, *scratch;
static cufftComplex *signal, *spectrum;
static int *solver_info;
static const float one = 1;

static cublasHandle_t blas, blas_device;
static cublasLtHandle_t light;
static cublasLtMatmulDesc_t product;
static cublasLtMatrixLayout_t layout;
static cufftHandle plan;
static cusolverDnHandle_t solver;
static cusparseHandle_t sparse;
static cusparseSpMatDescr_t sparse_matrix;
static cusparseDnVecDescr_t vector_in, vector_out;
static cudnnHandle_t dnn;
static cudnnTensorDescriptor_t tensor;
static ncclComm_t comm;

static void make_operands()
{
    one_matrix = on_device(identity());
    ones = on_device(std::vector<float>(VECTOR, 1));
    sums = on_device(std::vector<float>(VECTOR));
    device_one = on_device(std::vector<float>(1, 1));
    scratch = on_device(std::vector<float>(1 << 16));
    signal = on_device(std::vector<cufftComplex>(POINTS, {1, 0}));
    spectrum = on_device(std::vector<cufftComplex>(POINTS));
    solver_info = on_device(std::vector<int>(1, 7));
}

static void make_sparse()
{
    std::vector<int> offsets(N + 1), columns(N);
    for (int i = 0; i < N; i++)
        offsets[i + 1] = i + 1, columns[i] = i;
    DO(cusparseCreate(&sparse));
    DO(cusparseCreateCsr(&sparse_matrix, N, N, N, on_device(offsets), on_device(columns), ones, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                         CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    DO(cusparseCreateDnVec(&vector_in, N, ones, CUDA_R_32F));
    DO(cusparseCreateDnVec(&vector_out, N, sums, CUDA_R_32F));
}

static void make_handles()
{
    int bytes;
    DO(cublasCreate(&blas));
    DO(cublasCreate(&blas_device));
    DO(cublasSetPointerMode(blas_device, CUBLAS_POINTER_MODE_DEVICE));
    DO(cublasLtCreate(&light));
    DO(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    DO(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, N, N, N));
    DO(cufftPlan1d(&plan, POINTS, CUFFT_C2C, 1));
    DO(cusolverDnCreate(&solver));
    DO(cusolverDnSpotrf_bufferSize(solver, CUBLAS_FILL_MODE_LOWER, N, one_matrix, N, &bytes));
    make_sparse();
}

static bool make_dnn()
{
    if (!dlopen("libcudnn.so.9", RTLD_NOW))
        return false;
    cudnn_open();
    if (cudnnCreate(&dnn))
        return false;
    DO(cudnnCreateTensorDescriptor(&tensor));
    DO(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, VECTOR));
    return true;
}

static bool make_comm()
{
    if (!dlopen("libnccl.so.2", RTLD_NOW))
        return false;
    nccl_open();
    return ncclCommInitAll(&comm, 1, NULL) == ncclSuccess;
}

/* ---- one call of each ---- */

static void axpy()
{
    DO(cublasSaxpy(blas, VECTOR, &one, ones, 1, sums, 1));
}

static void axpy_device()
{
    DO(cublasSaxpy(blas_device, VECTOR, device_one, ones, 1, sums, 1));
}

static void gemm()
{
    DO(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, one_matrix, N, ones, N, &one, sums, N));
}

static void gemm_device()
{
    DO(cublasSgemm(blas_device, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, device_one, one_matrix, N, ones, N, device_one, sums, N));
}

static void matmul()
{
    DO(cublasLtMatmul(light, product, &one, one_matrix, layout, ones, layout, &one, sums, layout, sums, layout, NULL, NULL, 0, 0));
}

static void transform()
{
    DO(cufftExecC2C(plan, signal, spectrum, CUFFT_FORWARD));
}

static void cholesky()
{
    DO(cusolverDnSpotrf(solver, CUBLAS_FILL_MODE_LOWER, N, one_matrix, N, scratch, 1 << 16, solver_info));
}

static void spmv()
{
    DO(cusparseSpMV(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, sparse_matrix, vector_in, &one, vector_out, CUDA_R_32F,
                    CUSPARSE_SPMV_ALG_DEFAULT, scratch));
}

static void add()
{
    DO(cudnnAddTensor(dnn, &one, tensor, ones, &one, tensor, sums));
}

static void reduce()
{
    DO(ncclAllReduce(ones, scratch, VECTOR, ncclFloat32, ncclSum, comm, 0));
}

/* `adds`: so many of the first sums are greater by 1 after each call; `is_there`: makes what is not everywhere. */
static const struct row {
    const char *name;
    void (*call)();
    int adds;
    bool (*is_there)();
} rows[] = {{"cublasSaxpy_host", axpy, VECTOR},
            {"cublasSaxpy_device", axpy_device, VECTOR},
            {"cublasSgemm_host", gemm, N * N},
            {"cublasSgemm_device", gemm_device, N * N},
            {"cublasLtMatmul", matmul, N * N},
            {"cufftExecC2C", transform},
            {"cusolverDnSpotrf", cholesky},
            {"cusparseSpMV", spmv, N},
            {"cudnnAddTensor", add, VECTOR, make_dnn},
            {"ncclAllReduce", reduce, 0, make_comm}};

/* Whether the first numbers in device memory are all this one. */
static bool are_all(const float *device, int count, float value)
{
    std::vector<float> found(count);
    CHECK(cudaMemcpy(found.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
    return found == std::vector<float>(count, value);
}

static bool is_transformed()
{
    std::vector<cufftComplex> found(POINTS);
    CHECK(cudaMemcpy(found.data(), spectrum, POINTS * sizeof found[0], cudaMemcpyDeviceToHost));
    return found[0].x == POINTS && found[1].x == 0;
}

static bool is_factored()
{
    std::vector<float> found(N * N);
    int info;
    CHECK(cudaMemcpy(found.data(), one_matrix, N * N * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&info, solver_info, sizeof info, cudaMemcpyDeviceToHost));
    return found == identity() && info == 0;
}

/* What all calls have come to; they are fewer than a float can count. */
static void compare(const struct row *row, int calls)
{
    const bool is_right = row->call == transform  ? is_transformed()
                          : row->call == cholesky ? is_factored()
                          : row->adds             ? are_all(sums, row->adds, calls)
                                                  : are_all(scratch, VECTOR, 1);
    if (!is_right) {
        fprintf(stderr, "libraries: %d calls of %s have not come to what they should\n", calls, row->name);
        exit(1);
    }
    CHECK(cudaMemset(sums, 0, VECTOR * sizeof(float)));
}

static void report_of(const struct row *row, const char *what, const std::vector<double> &values)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s", row->name, what);
    report(name, median(values), "us");
}

static void measure(const struct row *row, int calls, int rounds)
{
    std::vector<double> thread, process;
    row->call(); /* waits for the library's answer */
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < rounds; round++) {
        double thread_start = thread_us(), process_start = process_us();
        for (int i = 0; i < calls; i++)
            row->call();
        thread.push_back((thread_us() - thread_start) / calls);
        process.push_back((process_us() - process_start) / calls);
        CHECK(cudaDeviceSynchronize());
    }
    compare(row, 1 + calls * rounds);
    report_of(row, "thread_cpu", thread);
    report_of(row, "process_cpu", process);
}

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? atoi(argv[1]) : 20000;
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    make_operands();
    make_handles();
    for (const struct row &row : rows)
        if ((argc < 4 || !strcmp(argv[3], row.name)) && (!row.is_there || row.is_there()))
            measure(&row, calls, rounds);
    return 0;
}
