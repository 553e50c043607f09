/* Where cuRAND's generators are in their sequences. What is not known to be exact stands against moving. */
#include <string.h>

#include "cpu/client/library/library_call.h"
#include "cpu/library/curand_rules.h"
#include "flyt_lib_curand.h"

extern flyt_lib_step_fn flyt_lib_step_of_curand;

/* What is noted of a generator. */
enum note {
    ORDERING,
    DIMENSIONS,
    HAS_DRAWN /* since it was brought to a place, */,
    IS_BEGUN /* or that is no beginning */
};

/* A generator begins where it was made, and its default types are these. */
static int type_of(const void *made)
{
    const struct flyt_args_curandCreateGenerator *sent = made;
    return sent->rng_type == 100 ? FLYT_RAND_XORWOW : sent->rng_type == 200 ? FLYT_RAND_SOBOL32 : sent->rng_type;
}

/* The calls that draw have what they draw how often at their arguments' beginning, or behind a mean and a deviation. */
#define DRAWS(symbol, count, form_)                                                                                    \
    {                                                                                                                  \
        .name = #symbol, .form = form_, .at = offsetof(struct flyt_args_##symbol, count)                               \
    }
static const struct {
    const char *name;
    unsigned form;
    size_t at;
} draws[] = {
    DRAWS(curandGenerate, num, FLYT_RAND_INTEGERS),
    DRAWS(curandGenerateLongLong, num, FLYT_RAND_LONG_INTEGERS),
    DRAWS(curandGenerateUniform, num, FLYT_RAND_UNIFORM),
    DRAWS(curandGenerateUniformDouble, num, FLYT_RAND_UNIFORM_DOUBLE),
    DRAWS(curandGenerateNormal, n, FLYT_RAND_NORMAL),
    DRAWS(curandGenerateNormalDouble, n, FLYT_RAND_NORMAL_DOUBLE),
    DRAWS(curandGenerateLogNormal, n, FLYT_RAND_LOG_NORMAL),
    DRAWS(curandGenerateLogNormalDouble, n, FLYT_RAND_LOG_NORMAL_DOUBLE),
};

static const struct flyt_lib_step loses = {FLYT_LIB_LOSES, 0}, stays = {FLYT_LIB_TAKES, 0};

/* Poisson's numbers take as many as they happen to, and are none of these. */
static struct flyt_lib_step draw(int type, uint32_t notes[FLYT_LIB_NOTES], const char *name,
                                 const unsigned char *arguments)
{
    unsigned dimensions = notes[DIMENSIONS] ? notes[DIMENSIONS] : 1;
    notes[HAS_DRAWN] = notes[IS_BEGUN] = 1;
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        size_t count;
        if (strcmp(draws[i].name, name))
            continue;
        memcpy(&count, arguments + draws[i].at, sizeof count);
        unsigned order = flyt_rand_order(type >= FLYT_RAND_SOBOL32, notes[ORDERING]);
        if (flyt_rand_is_known(type, order, draws[i].form) && count % dimensions == 0)
            return (struct flyt_lib_step){FLYT_LIB_TAKES, count / dimensions};
    }
    return loses;
}

/* A setting of how numbers lie says where the next one is only of a generator from which was not drawn. */
static struct flyt_lib_step set(uint32_t notes[FLYT_LIB_NOTES], enum note note, uint32_t value)
{
    notes[note] = value;
    return notes[HAS_DRAWN] ? loses : stays;
}

static struct flyt_lib_step place(uint32_t notes[FLYT_LIB_NOTES], uint64_t offset)
{
    notes[HAS_DRAWN] = 0;
    notes[IS_BEGUN] = offset != 0;
    return (struct flyt_lib_step){FLYT_LIB_PLACES, offset};
}

/* A new seed brings MT19937 to its beginning; others go on, some of them nobody knows where. */
static struct flyt_lib_step seed(int type, uint32_t notes[FLYT_LIB_NOTES])
{
    if (type == FLYT_RAND_MT19937)
        return place(notes, 0);
    return notes[HAS_DRAWN] ? loses : stays;
}

struct flyt_lib_step flyt_lib_step_of_curand(const void *made, uint32_t notes[FLYT_LIB_NOTES], const char *name,
                                             const void *arguments)
{
    int type = type_of(made);
    if (!strcmp(name, "curandSetGeneratorOffset"))
        return place(notes, ((const struct flyt_args_curandSetGeneratorOffset *)arguments)->offset);
    if (!strcmp(name, "curandSetPseudoRandomGeneratorSeed"))
        return seed(type, notes);
    if (!strcmp(name, "curandGenerateSeeds"))
        return notes[IS_BEGUN] ? loses : stays;
    if (!strcmp(name, "curandSetGeneratorOrdering"))
        return set(notes, ORDERING, (uint32_t)((const struct flyt_args_curandSetGeneratorOrdering *)arguments)->order);
    if (!strcmp(name, "curandSetQuasiRandomGeneratorDimensions"))
        return set(notes, DIMENSIONS,
                   ((const struct flyt_args_curandSetQuasiRandomGeneratorDimensions *)arguments)->num_dimensions);
    return draw(type, notes, name, arguments);
}
