/*
 * Numbers of the types that NVIDIA's libraries have, in device memory: blocks of them as floats, doubles or complex
 * doubles and back, rounded to nearest even. Vectors are strided; a negative increment runs backwards through the same
 * memory, as BLAS has it.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_NUMBER_H
#define FLYT_SOFTGPU_LIBRARY_NUMBER_H

#include <complex.h>
#include <library_types.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef CMPLX /* clang with glibc's header */
#define CMPLX(re_, im_) __builtin_complex((double)(re_), (double)(im_))
#endif

enum { FLYT_SOFT_BLOCK = 256 };

/* Complex numbers; im is 0 where the type is real. */
struct flyt_soft_block {
    double re[FLYT_SOFT_BLOCK], im[FLYT_SOFT_BLOCK];
};

/* Bytes of one number; 0: a type that nothing here knows. */
unsigned flyt_soft_number_bytes(cudaDataType type);
bool flyt_soft_number_is_complex(cudaDataType type);
/* Whether a double is needed to hold it. */
bool flyt_soft_number_is_double(cudaDataType type);

/* The number `index` of a vector of `count` numbers starting at base; inc != 0 except where all are the same one. */
void *flyt_soft_number_at(cudaDataType type, const void *base, int64_t inc, int64_t count, int64_t index);

/* `count` (up to FLYT_SOFT_BLOCK) numbers, `inc` numbers apart, from `at`. */
void flyt_soft_block_load(struct flyt_soft_block *block, cudaDataType type, const void *at, int64_t inc, int count);
/* Integers are rounded to nearest and saturated, 8-bit floats saturated; the imaginary part is dropped where the type
 * has none. */
void flyt_soft_block_store(const struct flyt_soft_block *block, cudaDataType type, void *at, int64_t inc, int count);

/* `count` numbers as floats (real types) and back. */
void flyt_soft_floats_load(float *to, cudaDataType type, const void *at, int64_t inc, int64_t count);
void flyt_soft_floats_store(const float *from, cudaDataType type, void *at, int64_t inc, int64_t count);

/* The activation GELU, as NVIDIA's libraries approximate it: with sqrt(2 / pi) and this cube's factor. */
#define FLYT_SOFT_GELU_SLOPE 0.7978845608028654
#define FLYT_SOFT_GELU_CUBE  0.044715
double flyt_soft_gelu(double x);

/* One number. */
double _Complex flyt_soft_number_get(cudaDataType type, const void *at);
void flyt_soft_number_put(cudaDataType type, void *at, double _Complex value);

#endif
