/*
 * The CPU's libraries that compute: OpenBLAS with its LAPACK, and FFTW. Each is loaded when something of it is first
 * asked for, and stays. Where one is missing, one line on the standard error names the file, once, and whoever asked
 * answers with its own status for "not supported".
 *
 * BLAS and LAPACK are called as Fortran does: every argument is a pointer, so that one call serves all four types.
 * OpenBLAS works in the calling thread alone: streams run side by side already. Any thread may call.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_PROVIDER_H
#define FLYT_SOFTGPU_LIBRARY_PROVIDER_H

#include <stddef.h>

/* Types in the order of BLAS's letters S, D, C, Z. */
enum flyt_soft_letter { FLYT_SOFT_S, FLYT_SOFT_D, FLYT_SOFT_C, FLYT_SOFT_Z, FLYT_SOFT_LETTERS };

/* What is called, by its name without the letter. Of LAPACK from GETRF on. */
#define FLYT_SOFT_ROUTINES(X)                                                                                          \
    X(GEMM, gemm)                                                                                                      \
    X(SYMM, symm)                                                                                                      \
    X(HEMM, hemm)                                                                                                      \
    X(SYRK, syrk)                                                                                                      \
    X(HERK, herk)                                                                                                      \
    X(SYR2K, syr2k)                                                                                                    \
    X(HER2K, her2k)                                                                                                    \
    X(TRMM, trmm)                                                                                                      \
    X(TRSM, trsm)                                                                                                      \
    X(GEMV, gemv)                                                                                                      \
    X(GBMV, gbmv)                                                                                                      \
    X(SYMV, symv)                                                                                                      \
    X(HEMV, hemv)                                                                                                      \
    X(SBMV, sbmv)                                                                                                      \
    X(HBMV, hbmv)                                                                                                      \
    X(SPMV, spmv)                                                                                                      \
    X(HPMV, hpmv)                                                                                                      \
    X(TRMV, trmv)                                                                                                      \
    X(TRSV, trsv)                                                                                                      \
    X(TBMV, tbmv)                                                                                                      \
    X(TBSV, tbsv)                                                                                                      \
    X(TPMV, tpmv)                                                                                                      \
    X(TPSV, tpsv)                                                                                                      \
    X(GETRF, getrf)                                                                                                    \
    X(GETRS, getrs)                                                                                                    \
    X(GETRI, getri)                                                                                                    \
    X(GEQRF, geqrf)                                                                                                    \
    X(GELS, gels)                                                                                                      \
    X(POTRF, potrf)                                                                                                    \
    X(POTRI, potri)                                                                                                    \
    X(POTRS, potrs)                                                                                                    \
    X(TRTRI, trtri)                                                                                                    \
    X(ORMQR, ormqr)                                                                                                    \
    X(UNMQR, unmqr)                                                                                                    \
    X(ORGQR, orgqr)                                                                                                    \
    X(UNGQR, ungqr)                                                                                                    \
    X(SYEVD, syevd)                                                                                                    \
    X(HEEVD, heevd)                                                                                                    \
    X(SYGVD, sygvd)                                                                                                    \
    X(HEGVD, hegvd)                                                                                                    \
    X(SYTRF, sytrf)                                                                                                    \
    X(GESVD, gesvd)

enum flyt_soft_routine {
#define FLYT_SOFT_ROUTINE(upper_, lower_) FLYT_SOFT_##upper_,
    FLYT_SOFT_ROUTINES(FLYT_SOFT_ROUTINE)
#undef FLYT_SOFT_ROUTINE
        FLYT_SOFT_ROUTINE_COUNT
};

typedef void (*flyt_soft_fn)(void);

/* The routine of a type; NULL: OpenBLAS is missing, or has no such routine. */
flyt_soft_fn flyt_soft_routine(enum flyt_soft_routine routine, enum flyt_soft_letter letter);

/* Calls a Fortran subroutine: FORTRAN(fn, "N", &m, a, &lda). At most FLYT_SOFT_FORTRAN_MAX arguments. */
enum { FLYT_SOFT_FORTRAN_MAX = 24 };
#define FORTRAN(fn_, ...)                                                                                              \
    flyt_soft_fortran((fn_), sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *), (const void *[]){__VA_ARGS__})
void flyt_soft_fortran(flyt_soft_fn fn, size_t count, const void *const arguments[]);

/* A function of FFTW: double precision, or single. The name without prefix, as "plan_many_dft". NULL: it is missing. */
flyt_soft_fn flyt_soft_fftw(int is_double, const char *name);

#endif
