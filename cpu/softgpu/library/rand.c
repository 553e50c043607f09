/*
 * cuRAND's host API. A number depends on the generator's type, its seed and its position alone: all pseudo-random
 * generators are Philox 4x32-10, whose counter is the position, and which need no state. That of
 * CURAND_RNG_PSEUDO_PHILOX4_32_10 has the key and the counter of curand_init(seed, 0, offset); the others differ in the
 * counter's last word, and their numbers are not NVIDIA's. Quasi-random ones are Sobol's, with the direction numbers of
 * Joe and Kuo. Distributions are made of those as curand_kernel.h does.
 */
#include <cuda.h>
#include <curand.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "cpu/softgpu/driver/work.h"

#define FLYT_SOFT_CURAND __attribute__((visibility("default"))) curandStatus_t

enum { PHILOX_ROUNDS = 10, SOBOL_DIMENSIONS = 21, TABLE_DIMENSIONS = 20000, SOBOL_BITS = 64, POISSON_EXACT_MAX = 700 };

struct curandGenerator_st {
    curandRngType_t type;
    bool is_host, is_quasi;
    unsigned bits; /* of one number: 32, or 64 of SOBOL64 */
    uint64_t seed, position;
    uint32_t dimensions;
    CUstream stream;
};

/* ---- numbers ---- */

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_numbers[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};

    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};

        for (int j = 0; j < 4; j++)
            c[j] = next[j];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int j = 0; j < 4; j++)
        ret_numbers[j] = c[j];
}

/* Joe and Kuo's primitive polynomials and first direction numbers, from the second dimension on. */
static const struct {
    unsigned degree, coefficients, first[7];
} sobol_table[SOBOL_DIMENSIONS - 1] = {
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
};

/* Direction numbers of a dimension, the first with its highest bit alone. */
static void sobol_directions(uint32_t dimension, uint64_t ret_directions[SOBOL_BITS])
{
    unsigned degree = dimension ? sobol_table[dimension - 1].degree : SOBOL_BITS;

    for (unsigned i = 0; i < SOBOL_BITS; i++) {
        if (i < degree) {
            ret_directions[i] = (uint64_t)(dimension ? sobol_table[dimension - 1].first[i] : 1) << (SOBOL_BITS - 1 - i);
            continue;
        }
        ret_directions[i] = ret_directions[i - degree] ^ ret_directions[i - degree] >> degree;
        for (unsigned k = 1; k < degree; k++)
            if (sobol_table[dimension - 1].coefficients >> (degree - 1 - k) & 1)
                ret_directions[i] ^= ret_directions[i - k];
    }
}

/* Where numbers come from, in order; quasi-random ones dimension by dimension. */
struct source {
    const struct curandGenerator_st *generator;
    uint64_t position; /* of the next one, within its dimension */
    uint64_t count;    /* of numbers in each dimension */
    uint32_t dimension;
    uint64_t directions[SOBOL_BITS];
    uint32_t numbers[4];
    uint64_t numbers_of; /* which counter they belong to */
    bool has_numbers;
};

static void source_begin(struct source *source, const struct curandGenerator_st *generator, uint64_t count)
{
    *source = (struct source){.generator = generator, .position = generator->position};
    source->count = generator->is_quasi ? count / generator->dimensions : count;
    if (generator->is_quasi)
        sobol_directions(0, source->directions);
}

static uint64_t sobol_next(struct source *source)
{
    uint64_t gray, number = 0;

    if (source->position == source->generator->position + source->count) {
        source->position = source->generator->position;
        sobol_directions(++source->dimension, source->directions);
    }
    gray = source->position ^ source->position >> 1;
    source->position++;
    for (unsigned i = 0; gray; i++, gray >>= 1)
        if (gray & 1)
            number ^= source->directions[i];
    return number; /* the upper half of it where a number has 32 bits */
}

static uint32_t next_word(struct source *source)
{
    uint64_t at = source->position / 4;
    const struct curandGenerator_st *g = source->generator;

    if (g->is_quasi)
        return (uint32_t)(sobol_next(source) >> 32);
    if (!source->has_numbers || source->numbers_of != at) {
        const uint32_t key[2] = {(uint32_t)g->seed, (uint32_t)(g->seed >> 32)};
        const uint32_t tag = g->type == CURAND_RNG_PSEUDO_PHILOX4_32_10 ? 0 : 0x80000000u | (uint32_t)g->type;
        const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, tag};

        philox(counter, key, source->numbers);
        source->numbers_of = at;
        source->has_numbers = true;
    }
    return source->numbers[source->position++ % 4];
}

/* Above 0, up to 1. */
static float next_uniform(struct source *source)
{
    if (source->generator->bits == 64)
        return (float)((double)(sobol_next(source) >> 11) * 0x1p-53 + 0x1p-54);
    return (float)next_word(source) * 0x1p-32f + 0x1p-33f;
}

static double next_uniform_double(struct source *source)
{
    uint64_t x, y;

    if (source->generator->bits == 64)
        return (double)(sobol_next(source) >> 11) * 0x1p-53 + 0x1p-54;
    if (source->generator->is_quasi || source->generator->type == CURAND_RNG_PSEUDO_MRG32K3A)
        return (double)next_word(source) * 0x1p-32 + 0x1p-33;
    x = next_word(source);
    y = next_word(source);
    return (double)(x ^ y << 21) * 0x1p-53 + 0x1p-54;
}

/* The number below which a normal variable is with probability p: a rational start, and two of Halley's steps. */
static double normal_below(double p)
{
    double t = sqrt(-2 * log(p < 0.5 ? p : 1 - p)), x;

    x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    x = p < 0.5 ? -x : x;
    for (int i = 0; i < 2; i++) {
        double error = 0.5 * erfc(-x * M_SQRT1_2) - p, step = error * sqrt(2 * M_PI) * exp(x * x / 2);

        x -= step / (1 + x * step / 2);
    }
    return x;
}

/* Two at a time, by Box and Muller. */
static void next_normals(struct source *source, bool is_double, double ret_two[2])
{
    double u, v, length;

    u = is_double ? next_uniform_double(source) : (double)next_uniform(source);
    v = 2 * M_PI * (is_double ? next_uniform_double(source) : (double)next_uniform(source));
    length = sqrt(-2 * log(u));
    ret_two[0] = length * sin(v);
    ret_two[1] = length * cos(v);
}

/* By the inverse of the distribution; where that takes long, by that of the normal one. */
static uint32_t next_poisson(struct source *source, double lambda)
{
    double u = (double)next_uniform(source), p = exp(-lambda), sum = p, x;
    uint32_t k = 0;

    if (lambda > POISSON_EXACT_MAX) {
        x = floor(lambda + sqrt(lambda) * normal_below(fmin(u, 1 - 0x1p-33)) + 0.5);
        return x < 0 ? 0 : x > UINT32_MAX ? UINT32_MAX : (uint32_t)x;
    }
    while (u > sum && k < 8 * POISSON_EXACT_MAX) {
        p *= lambda / ++k;
        sum += p;
    }
    return k;
}

/* ---- work ---- */

enum form { WORDS, LONG_WORDS, UNIFORM, UNIFORM_DOUBLE, NORMAL, NORMAL_DOUBLE, LOG_NORMAL, LOG_NORMAL_DOUBLE, POISSON };

struct generate {
    struct curandGenerator_st generator; /* as it was at the call */
    enum form form;
    void *output;
    uint64_t count;
    double mean, deviation; /* mean: lambda of Poisson's */
};

static unsigned number_bytes(enum form form)
{
    return form == LONG_WORDS || form == UNIFORM_DOUBLE || form == NORMAL_DOUBLE || form == LOG_NORMAL_DOUBLE ? 8 : 4;
}

static void generate_normals(const struct generate *call, struct source *source)
{
    bool is_double = number_bytes(call->form) == 8,
         is_log = call->form == LOG_NORMAL || call->form == LOG_NORMAL_DOUBLE;
    double two[2] = {0, 0};

    for (uint64_t i = 0; i < call->count; i++) {
        double x;

        if (source->generator->is_quasi)
            two[i % 2] = normal_below(is_double ? next_uniform_double(source) : (double)next_uniform(source));
        else if (i % 2 == 0)
            next_normals(source, is_double, two);
        x = call->mean + call->deviation * two[i % 2];
        x = is_log ? exp(x) : x;
        if (is_double)
            ((double *)call->output)[i] = x;
        else
            ((float *)call->output)[i] = (float)x;
    }
}

static void generate(const struct generate *call)
{
    struct source source;

    source_begin(&source, &call->generator, call->count);
    switch (call->form) {
    case WORDS:
        for (uint64_t i = 0; i < call->count; i++)
            ((uint32_t *)call->output)[i] = next_word(&source);
        break;
    case LONG_WORDS:
        for (uint64_t i = 0; i < call->count; i++)
            ((uint64_t *)call->output)[i] = sobol_next(&source);
        break;
    case UNIFORM:
        for (uint64_t i = 0; i < call->count; i++)
            ((float *)call->output)[i] = next_uniform(&source);
        break;
    case UNIFORM_DOUBLE:
        for (uint64_t i = 0; i < call->count; i++)
            ((double *)call->output)[i] = next_uniform_double(&source);
        break;
    case POISSON:
        for (uint64_t i = 0; i < call->count; i++)
            ((uint32_t *)call->output)[i] = next_poisson(&source, call->mean);
        break;
    default:
        generate_normals(call, &source);
    }
}

static CUresult run(void *record)
{
    const struct generate *call = record;

    if (!flyt_soft_work_reaches(call->output, call->count * number_bytes(call->form)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    generate(call);
    return CUDA_SUCCESS;
}

/* How far the position goes: in each dimension, or in words. */
static uint64_t advance(const struct generate *call)
{
    if (call->generator.is_quasi)
        return call->count / call->generator.dimensions;
    if (call->generator.type == CURAND_RNG_PSEUDO_MRG32K3A)
        return call->count;
    return call->count * (number_bytes(call->form) / 4);
}

static curandStatus_t push(curandGenerator_t generator, enum form form, void *output, size_t count, double mean,
                           double deviation)
{
    struct generate call = {.form = form, .output = output, .count = count, .mean = mean, .deviation = deviation};

    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    if (count && !output)
        return CURAND_STATUS_OUT_OF_RANGE;
    if (generator->is_quasi ? count % generator->dimensions != 0
                            : form >= NORMAL && form <= LOG_NORMAL_DOUBLE && count % 2 != 0 && !generator->is_host)
        return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    call.generator = *generator;
    if (count == 0)
        return CURAND_STATUS_SUCCESS;
    if (generator->is_host)
        generate(&call);
    else if (flyt_soft_work_push(generator->stream, run, NULL, &call, sizeof(call)) != CUDA_SUCCESS)
        return CURAND_STATUS_LAUNCH_FAILURE;
    generator->position += advance(&call);
    return CURAND_STATUS_SUCCESS;
}

/* ---- generators ---- */

static curandStatus_t create(curandGenerator_t *generator, curandRngType_t type, bool is_host)
{
    CUcontext ctx = NULL;

    if (type == CURAND_RNG_PSEUDO_DEFAULT)
        type = CURAND_RNG_PSEUDO_XORWOW;
    if (type == CURAND_RNG_QUASI_DEFAULT)
        type = CURAND_RNG_QUASI_SOBOL32;
    switch (type) {
    case CURAND_RNG_PSEUDO_XORWOW:
    case CURAND_RNG_PSEUDO_MRG32K3A:
    case CURAND_RNG_PSEUDO_MTGP32:
    case CURAND_RNG_PSEUDO_MT19937:
    case CURAND_RNG_PSEUDO_PHILOX4_32_10:
    case CURAND_RNG_QUASI_SOBOL32:
    case CURAND_RNG_QUASI_SOBOL64:
        break;
    default:
        return CURAND_STATUS_TYPE_ERROR;
    }
    if (!generator)
        return CURAND_STATUS_OUT_OF_RANGE;
    if (!is_host && (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx))
        return CURAND_STATUS_INITIALIZATION_FAILED;
    *generator = calloc(1, sizeof(**generator));
    if (!*generator)
        return CURAND_STATUS_ALLOCATION_FAILED;
    **generator = (struct curandGenerator_st){
        .type = type,
        .is_host = is_host,
        .is_quasi = type >= CURAND_RNG_QUASI_DEFAULT,
        .bits = type == CURAND_RNG_QUASI_SOBOL64 ? 64 : 32,
        .dimensions = 1,
    };
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandCreateGenerator(curandGenerator_t *generator, curandRngType_t rng_type)
{
    return create(generator, rng_type, false);
}

FLYT_SOFT_CURAND curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t rng_type)
{
    return create(generator, rng_type, true);
}

FLYT_SOFT_CURAND curandDestroyGenerator(curandGenerator_t generator)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    free(generator); /* work has its own copy */
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandGetVersion(int *version)
{
    if (!version)
        return CURAND_STATUS_OUT_OF_RANGE;
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CURAND_VER_MAJOR, CURAND_VER_MINOR, CURAND_VER_PATCH};

    if (!value || (unsigned)type > PATCH_LEVEL)
        return CURAND_STATUS_OUT_OF_RANGE;
    *value = values[type];
    return CURAND_STATUS_SUCCESS;
}

static bool has_offset(const struct curandGenerator_st *generator)
{
    return generator->type != CURAND_RNG_PSEUDO_MTGP32 && generator->type != CURAND_RNG_PSEUDO_MT19937;
}

FLYT_SOFT_CURAND curandSetStream(curandGenerator_t generator, cudaStream_t stream)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    generator->stream = stream;
    return CURAND_STATUS_SUCCESS;
}

/* A seed takes a generator that has no offset to its beginning, and no other. */
FLYT_SOFT_CURAND curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    if (generator->is_quasi)
        return CURAND_STATUS_TYPE_ERROR;
    generator->seed = seed;
    if (!has_offset(generator))
        generator->position = 0;
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    if (!has_offset(generator))
        return CURAND_STATUS_TYPE_ERROR;
    generator->position = offset;
    return CURAND_STATUS_SUCCESS;
}

/* There is one order, that of positions. */
FLYT_SOFT_CURAND curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t order)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    if (generator->is_quasi)
        return order == CURAND_ORDERING_QUASI_DEFAULT ? CURAND_STATUS_SUCCESS : CURAND_STATUS_OUT_OF_RANGE;
    return order >= CURAND_ORDERING_PSEUDO_BEST && order <= CURAND_ORDERING_PSEUDO_DYNAMIC ? CURAND_STATUS_SUCCESS
                                                                                           : CURAND_STATUS_OUT_OF_RANGE;
}

FLYT_SOFT_CURAND curandSetQuasiRandomGeneratorDimensions(curandGenerator_t generator, unsigned int num_dimensions)
{
    if (!generator)
        return CURAND_STATUS_NOT_INITIALIZED;
    if (!generator->is_quasi)
        return CURAND_STATUS_TYPE_ERROR;
    if (num_dimensions < 1 || num_dimensions > SOBOL_DIMENSIONS)
        return CURAND_STATUS_OUT_OF_RANGE;
    generator->dimensions = num_dimensions;
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandGenerateSeeds(curandGenerator_t generator)
{
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

/* ---- tables ---- */

/* x^exponent modulo a polynomial of a degree below 32: bit i is the coefficient of x^i. */
static uint32_t polynomial_power(uint32_t polynomial, unsigned degree, uint32_t exponent)
{
    uint32_t power = 1;

    for (int bit = 31; bit >= 0; bit--) {
        uint32_t square = 0;

        for (unsigned i = degree; i-- > 0;) {
            square <<= 1;
            square ^= square >> degree & 1 ? polynomial : 0;
            square ^= power >> i & 1 ? power : 0;
        }
        power = square;
        if (exponent >> bit & 1) {
            power <<= 1;
            power ^= power >> degree & 1 ? polynomial : 0;
        }
    }
    return power;
}

/* Whether x has all of its 2^degree - 1 powers. */
static bool is_primitive(uint32_t polynomial, unsigned degree)
{
    uint32_t order = (1u << degree) - 1, rest = order;

    if (polynomial_power(polynomial, degree, order) != 1)
        return false;
    for (uint32_t prime = 2; rest > 1; prime++) {
        if (prime * prime > rest)
            prime = rest;
        if (rest % prime)
            continue;
        if (order > prime && polynomial_power(polynomial, degree, order / prime) == 1)
            return false;
        while (rest % prime == 0)
            rest /= prime;
    }
    return true;
}

/* The direction numbers of a polynomial whose first ones are any odd numbers: as good as the table's, but not its. */
static void any_directions(uint32_t dimension, uint32_t polynomial, unsigned degree,
                           uint64_t ret_directions[SOBOL_BITS])
{
    const uint32_t key[2] = {dimension, degree};

    for (unsigned i = 0; i < SOBOL_BITS; i++) {
        if (i < degree) {
            const uint32_t counter[4] = {i};
            uint32_t numbers[4];

            philox(counter, key, numbers);
            ret_directions[i] = (uint64_t)((numbers[0] & ((2u << i) - 1)) | 1) << (SOBOL_BITS - 1 - i);
            continue;
        }
        ret_directions[i] = ret_directions[i - degree] ^ ret_directions[i - degree] >> degree;
        for (unsigned k = 1; k < degree; k++)
            if (polynomial >> (degree - k) & 1)
                ret_directions[i] ^= ret_directions[i - k];
    }
}

static struct {
    pthread_once_t once;
    uint32_t vectors_32[TABLE_DIMENSIONS][32];
    uint64_t vectors_64[TABLE_DIMENSIONS][SOBOL_BITS];
} tables = {.once = PTHREAD_ONCE_INIT};

static void make_tables(void)
{
    unsigned degree = 8, dimension = 0;

    for (; dimension < SOBOL_DIMENSIONS; dimension++)
        sobol_directions(dimension, tables.vectors_64[dimension]);
    for (uint32_t polynomial = (1u << degree) + 1; dimension < TABLE_DIMENSIONS; polynomial += 2) {
        degree += polynomial >> (degree + 1);
        if (is_primitive(polynomial, degree)) {
            any_directions(dimension, polynomial, degree, tables.vectors_64[dimension]);
            dimension++;
        }
    }
    for (dimension = 0; dimension < TABLE_DIMENSIONS; dimension++)
        for (unsigned i = 0; i < 32; i++)
            tables.vectors_32[dimension][i] = (uint32_t)(tables.vectors_64[dimension][i] >> 32);
}

FLYT_SOFT_CURAND curandGetDirectionVectors32(curandDirectionVectors32_t *vectors[], curandDirectionVectorSet_t set)
{
    if (!vectors || set != CURAND_DIRECTION_VECTORS_32_JOEKUO6)
        return set == CURAND_SCRAMBLED_DIRECTION_VECTORS_32_JOEKUO6 ? CURAND_STATUS_TYPE_ERROR
                                                                    : CURAND_STATUS_OUT_OF_RANGE;
    pthread_once(&tables.once, make_tables);
    *vectors = tables.vectors_32;
    return CURAND_STATUS_SUCCESS;
}

FLYT_SOFT_CURAND curandGetDirectionVectors64(curandDirectionVectors64_t *vectors[], curandDirectionVectorSet_t set)
{
    if (!vectors || set != CURAND_DIRECTION_VECTORS_64_JOEKUO6)
        return set == CURAND_SCRAMBLED_DIRECTION_VECTORS_64_JOEKUO6 ? CURAND_STATUS_TYPE_ERROR
                                                                    : CURAND_STATUS_OUT_OF_RANGE;
    pthread_once(&tables.once, make_tables);
    *vectors = (curandDirectionVectors64_t *)tables.vectors_64;
    return CURAND_STATUS_SUCCESS;
}

/* ---- generation ---- */

FLYT_SOFT_CURAND curandGenerate(curandGenerator_t generator, unsigned int *outputPtr, size_t num)
{
    if (generator && generator->bits != 32)
        return CURAND_STATUS_TYPE_ERROR;
    return push(generator, WORDS, outputPtr, num, 0, 0);
}

FLYT_SOFT_CURAND curandGenerateLongLong(curandGenerator_t generator, unsigned long long *outputPtr, size_t num)
{
    if (generator && generator->bits != 64)
        return CURAND_STATUS_TYPE_ERROR;
    return push(generator, LONG_WORDS, outputPtr, num, 0, 0);
}

FLYT_SOFT_CURAND curandGenerateUniform(curandGenerator_t generator, float *outputPtr, size_t num)
{
    return push(generator, UNIFORM, outputPtr, num, 0, 0);
}

FLYT_SOFT_CURAND curandGenerateUniformDouble(curandGenerator_t generator, double *outputPtr, size_t num)
{
    return push(generator, UNIFORM_DOUBLE, outputPtr, num, 0, 0);
}

FLYT_SOFT_CURAND curandGenerateNormal(curandGenerator_t generator, float *outputPtr, size_t n, float mean, float stddev)
{
    return push(generator, NORMAL, outputPtr, n, mean, stddev);
}

FLYT_SOFT_CURAND curandGenerateNormalDouble(curandGenerator_t generator, double *outputPtr, size_t n, double mean,
                                            double stddev)
{
    return push(generator, NORMAL_DOUBLE, outputPtr, n, mean, stddev);
}

FLYT_SOFT_CURAND curandGenerateLogNormal(curandGenerator_t generator, float *outputPtr, size_t n, float mean,
                                         float stddev)
{
    return push(generator, LOG_NORMAL, outputPtr, n, mean, stddev);
}

FLYT_SOFT_CURAND curandGenerateLogNormalDouble(curandGenerator_t generator, double *outputPtr, size_t n, double mean,
                                               double stddev)
{
    return push(generator, LOG_NORMAL_DOUBLE, outputPtr, n, mean, stddev);
}

FLYT_SOFT_CURAND curandGeneratePoisson(curandGenerator_t generator, unsigned int *outputPtr, size_t n, double lambda)
{
    if (generator && generator->is_quasi)
        return CURAND_STATUS_TYPE_ERROR;
    return lambda > 0 && lambda <= 4e8 ? push(generator, POISSON, outputPtr, n, lambda, 0) : CURAND_STATUS_OUT_OF_RANGE;
}

FLYT_SOFT_CURAND curandGeneratePoissonMethod(curandGenerator_t generator, unsigned int *outputPtr, size_t n,
                                             double lambda, curandMethod_t method)
{
    return curandGeneratePoisson(generator, outputPtr, n, lambda);
}
