// cuSPARSE through its generic interface and some older functions: products, systems, conversions, vectors, descriptors'
// getters, scalars in host and device memory; each compared with loops over dense matrices.
// nvcc: -lcusparse
#define DISABLE_CUSPARSE_DEPRECATED // its own declarations use what it deprecates
#include <cusparse.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_SPARSE(call)                                                                                             \
    do {                                                                                                               \
        cusparseStatus_t status_ = (call);                                                                             \
        if (status_ != CUSPARSE_STATUS_SUCCESS) {                                                                      \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cusparseGetErrorName(status_));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { M = 12, K = 9, N = 5 };
static const cusparseOperation_t PLAIN = CUSPARSE_OPERATION_NON_TRANSPOSE, TRANSPOSED = CUSPARSE_OPERATION_TRANSPOSE;

static cusparseHandle_t handle;
static unsigned random_state = 777;

static double random_number()
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)(random_state >> 16) / 32768.0 - 1.0;
}

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T) + 16));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static std::vector<T> from_device(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

static void expect_close(double seen, double wanted, const char *what)
{
    if (!(fabs(seen - wanted) <= 1e-4 * (1 + fabs(wanted)))) {
        printf("%s: %.9g, expected %.9g\n", what, seen, wanted);
        exit(1);
    }
}

static void *buffer_of(size_t bytes)
{
    void *buffer;
    CHECK(cudaMalloc(&buffer, bytes + 16));
    return buffer;
}

template <typename T> static cudaDataType type_of();
template <> cudaDataType type_of<float>()
{
    return CUDA_R_32F;
}
template <> cudaDataType type_of<double>()
{
    return CUDA_R_64F;
}

template <typename T> static std::vector<T> numbers(int count)
{
    std::vector<T> out(count);
    for (T &one : out)
        one = random_number();
    return out;
}

// A matrix in CSR, in host and device memory, with the dense one by rows.
template <typename T> struct Matrix {
    int rows, columns;
    std::vector<T> dense, values;
    std::vector<int> offsets, indices;
    int *device_offsets, *device_indices;
    T *device_values;
    cusparseSpMatDescr_t descr;

    Matrix(int rows_, int columns_, bool is_lower = false) : rows(rows_), columns(columns_), dense(rows_ * columns_)
    {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                dense[i * columns + j] = is_lower && i == j                                  ? 4 + random_number()
                                         : random_number() > 0.2 && (!is_lower || j < i) ? random_number()
                                                                                         : 0;
        offsets.push_back(0);
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < columns; j++)
                if (dense[i * columns + j] != 0) {
                    indices.push_back(j);
                    values.push_back(dense[i * columns + j]);
                }
            offsets.push_back((int)values.size());
        }
        device_offsets = on_device(offsets);
        device_indices = on_device(indices);
        device_values = on_device(values);
        CHECK_SPARSE(cusparseCreateCsr(&descr, rows, columns, values.size(), device_offsets, device_indices, device_values,
                                       CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type_of<T>()));
    }
    ~Matrix()
    {
        CHECK_SPARSE(cusparseDestroySpMat(descr));
        CHECK(cudaFree(device_offsets));
        CHECK(cudaFree(device_indices));
        CHECK(cudaFree(device_values));
    }
    int nnz() const
    {
        return (int)values.size();
    }
};

// A dense matrix by columns, or a vector.
template <typename T> struct Dense {
    int rows, columns;
    std::vector<T> host;
    T *device;
    cusparseDnMatDescr_t matrix;
    cusparseDnVecDescr_t vector;

    Dense(int rows_, int columns_) : rows(rows_), columns(columns_), host(numbers<T>(rows_ * columns_)), device(on_device(host))
    {
        CHECK_SPARSE(cusparseCreateDnMat(&matrix, rows, columns, rows, device, type_of<T>(), CUSPARSE_ORDER_COL));
        CHECK_SPARSE(cusparseCreateDnVec(&vector, rows, device, type_of<T>()));
    }
    ~Dense()
    {
        CHECK_SPARSE(cusparseDestroyDnMat(matrix));
        CHECK_SPARSE(cusparseDestroyDnVec(vector));
        CHECK(cudaFree(device));
    }
    std::vector<T> seen() const
    {
        return from_device(device, host.size());
    }
};

template <typename T> static void expect_product(const Matrix<T> &a, const Dense<T> &b, const Dense<T> &c, int columns, T alpha,
                                                 T beta, bool is_transposed, const char *what)
{
    std::vector<T> seen = c.seen();
    for (int i = 0; i < c.rows; i++)
        for (int j = 0; j < columns; j++) {
            double sum = 0;
            for (int k = 0; k < b.rows; k++)
                sum += (double)(is_transposed ? a.dense[k * a.columns + i] : a.dense[i * a.columns + k]) * b.host[j * b.rows + k];
            expect_close(seen[j * c.rows + i], alpha * sum + beta * c.host[j * c.rows + i], what);
        }
}

template <typename T> static void test_products()
{
    Matrix<T> a(M, K);
    Dense<T> x(K, N), y(M, N), b(K, N), c(M, N), down(M, N), up(K, N);
    T alpha = 2, beta = 0.5;
    size_t bytes = 0, again = 1;
    for (int round = 0; round < 2; round++) { // the second time nothing is awaited
        Dense<T> &out = round ? c : y;
        CHECK_SPARSE(cusparseSpMV_bufferSize(handle, PLAIN, &alpha, a.descr, (round ? b : x).vector, &beta, out.vector, type_of<T>(),
                                             CUSPARSE_SPMV_ALG_DEFAULT, round ? &again : &bytes));
        void *buffer = buffer_of(bytes);
        CHECK_SPARSE(cusparseSpMV_preprocess(handle, PLAIN, &alpha, a.descr, (round ? b : x).vector, &beta, out.vector, type_of<T>(),
                                             CUSPARSE_SPMV_ALG_DEFAULT, buffer));
        CHECK_SPARSE(cusparseSpMV(handle, PLAIN, &alpha, a.descr, (round ? b : x).vector, &beta, out.vector, type_of<T>(),
                                  CUSPARSE_SPMV_ALG_DEFAULT, buffer));
        expect_product(a, round ? b : x, out, 1, alpha, beta, false, "SpMV");
        CHECK(cudaFree(buffer));
    }
    EXPECT(bytes == again);
    Dense<T> e(K, N), f(M, N);
    CHECK_SPARSE(cusparseSpMM_bufferSize(handle, PLAIN, PLAIN, &alpha, a.descr, e.matrix, &beta, f.matrix, type_of<T>(),
                                         CUSPARSE_SPMM_CSR_ALG2, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSpMM_preprocess(handle, PLAIN, PLAIN, &alpha, a.descr, e.matrix, &beta, f.matrix, type_of<T>(),
                                         CUSPARSE_SPMM_CSR_ALG2, buffer));
    CHECK_SPARSE(cusparseSpMM(handle, PLAIN, PLAIN, &alpha, a.descr, e.matrix, &beta, f.matrix, type_of<T>(), CUSPARSE_SPMM_CSR_ALG2,
                              buffer));
    expect_product(a, e, f, N, alpha, beta, false, "SpMM");
    CHECK(cudaFree(buffer));

    // Transposed, with scalars in device memory.
    T *scalars = on_device(std::vector<T>{alpha, beta});
    CHECK_SPARSE(cusparseSetPointerMode(handle, CUSPARSE_POINTER_MODE_DEVICE));
    CHECK_SPARSE(cusparseSpMM_bufferSize(handle, TRANSPOSED, PLAIN, scalars, a.descr, down.matrix, scalars + 1, up.matrix, type_of<T>(),
                                         CUSPARSE_SPMM_ALG_DEFAULT, &bytes));
    buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSpMM(handle, TRANSPOSED, PLAIN, scalars, a.descr, down.matrix, scalars + 1, up.matrix, type_of<T>(),
                              CUSPARSE_SPMM_ALG_DEFAULT, buffer));
    CHECK_SPARSE(cusparseSetPointerMode(handle, CUSPARSE_POINTER_MODE_HOST));
    expect_product(a, down, up, N, alpha, beta, true, "SpMM transposed");
    CHECK(cudaFree(buffer));
    CHECK(cudaFree(scalars));
}

// Columns and rows of numbers, with a descriptor that is given its addresses later.
static void test_coordinates()
{
    Matrix<float> a(M, K);
    Dense<float> x(K, N), y(M, N);
    std::vector<int> rows;
    for (int i = 0; i < M; i++)
        rows.insert(rows.end(), a.offsets[i + 1] - a.offsets[i], i);
    int *device_rows = on_device(rows);
    float alpha = 1, beta = 0;
    size_t bytes = 0;
    cusparseSpMatDescr_t coo;
    CHECK_SPARSE(cusparseCreateCoo(&coo, M, K, a.nnz(), NULL, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    CHECK_SPARSE(cusparseCooSetPointers(coo, device_rows, a.device_indices, a.device_values));
    CHECK_SPARSE(cusparseSpMV_bufferSize(handle, PLAIN, &alpha, coo, x.vector, &beta, y.vector, CUDA_R_32F, CUSPARSE_SPMV_COO_ALG1,
                                         &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(
        cusparseSpMV(handle, PLAIN, &alpha, coo, x.vector, &beta, y.vector, CUDA_R_32F, CUSPARSE_SPMV_COO_ALG1, buffer));
    expect_product(a, x, y, 1, alpha, beta, false, "SpMV of COO");
    CHECK_SPARSE(cusparseDestroySpMat(coo));
    CHECK(cudaFree(buffer));
    CHECK(cudaFree(device_rows));
}

static void test_getters()
{
    Matrix<double> a(M, K);
    int64_t rows, columns, nnz, size;
    void *offsets, *indices, *values;
    cusparseIndexType_t offset_type, index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
    cusparseFormat_t format;
    CHECK_SPARSE(cusparseCsrGet(a.descr, &rows, &columns, &nnz, &offsets, &indices, &values, &offset_type, &index_type, &base, &type));
    EXPECT(rows == M && columns == K && nnz == a.nnz() && offsets == a.device_offsets && indices == a.device_indices &&
           values == a.device_values && offset_type == CUSPARSE_INDEX_32I && index_type == CUSPARSE_INDEX_32I &&
           base == CUSPARSE_INDEX_BASE_ZERO && type == CUDA_R_64F);
    CHECK_SPARSE(cusparseSpMatGetFormat(a.descr, &format));
    EXPECT(format == CUSPARSE_FORMAT_CSR);
    cusparseFillMode_t fill = CUSPARSE_FILL_MODE_UPPER, told_fill = CUSPARSE_FILL_MODE_LOWER;
    cusparseDiagType_t told = CUSPARSE_DIAG_TYPE_UNIT;
    CHECK_SPARSE(cusparseSpMatSetAttribute(a.descr, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof fill));
    CHECK_SPARSE(cusparseSpMatGetAttribute(a.descr, CUSPARSE_SPMAT_FILL_MODE, &told_fill, sizeof told_fill));
    EXPECT(told_fill == fill);
    Dense<double> x(K, 1);
    CHECK_SPARSE(cusparseDnVecGet(x.vector, &size, &values, &type));
    EXPECT(size == K && values == x.device && type == CUDA_R_64F);
    cusparsePointerMode_t mode;
    CHECK_SPARSE(cusparseGetPointerMode(handle, &mode));
    EXPECT(mode == CUSPARSE_POINTER_MODE_HOST);
    cusparseSpMatDescr_t blocks;
    CHECK_SPARSE(cusparseSpMatGetAttribute(a.descr, CUSPARSE_SPMAT_DIAG_TYPE, &told, sizeof told)); // it was never set
    EXPECT(told == CUSPARSE_DIAG_TYPE_NON_UNIT);
    CHECK_SPARSE(cusparseCreateBsr(&blocks, 3, 4, 5, 2, 2, a.device_offsets, a.device_indices, a.device_values, CUSPARSE_INDEX_32I,
                                   CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F, CUSPARSE_ORDER_ROW));
    CHECK_SPARSE(cusparseSpMatGetSize(blocks, &rows, &columns, &nnz));
    EXPECT(rows == 6 && columns == 8 && nnz == 20);
    CHECK_SPARSE(cusparseDestroySpMat(blocks));
    CHECK_SPARSE(cusparseCreateBlockedEll(&blocks, 20, 42, 2, 6, a.device_indices, a.device_values, CUSPARSE_INDEX_32I,
                                          CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
    CHECK_SPARSE(cusparseSpMatGetSize(blocks, &rows, &columns, &nnz));
    EXPECT(rows == 20 && columns == 42 && nnz == 1680);
    CHECK_SPARSE(cusparseDestroySpMat(blocks));
    cusparseSpMatDescr_t none;
    EXPECT(cusparseCreateCsr(&none, -1, K, 0, NULL, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                             CUDA_R_64F) == CUSPARSE_STATUS_INVALID_VALUE);
}

static void test_sampled_product()
{
    Matrix<float> c(M, N);
    Dense<float> a(M, K), b(K, N);
    float alpha = 1.5f, beta = 0.5f;
    size_t bytes = 0;
    CHECK_SPARSE(cusparseSDDMM_bufferSize(handle, PLAIN, PLAIN, &alpha, a.matrix, b.matrix, &beta, c.descr, CUDA_R_32F,
                                          CUSPARSE_SDDMM_ALG_DEFAULT, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSDDMM_preprocess(handle, PLAIN, PLAIN, &alpha, a.matrix, b.matrix, &beta, c.descr, CUDA_R_32F,
                                          CUSPARSE_SDDMM_ALG_DEFAULT, buffer));
    CHECK_SPARSE(cusparseSDDMM(handle, PLAIN, PLAIN, &alpha, a.matrix, b.matrix, &beta, c.descr, CUDA_R_32F,
                               CUSPARSE_SDDMM_ALG_DEFAULT, buffer));
    std::vector<float> seen = from_device(c.device_values, c.nnz());
    for (int i = 0; i < M; i++)
        for (int k = c.offsets[i]; k < c.offsets[i + 1]; k++) {
            double sum = 0;
            for (int l = 0; l < K; l++)
                sum += (double)a.host[l * M + i] * b.host[c.indices[k] * K + l];
            expect_close(seen[k], alpha * sum + beta * c.values[k], "SDDMM");
        }
    CHECK(cudaFree(buffer));
}

// A product of two sparse matrices, whose descriptor is told how many numbers it has.
static void test_sparse_product()
{
    Matrix<double> a(M, K), b(K, N);
    double alpha = 2, beta = 0;
    int *offsets, *indices;
    double *values;
    cusparseSpMatDescr_t c;
    cusparseSpGEMMDescr_t product;
    CHECK(cudaMalloc(&offsets, (M + 1) * sizeof *offsets));
    CHECK_SPARSE(cusparseCreateCsr(&c, M, N, 0, offsets, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                                   CUDA_R_64F));
    CHECK_SPARSE(cusparseSpGEMM_createDescr(&product));
    size_t bytes[2] = {0, 0};
    void *buffers[2] = {NULL, NULL};
    for (int pass = 0; pass < 2; pass++) {
        CHECK_SPARSE(cusparseSpGEMM_workEstimation(handle, PLAIN, PLAIN, &alpha, a.descr, b.descr, &beta, c, CUDA_R_64F,
                                                   CUSPARSE_SPGEMM_DEFAULT, product, &bytes[0], buffers[0]));
        buffers[0] = pass ? buffers[0] : buffer_of(bytes[0]);
    }
    for (int pass = 0; pass < 2; pass++) {
        CHECK_SPARSE(cusparseSpGEMM_compute(handle, PLAIN, PLAIN, &alpha, a.descr, b.descr, &beta, c, CUDA_R_64F,
                                            CUSPARSE_SPGEMM_DEFAULT, product, &bytes[1], buffers[1]));
        buffers[1] = pass ? buffers[1] : buffer_of(bytes[1]);
    }
    int64_t rows, columns, nnz;
    CHECK_SPARSE(cusparseSpMatGetSize(c, &rows, &columns, &nnz));
    EXPECT(rows == M && columns == N && nnz > 0 && nnz <= M * N);
    CHECK(cudaMalloc(&indices, nnz * sizeof *indices));
    CHECK(cudaMalloc(&values, nnz * sizeof *values));
    CHECK_SPARSE(cusparseCsrSetPointers(c, offsets, indices, values));
    CHECK_SPARSE(cusparseSpGEMM_copy(handle, PLAIN, PLAIN, &alpha, a.descr, b.descr, &beta, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT,
                                     product));
    CHECK_SPARSE(cusparseSpGEMM_destroyDescr(product));
    CHECK_SPARSE(cusparseDestroySpMat(c));

    std::vector<int> ends = from_device(offsets, M + 1), places = from_device(indices, nnz);
    std::vector<double> seen = from_device(values, nnz), dense(M * N);
    EXPECT(ends[M] == nnz);
    for (int i = 0; i < M; i++)
        for (int k = ends[i]; k < ends[i + 1]; k++)
            dense[i * N + places[k]] += seen[k];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += a.dense[i * K + k] * b.dense[k * N + j];
            expect_close(dense[i * N + j], alpha * sum, "SpGEMM");
        }
    for (void *one : {(void *)offsets, (void *)indices, (void *)values, buffers[0], buffers[1]})
        CHECK(cudaFree(one));
}

static void test_systems()
{
    Matrix<double> a(M, M, true);
    Dense<double> b(M, N), x(M, N), y(M, 1);
    double alpha = 2;
    size_t bytes = 0;
    cusparseFillMode_t fill = CUSPARSE_FILL_MODE_LOWER;
    cusparseDiagType_t diag = CUSPARSE_DIAG_TYPE_NON_UNIT;
    CHECK_SPARSE(cusparseSpMatSetAttribute(a.descr, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof fill));
    CHECK_SPARSE(cusparseSpMatSetAttribute(a.descr, CUSPARSE_SPMAT_DIAG_TYPE, &diag, sizeof diag));

    cusparseSpSVDescr_t vector_system;
    CHECK_SPARSE(cusparseSpSV_createDescr(&vector_system));
    CHECK_SPARSE(cusparseSpSV_bufferSize(handle, PLAIN, &alpha, a.descr, b.vector, y.vector, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT,
                                         vector_system, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSpSV_analysis(handle, PLAIN, &alpha, a.descr, b.vector, y.vector, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT,
                                       vector_system, buffer));
    CHECK_SPARSE(cusparseSpSV_solve(handle, PLAIN, &alpha, a.descr, b.vector, y.vector, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT,
                                    vector_system));
    std::vector<double> seen = y.seen();
    for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int k = 0; k < M; k++)
            sum += a.dense[i * M + k] * seen[k];
        expect_close(sum, alpha * b.host[i], "SpSV");
    }
    CHECK_SPARSE(cusparseSpSV_destroyDescr(vector_system));
    CHECK(cudaFree(buffer));

    cusparseSpSMDescr_t system;
    CHECK_SPARSE(cusparseSpSM_createDescr(&system));
    CHECK_SPARSE(cusparseSpSM_bufferSize(handle, TRANSPOSED, PLAIN, &alpha, a.descr, b.matrix, x.matrix, CUDA_R_64F,
                                         CUSPARSE_SPSM_ALG_DEFAULT, system, &bytes));
    buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSpSM_analysis(handle, TRANSPOSED, PLAIN, &alpha, a.descr, b.matrix, x.matrix, CUDA_R_64F,
                                       CUSPARSE_SPSM_ALG_DEFAULT, system, buffer));
    CHECK_SPARSE(cusparseSpSM_solve(handle, TRANSPOSED, PLAIN, &alpha, a.descr, b.matrix, x.matrix, CUDA_R_64F,
                                    CUSPARSE_SPSM_ALG_DEFAULT, system));
    seen = x.seen();
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < M; k++)
                sum += a.dense[k * M + i] * seen[j * M + k];
            expect_close(sum, alpha * b.host[j * M + i], "SpSM");
        }
    CHECK_SPARSE(cusparseSpSM_destroyDescr(system));
    CHECK(cudaFree(buffer));
}

static void test_tridiagonal()
{
    Dense<float> lower(M, 1), diagonal(M, 1), upper(M, 1), x(M, N);
    std::vector<float> big(M);
    for (int i = 0; i < M; i++)
        big[i] = diagonal.host[i] + 5;
    CHECK(cudaMemcpy(diagonal.device, big.data(), M * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(lower.device, 0, sizeof(float)));
    CHECK(cudaMemset(upper.device + M - 1, 0, sizeof(float)));
    size_t bytes = 0;
    CHECK_SPARSE(cusparseSgtsv2_nopivot_bufferSizeExt(handle, M, N, lower.device, diagonal.device, upper.device, x.device, M, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSgtsv2_nopivot(handle, M, N, lower.device, diagonal.device, upper.device, x.device, M, buffer));
    std::vector<float> seen = x.seen();
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = big[i] * seen[j * M + i];
            sum += i ? lower.host[i] * seen[j * M + i - 1] : 0;
            sum += i + 1 < M ? upper.host[i] * seen[j * M + i + 1] : 0;
            expect_close(sum, x.host[j * M + i], "gtsv2_nopivot");
        }
    CHECK(cudaFree(buffer));
}

static void test_conversions()
{
    Matrix<float> a(M, K);
    Dense<float> dense(M, K);
    size_t bytes = 0;
    CHECK_SPARSE(cusparseSparseToDense_bufferSize(handle, a.descr, dense.matrix, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSparseToDense(handle, a.descr, dense.matrix, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, buffer));
    std::vector<float> seen = dense.seen();
    for (int i = 0; i < M; i++)
        for (int j = 0; j < K; j++)
            EXPECT(seen[j * M + i] == a.dense[i * K + j]);
    CHECK(cudaFree(buffer));

    // And back: the analysis tells how many numbers there are.
    int *offsets, *indices;
    float *values;
    int64_t rows, columns, nnz;
    cusparseSpMatDescr_t back;
    CHECK(cudaMalloc(&offsets, (M + 1) * sizeof *offsets));
    CHECK_SPARSE(cusparseCreateCsr(&back, M, K, 0, offsets, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                   CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    CHECK_SPARSE(cusparseDenseToSparse_bufferSize(handle, dense.matrix, back, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
    buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseDenseToSparse_analysis(handle, dense.matrix, back, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer));
    CHECK_SPARSE(cusparseSpMatGetSize(back, &rows, &columns, &nnz));
    EXPECT(rows == M && columns == K && nnz == a.nnz());
    CHECK(cudaMalloc(&indices, nnz * sizeof *indices));
    CHECK(cudaMalloc(&values, nnz * sizeof *values));
    CHECK_SPARSE(cusparseCsrSetPointers(back, offsets, indices, values));
    CHECK_SPARSE(cusparseDenseToSparse_convert(handle, dense.matrix, back, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer));
    EXPECT(from_device(offsets, M + 1) == a.offsets && from_device(indices, nnz) == a.indices && from_device(values, nnz) == a.values);
    CHECK_SPARSE(cusparseDestroySpMat(back));
    for (void *one : {(void *)offsets, (void *)indices, (void *)values, buffer})
        CHECK(cudaFree(one));

    // Rows become columns.
    CHECK(cudaMalloc(&offsets, (K + 1) * sizeof *offsets));
    CHECK(cudaMalloc(&indices, a.nnz() * sizeof *indices));
    CHECK(cudaMalloc(&values, a.nnz() * sizeof *values));
    CHECK_SPARSE(cusparseCsr2cscEx2_bufferSize(handle, M, K, a.nnz(), a.device_values, a.device_offsets, a.device_indices, values,
                                               offsets, indices, CUDA_R_32F, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO,
                                               CUSPARSE_CSR2CSC_ALG_DEFAULT, &bytes));
    buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseCsr2cscEx2(handle, M, K, a.nnz(), a.device_values, a.device_offsets, a.device_indices, values, offsets,
                                    indices, CUDA_R_32F, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO,
                                    CUSPARSE_CSR2CSC_ALG_DEFAULT, buffer));
    std::vector<int> ends = from_device(offsets, K + 1), places = from_device(indices, a.nnz());
    seen = from_device(values, a.nnz());
    EXPECT(ends[K] == a.nnz());
    for (int j = 0; j < K; j++)
        for (int k = ends[j]; k < ends[j + 1]; k++)
            EXPECT(seen[k] == a.dense[places[k] * K + j]);
    for (void *one : {(void *)offsets, (void *)indices, (void *)values, buffer})
        CHECK(cudaFree(one));
}

static void test_sorting()
{
    std::vector<int> rows = {2, 0, 1, 0, 2, 1}, columns = {1, 3, 0, 2, 0, 4};
    int *device_rows = on_device(rows), *device_columns = on_device(columns), *order = on_device(rows), *offsets = on_device(rows);
    size_t bytes = 0;
    CHECK_SPARSE(cusparseXcoosort_bufferSizeExt(handle, 3, 5, 6, device_rows, device_columns, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseCreateIdentityPermutation(handle, 6, order));
    CHECK_SPARSE(cusparseXcoosortByRow(handle, 3, 5, 6, device_rows, device_columns, order, buffer));
    CHECK_SPARSE(cusparseXcoo2csr(handle, device_rows, 6, 3, offsets, CUSPARSE_INDEX_BASE_ZERO));
    EXPECT(from_device(order, 6) == std::vector<int>({3, 1, 2, 5, 4, 0}));
    EXPECT(from_device(device_columns, 6) == std::vector<int>({2, 3, 0, 4, 0, 1}));
    EXPECT(from_device(offsets, 4) == std::vector<int>({0, 2, 4, 6}));
    for (void *one : {(void *)device_rows, (void *)device_columns, (void *)order, (void *)offsets, buffer})
        CHECK(cudaFree(one));
}

static void test_vectors()
{
    std::vector<int> places = {1, 3, 6};
    std::vector<float> x = {1, 2, 3}, y = numbers<float>(M);
    int *indices = on_device(places);
    float *dx = on_device(x), *dy = on_device(y), alpha = 2, beta = 0.5f, c = 0.25f, s = 0.75f, result = 0, wanted = 0;
    size_t bytes = 0;
    cusparseSpVecDescr_t sparse;
    cusparseDnVecDescr_t dense;
    CHECK_SPARSE(cusparseCreateSpVec(&sparse, M, 3, indices, dx, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    CHECK_SPARSE(cusparseCreateDnVec(&dense, M, dy, CUDA_R_32F));
    CHECK_SPARSE(cusparseSpVV_bufferSize(handle, PLAIN, sparse, dense, &result, CUDA_R_32F, &bytes));
    void *buffer = buffer_of(bytes);
    CHECK_SPARSE(cusparseSpVV(handle, PLAIN, sparse, dense, &result, CUDA_R_32F, buffer));
    for (int i = 0; i < 3; i++)
        wanted += x[i] * y[places[i]];
    expect_close(result, wanted, "SpVV");
    CHECK_SPARSE(cusparseAxpby(handle, &alpha, sparse, &beta, dense));
    for (float &one : y)
        one *= beta;
    for (int i = 0; i < 3; i++)
        y[places[i]] += alpha * x[i];
    std::vector<float> seen = from_device(dy, M);
    for (int i = 0; i < M; i++)
        expect_close(seen[i], y[i], "Axpby");
    CHECK_SPARSE(cusparseRot(handle, &c, &s, sparse, dense));
    std::vector<float> seen_x = from_device(dx, 3);
    seen = from_device(dy, M);
    for (int i = 0; i < 3; i++) {
        expect_close(seen_x[i], c * x[i] + s * y[places[i]], "Rot");
        expect_close(seen[places[i]], c * y[places[i]] - s * x[i], "Rot");
    }
    CHECK_SPARSE(cusparseGather(handle, dense, sparse));
    seen_x = from_device(dx, 3);
    for (int i = 0; i < 3; i++)
        EXPECT(seen_x[i] == seen[places[i]]);
    CHECK(cudaMemcpy(dx, x.data(), 3 * sizeof(float), cudaMemcpyHostToDevice));
    CHECK_SPARSE(cusparseScatter(handle, sparse, dense));
    seen = from_device(dy, M);
    for (int i = 0; i < 3; i++)
        EXPECT(seen[places[i]] == x[i]);
    CHECK_SPARSE(cusparseDestroySpVec(sparse));
    CHECK_SPARSE(cusparseDestroyDnVec(dense));
    for (void *one : {(void *)indices, (void *)dx, (void *)dy, buffer})
        CHECK(cudaFree(one));
}

int main()
{
    cudaStream_t stream, told;
    CHECK_SPARSE(cusparseCreate(&handle));
    test_products<float>();
    CHECK(cudaStreamCreate(&stream)); // it orders itself with the default stream, where copies are
    CHECK_SPARSE(cusparseSetStream(handle, stream));
    CHECK_SPARSE(cusparseGetStream(handle, &told));
    EXPECT(told == stream);
    test_products<double>();
    test_coordinates();
    test_getters();
    test_sampled_product();
    test_sparse_product();
    test_systems();
    test_tridiagonal();
    test_conversions();
    test_sorting();
    test_vectors();
    CHECK_SPARSE(cusparseDestroy(handle));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
