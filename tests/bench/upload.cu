/* 600 MB of fat binaries of which two kernels are used: 600 modules of 1 MB each, made here (PTX padded with a comment
 * that differs in every module), registered as nvcc's host code does it. What is sent is read from FLYT_STATS by
 * tests/system/upload_test.sh; natively the program only shows that the images are valid. */
#include "bench.h"
#include <cstdint>
#include <cstring>
#include <string>

extern "C" {
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *device_name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
}

/* The container as nvcc writes it: a header of 16 bytes, an entry header of 64 and its options, the PTX uncompressed.
 */
struct container {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, header_bytes = 16;
    uint64_t rest_bytes = 0;
    uint16_t kind = 1, entry_version = 0x0101;
    uint32_t entry_bytes = 80;
    uint64_t payload_bytes = 0;
    uint32_t compressed_bytes = 0, options_offset = 64;
    uint16_t minor = 0, major = 9;
    uint32_t arch = 75, name_offset = 0, name_bytes = 0;
    uint64_t flags = 0x11, hash = 0, image_bytes = 0;
    uint32_t options_text = 72, options_bytes = 0;
    uint64_t options_end = 0;
};
static_assert(sizeof(container) == 16 + 80 && offsetof(container, flags) == 16 + 40, "header and entry header");

/* __fatBinC_Wrapper_t of fatbinary_section.h, which nvcc's host code includes without a guard. */
struct wrapper {
    int magic, version;
    const void *data;
    void *link_names;
};

static std::string module_text(int number, size_t bytes)
{
    std::string text = ".version 9.0\n.target sm_75\n.address_size 64\n"
                       ".visible .entry add_" +
                       std::to_string(number) +
                       "(.param .u64 place)\n{\n"
                       ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                       "ld.param.u64 %rd1, [place];\ncvta.to.global.u64 %rd2, %rd1;\n"
                       "ld.global.u32 %r1, [%rd2];\nadd.s32 %r2, %r1, " +
                       std::to_string(number) +
                       ";\n"
                       "st.global.u32 [%rd2], %r2;\nret;\n}\n";
    std::string pad = "// padding of module " + std::to_string(number) + ' ';
    while (text.size() + pad.size() + 1 < bytes)
        text += pad.substr(0, bytes - text.size() - 1) + '\n';
    text.resize((text.size() + 8) & ~(size_t)7);
    return text;
}

int main(int argc, char **argv)
{
    const int modules = argc > 1 ? atoi(argv[1]) : 600;
    const size_t module_bytes = 1000000;
    static char stubs[4096];
    std::vector<std::string> images(modules), names(modules);
    std::vector<wrapper> wrappers(modules);
    std::vector<void **> handles(modules);
    size_t total_bytes = 0;
    if (modules > (int)sizeof stubs || modules < 10)
        return 1;
    for (int i = 0; i < modules; i++) {
        std::string text = module_text(i, module_bytes);
        container head;
        head.payload_bytes = text.size();
        head.rest_bytes = 80 + text.size();
        images[i].assign((const char *)&head, sizeof head);
        images[i] += text;
        names[i] = "add_" + std::to_string(i);
        wrappers[i] = {0x466243b1, 1, images[i].data(), nullptr};
        handles[i] = __cudaRegisterFatBinary(&wrappers[i]);
        __cudaRegisterFunction(handles[i], &stubs[i], (char *)names[i].c_str(), names[i].c_str(), -1, nullptr, nullptr,
                               nullptr, nullptr, nullptr);
        __cudaRegisterFatBinaryEnd(handles[i]);
        total_bytes += images[i].size();
    }
    int *place, value = 0;
    CHECK(cudaMalloc(&place, sizeof value));
    CHECK(cudaMemset(place, 0, sizeof value));
    const int used[] = {modules / 3, modules - 2};
    double start = wall_us();
    for (int number : used) {
        void *args[] = {&place};
        CHECK(cudaLaunchKernel(&stubs[number], dim3(1), dim3(1), args, 0, nullptr));
    }
    CHECK(cudaMemcpy(&value, place, sizeof value, cudaMemcpyDeviceToHost));
    report("two_kernels_of_many", (wall_us() - start) * 1e-3, "ms");
    report("fat_binaries", total_bytes * 1e-6, "MB");
    for (int i = 0; i < modules; i++)
        __cudaUnregisterFatBinary(handles[i]);
    if (value != used[0] + used[1]) {
        fprintf(stderr, "upload: %d instead of %d\n", value, used[0] + used[1]);
        return 1;
    }
    return 0;
}
