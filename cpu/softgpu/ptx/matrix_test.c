/*
 * mma, wmma, ldmatrix, stmatrix and movmatrix against products written out on the host. Where the PTX ISA tells which
 * lane holds which element, matrices are put into registers and taken out of them by its words, not by the engine's.
 */
#include "cpu/softgpu/ptx/test.h"
#include "rpc/base/test_random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LANES = 32, REGISTERS_MAX = 8, EDGE_MAX = 256, TEXT_BYTES = 16384 };

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
#define TENSOR_HEAD      ".version 9.0\n.target sm_90\n.address_size 64\n"

static uint64_t next_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15ull;

    return test_random_next(&state);
}

/* ---- elements: numbers as bit patterns ---- */

struct element {
    const char *name;
    unsigned bits, digits;
    int bias;          /* of floats; 0: an integer */
    int least, most;   /* of the whole numbers that are drawn: exact in the format */
    bool has_low_bits; /* tf32: further bits that must not matter */
};

static const struct element f16 = {"f16", 16, 10, 15, -9, 9, false}, bf16 = {"bf16", 16, 7, 127, -9, 9, false},
                            tf32 = {"tf32", 32, 23, 127, -9, 9, true}, f32 = {"f32", 32, 23, 127, -99, 99, false},
                            f64 = {"f64", 64, 52, 1023, -99, 99, false}, e4m3 = {"e4m3", 8, 3, 7, -9, 9, false},
                            e5m2 = {"e5m2", 8, 2, 15, -4, 4, false}, s8 = {"s8", 8, 0, 0, -128, 127, false},
                            u8 = {"u8", 8, 0, 0, 0, 255, false}, s4 = {"s4", 4, 0, 0, -8, 7, false},
                            u4 = {"u4", 4, 0, 0, 0, 15, false}, b1 = {"b1", 1, 0, 0, 0, 1, false},
                            s32 = {"s32", 32, 0, 0, -100000, 100000, false};

/* A whole number; of floats one that the format has. */
static uint64_t encode(const struct element *element, int64_t number)
{
    uint64_t magnitude = (uint64_t)(number < 0 ? -number : number), fraction, sign;
    unsigned exponent;

    if (!element->bias)
        return (uint64_t)number & (element->bits < 64 ? (1ull << element->bits) - 1 : UINT64_MAX);
    sign = (uint64_t)(number < 0) << (element->bits - 1);
    if (!magnitude)
        return 0;
    exponent = 63 - (unsigned)__builtin_clzll(magnitude);
    fraction = (magnitude << (63 - exponent) << 1) >> (64 - element->digits);
    return sign | (uint64_t)(element->bias + (int)exponent) << element->digits | fraction;
}

static int64_t draw(const struct element *element)
{
    int64_t number = element->least + (int64_t)(next_random() % (uint64_t)(element->most - element->least + 1));

    if (element == &e4m3 || element == &e5m2) /* powers of two and their sums of few digits only */
        number = number % 5;
    return number;
}

/* ---- mma: the documented layouts ---- */

struct product {
    const char *shape;
    unsigned m, n, k;
    const struct element *d, *a, *b, *c;
    const char *more; /* modifiers before the types */
    const char *last; /* behind them */
};

static const struct product products[] = {
    {"m16n8k8", 16, 8, 8, &f32, &f16, &f16, &f32, "", ""},
    {"m16n8k8", 16, 8, 8, &f16, &f16, &f16, &f16, "", ""},
    {"m16n8k16", 16, 8, 16, &f32, &f16, &f16, &f32, "", ""},
    {"m16n8k16", 16, 8, 16, &f16, &f16, &f16, &f16, "", ""},
    {"m16n8k8", 16, 8, 8, &f32, &bf16, &bf16, &f32, "", ""},
    {"m16n8k16", 16, 8, 16, &f32, &bf16, &bf16, &f32, "", ""},
    {"m16n8k4", 16, 8, 4, &f32, &tf32, &tf32, &f32, "", ""},
    {"m16n8k8", 16, 8, 8, &f32, &tf32, &tf32, &f32, "", ""},
    {"m16n8k32", 16, 8, 32, &f32, &e4m3, &e5m2, &f32, "", ""},
    {"m16n8k32", 16, 8, 32, &f32, &e5m2, &e4m3, &f32, "", ""},
    {"m16n8k16", 16, 8, 16, &f16, &e4m3, &e4m3, &f16, "", ""},
    {"m8n8k4", 8, 8, 4, &f64, &f64, &f64, &f64, "", ""},
    {"m16n8k4", 16, 8, 4, &f64, &f64, &f64, &f64, "", ""},
    {"m16n8k8", 16, 8, 8, &f64, &f64, &f64, &f64, "", ""},
    {"m16n8k16", 16, 8, 16, &f64, &f64, &f64, &f64, "", ""},
    {"m8n8k16", 8, 8, 16, &s32, &s8, &s8, &s32, "", ""},
    {"m8n8k16", 8, 8, 16, &s32, &u8, &s8, &s32, "", ""},
    {"m16n8k16", 16, 8, 16, &s32, &s8, &u8, &s32, "", ""},
    {"m16n8k32", 16, 8, 32, &s32, &u8, &u8, &s32, "", ""},
    {"m16n8k32", 16, 8, 32, &s32, &s8, &s8, &s32, ".satfinite", ""},
    {"m8n8k32", 8, 8, 32, &s32, &s4, &u4, &s32, "", ""},
    {"m16n8k32", 16, 8, 32, &s32, &s4, &s4, &s32, "", ""},
    {"m16n8k64", 16, 8, 64, &s32, &u4, &s4, &s32, "", ""},
    {"m8n8k128", 8, 8, 128, &s32, &b1, &b1, &s32, "", ".xor.popc"},
    {"m16n8k128", 16, 8, 128, &s32, &b1, &b1, &s32, "", ".and.popc"},
    {"m16n8k256", 16, 8, 256, &s32, &b1, &b1, &s32, "", ".xor.popc"},
};

/* Elements that a lane's register holds. */
static unsigned per_register(const struct element *element)
{
    return element->bits == 64 ? 1 : 32 / element->bits;
}

/* PTX ISA: groupID = lane >> 2, threadID_in_group = lane % 4. Element i of a lane's part of A. */
static void place_of_a(const struct product *p, unsigned lane, unsigned i, unsigned *row, unsigned *column)
{
    unsigned each = per_register(p->a), half = p->m == 8 ? 0 : i / each % 2;
    unsigned step = p->m == 8 ? i / each : i / (2 * each);

    *row = (lane >> 2) + 8 * half;
    *column = lane % 4 * each + i % each + step * 4 * each;
}

static void place_of_b(const struct product *p, unsigned lane, unsigned i, unsigned *row, unsigned *column)
{
    unsigned each = per_register(p->b);

    *row = lane % 4 * each + i % each + i / each * 4 * each;
    *column = lane >> 2;
}

static void place_of_c(unsigned lane, unsigned i, unsigned *row, unsigned *column)
{
    *row = (lane >> 2) + (i < 2 ? 0 : 8);
    *column = lane % 4 * 2 + (i & 1);
}

/* Matrices as numbers, and the registers of all lanes as memory has them. */
static int64_t a[32][EDGE_MAX], b[EDGE_MAX][32], c[32][32], d[32][32];
static uint64_t *registers[4]; /* d, a, b, c: REGISTERS_MAX of 32 lanes, eight bytes each */

static void put(uint64_t *into, const struct element *element, unsigned lane, unsigned i, int64_t number)
{
    uint64_t bits = encode(element, number);
    unsigned each = per_register(element);
    uint64_t *at = &into[i / each * LANES + lane];

    if (element->has_low_bits)
        bits |= next_random() & 0x1fff;
    if (i % each == 0)
        *at = 0;
    *at |= bits << (i % each * element->bits);
}

static uint64_t take(const uint64_t *from, const struct element *element, unsigned lane, unsigned i)
{
    unsigned each = per_register(element);
    uint64_t bits = from[i / each * LANES + lane] >> (i % each * element->bits);

    return element->bits < 64 ? bits & ((1ull << element->bits) - 1) : bits;
}

static void draw_matrices(const struct product *p)
{
    for (unsigned m = 0; m < p->m; m++)
        for (unsigned k = 0; k < p->k; k++)
            a[m][k] = draw(p->a);
    for (unsigned k = 0; k < p->k; k++)
        for (unsigned n = 0; n < p->n; n++)
            b[k][n] = draw(p->b);
    for (unsigned m = 0; m < p->m; m++)
        for (unsigned n = 0; n < p->n; n++)
            c[m][n] = draw(p->c);
}

/* d = a × b + c in whole numbers; of bits, how many both or just one of them have. */
static void multiply(const struct product *p)
{
    for (unsigned m = 0; m < p->m; m++)
        for (unsigned n = 0; n < p->n; n++) {
            d[m][n] = c[m][n];
            for (unsigned k = 0; k < p->k; k++)
                d[m][n] += strstr(p->last, "xor") ? a[m][k] ^ b[k][n] : a[m][k] * b[k][n];
        }
}

static unsigned used;
static char text[TEXT_BYTES];
#define ADD(...) (used += (unsigned)snprintf(text + used, sizeof text - used, __VA_ARGS__))

static void add_vector(char name, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ADD("%s%%%c%u", i ? ", " : "{", name, i);
    ADD("}");
}

static unsigned register_count(const struct element *element, unsigned elements)
{
    return elements / LANES / per_register(element);
}

/* Registers from memory, the instruction under a guard, registers to memory. */
static void write_product(const struct product *p, const char *guard)
{
    const struct element *elements[] = {p->d, p->a, p->b, p->c};
    unsigned counts[] = {register_count(p->d, p->m * p->n), register_count(p->a, p->m * p->k),
                         register_count(p->b, p->k * p->n), register_count(p->c, p->m * p->n)};

    used = 0;
    ADD(TENSOR_HEAD ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc) {\n"
                    ".reg .b32 %%lane; .reg .b64 %%at<9>; .reg .pred %%p<3>;\n"
                    "mov.u32 %%lane, %%tid.x; mul.wide.u32 %%at0, %%lane, 8; setp.lt.u32 %%p1, %%lane, 64;\n");
    for (unsigned i = 0; i < 4; i++)
        ADD(".reg .b%u %%%c<9>; ld.param.u64 %%at%u, [p%c]; add.s64 %%at%u, %%at%u, %%at0;\n",
            elements[i]->bits == 64 ? 64 : 32, "dabc"[i], i + 1, "dabc"[i], i + 1, i + 1);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned r = 0; r < counts[i]; r++)
            ADD("ld.global.b%u %%%c%u, [%%at%u+%u];\n", elements[i]->bits == 64 ? 64 : 32, "dabc"[i], r, i + 1,
                r * LANES * 8);
    ADD("%s mma.sync.aligned.%s.row.col%s.%s.%s.%s.%s%s ", guard, p->shape, p->more, p->d->name, p->a->name, p->b->name,
        p->c->name, p->last);
    for (unsigned i = 0; i < 4; i++) {
        add_vector("dabc"[i], counts[i]);
        ADD(i < 3 ? ", " : ";\n");
    }
    for (unsigned r = 0; r < counts[0]; r++)
        ADD("st.global.b%u [%%at1+%u], %%d%u;\n", p->d->bits == 64 ? 64 : 32, r * LANES * 8, r);
    ADD("ret; }\n");
}

static void fill_registers(const struct product *p)
{
    unsigned row, column;

    for (unsigned lane = 0; lane < LANES; lane++) {
        for (unsigned i = 0; i < p->m * p->k / LANES; i++) {
            place_of_a(p, lane, i, &row, &column);
            put(registers[1], p->a, lane, i, a[row][column]);
        }
        for (unsigned i = 0; i < p->k * p->n / LANES; i++) {
            place_of_b(p, lane, i, &row, &column);
            put(registers[2], p->b, lane, i, b[row][column]);
        }
        for (unsigned i = 0; i < p->m * p->n / LANES; i++) {
            place_of_c(lane, i, &row, &column);
            put(registers[3], p->c, lane, i, c[row][column]);
        }
    }
    memset(registers[0], 0x55, REGISTERS_MAX * LANES * 8);
}

static void load(const char *name)
{
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS)
        fail_msg("%s: %s\n%s", name, harness.diag.text, text);
}

static CUresult run_product(void)
{
    return FLYT_PTX_RUN(&harness, "k", 1, LANES, ADDRESS(registers[0]), ADDRESS(registers[1]), ADDRESS(registers[2]),
                        ADDRESS(registers[3]));
}

static void check_product(const struct product *p)
{
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < p->m * p->n / LANES; i++) {
            unsigned row, column;
            uint64_t got, wanted;

            place_of_c(lane, i, &row, &column);
            got = take(registers[0], p->d, lane, i);
            wanted = encode(p->d, d[row][column]);
            if (got != wanted)
                fail_msg("%s.%s.%s: row %u, column %u (lane %u, element %u): %llx, expected %llx (%lld)", p->shape,
                         p->a->name, p->b->name, row, column, lane, i, (unsigned long long)got,
                         (unsigned long long)wanted, (long long)d[row][column]);
        }
}

static int set_up_registers(void **state)
{
    set_up(state);
    for (unsigned i = 0; i < 4; i++)
        registers[i] = flyt_ptx_harness_alloc(&harness, REGISTERS_MAX * LANES * 8);
    return 0;
}

static void products_have_the_documented_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct product *p = &products[i];

        write_product(p, "");
        load(p->shape);
        for (unsigned round = 0; round < 4; round++) {
            draw_matrices(p);
            multiply(p);
            fill_registers(p);
            assert_int_equal(run_product(), CUDA_SUCCESS);
            check_product(p);
        }
    }
}

/* A guard that no lane meets passes over all parts of the instruction; one that all meet changes nothing. */
static void guards_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct product *p = &products[i];

        draw_matrices(p);
        multiply(p);
        fill_registers(p);
        write_product(p, "@%p1");
        load(p->shape);
        assert_int_equal(run_product(), CUDA_SUCCESS);
        check_product(p);
        memset(registers[0], 0x55, REGISTERS_MAX * LANES * 8);
        write_product(p, "@!%p1");
        load(p->shape);
        assert_int_equal(run_product(), CUDA_SUCCESS);
        for (unsigned word = 0; word < REGISTERS_MAX * LANES; word++)
            assert_true(registers[0][word] == 0x5555555555555555ull);
    }
}

static void integers_wrap_or_saturate(void **state)
{
    struct product p = {"m16n8k32", 16, 8, 32, &s32, &s8, &s8, &s32, "", ""};

    (void)state;
    for (unsigned saturates = 0; saturates < 2; saturates++) {
        p.more = saturates ? ".satfinite" : "";
        write_product(&p, "");
        load(p.shape);
        draw_matrices(&p);
        for (unsigned m = 0; m < p.m; m++)
            for (unsigned n = 0; n < p.n; n++)
                c[m][n] = m & 1 ? INT32_MAX - (int64_t)n : INT32_MIN + (int64_t)n;
        multiply(&p);
        for (unsigned m = 0; m < p.m; m++)
            for (unsigned n = 0; n < p.n; n++)
                if (saturates)
                    d[m][n] = d[m][n] > INT32_MAX ? INT32_MAX : d[m][n] < INT32_MIN ? INT32_MIN : d[m][n];
        fill_registers(&p);
        assert_int_equal(run_product(), CUDA_SUCCESS);
        check_product(&p);
    }
}

static double double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* f64: fused, in the order of k. Just one element of each matrix's row or column is random. */
static void doubles_are_fused(void **state)
{
    const struct product p = {"m8n8k4", 8, 8, 4, &f64, &f64, &f64, &f64, "", ""};

    (void)state;
    write_product(&p, "");
    load(p.shape);
    for (unsigned i = 0; i < LANES; i++)
        for (unsigned r = 0; r < 2; r++) {
            registers[1][i] = bits_of(1.0 + (double)(next_random() >> 12) * 0x1p-52);
            registers[2][i] = bits_of(1.0 + (double)(next_random() >> 12) * 0x1p-52);
            registers[3][r * LANES + i] = bits_of(-4.0 + (double)(next_random() >> 40) * 0x1p-24);
        }
    assert_int_equal(run_product(), CUDA_SUCCESS);
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned i = 0; i < 2; i++) {
            double sum = double_of(registers[3][i * LANES + lane]);

            for (unsigned k = 0; k < 4; k++) /* A: row = lane >> 2; B: column = lane % 4 * 2 + i */
                sum = fma(double_of(registers[1][(lane >> 2) * 4 + k]),
                          double_of(registers[2][(lane % 4 * 2 + i) * 4 + k]), sum);
            assert_true(bits_of(sum) == registers[0][i * LANES + lane]);
        }
}

/* Sums of 16-bit floats are kept in f32: what would be lost in f16 is still there at the end. */
static void halves_are_summed_in_f32(void **state)
{
    struct product p = {"m16n8k16", 16, 8, 16, &f32, &f16, &f16, &f32, "", ""};

    (void)state;
    write_product(&p, "");
    load(p.shape);
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    memset(c, 0, sizeof c);
    for (unsigned m = 0; m < p.m; m++)
        for (unsigned k = 0; k < p.k; k++)
            a[m][k] = k ? 1 : 2048; /* 2048 × 2048, then a one for each further k */
    for (unsigned k = 0; k < p.k; k++)
        for (unsigned n = 0; n < p.n; n++)
            b[k][n] = k ? 1 : 2048;
    multiply(&p);
    assert_int_equal(d[0][0], 2048 * 2048 + 15);
    fill_registers(&p);
    assert_int_equal(run_product(), CUDA_SUCCESS);
    check_product(&p);
    /* Infinity − infinity is the one NaN. */
    registers[1][0] = registers[1][0] >> 16 << 16 | 0x7c00; /* A: row 0, column 0 */
    registers[3][0] = 0xff800000;                           /* C: row 0, column 0 */
    assert_int_equal(run_product(), CUDA_SUCCESS);
    assert_int_equal((uint32_t)registers[0][0], 0x7fffffff);
    assert_int_equal((uint32_t)registers[0][1], 0x7f800000);
}

/* ---- wmma: matrices in memory, in both orders ---- */

static const struct product wmma_products[] = {
    {"m16n16k16", 16, 16, 16, &f32, &f16, &f16, &f32, "", ""},
    {"m16n16k16", 16, 16, 16, &f16, &f16, &f16, &f16, "", ""},
    {"m16n16k16", 16, 16, 16, &f16, &f16, &f16, &f32, "", ""},
    {"m32n8k16", 32, 8, 16, &f32, &f16, &f16, &f32, "", ""},
    {"m8n32k16", 8, 32, 16, &f32, &f16, &f16, &f16, "", ""},
    {"m16n16k16", 16, 16, 16, &f32, &bf16, &bf16, &f32, "", ""},
    {"m32n8k16", 32, 8, 16, &f32, &bf16, &bf16, &f32, "", ""},
    {"m8n32k16", 8, 32, 16, &f32, &bf16, &bf16, &f32, "", ""},
    {"m16n16k8", 16, 16, 8, &f32, &tf32, &tf32, &f32, "", ""},
    {"m8n8k4", 8, 8, 4, &f64, &f64, &f64, &f64, "", ".rn"},
    {"m16n16k16", 16, 16, 16, &s32, &s8, &s8, &s32, "", ""},
    {"m32n8k16", 32, 8, 16, &s32, &u8, &u8, &s32, "", ""},
    {"m8n32k16", 8, 32, 16, &s32, &s8, &s8, &s32, "", ".satfinite"},
    {"m8n8k32", 8, 8, 32, &s32, &s4, &s4, &s32, "", ""},
    {"m8n8k32", 8, 8, 32, &s32, &u4, &u4, &s32, "", ""},
    {"m8n8k128", 8, 8, 128, &s32, &b1, &b1, &s32, ".xor.popc", ".xor"},
};

enum { ROOM = 16384, PAD = 8 };

/* What a fragment has in registers: of f16, A and B have elements twice or more. */
static unsigned fragment_registers(const struct element *element, unsigned elements, bool is_factor)
{
    return is_factor && element == &f16 ? 8 : register_count(element, elements);
}

/* A matrix in memory: element (row, column) of `rows` × `columns`, in lines of row or column, PAD elements apart. */
static void store_element(char *memory, const struct element *element, bool is_column, unsigned stride, unsigned row,
                          unsigned column, int64_t number)
{
    unsigned at = is_column ? column * stride + row : row * stride + column;
    uint64_t bits = encode(element, number);

    if (element->bits >= 8)
        memcpy(memory + at * element->bits / 8, &bits, element->bits / 8);
    else
        memory[at * element->bits / 8] |= (char)(bits << (at * element->bits % 8));
}

static uint64_t load_element(const char *memory, const struct element *element, bool is_column, unsigned stride,
                             unsigned row, unsigned column)
{
    uint64_t bits = 0;

    memcpy(&bits, memory + (is_column ? column * stride + row : row * stride + column) * element->bits / 8,
           element->bits / 8);
    return bits;
}

struct orders {
    bool a, b, c, d;    /* columns lie together */
    unsigned stride[4]; /* of d, a, b, c */
};

static struct orders choose_orders(const struct product *p, unsigned which)
{
    bool is_small = p->a->bits < 8;
    struct orders orders = {!is_small && which & 1, is_small || which & 2, which & 4, which & 8, {0}};
    unsigned pad = is_small ? 128 : PAD;

    orders.stride[0] = (orders.d ? p->m : p->n) + pad;
    orders.stride[1] = (orders.a ? p->m : p->k) + pad;
    orders.stride[2] = (orders.b ? p->k : p->n) + pad;
    orders.stride[3] = (orders.c ? p->m : p->n) + pad;
    return orders;
}

static const char *order(bool is_column)
{
    return is_column ? "col" : "row";
}

static void write_wmma(const struct product *p, const struct orders *orders)
{
    unsigned counts[] = {fragment_registers(p->d, p->m * p->n, false), fragment_registers(p->a, p->m * p->k, true),
                         fragment_registers(p->b, p->k * p->n, true), fragment_registers(p->c, p->m * p->n, false)};
    const struct element *elements[] = {p->d, p->a, p->b, p->c};
    bool is_column[] = {orders->d, orders->a, orders->b, orders->c};

    used = 0;
    ADD(TENSOR_HEAD ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc) {\n"
                    ".reg .b32 %%s; .reg .b64 %%at<9>;\n");
    for (unsigned i = 0; i < 4; i++)
        ADD(".reg .b%u %%%c<9>; ld.param.u64 %%at%u, [p%c];\n", elements[i]->bits == 64 ? 64 : 32, "dabc"[i], i,
            "dabc"[i]);
    for (unsigned i = 1; i < 4; i++) {
        ADD("mov.u32 %%s, %u; wmma.load.%c.sync.aligned.%s.%s.global.%s ", orders->stride[i], "dabc"[i],
            order(is_column[i]), p -> shape, elements[i] -> name);
        add_vector("dabc"[i], counts[i]);
        ADD(", [%%at%u], %%s;\n", i);
    }
    ADD("wmma.mma%s.sync.aligned.%s.%s.%s.%s", p->more, order(orders->a), order(orders->b), p->shape, p->d->name);
    if (p->a != &f16)
        ADD(".%s.%s", p->a->name, p->b->name);
    ADD(".%s%s ", p->c->name, p->a == &b1 ? "" : p->last);
    for (unsigned i = 0; i < 4; i++) {
        add_vector("dabc"[i], counts[i]);
        ADD(i < 3 ? ", " : ";\n");
    }
    ADD("wmma.store.d.sync.aligned.%s.%s.global.%s [%%at0], ", order(orders->d), p->shape, p->d->name);
    add_vector('d', counts[0]);
    ADD(", %u;\nret; }\n", orders->stride[0]);
}

static void check_wmma(const struct product *p, unsigned which, char *const memory[4])
{
    struct orders orders = choose_orders(p, which);

    draw_matrices(p);
    multiply(p);
    for (unsigned i = 0; i < 4; i++)
        memset(memory[i], i ? 0 : 0x55, ROOM);
    for (unsigned m = 0; m < p->m; m++) {
        for (unsigned k = 0; k < p->k; k++)
            store_element(memory[1], p->a, orders.a, orders.stride[1], m, k, a[m][k]);
        for (unsigned n = 0; n < p->n; n++)
            store_element(memory[3], p->c, orders.c, orders.stride[3], m, n, c[m][n]);
    }
    for (unsigned k = 0; k < p->k; k++)
        for (unsigned n = 0; n < p->n; n++)
            store_element(memory[2], p->b, orders.b, orders.stride[2], k, n, b[k][n]);
    write_wmma(p, &orders);
    load(p->shape);
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, LANES, ADDRESS(memory[0]), ADDRESS(memory[1]), ADDRESS(memory[2]),
                                  ADDRESS(memory[3])),
                     CUDA_SUCCESS);
    for (unsigned m = 0; m < p->m; m++)
        for (unsigned n = 0; n < p->n; n++) {
            uint64_t got = load_element(memory[0], p->d, orders.d, orders.stride[0], m, n);

            if (got != encode(p->d, d[m][n]))
                fail_msg("%s.%s, orders %u: row %u, column %u: %llx, expected %lld", p->shape, p->a->name, which, m, n,
                         (unsigned long long)got, (long long)d[m][n]);
        }
    for (unsigned line = 0; line < (orders.d ? p->n : p->m); line++) /* between the lines nothing is written */
        assert_int_equal(memory[0][(line + 1) * orders.stride[0] * p->d->bits / 8 - 1], 0x55);
}

static void fragments_keep_their_elements(void **state)
{
    char *memory[4];
    uint64_t used_bytes = harness.used_bytes;

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        memory[i] = flyt_ptx_harness_alloc(&harness, ROOM);
    for (size_t i = 0; i < sizeof wmma_products / sizeof *wmma_products; i++)
        for (unsigned which = 0; which < 16; which++)
            if (wmma_products[i].a->bits >= 8 || which % 4 == 0)
                check_wmma(&wmma_products[i], which, memory);
    harness.used_bytes = used_bytes;
}

/* ---- ldmatrix, stmatrix, movmatrix ---- */

#define SHARED_KERNEL(body)                                                                                            \
    TENSOR_HEAD ".shared .align 128 .b8 shared[4096];\n"                                                               \
                ".visible .entry k(.param .u64 out, .param .u32 offset) {\n"                                           \
                ".reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<4>;\n"                                             \
                "ld.param.u64 %rd1, [out]; ld.param.u32 %r20, [offset]; mov.u32 %r1, %tid.x; mov.u32 %r2, shared;\n"   \
                "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;\n" body "ret; }\n"
/* Row i of matrix m is at 16 × (8 m + (3 i + 1) mod 8): lanes' addresses are in no order. Element: 64 m + 8 i + column.
 */
#define FILL                                                                                                           \
    "and.b32 %r3, %r1, 7; mul.lo.u32 %r3, %r3, 3; add.u32 %r3, %r3, 1; and.b32 %r3, %r3, 7; and.b32 %r4, %r1, 24;\n"   \
    "or.b32 %r3, %r3, %r4; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r2; shl.b32 %r5, %r1, 3; add.u32 %r6, %r5, 1;\n"    \
    "shl.b32 %r6, %r6, 16; or.b32 %r5, %r5, %r6; mov.u32 %r7, 0;\n"                                                    \
    "st.shared.u32 [%r3], %r5; add.u32 %r5, %r5, 0x20002; st.shared.u32 [%r3+4], %r5; add.u32 %r5, %r5, 0x20002;\n"    \
    "st.shared.u32 [%r3+8], %r5; add.u32 %r5, %r5, 0x20002; st.shared.u32 [%r3+12], %r5; bar.sync 0;\n"                \
    "add.u32 %r3, %r3, %r20;\n"
#define OUT_FOUR                                                                                                       \
    "st.global.u32 [%rd2], %r10; st.global.u32 [%rd2+128], %r11; st.global.u32 [%rd2+256], %r12;\n"                    \
    "st.global.u32 [%rd2+384], %r13;\n"

/* PTX ISA, ldmatrix: lane l has of a matrix row l / 4, columns 2 (l mod 4) and the next; turned, the reverse. */
static void check_four(const uint32_t *out, unsigned count, bool is_turned)
{
    for (unsigned m = 0; m < count; m++)
        for (unsigned lane = 0; lane < LANES; lane++)
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = lane / 4, column = lane % 4 * 2 + half;
                unsigned wanted = 64 * m + (is_turned ? 8 * column + row : 8 * row + column);

                assert_int_equal(out[m * LANES + lane] >> 16 * half & 0xffff, wanted);
            }
}

static void rows_become_fragments(void **state)
{
    static const char *const vectors[] = {"", "{%r10}", "{%r10,%r11}", "", "{%r10,%r11,%r12,%r13}"};
    uint32_t *out = flyt_ptx_harness_alloc(&harness, 4096);

    (void)state;
    for (unsigned count = 1; count <= 4; count *= 2)
        for (unsigned turned = 0; turned < 2; turned++)
            for (unsigned generic = 0; generic < 2; generic++) {
                used = 0;
                ADD("%s", SHARED_KERNEL(FILL "cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3;\nINSERT" OUT_FOUR));
                used = (unsigned)(strstr(text, "INSERT") - text);
                ADD("ldmatrix.sync.aligned.m8n8.x%u%s%s.b16 %s, [%s];\n%s", count, turned ? ".trans" : "",
                    generic ? "" : ".shared", vectors[count], generic ? "%rd3" : "%r3", OUT_FOUR "ret; }\n");
                load("ldmatrix");
                assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, LANES, ADDRESS(out), 0), CUDA_SUCCESS);
                check_four(out, count, turned);
            }
}

static void fragments_become_rows(void **state)
{
    uint32_t *out = flyt_ptx_harness_alloc(&harness, 4096);

    (void)state;
    for (unsigned turned = 0; turned < 2;
         turned++) { /* what ldmatrix took, stmatrix puts elsewhere, and it is the same */
        used = 0;
        ADD("%s", SHARED_KERNEL(FILL "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r3];\nINSERT"));
        used = (unsigned)(strstr(text, "INSERT") - text);
        ADD("stmatrix.sync.aligned.m8n8.x4%s.shared.b16 [%%r3+1024], {%%r10,%%r11,%%r12,%%r13};\n"
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%r10,%%r11,%%r12,%%r13}, [%%r3+1024];\n%sret; }\n",
            turned ? ".trans" : "", OUT_FOUR);
        load("stmatrix");
        assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, LANES, ADDRESS(out), 0), CUDA_SUCCESS);
        check_four(out, 4, turned);
    }
    used = 0;
    ADD("%s", SHARED_KERNEL(FILL "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r3];\n"
                                 "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10;\n" OUT_FOUR));
    load("movmatrix");
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, LANES, ADDRESS(out), 0), CUDA_SUCCESS);
    check_four(out, 1, true);
}

/* ---- what goes wrong ---- */

static CUresult run_shared(const char *kernel, uint64_t out, uint32_t offset)
{
    used = 0;
    ADD("%s", kernel);
    load("a fault");
    return FLYT_PTX_RUN(&harness, "k", 1, LANES, out, offset);
}

static void bad_addresses_are_faults(void **state)
{
    static const char load_rows[] =
        SHARED_KERNEL(FILL "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r3];\n" OUT_FOUR);
    static const char store_rows[] =
        SHARED_KERNEL(FILL "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r10,%r11};\n");
    static const char generic[] = SHARED_KERNEL("ldmatrix.sync.aligned.m8n8.x1.b16 {%r10}, [%rd1];\n" OUT_FOUR);
#define WMMA_AT(space, type, vector)                                                                                   \
    SHARED_KERNEL("cvt.u64.u32 %rd5, %r20; add.u64 %rd5, %rd5, %rd1; wmma.load.a.sync.aligned.row.m16n16k16" space     \
                  "." type " " vector ", [%rd5], %r20;\n")
    static const char fragment[] = WMMA_AT(".global", "f16", "{%r3,%r4,%r5,%r6,%r7,%r8,%r9,%r10}");
    static const char bytes[] = WMMA_AT("", "s8", "{%r3,%r4}");
    static const char store[] =
        SHARED_KERNEL("mov.u32 %r3, 1; mov.u32 %r4, %r3;\n"
                      "wmma.store.d.sync.aligned.row.m8n8k32.shared.s32 [%r20], {%r3,%r4}, 8;\n");
    uint64_t out = ADDRESS(flyt_ptx_harness_alloc(&harness, 1 << 16)),
             end = ADDRESS(harness.base) + FLYT_PTX_HARNESS_BYTES;

    (void)state;
    assert_int_equal(run_shared(load_rows, out, 0), CUDA_SUCCESS);
    assert_int_equal(run_shared(load_rows, out, 4), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_shared(load_rows, out, 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_shared(load_rows, out, 0xfffffff0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_shared(store_rows, out, 8), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_shared(store_rows, out, 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_shared(generic, out, 0), CUDA_ERROR_ILLEGAL_ADDRESS); /* not of shared memory */
    assert_int_equal(run_shared(fragment, out, 16), CUDA_SUCCESS);
    assert_int_equal(run_shared(fragment, out, 17), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_shared(fragment, end - 64, 32),
                     CUDA_ERROR_ILLEGAL_ADDRESS); /* the first line is still there */
    assert_int_equal(run_shared(fragment, 0, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_shared(fragment, out, 0xfffffff0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_shared(bytes, out, 17), CUDA_SUCCESS); /* bytes need no alignment */
    assert_int_equal(run_shared(store, out, 0), CUDA_SUCCESS);
    assert_int_equal(run_shared(store, out, 2), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_shared(store, out, 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Lanes that come later, in a loop of their own: the others wait for them. A sum stays in its registers over a loop. */
static void a_warp_comes_together(void **state)
{
    static const char kernel[] = SHARED_KERNEL(
        ".reg .f32 %f<9>; mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
        "mov.u32 %r3, 0x3c003c00; mov.u32 %r4, 0;\n" /* ones */
        "LOOP: and.b32 %r5, %r1, %r4; setp.eq.u32 %p1, %r5, 0; @%p1 bra MEET; mov.u32 %r6, %r1;\n"
        "LATE: sub.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra LATE;\n"
        "MEET: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r3,%r3,%r3,%r3}, {%r3,%r3},\n"
        "{%f1,%f2,%f3,%f4};\n"
        "add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 10; @%p3 bra LOOP;\n"
        "st.global.f32 [%rd2], %f1; st.global.f32 [%rd2+128], %f4;\n");
    float *out = flyt_ptx_harness_alloc(&harness, 4096);

    (void)state;
    assert_int_equal(run_shared(kernel, ADDRESS(out), 0), CUDA_SUCCESS);
    for (unsigned i = 0; i < 2 * LANES; i++)
        assert_true(out[i] == 160.0f);
    /* A warp of 16 threads, and lanes that have gone: undefined in PTX, but the launch ends. */
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, 16, ADDRESS(out), 0), CUDA_SUCCESS);
    assert_int_equal(run_shared(SHARED_KERNEL("setp.lt.u32 %p1, %r1, 5; @%p1 exit;\n"
                                              "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r1;\n"),
                                ADDRESS(out), 0),
                     CUDA_SUCCESS);
    assert_int_equal(run_shared(SHARED_KERNEL("setp.lt.u32 %p1, %r1, 5;\n"
                                              "@%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r1;\n bar.sync 0;\n"),
                                ADDRESS(out), 0),
                     CUDA_SUCCESS);
}

static void others_are_refused_by_name(void **state)
{
    static const char *const instructions[] = {
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r1,%r1,%r1,%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1}, "
        "{%r1,%r1,%r1,%r1,%r1,%r1,%r1,%r1};",
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
        "{%r1,%r1,%r1,%r1};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
        "{%r1,%r1,%r1,%r1};",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1}, "
        "{%r1,%r1,%r1,%r1}, %r1, 0;",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, "
        "{%r1,%r1}, {%r1,%r1,%r1,%r1};",
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%rd1];",
        "wmma.load.a.sync.aligned.row.m8n8k32.local.s4 {%r1}, [%rd1];",
        "wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r1,%r1,%r1,%r1}, [%rd1], %r1, %r1;",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r1];",
        "wgmma.fence.sync.aligned;",
    };

    (void)state;
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        char name[128];

        snprintf(name, sizeof name, "%.*s is not supported", (int)strcspn(instructions[i], " ;"), instructions[i]);
        used = 0;
        ADD("%s", SHARED_KERNEL("INSERT"));
        used = (unsigned)(strstr(text, "INSERT") - text);
        ADD("%s ret; }\n", instructions[i]);
        assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_ERROR_NOT_SUPPORTED);
        if (!strstr(harness.diag.text, name))
            fail_msg("%s: %s", name, harness.diag.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_documented_layouts),
        cmocka_unit_test(guards_hold),
        cmocka_unit_test(integers_wrap_or_saturate),
        cmocka_unit_test(doubles_are_fused),
        cmocka_unit_test(halves_are_summed_in_f32),
        cmocka_unit_test(fragments_keep_their_elements),
        cmocka_unit_test(rows_become_fragments),
        cmocka_unit_test(fragments_become_rows),
        cmocka_unit_test(bad_addresses_are_faults),
        cmocka_unit_test(a_warp_comes_together),
        cmocka_unit_test(others_are_refused_by_name),
    };

    return RUN_WITH_EACH_ISA(tests, set_up_registers);
}
