// A fat binary that holds machine code alone: it runs on a GPU of its architecture and nowhere else.
// nvcc: -gencode arch=compute_90,code=sm_90
#define EXPECTED_ON_SOFT   cudaErrorNoKernelImageForDevice
#define EXPECTED_SAYING    "machine code only (sm_90), no PTX for this device"
#define MACHINE_CODE_MAJOR 9
#include "image.h"
