/* For tests of what modules are: the samples that nvcc has made of image_state_test.cu, by their folder. */
#ifndef FLYT_SERVER_FAKE_SAMPLE_H
#define FLYT_SERVER_FAKE_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* A part's file of that kind ("ptx", "cubin"), with zeros behind *ret_bytes: the caller frees it. Fails the
 * test where there is none. */
static inline char *fake_sample_read(const char *folder, unsigned part, const char *kind, uint64_t *ret_bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%u.%s", folder, part, kind);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *data = calloc(1, 1 << 20);
    assert_non_null(data);
    *ret_bytes = fread(data, 1, (1 << 20) - 1, file);
    assert_true(*ret_bytes > 0);
    fclose(file);
    return data;
}

#endif
