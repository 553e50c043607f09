/*
 * Encoding and decoding of everything on the wire, over our XDR streams: round trips, truncation at every byte, every
 * bound, and that a decoding that fails leaves no memory behind.
 */
#include <arpa/inet.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "flyt_procedures.h"
#include "rpc/transport/test_values.h"
#include "rpc/transport/xdr_buffer.h"

enum { ROUNDS = 20, ENCODED_BYTES_MAX = 8 * 1024 * 1024 };

static bool encode(const struct flyt_test_type *type, void *value, struct flyt_bytes *bytes)
{
    XDR xdrs;

    *bytes = (struct flyt_bytes){.bytes_max = ENCODED_BYTES_MAX};
    flyt_xdr_encode_init(&xdrs, bytes);
    return type->xdr(&xdrs, value);
}

static bool decode(const struct flyt_test_type *type, const void *data, size_t bytes, void *value, size_t *ret_left)
{
    XDR xdrs;

    memset(value, 0, type->bytes);
    flyt_xdr_decode_init(&xdrs, data, bytes, NULL);
    bool is_good = type->xdr(&xdrs, value);
    *ret_left = flyt_xdr_left(&xdrs);
    return is_good;
}

static void *new_value(const struct flyt_test_type *type, struct flyt_test_random *random)
{
    void *value = calloc(1, type->bytes);

    type->fill(random, value);
    return value;
}

static void free_value(const struct flyt_test_type *type, void *value)
{
    xdr_free(type->xdr, value);
    free(value);
}

static void test_round_trip(void **state)
{
    struct flyt_test_random random = {1};

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        void *copy = malloc(type->bytes);
        for (int round = 0; round < ROUNDS; round++) {
            void *value = new_value(type, &random);
            struct flyt_bytes first, second;
            size_t left;
            assert_true(encode(type, value, &first));
            assert_int_equal(first.used % 4, 0);
            if (!decode(type, first.data, first.used, copy, &left) || left)
                fail_msg("%s does not decode", type->name);
            assert_true(encode(type, copy, &second));
            assert_int_equal(first.used, second.used);
            assert_memory_equal(first.data, second.data, first.used);
            xdr_free(type->xdr, copy);
            free_value(type, value);
            flyt_bytes_fini(&first);
            flyt_bytes_fini(&second);
        }
        free(copy);
    }
}

static const struct flyt_procedure *decoded_in_place(const struct flyt_test_type *type)
{
    for (unsigned i = 0; i < flyt_procedure_end; i++) {
        const struct flyt_procedure *procedure = flyt_procedure_find(i);
        if (procedure && procedure->decode_in_place && procedure->xdr_args == type->xdr)
            return procedure;
    }
    return NULL;
}

/* Arguments decoded where they lie are what XDR makes of them, or left to it; cut off, or longer, they are left to it.
 */
static void test_in_place(void **state)
{
    enum { IN_PLACE_ROUNDS = 200 };
    struct flyt_test_random random = {9};
    unsigned procedure_count = 0, decoded_count = 0;

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        const struct flyt_procedure *procedure = decoded_in_place(type);
        procedure_count += procedure != NULL;
        for (int round = 0; procedure && round < IN_PLACE_ROUNDS; round++) {
            void *value = new_value(type, &random), *view = calloc(1, type->bytes);
            struct flyt_bytes first, second;
            assert_true(encode(type, value, &first));
            if (procedure->decode_in_place(first.data, first.used, view)) {
                decoded_count++;
                assert_true(encode(type, view, &second));
                assert_int_equal(first.used, second.used);
                assert_memory_equal(first.data, second.data, first.used);
                flyt_bytes_fini(&second);
                for (size_t cut = first.used > 64 ? first.used - 64 : 0; cut < first.used; cut++) {
                    void *exact = malloc(cut ? cut : 1);
                    memcpy(exact, first.data, cut);
                    assert_false(procedure->decode_in_place(exact, cut, view));
                    free(exact);
                }
                assert_true(flyt_bytes_reserve(&first, 4));
                assert_false(procedure->decode_in_place(first.data, first.used + 4, view));
            }
            free(view);
            free_value(type, value);
            flyt_bytes_fini(&first);
        }
    }
    assert_in_range(procedure_count, 6, flyt_procedure_end);
    assert_true(decoded_count > procedure_count * (unsigned)IN_PLACE_ROUNDS / 2);
}

static bool encode_at_once(const struct flyt_test_type *type, void *value, struct flyt_bytes *bytes)
{
    XDR xdrs;

    flyt_xdr_encode_init(&xdrs, bytes);
    return type->encode(&xdrs, value);
}

/* What the client writes at once is, byte for byte, what XDR writes word by word; into a buffer that was used before,
 * too, and behind a place where no word can lie. */
static void test_encoded_at_once(void **state)
{
    struct flyt_test_random random = {11};
    unsigned encoder_count = 0;

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        encoder_count += type->encode != NULL;
        for (int round = 0; type->encode && round < ROUNDS; round++) {
            void *value = new_value(type, &random);
            struct flyt_bytes expected, bytes = {.bytes_max = ENCODED_BYTES_MAX};
            assert_true(encode(type, value, &expected));
            assert_true(flyt_bytes_reserve(&bytes, expected.used + 4));
            memset(bytes.data, 0xa5, bytes.capacity);
            for (unsigned begin = 0; begin < 2; begin++) {
                bytes.used = begin;
                assert_true(encode_at_once(type, value, &bytes));
                assert_int_equal(bytes.used - begin, expected.used);
                assert_memory_equal(bytes.data + begin, expected.data, expected.used);
            }
            free_value(type, value);
            flyt_bytes_fini(&expected);
            flyt_bytes_fini(&bytes);
        }
    }
    assert_in_range(encoder_count, 6, flyt_test_type_count);
}

/* libtirpc's own memory stream reads what ours wrote, and the other way round. */
static void test_stock_streams_agree(void **state)
{
    struct flyt_test_random random = {2};
    char *stock = malloc(1 << 20);

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        void *value = new_value(type, &random);
        struct flyt_bytes ours;
        XDR xdrs;
        assert_true(encode(type, value, &ours));
        xdrmem_create(&xdrs, stock, 1 << 20, XDR_ENCODE);
        assert_true(type->xdr(&xdrs, value));
        assert_int_equal(XDR_GETPOS(&xdrs), ours.used);
        assert_memory_equal(stock, ours.data, ours.used);
        flyt_bytes_fini(&ours);
        free_value(type, value);
    }
    free(stock);
}

/* Whether a record of `cut` bytes ends just before a field that older peers do not know. */
static bool ends_before_late_field(const struct flyt_test_type *type, const unsigned char *value, size_t bytes,
                                   size_t cut)
{
    for (unsigned i = type->field_count; i-- && type->fields[i].is_late;) {
        const flyt_late_bytes *late = (const void *)(value + type->fields[i].offset);
        bytes -= 4 + ((late->flyt_late_bytes_len + 3u) & ~3u);
        if (cut == bytes)
            return true;
    }
    return false;
}

static void test_truncation_at_every_byte(void **state)
{
    struct flyt_test_random random = {3};
    unsigned late_count = 0;

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        void *value = new_value(type, &random), *copy = malloc(type->bytes);
        struct flyt_bytes bytes;
        size_t left;
        assert_true(encode(type, value, &bytes));
        for (size_t cut = 0; cut < bytes.used; cut++) {
            /* In memory of exactly that length, so that a sanitizer sees a read behind it. */
            void *exact = malloc(cut ? cut : 1);
            memcpy(exact, bytes.data, cut);
            bool is_whole = ends_before_late_field(type, value, bytes.used, cut);
            late_count += is_whole;
            if (decode(type, exact, cut, copy, &left) != is_whole)
                fail_msg("%s decodes from %zu of %zu bytes, or should", type->name, cut, bytes.used);
            xdr_free(type->xdr, copy);
            free(exact);
        }
        free(copy);
        free_value(type, value);
        flyt_bytes_fini(&bytes);
    }
    assert_int_equal(late_count, 6); /* both sides of the handshake, three each */
}

/* Where a field's length stands in the encoding: the first word that differs between no element and one. */
static size_t length_offset(const struct flyt_test_type *type, const struct flyt_test_field *field, void *value)
{
    struct flyt_bytes none, one;
    size_t offset = 0;

    flyt_test_set_length(field, value, 0);
    assert_true(encode(type, value, &none));
    flyt_test_set_length(field, value, 1);
    assert_true(encode(type, value, &one));
    while (offset < none.used && offset < one.used && !memcmp(none.data + offset, one.data + offset, 4))
        offset += 4;
    flyt_bytes_fini(&none);
    flyt_bytes_fini(&one);
    flyt_test_set_length(field, value, 0);
    return offset;
}

static void test_every_bound(void **state)
{
    struct flyt_test_random random = {4};
    unsigned bound_count = 0;

    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        const struct flyt_test_type *type = &flyt_test_types[i];
        void *copy = malloc(type->bytes);
        for (unsigned j = 0; j < type->field_count; j++, bound_count++) {
            const struct flyt_test_field *field = &type->fields[j];
            void *value = calloc(1, type->bytes);
            struct flyt_bytes head;
            size_t left;
            for (unsigned k = 0; k < type->field_count; k++)
                flyt_test_set_length(&type->fields[k], value, 0);
            size_t offset = length_offset(type, field, value);
            assert_true(encode(type, value, &head));
            /* Everything behind the length is zeros: elements, and empty fields after them. */
            size_t room = offset + 4 + (size_t)(field->bound + 1) * (field->element_bytes + 8) + type->bytes + 64;
            unsigned char *record = calloc(1, room);
            memcpy(record, head.data, offset);
            uint32_t length = htonl(field->bound);
            memcpy(record + offset, &length, 4);
            if (!decode(type, record, room, copy, &left))
                fail_msg("%s: field %u does not take its bound of %u", type->name, j, field->bound);
            xdr_free(type->xdr, copy);
            length = htonl(field->bound + 1);
            memcpy(record + offset, &length, 4);
            if (decode(type, record, room, copy, &left))
                fail_msg("%s: field %u takes more than its bound of %u", type->name, j, field->bound);
            xdr_free(type->xdr, copy);
            /* Nor is it sent. */
            flyt_bytes_fini(&head);
            flyt_test_set_length(field, value, field->bound + 1);
            assert_false(encode(type, value, &head));
            assert_false(type->encode && encode_at_once(type, value, &head));
            flyt_bytes_fini(&head);
            flyt_test_set_length(field, value, 0); /* xdr_free does not free what exceeds its bound */
            free(record);
            free_value(type, value);
        }
        free(copy);
    }
    assert_true(bound_count > 20);
    (void)random;
}

static void test_thousand_truncated_megabytes(void **state)
{
    flyt_library_load_res value = {0}, copy;
    struct flyt_bytes bytes = {.bytes_max = ENCODED_BYTES_MAX};
    const unsigned kernel_count = 1000;
    XDR xdrs;

    value.info_log = strdup("");
    value.error_log = strdup("");
    value.kernels.kernels_val = calloc(kernel_count, sizeof(flyt_kernel_info));
    value.kernels.kernels_len = kernel_count;
    for (unsigned i = 0; i < kernel_count; i++) {
        flyt_kernel_info *kernel = &value.kernels.kernels_val[i];
        kernel->name = malloc(501);
        memset(kernel->name, 'k', 500);
        kernel->name[500] = 0;
        kernel->params.params_len = 64;
        kernel->params.params_val = calloc(64, sizeof(flyt_kernel_param));
    }
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(xdr_flyt_library_load_res(&xdrs, &value));
    assert_true(bytes.used > 1000000);

    size_t before = 0;
    for (unsigned i = 0; i < 1100; i++) {
        memset(&copy, 0, sizeof copy);
        flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used - 4 - (size_t)(i % 1000) * 997, NULL);
        assert_false(xdr_flyt_library_load_res(&xdrs, &copy));
        xdr_free((xdrproc_t)xdr_flyt_library_load_res, &copy);
        if (i == 99)
            before = mallinfo2().uordblks;
    }
    /* Under a sanitizer mallinfo2 knows nothing; its own leak check does. */
    size_t after = mallinfo2().uordblks;
    assert_true(after <= before + 4096);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &value);
    flyt_bytes_fini(&bytes);
}

static void test_unset_strings_are_empty(void **state)
{
    flyt_device_info_res res = {.result = 3}, copy = {0};
    struct flyt_bytes bytes = {.bytes_max = 65536};
    XDR xdrs;

    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(xdr_flyt_device_info_res(&xdrs, &res));
    assert_null(res.name);
    flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used, NULL);
    assert_true(xdr_flyt_device_info_res(&xdrs, &copy));
    assert_string_equal(copy.name, "");
    xdr_free((xdrproc_t)xdr_flyt_device_info_res, &copy);
    flyt_bytes_fini(&bytes);
}

static void test_payload_goes_to_its_place(void **state)
{
    char data[64] = {0}, wanted[] = "payload of nineteen";
    flyt_copy_out_res res = {.data = {sizeof wanted, wanted}}, copy;
    struct flyt_bytes bytes = {.bytes_max = 4096};
    XDR xdrs;

    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(xdr_flyt_copy_out_res(&xdrs, &res));

    struct flyt_xdr_payload payload = {.place = data, .bytes_max = sizeof data};
    memset(&copy, 0, sizeof copy);
    copy.data.data_val = data;
    flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used, &payload);
    assert_true(xdr_flyt_copy_out_res(&xdrs, &copy));
    assert_int_equal(flyt_xdr_left(&xdrs), 0);
    assert_ptr_equal(copy.data.data_val, data);
    assert_string_equal(data, wanted);

    /* One byte too few. */
    payload = (struct flyt_xdr_payload){.place = data, .bytes_max = sizeof wanted - 1};
    copy.data.data_val = data;
    flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used, &payload);
    assert_false(xdr_flyt_copy_out_res(&xdrs, &copy));

    /* Already there: the stream ends behind the length. */
    payload = (struct flyt_xdr_payload){.place = data, .bytes_max = sizeof data, .is_there = true};
    copy.data.data_val = data;
    flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used - sizeof wanted - (-sizeof wanted & 3), &payload);
    assert_true(xdr_flyt_copy_out_res(&xdrs, &copy));
    assert_int_equal(copy.data.data_len, sizeof wanted);
    assert_int_equal(flyt_xdr_left(&xdrs), 0);
    flyt_bytes_fini(&bytes);
}

static void test_bytes_stay_within_their_bound(void **state)
{
    struct flyt_bytes bytes = {.bytes_max = 10000};

    assert_true(flyt_bytes_reserve(&bytes, 10000));
    bytes.used = 9999;
    assert_true(flyt_bytes_reserve(&bytes, 1));
    assert_false(flyt_bytes_reserve(&bytes, 2));
    assert_false(flyt_bytes_reserve(&bytes, SIZE_MAX));
    flyt_bytes_fini(&bytes);
    assert_int_equal(bytes.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_encoded_at_once),
        cmocka_unit_test(test_stock_streams_agree),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_every_bound),
        cmocka_unit_test(test_thousand_truncated_megabytes),
        cmocka_unit_test(test_unset_strings_are_empty),
        cmocka_unit_test(test_payload_goes_to_its_place),
        cmocka_unit_test(test_bytes_stay_within_their_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
