/*
 * What functions are called with. A program that make.py makes has a function for each of the toolkit's headers, which
 * fills its arguments by `how` and calls it.
 */
#ifndef FLYT_TESTS_CONFORMANCE_CALLS_H
#define FLYT_TESTS_CONFORMANCE_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/* In this order in one process. */
enum how {
    UNINITIALIZED, /* all zero, before cuInit */
    BARE,          /* all zero, without a context */
    ZERO,          /* all zero, with one; so are the others */
    ROOM,          /* pointers to memory, everything else zero */
    WRONG,         /* the same, but handles that never were, and numbers that are one */
    HIGH,          /* numbers that are the largest of their type */
    ONES,          /* numbers of which all bits are set */
    ENDED,         /* handles of what has ended */
    HOWS
};

enum kind { DATA, HANDLE, NUMBER, STRUCTURE, STREAM, EVENT, POOL, ADDRESS };

struct function {
    const char *name;
    bool is_runtime;
    long long (*call)(enum how how);
};

extern const struct function functions[];
extern const unsigned function_count;

/* By the compiler's class of a value, and by its type's name where that has something that can end. */
enum kind kind_by(int class, const char *type);
#define kind_of(value, type) kind_by(__builtin_classify_type(value), type)

/* Gives argument number `place` its value. */
void fill(void *argument, size_t bytes, enum kind kind, enum how how, int place);

#endif
