/* Texts of cublasStatus_t, which cuBLAS and cuBLASLt share: of the replaced libraries, and of those on software GPUs.
 */
#ifndef FLYT_LIBRARY_BLAS_STATUS_H
#define FLYT_LIBRARY_BLAS_STATUS_H

const char *flyt_blas_status_name(int status);
const char *flyt_blas_status_text(int status);

#endif
