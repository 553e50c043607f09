#include "rpc/base/fatbin.h"

#include <errno.h>
#include <lz4.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

/* A container in the making. */
struct sample {
    uint8_t *bytes;
    size_t total_bytes;
};

static void put(struct sample *sample, const void *data, size_t data_bytes)
{
    sample->bytes = realloc(sample->bytes, sample->total_bytes + data_bytes);
    assert_non_null(sample->bytes);
    memcpy(sample->bytes + sample->total_bytes, data, data_bytes);
    sample->total_bytes += data_bytes;
}

static void put_number(struct sample *sample, uint64_t number, size_t number_bytes)
{
    put(sample, &number, number_bytes);
}

static void sample_begin(struct sample *sample)
{
    *sample = (struct sample){0};
    put_number(sample, 0xBA55ED50, 4);
    put_number(sample, 1, 2);
    put_number(sample, 16, 2);
    put_number(sample, 0, 8);
}

static void sample_end(struct sample *sample)
{
    uint64_t body_bytes = sample->total_bytes - 16;

    memcpy(sample->bytes + 8, &body_bytes, sizeof(body_bytes));
}

/* Appends an entry as nvcc lays it out, with the image compressed as the flags say. */
static void sample_add(struct sample *sample, unsigned kind, unsigned arch, uint64_t flags, const char *image)
{
    size_t image_bytes = strlen(image), room = 2 * image_bytes + 1024, payload_bytes = image_bytes;
    char *payload = calloc(1, room);
    bool is_compressed = flags & (FLYT_FATBIN_FLAG_ZSTD | FLYT_FATBIN_FLAG_LZ4);

    assert_non_null(payload);
    if (flags & FLYT_FATBIN_FLAG_ZSTD)
        payload_bytes = ZSTD_compress(payload, room, image, image_bytes, 3);
    else if (flags & FLYT_FATBIN_FLAG_LZ4)
        payload_bytes = (size_t)LZ4_compress_default(image, payload, (int)image_bytes, (int)room);
    else
        memcpy(payload, image, image_bytes);
    put_number(sample, kind, 2);
    put_number(sample, 0x0101, 2);
    put_number(sample, 64, 4);
    put_number(sample, (payload_bytes + 7) & ~(size_t)7, 8);
    put_number(sample, is_compressed ? payload_bytes : 0, 4);
    put_number(sample, 0, 4);
    put_number(sample, 0x00090000, 4);
    put_number(sample, arch, 4);
    put_number(sample, 0, 8);
    put_number(sample, flags | FLYT_FATBIN_FLAG_64BIT, 8);
    put_number(sample, 0, 8);
    put_number(sample, is_compressed ? image_bytes : 0, 8);
    put(sample, payload, (payload_bytes + 7) & ~(size_t)7);
    free(payload);
}

static char *long_text(void)
{
    char *text = calloc(1, 20001);

    assert_non_null(text);
    for (int i = 0; i < 20000; i++)
        text[i] = (char)('a' + i * i % 23);
    return text;
}

static void every_compression_gives_the_image_back(void **state)
{
    static const uint64_t flags[] = {0, FLYT_FATBIN_FLAG_LZ4, FLYT_FATBIN_FLAG_ZSTD};
    char *text = long_text();

    for (unsigned i = 0; i < 3; i++) {
        struct flyt_fatbin fatbin;
        struct flyt_fatbin_entry entry;
        struct sample sample;
        size_t image_bytes;
        char *image;

        sample_begin(&sample);
        sample_add(&sample, FLYT_FATBIN_PTX, 75, flags[i], text);
        sample_end(&sample);
        assert_int_equal(flyt_fatbin_init(sample.bytes, sample.total_bytes, &fatbin), 0);
        assert_int_equal(fatbin.total_bytes, sample.total_bytes);
        assert_int_equal(flyt_fatbin_next(&fatbin, &entry), 1);
        assert_int_equal(entry.arch, 75);
        assert_int_equal(entry.is_compressed, flags[i] != 0);
        assert_int_equal(flyt_fatbin_decompress(&entry, &image, &image_bytes), 0);
        assert_int_equal(image_bytes, strlen(text));
        assert_memory_equal(image, text, image_bytes + 1);
        assert_int_equal(flyt_fatbin_next(&fatbin, &entry), 0);
        free(image);
        free(sample.bytes);
    }
    free(text);
}

/* The architecture and kind that is chosen for a device, as kind × 1000 + arch; negative: the error. */
static int chosen(const struct sample *sample, int major, int minor, bool runs_cubin, bool prefers_portable,
                  uint64_t *ret_flags)
{
    struct flyt_fatbin_device device = {major, minor, runs_cubin, prefers_portable};
    struct flyt_fatbin_entry entry;
    int r = flyt_fatbin_choose(sample->bytes, sample->total_bytes, &device, &entry);

    if (r < 0)
        return r;
    *ret_flags = entry.flags;
    return entry.kind * 1000 + (int)entry.arch;
}

static void the_best_image_is_chosen(void **state)
{
    struct sample sample;
    uint64_t flags;

    sample_begin(&sample);
    sample_add(&sample, FLYT_FATBIN_PTX, 75, 0, "a");
    sample_add(&sample, FLYT_FATBIN_CUBIN, 75, 0, "b");
    sample_add(&sample, FLYT_FATBIN_CUBIN, 80, 0, "c");
    sample_add(&sample, FLYT_FATBIN_PTX, 80, 0, "d");
    sample_add(&sample, FLYT_FATBIN_CUBIN, 86, 0, "e");
    sample_add(&sample, FLYT_FATBIN_PTX, 90, FLYT_FATBIN_FLAG_ARCH_SPECIFIC, "f");
    sample_add(&sample, FLYT_FATBIN_NVVM, 90, 0, "g");
    sample_add(&sample, FLYT_FATBIN_PTX, 100, 0, "h");
    sample_add(&sample, FLYT_FATBIN_PTX, 100, FLYT_FATBIN_FLAG_FAMILY_SPECIFIC, "i");
    sample_end(&sample);
    assert_int_equal(chosen(&sample, 7, 5, true, false, &flags), 2075);
    assert_int_equal(chosen(&sample, 8, 0, true, false, &flags), 2080);
    assert_int_equal(chosen(&sample, 8, 9, true, false, &flags), 2086);
    assert_int_equal(chosen(&sample, 8, 9, false, true, &flags), 1080);
    assert_int_equal(chosen(&sample, 9, 0, true, false, &flags), 1090);
    assert_int_equal(chosen(&sample, 7, 0, true, false, &flags), -ENOENT);
    assert_int_equal(chosen(&sample, 10, 3, true, false, &flags), 1100);
    assert_true(flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC);
    assert_int_equal(chosen(&sample, 10, 3, false, true, &flags), 1100);
    assert_false(flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC);
    assert_int_equal(chosen(&sample, 12, 0, true, false, &flags), 1100);
    assert_false(flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC);
    free(sample.bytes);
}

/* Reads all that can be read; what matters is that nothing outside is touched (the copy ends where the data does). */
static void read_all(const uint8_t *bytes, size_t total_bytes)
{
    uint8_t *copy = malloc(total_bytes ? total_bytes : 1);
    struct flyt_fatbin fatbin;
    struct flyt_fatbin_entry entry;
    size_t image_bytes;
    char *image;

    assert_non_null(copy);
    memcpy(copy, bytes, total_bytes);
    if (flyt_fatbin_init(copy, total_bytes, &fatbin) == 0) {
        while (flyt_fatbin_next(&fatbin, &entry) > 0) {
            assert_true((const uint8_t *)entry.payload >= copy);
            assert_true((const uint8_t *)entry.payload + entry.payload_bytes <= copy + total_bytes);
            if (entry.image_bytes < 1 << 20 && flyt_fatbin_decompress(&entry, &image, &image_bytes) == 0)
                free(image);
        }
    }
    free(copy);
}

static void broken_containers_are_refused_not_followed(void **state)
{
    struct flyt_fatbin fatbin;
    struct sample sample;

    sample_begin(&sample);
    sample_add(&sample, FLYT_FATBIN_PTX, 75, FLYT_FATBIN_FLAG_ZSTD, "some text, some text, some text");
    sample_add(&sample, FLYT_FATBIN_PTX, 80, FLYT_FATBIN_FLAG_LZ4, "some text, some text, some text");
    sample_add(&sample, FLYT_FATBIN_CUBIN, 90, 0, "machine code");
    sample_end(&sample);
    for (size_t n = 0; n < sample.total_bytes; n++) {
        assert_int_equal(flyt_fatbin_init(sample.bytes, n, &fatbin), n < 4 ? -EINVAL : -EBADMSG);
        read_all(sample.bytes, n);
    }
    for (size_t i = 0; i < sample.total_bytes; i++) {
        uint8_t right = sample.bytes[i];

        for (unsigned bit = 0; bit < 8; bit++) {
            sample.bytes[i] = right ^ (uint8_t)(1u << bit);
            read_all(sample.bytes, sample.total_bytes);
        }
        sample.bytes[i] = right;
    }
    free(sample.bytes);
}

static void a_wrong_size_after_decompression_is_corrupt(void **state)
{
    static const uint64_t flags[] = {FLYT_FATBIN_FLAG_LZ4, FLYT_FATBIN_FLAG_ZSTD};
    char *text = long_text();

    for (unsigned i = 0; i < 2; i++) {
        struct flyt_fatbin fatbin;
        struct flyt_fatbin_entry entry;
        struct sample sample;
        size_t image_bytes;
        char *image = NULL;

        sample_begin(&sample);
        sample_add(&sample, FLYT_FATBIN_PTX, 75, flags[i], text);
        sample_end(&sample);
        assert_int_equal(flyt_fatbin_init(sample.bytes, FLYT_FATBIN_BYTES_UNKNOWN, &fatbin), 0);
        assert_int_equal(flyt_fatbin_next(&fatbin, &entry), 1);
        entry.image_bytes--;
        assert_int_equal(flyt_fatbin_decompress(&entry, &image, &image_bytes), -EBADMSG);
        entry.image_bytes += 2;
        assert_int_equal(flyt_fatbin_decompress(&entry, &image, &image_bytes), -EBADMSG);
        entry.flags &= ~flags[i];
        assert_int_equal(flyt_fatbin_decompress(&entry, &image, &image_bytes), -ENOTSUP);
        assert_null(image);
        free(sample.bytes);
    }
    free(text);
}

static void a_wrapper_leads_to_its_container(void **state)
{
    static const uint32_t container[4] = {0xBA55ED50};
    struct {
        uint32_t magic, version;
        const void *data, *rest;
    } wrapper = {0x466243B1, 1, container, NULL};

    assert_ptr_equal(flyt_fatbin_unwrap(&wrapper), container);
    assert_ptr_equal(flyt_fatbin_unwrap(container), container);
    assert_true(flyt_fatbin_is(container));
    assert_false(flyt_fatbin_is(&wrapper));
    assert_null(flyt_fatbin_units(&wrapper));
    assert_null(flyt_fatbin_units(container));
}

static void a_wrapper_of_relocatable_code_leads_to_its_units(void **state)
{
    static const uint32_t container[4] = {0xBA55ED50};
    const void *const units[] = {container, container, NULL};
    struct flyt_fatbin_wrapper wrapper = {0x466243B1, 2, container, units};

    assert_ptr_equal(flyt_fatbin_unwrap(&wrapper), container);
    assert_ptr_equal(flyt_fatbin_units(&wrapper), units);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_compression_gives_the_image_back),
        cmocka_unit_test(the_best_image_is_chosen),
        cmocka_unit_test(broken_containers_are_refused_not_followed),
        cmocka_unit_test(a_wrong_size_after_decompression_is_corrupt),
        cmocka_unit_test(a_wrapper_leads_to_its_container),
        cmocka_unit_test(a_wrapper_of_relocatable_code_leads_to_its_units),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
