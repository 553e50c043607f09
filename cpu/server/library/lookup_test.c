/* A library's functions are found when it is loaded: while calls are made, nobody asks the loader. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/library/library.h"

static unsigned asked_count;

void *__real_dlsym(void *file, const char *name);
void *__wrap_dlsym(void *file, const char *name);
void *__wrap_dlsym(void *file, const char *name)
{
    asked_count++;
    return __real_dlsym(file, name);
}

static const struct flyt_server_row rows[] = {{.name = "strlen"}, {.name = "flytHasNone"}};
static const char *const symbols[] = {"flytHasNone", "memcpy", "strlen", "strnlen"};

static struct flyt_server_library a_library(void)
{
    return (struct flyt_server_library){
        .name = "test", .rows = rows, .row_count = 2, .symbols = symbols, .symbol_count = 4};
}

static void *of_the_process(const char *name)
{
    return __real_dlsym(RTLD_DEFAULT, name);
}

static void test_found_once(void **state)
{
    struct flyt_server_library library = a_library();
    void *file = dlopen(NULL, RTLD_NOW);
    assert_null(flyt_server_library_function(&library, "strlen")); /* it is not loaded */
    assert_true(flyt_server_library_look_up(&library, file));
    atomic_store(&library.file, file);
    asked_count = 0;
    for (int i = 0; i < 2; i++) { /* as it comes first, and as it is kept */
        assert_ptr_equal(flyt_server_library_function(&library, "strlen"), of_the_process("strlen"));
        assert_ptr_equal(flyt_server_library_function(&library, "strnlen"), of_the_process("strnlen"));
        assert_ptr_equal(flyt_server_library_function(&library, "memcpy"), of_the_process("memcpy"));
        assert_null(flyt_server_library_function(&library, "flytHasNone"));
        assert_null(flyt_server_library_function(&library, "strdup")); /* no row names it */
        assert_ptr_equal(flyt_server_library_row_function(&library, &rows[0]), of_the_process("strlen"));
        assert_null(flyt_server_library_row_function(&library, &rows[1]));
    }
    assert_int_equal(asked_count, 0);
    free(library.functions);
    free(library.found);
}

/* Names of other places in one slot of those that are kept. */
static void test_many_names(void **state)
{
    static char names[FLYT_SERVER_NAMES * 2][8] __attribute__((aligned(8)));
    struct flyt_server_library library = a_library();
    void *file = dlopen(NULL, RTLD_NOW);
    assert_true(flyt_server_library_look_up(&library, file));
    atomic_store(&library.file, file);
    asked_count = 0;
    for (unsigned i = 0; i < FLYT_SERVER_NAMES * 2; i++) {
        strcpy(names[i], i % 2 ? "memcpy" : "strlen");
        assert_ptr_equal(flyt_server_library_function(&library, names[i]), of_the_process(names[i]));
    }
    assert_int_equal(asked_count, 0);
    free(library.functions);
    free(library.found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found_once), cmocka_unit_test(test_many_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
