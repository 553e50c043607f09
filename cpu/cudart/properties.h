/*
 * cudaDeviceProp: how its fields follow from a device's attributes, and how cudaChooseDevice compares two of them.
 * Pure functions.
 */
#ifndef FLYT_CUDART_PROPERTIES_H
#define FLYT_CUDART_PROPERTIES_H

#include <driver_types.h>

/*
 * Sets every field of *prop that is a device attribute. `attributes` is indexed by CUdevice_attribute and has
 * attribute_count entries; an attribute beyond counts as 0. Name, UUID, LUID and totalGlobalMem are not touched.
 */
void flyt_cudart_properties_fill(struct cudaDeviceProp *prop, const int *attributes, unsigned attribute_count);

/* How well *offered fits *wanted, in which a field that is zero asks nothing. Higher is better. */
int flyt_cudart_properties_match(const struct cudaDeviceProp *wanted, const struct cudaDeviceProp *offered);

#endif
