/* Texts of cublasStatus_t, which cuBLAS and cuBLASLt share. */
#ifndef FLYT_LIBRARY_STATUS_H
#define FLYT_LIBRARY_STATUS_H

const char *flyt_blas_status_name(int status);
const char *flyt_blas_status_text(int status);

#endif
