/*
 * What a texture fetch gives, computed on the host in double precision: the formulas of the CUDA C++ Programming Guide
 * under "Texture Fetching". A fraction has 8 bits for linear filtering; by how GPUs round it, a result may differ by
 * one unit of that in each dimension.
 */
#ifndef TESTS_APPS_TEXTURE_REFERENCE_H
#define TESTS_APPS_TEXTURE_REFERENCE_H

#include "check.h"

#include <cmath>
#include <vector>

struct texture_image {
    int dimensions, size[3]; /* those that it lacks are 1 */
    int channels;
    std::vector<double> texels; /* as they are read, x first; channels innermost */

    double at(int x, int y, int z, int c) const
    {
        return texels[(size_t)(((z * size[1] + y) * size[0] + x) * channels + c)];
    }
};

struct texture_sampler {
    cudaTextureAddressMode mode[3];
    bool is_linear, is_normalized;
    double border;
};

/* Where a texel is; -1: outside. */
static inline int texture_place(cudaTextureAddressMode mode, long i, int n)
{
    switch (mode) {
    case cudaAddressModeWrap:
        return (int)((i % n + n) % n);
    case cudaAddressModeMirror:
        i = (i % (2 * n) + 2 * n) % (2 * n);
        return (int)(i < n ? i : 2 * n - 1 - i);
    case cudaAddressModeBorder:
        return i >= 0 && i < n ? (int)i : -1;
    default:
        return i < 0 ? 0 : i < n ? (int)i : n - 1;
    }
}

static inline double texture_texel(const texture_image &image, const texture_sampler &sampler, const long *at, int c)
{
    int place[3] = {0, 0, 0};
    for (int d = 0; d < image.dimensions; d++) {
        cudaTextureAddressMode mode = sampler.mode[d];
        if (!sampler.is_normalized && mode != cudaAddressModeBorder)
            mode = cudaAddressModeClamp;
        place[d] = texture_place(mode, at[d], image.size[d]);
        if (place[d] < 0)
            return sampler.border;
    }
    return image.at(place[0], place[1], place[2], c);
}

/* One channel of a fetch. */
static inline double texture_fetch(const texture_image &image, const texture_sampler &sampler, const double *x, int c)
{
    long low[3] = {0, 0, 0};
    double second[3] = {0, 0, 0}, sum = 0;
    for (int d = 0; d < image.dimensions; d++) {
        double texels = sampler.is_normalized ? x[d] * image.size[d] : x[d];
        if (sampler.is_linear)
            texels -= 0.5;
        low[d] = (long)std::floor(texels);
        second[d] = sampler.is_linear ? std::floor((texels - (double)low[d]) * 256 + 0.5) / 256 : 0;
    }
    for (int corner = 0; corner < 1 << image.dimensions; corner++) {
        double weight = 1;
        long at[3];
        for (int d = 0; d < 3; d++) {
            bool is_high = d < image.dimensions && (corner >> d & 1);
            at[d] = low[d] + is_high;
            weight *= d >= image.dimensions ? 1 : is_high ? second[d] : 1 - second[d];
        }
        if (weight > 0)
            sum += weight * texture_texel(image, sampler, at, c);
    }
    return sum;
}

/* Numbers that do not repeat soon, from 0 to 1. */
static inline double texture_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (double)(1u << 24);
}

#endif
