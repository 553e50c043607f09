/* What NCCL's operators do with numbers of each of its types. Those that the CPU does not have are floats in between.
 */
#include <library_types.h>

#include "cpu/softgpu/library/nccl.h"
#include "cpu/softgpu/library/number.h"

size_t flyt_soft_nccl_type_bytes(int type)
{
    static const unsigned char bytes[NCCL_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return type >= 0 && type < NCCL_TYPES ? bytes[type] : 0;
}

static cudaDataType narrow_type(int type)
{
    return type == 6 ? CUDA_R_16F : type == 9 ? CUDA_R_16BF : type == 10 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

#define COMBINE(name, type)                                                                                            \
    static void combine_##name(int op, void *into, const void *from, size_t count)                                     \
    {                                                                                                                  \
        type *a = into;                                                                                                \
        const type *b = from;                                                                                          \
                                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            if (op == NCCL_PROD)                                                                                       \
                a[i] = (type)(a[i] * b[i]);                                                                            \
            else if (op == NCCL_MAX)                                                                                   \
                a[i] = b[i] > a[i] ? b[i] : a[i];                                                                      \
            else if (op == NCCL_MIN)                                                                                   \
                a[i] = b[i] < a[i] ? b[i] : a[i];                                                                      \
            else                                                                                                       \
                a[i] = (type)(a[i] + b[i]);                                                                            \
    }                                                                                                                  \
    static void divide_##name(void *numbers, size_t count, int by)                                                     \
    {                                                                                                                  \
        type *a = numbers;                                                                                             \
                                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            a[i] = (type)(a[i] / (type)by);                                                                            \
    }

/* Integers wrap around: signed ones are added as unsigned ones. */
#define COMBINE_SIGNED(name, type, wrapping)                                                                           \
    static void combine_##name(int op, void *into, const void *from, size_t count)                                     \
    {                                                                                                                  \
        type *a = into;                                                                                                \
        const type *b = from;                                                                                          \
                                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            if (op == NCCL_PROD)                                                                                       \
                a[i] = (type)((wrapping)a[i] * (wrapping)b[i]);                                                        \
            else if (op == NCCL_MAX)                                                                                   \
                a[i] = b[i] > a[i] ? b[i] : a[i];                                                                      \
            else if (op == NCCL_MIN)                                                                                   \
                a[i] = b[i] < a[i] ? b[i] : a[i];                                                                      \
            else                                                                                                       \
                a[i] = (type)((wrapping)a[i] + (wrapping)b[i]);                                                        \
    }                                                                                                                  \
    static void divide_##name(void *numbers, size_t count, int by)                                                     \
    {                                                                                                                  \
        type *a = numbers;                                                                                             \
                                                                                                                       \
        for (size_t i = 0; i < count; i++)                                                                             \
            a[i] = (type)(a[i] / (type)by);                                                                            \
    }

COMBINE_SIGNED(s8, int8_t, unsigned)
COMBINE(u8, uint8_t)
COMBINE_SIGNED(s32, int32_t, uint32_t)
COMBINE(u32, uint32_t)
COMBINE_SIGNED(s64, int64_t, uint64_t)
COMBINE(u64, uint64_t)
COMBINE(f32, float)
COMBINE(f64, double)

static const struct {
    void (*combine)(int op, void *into, const void *from, size_t count);
    void (*divide)(void *numbers, size_t count, int by);
} wide[NCCL_TYPES] = {{combine_s8, divide_s8},         {combine_u8, divide_u8},        {combine_s32, divide_s32},
                      {combine_u32, divide_u32},       {combine_s64, divide_s64},      {combine_u64, divide_u64},
                      [7] = {combine_f32, divide_f32}, [8] = {combine_f64, divide_f64}};

/* Blocks of numbers as floats. */
enum { BLOCK = 256 };

static size_t block_of(size_t count, size_t done)
{
    return count - done < BLOCK ? count - done : BLOCK;
}

static void combine_narrow(int type, int op, void *into, const void *from, size_t count)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);
    float a[BLOCK], b[BLOCK];

    for (size_t done = 0, n; done < count; done += n) {
        char *place = (char *)into + done * bytes;

        n = block_of(count, done);
        flyt_soft_floats_load(a, narrow_type(type), place, 1, (int64_t)n);
        flyt_soft_floats_load(b, narrow_type(type), (const char *)from + done * bytes, 1, (int64_t)n);
        combine_f32(op, a, b, n);
        flyt_soft_floats_store(a, narrow_type(type), place, 1, (int64_t)n);
    }
}

static void divide_narrow(int type, void *numbers, size_t count, int by)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);
    float a[BLOCK];

    for (size_t done = 0, n; done < count; done += n) {
        char *place = (char *)numbers + done * bytes;

        n = block_of(count, done);
        flyt_soft_floats_load(a, narrow_type(type), place, 1, (int64_t)n);
        divide_f32(a, n, by);
        flyt_soft_floats_store(a, narrow_type(type), place, 1, (int64_t)n);
    }
}

void flyt_soft_nccl_combine(int type, int op, void *into, const void *from, size_t count)
{
    if (wide[type].combine)
        wide[type].combine(op, into, from, count);
    else
        combine_narrow(type, op, into, from, count);
}

void flyt_soft_nccl_divide(int type, void *numbers, size_t count, int by)
{
    if (wide[type].divide)
        wide[type].divide(numbers, count, by);
    else
        divide_narrow(type, numbers, count, by);
}

void flyt_soft_nccl_scale(int type, void *numbers, size_t count, const void *factor)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);

    for (size_t i = 0; i < count; i++)
        flyt_soft_nccl_combine(type, NCCL_PROD, (char *)numbers + i * bytes, factor, 1);
}
