/*
 * For tests: every struct of the wire with random values and with its bounded fields. The tables are generated
 * (flyt_test_values.c); the random numbers depend on nothing but the seed.
 */
#ifndef FLYT_TRANSPORT_TEST_VALUES_H
#define FLYT_TRANSPORT_TEST_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "flyt.h"

struct flyt_test_random {
    uint64_t state; /* not 0 */
};

uint64_t flyt_test_number(struct flyt_test_random *random);
void flyt_test_bytes(struct flyt_test_random *random, void *to, size_t bytes);
/* 0 to bound, mostly small. */
unsigned flyt_test_count(struct flyt_test_random *random, unsigned bound);
/* A string without NUL, malloc'ed. */
char *flyt_test_string(struct flyt_test_random *random, unsigned bound);

/* A field of variable length: { u_int length; T *value; }, or a char * where is_string. */
struct flyt_test_field {
    size_t offset;
    unsigned bound;
    size_t element_bytes;
    bool is_string;
    bool is_late; /* the record may end before it */
};

struct flyt_test_type {
    const char *name;
    xdrproc_t xdr;
    size_t bytes;
    void (*fill)(struct flyt_test_random *random, void *into); /* of zeroed memory; xdr_free frees it */
    const struct flyt_test_field *fields;
    unsigned field_count;
    xdrproc_t encode; /* what the client encodes it with instead (flyt_encoders.h); NULL: xdr */
};

extern const struct flyt_test_type flyt_test_types[];
extern const unsigned flyt_test_type_count;

/* Gives a field `count` elements of zeros (of 'a' in strings), which may be more than its bound. */
void flyt_test_set_length(const struct flyt_test_field *field, void *value, unsigned count);

#endif
