#include "cpu/softgpu/library/provider.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A file of the system's, the function that it is asked for, and what is done without it. */
struct file {
    const char *name, *whose;
    void *loaded;
};

static struct {
    pthread_once_t blas_once, fftw_once;
    struct file blas, fftw[2];
    flyt_soft_fn routines[FLYT_SOFT_ROUTINE_COUNT][FLYT_SOFT_LETTERS];
} provider = {
    .blas_once = PTHREAD_ONCE_INIT,
    .fftw_once = PTHREAD_ONCE_INIT,
    .blas = {"libopenblas.so.0", "cuBLAS, cuDNN and cuSOLVER", NULL},
    .fftw = {{"libfftw3f.so.3", "cuFFT", NULL}, {"libfftw3.so.3", "cuFFT", NULL}},
};

static void load(struct file *file)
{
    file->loaded = dlopen(file->name, RTLD_NOW | RTLD_LOCAL);
    if (!file->loaded)
        fprintf(stderr, "flyt: %s is missing: %s of the software GPU do nothing without it\n", file->name, file->whose);
}

static void load_blas(void)
{
    static const char *const names[] = {
#define FLYT_SOFT_ROUTINE(upper_, lower_) #lower_,
        FLYT_SOFT_ROUTINES(FLYT_SOFT_ROUTINE)
#undef FLYT_SOFT_ROUTINE
    };
    void (*set_threads)(int);

    load(&provider.blas);
    if (!provider.blas.loaded)
        return;
    set_threads = (void (*)(int))dlsym(provider.blas.loaded, "openblas_set_num_threads");
    if (set_threads)
        set_threads(1);
    for (unsigned i = 0; i < FLYT_SOFT_ROUTINE_COUNT; i++) {
        for (unsigned letter = 0; letter < FLYT_SOFT_LETTERS; letter++) {
            char name[32];

            snprintf(name, sizeof(name), "%c%s_", "sdcz"[letter], names[i]);
            provider.routines[i][letter] = (flyt_soft_fn)dlsym(provider.blas.loaded, name);
        }
    }
}

flyt_soft_fn flyt_soft_routine(enum flyt_soft_routine routine, enum flyt_soft_letter letter)
{
    pthread_once(&provider.blas_once, load_blas);
    return provider.routines[routine][letter];
}

/*
 * Fortran passes the length of each string behind all other arguments. The strings here have one character, and what
 * stands behind the arguments that a routine takes is not looked at: so ones are put there, as many as there is room.
 */
void flyt_soft_fortran(flyt_soft_fn fn, size_t count, const void *const arguments[])
{
    typedef const void *p;
    void (*call)(p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p) =
        (void (*)(p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p))fn;
    p a[FLYT_SOFT_FORTRAN_MAX + 4];

    memcpy(a, arguments, count * sizeof(a[0]));
    for (size_t i = count; i < sizeof(a) / sizeof(a[0]); i++)
        a[i] = (p)(size_t)1;
    call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
         a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27]);
}

static void load_fftw(void)
{
    load(&provider.fftw[0]);
    load(&provider.fftw[1]);
}

flyt_soft_fn flyt_soft_fftw(int is_double, const char *name)
{
    const struct file *file = &provider.fftw[is_double ? 1 : 0];
    char symbol[64];

    pthread_once(&provider.fftw_once, load_fftw);
    if (!file->loaded)
        return NULL;
    snprintf(symbol, sizeof(symbol), "%s_%s", is_double ? "fftw" : "fftwf", name);
    return (flyt_soft_fn)dlsym(file->loaded, symbol);
}
