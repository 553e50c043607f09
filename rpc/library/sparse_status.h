/* Texts of cusparseStatus_t, which the replaced cuSPARSE and cuSPARSELt share. */
#ifndef FLYT_LIBRARY_SPARSE_STATUS_H
#define FLYT_LIBRARY_SPARSE_STATUS_H

const char *flyt_sparse_status_name(int status);
const char *flyt_sparse_status_text(int status);

#endif
