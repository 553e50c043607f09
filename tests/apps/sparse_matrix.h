// Sparse matrices in CSR of all four types, on the host and in device memory, for programs that compute with them.
#ifndef FLYT_SPARSE_MATRIX_H
#define FLYT_SPARSE_MATRIX_H

#include <algorithm>
#include <cuComplex.h>
#include <cusolver_common.h>
#include <cusparse.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_SOLVER(call)                                                                                             \
    do {                                                                                                               \
        cusolverStatus_t status_ = (call);                                                                             \
        if (status_ != CUSOLVER_STATUS_SUCCESS) {                                                                      \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK_SPARSE(call)                                                                                             \
    do {                                                                                                               \
        cusparseStatus_t status_ = (call);                                                                             \
        if (status_ != CUSPARSE_STATUS_SUCCESS) {                                                                      \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// ---- numbers ----

template <typename T> struct number {
    typedef T real;
    static T of(double re, double im)
    {
        return (T)re;
    }
};
template <> struct number<cuComplex> {
    typedef float real;
    static cuComplex of(double re, double im)
    {
        return make_cuComplex((float)re, (float)im);
    }
};
template <> struct number<cuDoubleComplex> {
    typedef double real;
    static cuDoubleComplex of(double re, double im)
    {
        return make_cuDoubleComplex(re, im);
    }
};
template <typename T> using real_of = typename number<T>::real;
template <typename T> static inline T of(double re, double im)
{
    return number<T>::of(re, im);
}

static inline double real(double x)
{
    return x;
}
static inline double real(cuComplex x)
{
    return x.x;
}
static inline double real(cuDoubleComplex x)
{
    return x.x;
}
static inline double imaginary(double x)
{
    return 0;
}
static inline double imaginary(cuComplex x)
{
    return x.y;
}
static inline double imaginary(cuDoubleComplex x)
{
    return x.y;
}

template <typename T> static inline T sum(T x, T y)
{
    return of<T>(real(x) + real(y), imaginary(x) + imaginary(y));
}
template <typename T> static inline T product(T x, T y)
{
    return of<T>(real(x) * real(y) - imaginary(x) * imaginary(y), real(x) * imaginary(y) + imaginary(x) * real(y));
}

static inline double random_number()
{
    static unsigned state = 12345;
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 16) / 32768.0 - 1.0;
}

template <typename T> static std::vector<T> random_vector(int count)
{
    std::vector<T> out;
    for (int i = 0; i < count; i++) {
        double re = random_number();
        out.push_back(of<T>(re, random_number()));
    }
    return out;
}

// ---- memory ----

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T) + 8));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static std::vector<T> from_device(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

// ---- matrices ----

template <typename T> struct Matrix {
    int rows, columns, base;
    std::vector<T> values;
    std::vector<int> offsets, indices;
    int nnz() const
    {
        return (int)values.size();
    }
};

template <typename T> struct DeviceMatrix {
    T *values;
    int *offsets, *indices;
    explicit DeviceMatrix(const Matrix<T> &a)
        : values(on_device(a.values)), offsets(on_device(a.offsets)), indices(on_device(a.indices))
    {
    }
    DeviceMatrix(const DeviceMatrix &) = delete;
    ~DeviceMatrix()
    {
        CHECK(cudaFree(values));
        CHECK(cudaFree(offsets));
        CHECK(cudaFree(indices));
    }
};

// What is not zero of numbers row by row.
template <typename T> static Matrix<T> dense(int rows, int columns, const std::vector<double> &numbers)
{
    Matrix<T> a = {rows, columns, 0, {}, {0}, {}};
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++)
            if (numbers[i * columns + j] != 0) {
                a.values.push_back(of<T>(numbers[i * columns + j], 0));
                a.indices.push_back(j);
            }
        a.offsets.push_back(a.nnz());
    }
    return a;
}

// Hermitian, with all eigenvalues above 0: a point and its neighbours in a square.
template <typename T> static Matrix<T> grid(int side, int base)
{
    Matrix<T> a = {side * side, side * side, base, {}, {base}, {}};
    const int steps[5][2] = {{-1, 0}, {0, -1}, {0, 0}, {0, 1}, {1, 0}};
    for (int i = 0; i < side * side; i++) {
        for (int s = 0; s < 5; s++) {
            int y = i / side + steps[s][0], x = i % side + steps[s][1], j = y * side + x;
            if (y < 0 || y >= side || x < 0 || x >= side)
                continue;
            a.values.push_back(i == j ? of<T>(5 + i % 3, 0) : of<T>(-1, j > i ? 0.25 : -0.25));
            a.indices.push_back(j + base);
        }
        a.offsets.push_back(a.nnz() + base);
    }
    return a;
}

// 4 on the diagonal, -1 beside it.
template <typename T> static Matrix<T> band(int n)
{
    Matrix<T> a = {n, n, 0, {}, {0}, {}};
    for (int i = 0; i < n; i++) {
        for (int j = std::max(0, i - 1); j <= std::min(n - 1, i + 1); j++) {
            a.values.push_back(of<T>(i == j ? 4 : -1, 0));
            a.indices.push_back(j);
        }
        a.offsets.push_back(a.nnz());
    }
    return a;
}

template <typename T> static T at(const Matrix<T> &a, int i, int j)
{
    for (int k = a.offsets[i] - a.base; k < a.offsets[i + 1] - a.base; k++)
        if (a.indices[k] - a.base == j)
            return a.values[k];
    return of<T>(0, 0);
}

template <typename T> static std::vector<T> times(const Matrix<T> &a, const std::vector<T> &x)
{
    std::vector<T> out;
    for (int i = 0; i < a.rows; i++) {
        double re = 0, im = 0;
        for (int k = a.offsets[i] - a.base; k < a.offsets[i + 1] - a.base; k++) {
            cuDoubleComplex v = make_cuDoubleComplex(real(a.values[k]), imaginary(a.values[k])),
                            one = make_cuDoubleComplex(real(x[a.indices[k] - a.base]),
                                                       imaginary(x[a.indices[k] - a.base])),
                            p = product(v, one);
            re += p.x;
            im += p.y;
        }
        out.push_back(of<T>(re, im));
    }
    return out;
}

// ---- what is expected ----

template <typename T>
static void expect_near(const std::vector<T> &seen, const std::vector<T> &wanted, const char *what,
                        double tolerance = 0)
{
    if (!tolerance)
        tolerance = sizeof(real_of<T>) == 4 ? 2e-4 : 1e-9;
    for (size_t i = 0; i < wanted.size(); i++)
        if (!(fabs(real(seen[i]) - real(wanted[i])) <= tolerance) ||
            !(fabs(imaginary(seen[i]) - imaginary(wanted[i])) <= tolerance)) {
            printf("%s: %zu is %.9g %+.9gi, expected %.9g %+.9gi\n", what, i, real(seen[i]), imaginary(seen[i]),
                   real(wanted[i]), imaginary(wanted[i]));
            exit(1);
        }
}

// Each number from 0 on, once.
static inline void expect_order(std::vector<int> order, int count, const char *what)
{
    std::sort(order.begin(), order.end());
    for (int i = 0; i < count; i++)
        if (order[i] != i) {
            printf("%s: no permutation\n", what);
            exit(1);
        }
}

#endif
