#include "rpc/transport/test_values.h"

#include <stdlib.h>
#include <string.h>

/* xorshift64* */
uint64_t flyt_test_number(struct flyt_test_random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * 0x2545f4914f6cdd1dull;
}

void flyt_test_bytes(struct flyt_test_random *random, void *to, size_t bytes)
{
    unsigned char *byte = to;

    for (size_t i = 0; i < bytes; i++)
        byte[i] = (unsigned char)(flyt_test_number(random) >> 56);
}

unsigned flyt_test_count(struct flyt_test_random *random, unsigned bound)
{
    unsigned most = flyt_test_number(random) % 8 ? 5 : 60;

    if (most > bound)
        most = bound;
    return (unsigned)(flyt_test_number(random) >> 32) % (most + 1);
}

char *flyt_test_string(struct flyt_test_random *random, unsigned bound)
{
    unsigned length = flyt_test_count(random, bound);
    char *text = malloc(length + 1);

    for (unsigned i = 0; i < length; i++)
        text[i] = (char)('!' + flyt_test_number(random) % 90);
    text[length] = 0;
    return text;
}

void flyt_test_set_length(const struct flyt_test_field *field, void *value, unsigned count)
{
    void *place = (char *)value + field->offset;

    if (field->is_string) {
        char *text = malloc((size_t)count + 1);
        memset(text, 'a', count);
        text[count] = 0;
        free(*(char **)place);
        *(char **)place = text;
        return;
    }
    struct {
        u_int length;
        void *value;
    } *array = place;
    free(array->value);
    array->length = count;
    array->value = calloc((size_t)count + 1, field->element_bytes);
}
