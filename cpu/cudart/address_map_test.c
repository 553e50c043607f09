/* The map from host addresses: many keys, keys that come again, and readers while it grows. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/cudart/address_map.h"

enum { KEYS = 100000, READERS = 4 };

/* Neighbouring functions, 16 bytes apart, as a linker lays them out. */
static const void *key(size_t i)
{
    return (const void *)(uintptr_t)(0x555555554000ull + i * 16);
}

static void test_empty(void **state)
{
    struct flyt_address_map map = {.node_count = 0};

    assert_null(flyt_address_map_find(&map, key(0)));
    flyt_address_map_fini(&map);
}

static void test_many(void **state)
{
    struct flyt_address_map map = {.node_count = 0};

    for (size_t i = 0; i < KEYS; i++) {
        struct flyt_address_node *node = flyt_address_map_add(&map, key(i));

        assert_non_null(node);
        assert_null(atomic_load(&node->value));
        atomic_store(&node->value, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < KEYS; i++) {
        struct flyt_address_node *node = flyt_address_map_find(&map, key(i));

        assert_non_null(node);
        assert_ptr_equal(node->key, key(i));
        assert_int_equal((uintptr_t)atomic_load(&node->value), i + 1);
        assert_ptr_equal(flyt_address_map_add(&map, key(i)), node);
    }
    assert_null(flyt_address_map_find(&map, key(KEYS)));
    assert_int_equal(map.node_count, KEYS);
    flyt_address_map_fini(&map);
}

struct race {
    struct flyt_address_map map;
    _Atomic(size_t) added_count; /* keys below this are in the map, with their value */
    _Atomic(bool) has_failed;
};

/* Whatever has been added is found, with its value, at every moment. */
static void *read_while_growing(void *argument)
{
    struct race *race = argument;
    size_t count, i = 0;

    do {
        count = atomic_load(&race->added_count);
        for (size_t n = 0; n < 64 && count > 0; n++) {
            struct flyt_address_node *node = flyt_address_map_find(&race->map, key(i % count));

            if (!node || (uintptr_t)atomic_load(&node->value) != i % count + 1)
                atomic_store(&race->has_failed, true);
            i += 7919;
        }
    } while (count < KEYS);
    return NULL;
}

static void test_readers(void **state)
{
    static struct race race;
    pthread_t readers[READERS];

    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_while_growing, &race), 0);
    for (size_t i = 0; i < KEYS; i++) {
        struct flyt_address_node *node = flyt_address_map_add(&race.map, key(i));

        assert_non_null(node);
        atomic_store(&node->value, (void *)(uintptr_t)(i + 1));
        atomic_store(&race.added_count, i + 1);
    }
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_false(atomic_load(&race.has_failed));
    flyt_address_map_fini(&race.map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
