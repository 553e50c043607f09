// What programs of cuSOLVER's refactorization have in common: a matrix with its factors, computed on the host.
#ifndef FLYT_REFACTOR_H
#define FLYT_REFACTOR_H

#define DISABLE_CUSPARSE_DEPRECATED
#define DISABLE_CUSOLVER_DEPRECATED
#include <cusolverRf.h>
#include "sparse_matrix.h"

enum { SIDE = 6, N = SIDE * SIDE };

// P A Q' = L U: row i of that is row p[i] of A, and column j is column q[j].
static std::vector<int> p, q;

static inline Matrix<double> begin_matrix()
{
    for (int i = 0; i < N; i++) {
        p.push_back(i * 5 % N);
        q.push_back(i * 5 % N);
    }
    return grid<double>(SIDE, 0);
}

static inline std::vector<double> permuted(const Matrix<double> &a)
{
    std::vector<double> out(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            out[i * N + j] = at(a, p[i], q[j]);
    return out;
}

// L and U in one, row by row, without exchanges.
static inline std::vector<double> factored(std::vector<double> m)
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            if (m[i * N + k] == 0)
                continue;
            m[i * N + k] /= m[k * N + k];
            for (int j = k + 1; j < N; j++)
                m[i * N + j] -= m[i * N + k] * m[k * N + j];
        }
    return m;
}

// has_diagonal: its ones are stored.
static inline Matrix<double> lower(const std::vector<double> &m, bool has_diagonal = true)
{
    std::vector<double> l(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            l[i * N + j] = i == j ? has_diagonal : m[i * N + j];
    return dense<double>(N, N, l);
}

static inline Matrix<double> upper(const std::vector<double> &m)
{
    std::vector<double> u(N * N);
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            u[i * N + j] = m[i * N + j];
    return dense<double>(N, N, u);
}

static inline Matrix<double> other_numbers(Matrix<double> a, double factor)
{
    for (double &one : a.values)
        one *= factor + 0.1 * random_number();
    return a;
}

struct OnDevice {
    int *p = on_device(::p), *q = on_device(::q);
    double *temp;
    OnDevice()
    {
        CHECK(cudaMalloc(&temp, N * sizeof *temp));
    }
    OnDevice(const OnDevice &) = delete;
    ~OnDevice()
    {
        CHECK(cudaFree(p));
        CHECK(cudaFree(q));
        CHECK(cudaFree(temp));
    }
};

#endif
