// A unit of module_relocatable: variables that the other units use, in one of them addresses of another's functions.
#include "relocatable.h"

__device__ int counter = 5;
static __device__ struct node last = {nullptr, 300};
static __device__ struct node first = {&last, 20};
__device__ struct node *list = &first;
__constant__ float factors[4] = {0.5f, 1.5f, 2.5f, 3.5f};
__device__ step_fn steps[2] = {twice, plus_counter};

/* Functions and variables of these names are in the other units too, with other contents. */
static __device__ int own = 1000;
static __device__ __noinline__ int helper(int x)
{
    return x + own;
}

__device__ int from_values(int x)
{
    own++;
    return helper(x) + times<2>(0);
}
