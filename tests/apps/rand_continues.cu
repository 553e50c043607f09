// Where a generator of cuRAND's host interface goes on: after n numbers, another one of the same settings whose offset is what
// was taken draws the same bits, whatever is drawn next. That holds of the types, orderings and distributions of the rules by
// which the client brings generators to another server. With the argument "all", or "all host" for generators on the host
// alone (which need no GPU), and a type's name: every case is printed, whether the rules have it (*) or not, and none fails.
// nvcc: -lcurand -I.
#include <curand.h>
#include <string.h>
#include <vector>
#include "check.h"
#include "cpu/library/curand_rules.h"

#define CHECK_RAND(call)                                                                                               \
    do {                                                                                                               \
        curandStatus_t status_ = (call);                                                                               \
        if (status_ != CURAND_STATUS_SUCCESS) {                                                                        \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum form { INTEGERS, LONG_INTEGERS, UNIFORM, UNIFORM_DOUBLE, NORMAL, NORMAL_DOUBLE, LOG_NORMAL, LOG_NORMAL_DOUBLE, FORMS };

static const char *const form_names[FORMS] = {"integers", "long integers", "uniform", "uniform double",
                                              "normal", "normal double", "log-normal", "log-normal double"};

static const struct { curandRngType_t type; const char *name; } types[] = {
    {CURAND_RNG_PSEUDO_XORWOW, "XORWOW"},
    {CURAND_RNG_PSEUDO_MRG32K3A, "MRG32K3A"},
    {CURAND_RNG_PSEUDO_PHILOX4_32_10, "PHILOX4_32_10"},
    {CURAND_RNG_PSEUDO_MTGP32, "MTGP32"},
    {CURAND_RNG_PSEUDO_MT19937, "MT19937"},
    {CURAND_RNG_QUASI_SOBOL32, "SOBOL32"},
    {CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, "SCRAMBLED_SOBOL32"},
    {CURAND_RNG_QUASI_SOBOL64, "SOBOL64"},
    {CURAND_RNG_QUASI_SCRAMBLED_SOBOL64, "SCRAMBLED_SOBOL64"},
};

// is_for_all: in "all" alone. cuRAND's manual says that BEST is DEFAULT, which a generator has by itself; no rule has DYNAMIC.
static const struct { int ordering; const char *name; bool is_for_all; } orderings[] = { // 0: none is set
    {0, "none", false},
    {CURAND_ORDERING_PSEUDO_BEST, "BEST", true},
    {CURAND_ORDERING_PSEUDO_DEFAULT, "DEFAULT", true},
    {CURAND_ORDERING_PSEUDO_SEEDED, "SEEDED", false},
    {CURAND_ORDERING_PSEUDO_LEGACY, "LEGACY", false},
    {CURAND_ORDERING_PSEUDO_DYNAMIC, "DYNAMIC", true},
    {CURAND_ORDERING_QUASI_DEFAULT, "QUASI_DEFAULT", false},
};

// What a test has of all cases: one of so many (a prime number: of every loop's), and these counts at most.
enum { BRIEF_STEP = 53, BRIEF_FIRST = 12288, BRIEF_NEXT = 1000 };

struct settings {
    curandRngType_t type;
    int ordering; // 0: none
    unsigned dimensions;
    bool is_host;
};

static bool is_quasi(curandRngType_t type)
{
    return type >= CURAND_RNG_QUASI_DEFAULT;
}

static size_t number_bytes(int form)
{
    return form == LONG_INTEGERS || form == UNIFORM_DOUBLE || form == NORMAL_DOUBLE || form == LOG_NORMAL_DOUBLE ? 8 : 4;
}

// Their first draw takes seconds of the processor.
static bool is_slow(const struct settings &s)
{
    return s.type == CURAND_RNG_PSEUDO_MT19937 ? s.is_host || s.ordering : s.type == CURAND_RNG_PSEUDO_MRG32K3A && s.is_host;
}

static bool is_known(const struct settings &s, int form)
{
    return flyt_rand_is_known(s.type, flyt_rand_order(is_quasi(s.type), s.ordering), 1u << form);
}

// ---- drawing ----

enum { MOST = 1 << 21 };
static char *device_numbers;
static std::vector<char> host_numbers(MOST * 8);

static curandStatus_t draw(curandGenerator_t g, const struct settings &s, int form, size_t n, std::vector<char> *numbers)
{
    void *to = s.is_host ? host_numbers.data() : device_numbers;
    curandStatus_t status = CURAND_STATUS_TYPE_ERROR;
    if (form == INTEGERS && !(is_quasi(s.type) && s.type >= CURAND_RNG_QUASI_SOBOL64))
        status = curandGenerate(g, (unsigned *)to, n);
    else if (form == LONG_INTEGERS && s.type >= CURAND_RNG_QUASI_SOBOL64)
        status = curandGenerateLongLong(g, (unsigned long long *)to, n);
    else if (form == UNIFORM)
        status = curandGenerateUniform(g, (float *)to, n);
    else if (form == UNIFORM_DOUBLE)
        status = curandGenerateUniformDouble(g, (double *)to, n);
    else if (form == NORMAL)
        status = curandGenerateNormal(g, (float *)to, n, 0, 1);
    else if (form == NORMAL_DOUBLE)
        status = curandGenerateNormalDouble(g, (double *)to, n, 0, 1);
    else if (form == LOG_NORMAL)
        status = curandGenerateLogNormal(g, (float *)to, n, 0, 1);
    else if (form == LOG_NORMAL_DOUBLE)
        status = curandGenerateLogNormalDouble(g, (double *)to, n, 0, 1);
    if (status || !numbers)
        return status;
    numbers->resize(n * number_bytes(form));
    if (s.is_host)
        memcpy(numbers->data(), to, numbers->size());
    else
        CHECK(cudaMemcpy(numbers->data(), to, numbers->size(), cudaMemcpyDeviceToHost));
    return status;
}

// A generator of these settings; NULL: there is none.
static curandGenerator_t make(const struct settings &s, unsigned long long seed)
{
    curandGenerator_t g;
    if (s.is_host ? curandCreateGeneratorHost(&g, s.type) : curandCreateGenerator(&g, s.type))
        return NULL;
    curandStatus_t status = CURAND_STATUS_SUCCESS;
    if (s.ordering)
        status = curandSetGeneratorOrdering(g, (curandOrdering_t)s.ordering);
    if (!status)
        status = is_quasi(s.type) ? curandSetQuasiRandomGeneratorDimensions(g, s.dimensions)
                                  : curandSetPseudoRandomGeneratorSeed(g, seed);
    if (!status)
        return g;
    CHECK_RAND(curandDestroyGenerator(g));
    return NULL;
}

// What a fresh generator of that offset draws; empty: it has none, or draws no such numbers.
static std::vector<char> from_offset(const struct settings &s, unsigned long long offset, int form, size_t m,
                                     unsigned long long seed = 1234)
{
    std::vector<char> numbers;
    curandGenerator_t g = make(s, seed);
    if (!g)
        return numbers;
    if ((offset && curandSetGeneratorOffset(g, offset)) || draw(g, s, form, m, &numbers)) // some have none
        numbers.clear();
    CHECK_RAND(curandDestroyGenerator(g));
    return numbers;
}

// What a generator draws behind times draws of n each; empty: it cannot.
static std::vector<char> behind(const struct settings &s, int form, size_t n, int times, int next, size_t m)
{
    std::vector<char> numbers;
    curandGenerator_t g = make(s, 1234);
    if (!g)
        return numbers;
    curandStatus_t status = CURAND_STATUS_SUCCESS;
    for (int i = 0; i < times && !status; i++)
        status = draw(g, s, form, n, NULL);
    if (status || draw(g, s, next, m, &numbers))
        numbers.clear();
    CHECK_RAND(curandDestroyGenerator(g));
    return numbers;
}

// ---- cases ----

static int failures;

// Which other offset would have done; for whoever reads the cases.
static void print_search(const struct settings &s, unsigned long long n, int times, int next, size_t m, const std::vector<char> &wanted)
{
    n = is_quasi(s.type) ? n / s.dimensions : n;
    for (int factor : {1, 2, 4})
        for (unsigned long long round : {1, 2, 4, 8, 4096, 8192, 65536}) {
            if (round > 2 && (n > 5000 || m != 1000 * s.dimensions || s.is_host))
                continue;
            if (from_offset(s, times * ((factor * n + round - 1) / round * round), next, m) != wanted)
                continue;
            printf(" (%d each does, up to a multiple of %llu)", factor, round);
            return;
        }
}

static void one_case(const char *names, const struct settings &s, int form, size_t n, int times, int next, size_t m, bool is_all)
{
    static unsigned count;
    if (!is_all && ++count % BRIEF_STEP)
        return;
    n *= s.dimensions;
    m *= s.dimensions;
    bool must = is_known(s, form);
    if (!is_all && !must)
        return;
    std::vector<char> wanted = behind(s, form, n, times, next, m);
    if (wanted.empty())
        return; // such a count or form is refused
    std::vector<char> seen = from_offset(s, times * (n / s.dimensions), next, m);
    bool is_same = seen == wanted;
    failures += must && !is_same;
    if (!is_all && is_same)
        return;
    printf("%s %s%s, %d x %zu then %s %zu: %s", names, must ? "*" : "", form_names[form], times, n, form_names[next], m,
           is_same ? "same" : seen.empty() ? "no offset" : "differs");
    if (!is_same && is_all && !seen.empty())
        print_search(s, n, times, next, m, wanted);
    printf("\n");
}

// How settings meet a sequence that has begun. A seed brings MT19937 to its beginning; generators with an offset are where their offset
// says, if it was set before they drew or again behind the seed. All else is for the reader alone.
static void test_settings_later(const char *names, const struct settings &s, bool is_all)
{
    enum { N = 4096 * 3, M = 1000 };
    const int form = s.type >= CURAND_RNG_QUASI_SOBOL64 ? LONG_INTEGERS : INTEGERS;
    size_t n = N * s.dimensions, m = M * s.dimensions;
    const std::vector<char> begin = from_offset(s, 0, form, m), later = from_offset(s, N, form, m);
    const std::vector<char> old = is_all ? from_offset(s, N, form, m, 99) : std::vector<char>(); // for the reader
    bool has_offset = !later.empty();
    for (int way = 0; way < 7; way++) {
        static const char *const ways[] = {"seed",       "offset 0",     "ordering", "dimensions",
                                           "an offset, then the seed, before the first draw", "seeds",
                                           "a seed and offset 0"};
        std::vector<char> numbers;
        bool must = has_offset ? is_known(s, form) && (way == 1 || way == 4 || way == 6)
                               : way == 0 && s.type == CURAND_RNG_PSEUDO_MT19937;
        if (!is_all && !must)
            continue;
        curandGenerator_t g = make(s, way == 0 || way == 4 || way == 6 ? 99 : 1234);
        if (!g)
            return;
        curandStatus_t status = way == 4 ? curandSetGeneratorOffset(g, N) : draw(g, s, form, n, NULL);
        if (!status && (way == 0 || way == 4 || way == 6))
            status = curandSetPseudoRandomGeneratorSeed(g, 1234);
        if (!status && (way == 1 || way == 6))
            status = curandSetGeneratorOffset(g, 0);
        if (!status && way == 2)
            status = curandSetGeneratorOrdering(g, (curandOrdering_t)(s.ordering ? s.ordering : CURAND_ORDERING_PSEUDO_DEFAULT));
        if (!status && way == 3)
            status = curandSetQuasiRandomGeneratorDimensions(g, s.dimensions);
        if (!status && way == 5)
            status = curandGenerateSeeds(g);
        if (!status)
            status = draw(g, s, form, m, &numbers);
        CHECK_RAND(curandDestroyGenerator(g));
        bool is_begun = numbers == begin, is_on = has_offset && numbers == later;
        bool is_right = status == CURAND_STATUS_TYPE_ERROR || (way == 1 || way == 6 || !has_offset ? is_begun : is_on);
        failures += must && !is_right;
        if (!is_all && is_right)
            continue;
        printf("%s setting %s%s: ", names, must ? "*" : "", ways[way]);
        if (status)
            printf("status %d\n", (int)status);
        else
            printf("%s\n", numbers == old ? "goes on with the old seed" : is_begun ? "at the beginning" : is_on ? "goes on" : "elsewhere");
    }
}

// Behind any history of draws that are known, of counts that are a little of everything.
static void test_histories(const char *names, const struct settings &s, bool is_all)
{
    unsigned long long chance = 1;
    auto next = [&](unsigned below) { return (unsigned)((chance = chance * 6364136223846793005 + 1442695040888963407) >> 33) % below; };
    for (int history = 0; history < (!is_all ? 1 : s.is_host ? 3 : 12); history++) {
        unsigned long long taken = 0;
        std::vector<char> numbers;
        curandGenerator_t g = make(s, 1234);
        int last = -1;
        for (int i = 0; i < 7; i++) {
            int form = next(FORMS);
            size_t n = 1 + next(1u << (2 + next(s.dimensions > 1 || s.is_host ? 11 : 17)));
            n += form >= NORMAL && form <= LOG_NORMAL_DOUBLE && !is_quasi(s.type) ? n % 2 : 0;
            if (!is_known(s, form) || draw(g, s, form, n * s.dimensions, &numbers))
                continue;
            last = form;
            taken += n;
        }
        CHECK_RAND(curandDestroyGenerator(g));
        if (last < 0)
            continue;
        size_t m = numbers.size() / number_bytes(last);
        bool is_same = from_offset(s, taken - m / s.dimensions, last, m) == numbers;
        failures += !is_same;
        if (is_all || !is_same)
            printf("%s history %d: %s\n", names, history, is_same ? "same" : "differs");
    }
}

static void test_settings(const char *names, const struct settings &s, bool is_all)
{
    static const size_t firsts[] = {1, 2, 3, 4, 6, 8, 100, 1000, 1001, 4096, 4098, 10002, 12288, 65536, 200004, 1048576};
    static const size_t nexts[] = {2, 1000, 30002, 300000};
    curandGenerator_t g = make(s, 1234);
    if (!g) {
        if (is_all)
            printf("%s: not supported\n", names);
        return;
    }
    CHECK_RAND(curandDestroyGenerator(g));
    if (is_all || s.dimensions == 1)
        test_settings_later(names, s, is_all);
    if (from_offset(s, 4, UNIFORM, 4 * s.dimensions).empty()) {
        if (is_all)
            printf("%s: no offset\n", names);
        return;
    }
    test_histories(names, s, is_all);
    size_t most = MOST / s.dimensions;
    for (int form = 0; form < FORMS; form++) {
        for (size_t n : firsts) // in all counts, with the same form
            for (size_t m : nexts)
                if ((is_all || (n <= BRIEF_FIRST && m <= BRIEF_NEXT)) && n <= most && m <= most && (!s.is_host || (n >= 100 && n < 12288 && m < 300000)))
                    one_case(names, s, form, n, 1, form, m, is_all);
        for (int next = 0; next < FORMS; next++) // in some counts, with all forms
            for (size_t n : {2, 4, 1000, 4096, 10002})
                for (int times : {1, 3})
                    if ((is_all || n == 1000 || times == 1) && n <= most && 4098 <= most && (!s.is_host || n == 1000))
                        one_case(names, s, form, n, times, next, 4098, is_all);
    }
}

int main(int argc, char **argv)
{
    bool is_all = argc > 1 && !strcmp(argv[1], "all");
    bool is_host_alone = is_all && argc > 2 && !strcmp(argv[2], "host"); // needs no GPU
    if (!is_host_alone)
        CHECK(cudaMalloc(&device_numbers, MOST * 8));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (bool is_host : {false, true}) {
        if (is_all && is_host_alone != is_host)
            continue;
        for (const auto &type : types) {
            if (is_all && argc > 3 && strcmp(argv[3], type.name))
                continue;
            for (const auto &ordering : orderings)
                for (unsigned dimensions : {1, 3, 50}) {
                    char names[100];
                    bool is_for_quasi = ordering.ordering == CURAND_ORDERING_QUASI_DEFAULT;
                    if (!is_all && (dimensions > 3 || ordering.is_for_all))
                        continue;
                    if (is_quasi(type.type) ? ordering.ordering && !is_for_quasi : is_for_quasi || dimensions > 1)
                        continue;
                    snprintf(names, sizeof names, "%s%s %s %u", is_host ? "host " : "", type.name, ordering.name, dimensions);
                    const struct settings s = {type.type, ordering.ordering, dimensions, is_host};
                    if (is_all || !is_slow(s))
                        test_settings(names, s, is_all);
                }
        }
    }
    if (!is_host_alone)
        CHECK(cudaDeviceSynchronize());
    EXPECT(!failures, "%d cases of the table differ", failures);
    return 0;
}
