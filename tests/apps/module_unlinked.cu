// nvcc: -lcuda
// Modules that a linker by itself refuses and a driver loads: a variable of another module, which nobody defines. They
// load, and launch, through whatever makes machine code of them first.
#include <cuda.h>

#include "check.h"

#define CU(call) EXPECT_EQ(call, CUDA_SUCCESS)

int main(void)
{
    static const char text[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                               ".extern .global .align 4 .b8 elsewhere[4096];\n"
                               ".visible .global .align 4 .u32 here;\n"
                               ".visible .entry k()\n{\n.reg .b32 r;\nmov.u32 r, 7;\nst.global.u32 [here], r;\nret;\n}\n";
    CUcontext context;
    CUdevice device;
    CUmodule module;
    CUfunction function;
    CUdeviceptr address;
    size_t bytes;
    unsigned value = 0;

    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    CU(cuModuleLoadData(&module, text));
    CU(cuModuleGetFunction(&function, module, "k"));
    CU(cuModuleGetGlobal(&address, &bytes, module, "here"));
    EXPECT_EQ(bytes, 4);
    CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CU(cuMemcpyDtoH(&value, address, sizeof(value)));
    EXPECT_EQ(value, 7);
    CU(cuModuleUnload(module));
    return 0;
}
