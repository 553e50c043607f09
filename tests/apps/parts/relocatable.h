// What the units of module_relocatable share.
#ifndef PARTS_RELOCATABLE_H
#define PARTS_RELOCATABLE_H

struct node {
    struct node *next;
    int value;
};

typedef int (*step_fn)(int);

/* Defined in relocatable_values.cu. */
extern __device__ int counter;
extern __device__ struct node *list;
extern __constant__ float factors[4];
extern __device__ step_fn steps[2];
__device__ int from_values(int x);

/* Defined in relocatable_steps.cu. */
__device__ int twice(int x);
__device__ int plus_counter(int x);
__device__ int from_steps(int x);

/* In every unit that includes it, and one function all the same. */
template <int N> __device__ int times(int x)
{
    counter++;
    return N * x;
}

#endif
