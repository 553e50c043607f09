// A fat binary with PTX and machine code of several architectures: the best match is taken.
// nvcc: -gencode arch=compute_75,code=compute_75 -gencode arch=compute_80,code=sm_80
// nvcc: -gencode arch=compute_86,code=sm_86 -gencode arch=compute_90,code=[sm_90,compute_90]
#define EXPECTED_ON_SOFT cudaSuccess
#include "image.h"
