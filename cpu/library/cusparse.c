/* What of cuSPARSE is answered in the client, by hand: versions, texts, the logger, and getters that return no status.
 */
#include <library_types.h>
#include <stdint.h>
#include <stdio.h>
#include "cpu/client/library/library_call.h"
#include "flyt_lib_cusparse.h"
#include "rpc/library/sparse_status.h"

extern const struct flyt_lib flyt_lib_cusparse;
extern const struct flyt_lib_value_kind flyt_lib_value_cusparse_matdescr, flyt_lib_value_cusparse_spmat;

enum { VERSION_MAJOR = 12, VERSION_MINOR = 6, VERSION_PATCH = 3 };

FLYT_LIB_ENTRY int cusparseGetVersion(void *handle, int *version)
{
    if (!handle || !version)
        return flyt_lib_cusparse.invalid;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return flyt_lib_cusparse.success;
}

FLYT_LIB_ENTRY int cusparseGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cusparse.invalid;
    *value = values[type];
    return flyt_lib_cusparse.success;
}

/* ---- texts ---- */

FLYT_LIB_ENTRY const char *cusparseGetErrorName(int status)
{
    return flyt_sparse_status_name(status);
}

FLYT_LIB_ENTRY const char *cusparseGetErrorString(int status)
{
    return flyt_sparse_status_text(status);
}

/* ---- the logger, to which nobody writes ---- */

FLYT_LIB_ENTRY int cusparseLoggerSetCallback(void *callback)
{
    (void)callback;
    return flyt_lib_cusparse.success;
}

FLYT_LIB_ENTRY int cusparseLoggerSetFile(FILE *file)
{
    (void)file;
    return flyt_lib_cusparse.success;
}

FLYT_LIB_ENTRY int cusparseLoggerOpenFile(const char *path)
{
    return path ? flyt_lib_cusparse.success : flyt_lib_cusparse.invalid;
}

FLYT_LIB_ENTRY int cusparseLoggerSetLevel(int level)
{
    (void)level;
    return flyt_lib_cusparse.success;
}

FLYT_LIB_ENTRY int cusparseLoggerSetMask(int mask)
{
    (void)mask;
    return flyt_lib_cusparse.success;
}

FLYT_LIB_ENTRY int cusparseLoggerForceDisable(void)
{
    return flyt_lib_cusparse.success;
}

/* ---- descriptors ---- */

/* Of what is no descriptor: the default. */
#define GETTER(name_, field_)                                                                                          \
    FLYT_LIB_ENTRY int cusparseGet##name_(const void *descr)                                                           \
    {                                                                                                                  \
        const struct flyt_value_matdescr *value = flyt_lib_valid(&flyt_lib_value_cusparse_matdescr, descr);            \
        return value ? value->field_ : 0;                                                                              \
    }
GETTER(MatType, type)
GETTER(MatFillMode, fill_mode)
GETTER(MatDiagType, diag_type)
GETTER(MatIndexBase, index_base)

/* As the library tells it: of BSR elements are counted, of Blocked ELL rows × columns × the size of a block. */
enum { BLOCKED_ELL = 5, BSR = 6 };

FLYT_LIB_ENTRY int cusparseSpMatGetSize(const void *descr, int64_t *rows, int64_t *cols, int64_t *nnz)
{
    const struct flyt_value_spmat *value = flyt_lib_valid(&flyt_lib_value_cusparse_spmat, descr);
    if (!value || !rows || !cols || !nnz)
        return flyt_lib_cusparse.invalid;
    int64_t down = value->format == BSR ? value->block_rows : 1, across = value->format == BSR ? value->block_cols : 1;
    *rows = value->rows * down;
    *cols = value->cols * across;
    *nnz = value->format == BLOCKED_ELL ? value->rows * value->cols * value->block_rows : value->nnz * down * across;
    return flyt_lib_cusparse.success;
}
