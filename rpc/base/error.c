#include "rpc/base/error.h"

#include <stdarg.h>
#include <stdio.h>

int flyt_error_set(struct flyt_error *err, int code, const char *format, ...)
{
    va_list values;

    if (!err)
        return code;
    err->code = code;
    va_start(values, format);
    vsnprintf(err->text, sizeof err->text, format, values);
    va_end(values);
    return code;
}
