// What modules take of a GPU's memory: tries to load PTX that declares 1 GiB, however it is spelled, in a VM with less;
// then holds a module that fits, and streams, until its standard input ends. Each line tells one answer.
// nvcc: -lcuda
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define GIB "1073741824"
#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"
#define ELSEWHERE ".extern .global .b8 elsewhere[4096];\n"
#define STORES ".global .u32 here;\n.visible .entry k()\n{\n.reg .b32 r;\nmov.u32 r, 7;\n"
#define KERNEL ".visible .entry k()\n{\nret;\n}\n"

static const struct {
    const char *name, *text;
} texts[] = {
    {"plain", ".visible .global .align 8 .b8 x[" GIB "];\n" KERNEL},
    {"comment", ".visible .global/**/.align 8 .b8 x[" GIB "];\n" KERNEL},
    {"line-comment", ".visible .global// here\n.align 8 .b8 x[" GIB "];\n" KERNEL},
    {"comment-inside", ".visible .global .b8 x /* ] */ [ /* 1 */ " GIB " /**/ ];\n" KERNEL},
    {"glued", ".visible.global.align 8.b8 x[" GIB "];\n" KERNEL},
    {"hexadecimal", ".global .b8 x[0x40000000];\n" KERNEL},
    {"octal", ".global .b8 x[010000000000];\n" KERNEL},
    {"expression", ".global .b8 x[1024*1024*1024*1];\n" KERNEL},
    {"dimensions", ".global .b8 x[1024][1024][1024];\n" KERNEL},
    {"vectors", ".global .align 16 .v4 .f32 x[67108864];\n" KERNEL},
    {"several", ".global .b64 a, x[134217728], b;\n" KERNEL},
    {"extern", ".extern .global .b8 x[" GIB "];\n" KERNEL},
    {"common", ".common .global .b8 x[" GIB "];\n" KERNEL},
    {"weak", ".weak .global .b8 x[" GIB "];\n" KERNEL},
    {"initialised", ".global .u32 x[268435456] = {1, 2, 3};\n" KERNEL},
    {"in-kernel", ".visible .entry k()\n{\n.global .b8 x[" GIB "];\nret;\n}\n"},
    // A linker refuses these by themselves, so that nobody has machine code of them before they are loaded.
    {"unlinked", ELSEWHERE ".global .b8 x[" GIB "];\n" KERNEL},
    {"behind-instruction", ELSEWHERE STORES "st.global.u32[here],r;ret;}.global .align 8 .b8 x[" GIB "];\n"},
    {"behind-store", ELSEWHERE STORES "st.global.u32[here],r;.global .b8 x[" GIB "];\nret;\n}\n"},
    {"behind-label", ELSEWHERE STORES "ld:.global .b8 x[" GIB "];\nret;\n}\n"},
    {"behind-entry", ELSEWHERE ".visible .entry ld\n{ret;}.global .b8 x[" GIB "];\n"},
    {"behind-other", ELSEWHERE ".global .b8 a[4],x[" GIB "];\n" KERNEL},
    {"many", nullptr},
};

static const char *name_of(CUresult result)
{
    const char *name = "?";
    cuGetErrorName(result, &name);
    return name;
}

// A container as nvcc makes it: one entry after the other, PTX of these architectures, not compressed.
static std::string container(const std::vector<std::pair<unsigned, std::string>> &entries)
{
    std::string body;
    auto put = [](std::string *to, unsigned long long value, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i++)
            to->push_back((char)(value >> 8 * i));
    };
    for (const auto &entry : entries) {
        std::string text = entry.second + std::string(8 - entry.second.size() % 8, '\0'), head;
        put(&head, 1, 2);
        put(&head, 0x0101, 2);
        put(&head, 64, 4);
        put(&head, text.size(), 8);
        put(&head, 0, 4);
        put(&head, 0, 4);
        put(&head, 0, 2);
        put(&head, 8, 2);
        put(&head, entry.first, 4);
        put(&head, 0, 8);
        put(&head, 1, 8);
        put(&head, 0, 8);
        put(&head, 0, 8);
        body += head + text;
    }
    std::string whole;
    put(&whole, 0xBA55ED50, 4);
    put(&whole, 1, 2);
    put(&whole, 16, 2);
    put(&whole, body.size(), 8);
    return whole + body;
}

static void try_load(const char *name, const void *image)
{
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, image);
    CUdeviceptr address;
    size_t bytes = 0;
    if (result == CUDA_SUCCESS && cuModuleGetGlobal(&address, &bytes, module, "x") == CUDA_SUCCESS && bytes > 1 << 29)
        result = cuMemsetD8(address, 1, bytes) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    printf("refused %s %s\n", name, name_of(result));
    fflush(stdout);
    if (result == CUDA_SUCCESS)
        cuModuleUnload(module);
}

static bool is_said(const char *line, const char *word)
{
    return !strncmp(line, word, strlen(word)) && line[strlen(word)] == ' ';
}

// The second GPU, on which nothing has been loaded yet: a call that makes the driver put a kernel there, or memory.
static CUresult on_second(const char *call, CUkernel kernel)
{
    static CUcontext context;
    static CUdevice device;
    static CUdeviceptr filled;
    CUcontext first;
    CUfunction function;
    CUresult result = cuCtxGetCurrent(&first);
    int value;
    size_t bytes;
    if (result == CUDA_SUCCESS && !context && (result = cuDeviceGet(&device, 1)) == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!strcmp(call, "fill\n"))
        result = cuMemAlloc(&filled, 224 << 20);
    else if (!strcmp(call, "empty\n"))
        result = cuMemFree(filled);
    else if (!strcmp(call, "get\n"))
        result = cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device);
    else if (!strcmp(call, "set\n"))
        result = cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, kernel, device);
    else if (!strcmp(call, "cache\n"))
        result = cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, device);
    else if ((result = cuKernelGetFunction(&function, kernel)) == CUDA_SUCCESS && !strcmp(call, "occupancy\n"))
        result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 0);
    else if (result == CUDA_SUCCESS)
        result = cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 32);
    if (result == CUDA_SUCCESS) // what is told late
        result = cuCtxSynchronize();
    return cuCtxSetCurrent(first) == CUDA_SUCCESS ? result : CUDA_ERROR_UNKNOWN;
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUmodule module;
    CUlibrary library;
    CUkernel kernel = nullptr;
    CUdevice device;
    char line[64];
    const std::string small = HEAD ".visible .global .align 8 .b8 fits[41943040];\n" KERNEL;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
        return 1;
    for (const auto &text : texts) {
        std::string whole = HEAD;
        if (text.text)
            whole += text.text;
        for (int i = 0; !text.text && i < 1024; i++)
            whole += ".global .b8 x" + std::to_string(i) + "[1048576];\n";
        try_load(text.name, (whole + (text.text ? "" : KERNEL)).c_str());
    }
    // Of two that suit, the one that is chosen is loaded, whichever comes first.
    const std::string large = HEAD ".visible .global .b8 x[" GIB "];\n" KERNEL;
    try_load("container-newer", container({{75, small}, {80, large}}).c_str());
    try_load("container-first", container({{80, large}, {75, small}}).c_str());
    while (fgets(line, sizeof line, stdin)) {
        CUstream stream;
        if (!strcmp(line, "load\n"))
            printf("load %s\n", name_of(cuModuleLoadData(&module, small.c_str())));
        else if (!strcmp(line, "unload\n"))
            printf("unload %s\n", name_of(cuModuleUnload(module)));
        else if (!strncmp(line, "streams ", 8)) {
            CUresult result = CUDA_SUCCESS;
            for (int i = 0; i < atoi(line + 8) && result == CUDA_SUCCESS; i++)
                result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
            if (result == CUDA_SUCCESS) // where one could not be made is told late
                result = cuCtxSynchronize();
            printf("streams %s\n", name_of(result));
        } else if (!strcmp(line, "library\n")) {
            CUresult result = cuLibraryLoadData(&library, small.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
            if (result == CUDA_SUCCESS)
                result = cuLibraryGetKernel(&kernel, library, "k");
            printf("library %s\n", name_of(result));
        } else if (is_said(line, "second")) {
            printf("second %s\n", name_of(on_second(line + 7, kernel)));
        } else {
            unsigned limit;
            unsigned long long value;
            if (sscanf(line, "limit %u %llu", &limit, &value) != 2)
                return 1;
            printf("limit %s\n", name_of(cuCtxSetLimit((CUlimit)limit, value)));
        }
        fflush(stdout);
    }
    return 0;
}
