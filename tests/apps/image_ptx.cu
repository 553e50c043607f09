// A fat binary that holds PTX alone.
// nvcc: -gencode arch=compute_75,code=compute_75
#define EXPECTED_ON_SOFT cudaSuccess
#include "image.h"
