/* What of cuFFT is answered in the client, by hand: the version. */
#include <stddef.h>
#include "cpu/client/library/library_call.h"

extern const struct flyt_lib flyt_lib_cufft;

enum { VERSION_MAJOR = 12, VERSION_MINOR = 0, VERSION_PATCH = 0 };

FLYT_LIB_ENTRY int cufftGetVersion(int *version)
{
    if (!version)
        return flyt_lib_cufft.invalid;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return flyt_lib_cufft.success;
}

FLYT_LIB_ENTRY int cufftGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cufft.invalid;
    *value = values[type];
    return flyt_lib_cufft.success;
}
