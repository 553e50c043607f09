// A fat binary in which nothing is compressed.
// nvcc: -compress-mode=none -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90
#define EXPECTED_ON_SOFT cudaSuccess
#include "image.h"
