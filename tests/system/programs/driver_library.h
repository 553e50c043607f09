/*
 * The driver's functions out of the library that a program is given by name, for programs that are linked to none:
 * LOAD(cuInit)(0). The program opens `library` (dlopen) first.
 */
#ifndef FLYT_TESTS_DRIVER_LIBRARY_H
#define FLYT_TESTS_DRIVER_LIBRARY_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Also what the toolkit's header gives another name by a macro. */
#define NAME(function)  NAME_(function)
#define NAME_(function) #function
#define LOAD(function)  ((__typeof__(&function))load(NAME(function)))

static void *library;

static void *load(const char *name)
{
    void *symbol = dlsym(library, name);

    if (!symbol) {
        printf("no %s\n", name);
        exit(2);
    }
    return symbol;
}

#endif
