/* What tests of NVIDIA's libraries share. */
#ifndef FLYT_SERVER_TEST_FAKE_LIBRARY_H
#define FLYT_SERVER_TEST_FAKE_LIBRARY_H

#include <stdint.h>
#include <string.h>

#include "cpu/server/library/library.h"

/* The wire's number of a library's function; the test fails where there is none. */
static inline uint32_t row(const struct flyt_server_library *library, const char *name)
{
    for (unsigned i = 0; i < library->row_count; i++)
        if (!strcmp(library->rows[i].name, name))
            return library->rows[i].id;
    fail_msg("there is no row %s", name);
    return 0;
}

#endif
