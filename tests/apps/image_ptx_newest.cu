// A fat binary that holds PTX for compute capability 9.0 alone.
// nvcc: -gencode arch=compute_90,code=compute_90
#define EXPECTED_ON_SOFT   cudaSuccess
#define MACHINE_CODE_MAJOR 9
#include "image.h"
