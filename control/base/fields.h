/*
 * Documents by tables. A table of fields says which member of a JSON object each member of a structure is: its name,
 * how it is written, its bounds. flyt_fields_write and flyt_fields_read go over the same table, so that nothing is
 * written that cannot be read. A document that is made of several structures (parts) has one table; a field names its
 * part by number, and fields of a part that is NULL are neither written nor read.
 *
 * cJSON keeps numbers as doubles: integers are exact up to FLYT_FIELD_NUMBER_MAX, and what is beyond is an error in
 * both directions. A field with the rule FLYT_DIGITS is written as decimal text, and holds all of 64 bits.
 *
 * Every error is one sentence that names the field with its path ("slots[1].sm_count is \"x\", not a number"). Pure
 * functions; any thread.
 */
#ifndef FLYT_CONTROL_FIELDS_H
#define FLYT_CONTROL_FIELDS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/error.h"

#define FLYT_FIELD_NUMBER_MAX ((1ull << 53) - 1)

enum flyt_field_kind {
    FLYT_FIELD_FLAG,   /* true or false */
    FLYT_FIELD_NUMBER, /* an integer */
    FLYT_FIELD_ID,     /* 64 bits, not 0, as 16 hexadecimal digits */
    FLYT_FIELD_CHOICE, /* an enum or a bool as the name that it is the index of */
    FLYT_FIELD_TEXT,   /* char *; NULL is the same as "" */
    FLYT_FIELD_CHARS,  /* char[] */
    FLYT_FIELD_BYTES,  /* unsigned char[] as hexadecimal digits; all of it or nothing */
    FLYT_FIELD_BITS,   /* uint64_t[] as the array of the numbers of those bits that are set */
    FLYT_FIELD_LIST,   /* an array of what .item says */
};

enum flyt_field_rule {
    FLYT_NEEDED = 1,    /* a document without it, or with a wrong one, is wrong; other fields are 0 or "" then */
    FLYT_DIGITS = 2,    /* a number as decimal text */
    FLYT_SPARSE = 4,    /* not written where it is 0, false or empty */
    FLYT_NULLABLE = 8,  /* written as null where it is 0, false or empty (not of a choice), or where its part is NULL */
    FLYT_OPEN = 16,     /* of a choice: a name that is none of them is read as their count, which is not written;
                         * of a signed number: below 0 is not written */
    FLYT_BORROWED = 32, /* of a text: not copied, part of what was read */
    FLYT_EXACT = 64,    /* a number beyond what a double holds is written with all its digits: not for the store */
};

/* How a list lies in memory; the count is an unsigned beside it, but for a chain. */
enum flyt_list_form { FLYT_LIST_ARRAY, FLYT_LIST_VECTOR, FLYT_LIST_POINTERS, FLYT_LIST_CHAIN };

struct flyt_field;

/* The items of a list: the table of an item, or one field without a name (""), which is the item itself. */
struct flyt_item {
    const struct flyt_field *fields;
    size_t bytes;
    size_t next_offset;                               /* of a chain */
    int (*check)(void *item, struct flyt_error *err); /* what the table cannot say, after reading; NULL: nothing */
    bool (*is_left_out)(const void *item);            /* not written; NULL: none */
};

/* Made by the macros below. A table ends with {0}. */
struct flyt_field {
    const char *name;
    enum flyt_field_kind kind;
    unsigned rules;
    unsigned part;
    size_t offset, size;
    bool is_signed;
    uint64_t min, max; /* of a number or a choice; max 0: what the member holds, or all names. Of a text: its bytes */
    const char *const *names; /* of a choice; NULL behind the last */
    enum flyt_list_form form;
    const struct flyt_item *item;
    size_t count_offset;
    unsigned count_max;
};

#define FLYT_FIELD_AT(type, member) .offset = offsetof(type, member), .size = sizeof((type *)0)->member
#define FLYT_FIELD_INTEGER(type, member)                                                                               \
    FLYT_FIELD_AT(type, member), .is_signed = (__typeof__(((type *)0)->member))-1 < (__typeof__(((type *)0)->member))1
#define FLYT_FLAG(type, member)         .kind = FLYT_FIELD_FLAG, FLYT_FIELD_AT(type, member)
#define FLYT_NUMBER(type, member)       .kind = FLYT_FIELD_NUMBER, FLYT_FIELD_INTEGER(type, member)
#define FLYT_ID(type, member)           .kind = FLYT_FIELD_ID, FLYT_FIELD_INTEGER(type, member)
#define FLYT_CHOICE(type, member, list) .kind = FLYT_FIELD_CHOICE, FLYT_FIELD_AT(type, member), .names = list
#define FLYT_TEXT(type, member)                                                                                        \
    .kind = FLYT_FIELD_TEXT, .size = sizeof(char *),                                                                   \
    .offset = _Generic(&((type *)0)->member, char **: offsetof(type, member), const char **: offsetof(type, member))
#define FLYT_CHARS(type, member)      .kind = FLYT_FIELD_CHARS, FLYT_FIELD_AT(type, member)
#define FLYT_BYTES(type, member)      .kind = FLYT_FIELD_BYTES, FLYT_FIELD_AT(type, member)
#define FLYT_BITS(type, member)       .kind = FLYT_FIELD_BITS, FLYT_FIELD_AT(type, member)
#define FLYT_FIELD_COUNT(type, count) .count_offset = _Generic(((type *)0)->count, unsigned : offsetof(type, count))
#define FLYT_ARRAY(type, member, count, its_item)                                                                      \
    .kind = FLYT_FIELD_LIST, .form = FLYT_LIST_ARRAY, FLYT_FIELD_AT(type, member), FLYT_FIELD_COUNT(type, count),      \
    .item = its_item, .count_max = sizeof((type *)0)->member / sizeof((type *)0)->member[0]
#define FLYT_VECTOR(type, member, count, most, its_item)                                                               \
    .kind = FLYT_FIELD_LIST, .form = FLYT_LIST_VECTOR, FLYT_FIELD_AT(type, member), FLYT_FIELD_COUNT(type, count),     \
    .item = its_item, .count_max = most
/* Pointers to items, which are only written. */
#define FLYT_POINTERS(type, member, count, its_item)                                                                   \
    .kind = FLYT_FIELD_LIST, .form = FLYT_LIST_POINTERS, FLYT_FIELD_AT(type, member), FLYT_FIELD_COUNT(type, count),   \
    .item = its_item
#define FLYT_CHAIN(type, member, most, its_item)                                                                       \
    .kind = FLYT_FIELD_LIST, .form = FLYT_LIST_CHAIN, FLYT_FIELD_AT(type, member), .item = its_item, .count_max = most

/* The parts' object, to be freed with cJSON_Delete. NULL and *err: -ENOMEM; -ERANGE: a number or a choice that a
 * document cannot hold, or that it could not be read with. */
cJSON *flyt_fields_write(const struct flyt_field *fields, const void *const *parts, struct flyt_error *err);

enum flyt_fields_leave {
    FLYT_LEAVE_UNKNOWN = 1, /* members that no field of the table names: else they are an error */
    FLYT_LEAVE_WRONG = 2, /* a field that is not needed, or an item of a list, that is wrong: as if it were not there */
};

/*
 * Fills the parts, whose texts and lists are to be NULL or malloc'ed by an earlier reading. Members that are absent
 * become 0, false or empty. 0; or *err: -EINVAL: it is no object; a field is missing or wrong; -ENOENT: a member that
 * is unknown; -E2BIG: a list is too long; -ENOMEM. What was filled until then is flyt_fields_free's. `leave`: what is
 * passed over in silence (of FLYT_LEAVE_WRONG, *err has the last one, though 0 is returned).
 */
int flyt_fields_read(const struct flyt_field *fields, const cJSON *object, void *const *parts, unsigned leave,
                     struct flyt_error *err);

/* Frees the texts and lists of one part, and wipes its FLYT_BYTES. The part stays, and is as if nothing was read. */
void flyt_fields_free(const struct flyt_field *fields, unsigned part, void *object);

#endif
