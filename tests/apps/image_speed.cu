// A fat binary that is compressed for speed.
// nvcc: -compress-mode=speed -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90
#define EXPECTED_ON_SOFT cudaSuccess
#include "image.h"
