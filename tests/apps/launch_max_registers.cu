// A limit of registers that a program asks for when it loads or links PTX (CU_JIT_MAX_REGISTERS): the attribute, the
// occupancy calculator and launches agree, and the results are the same as without.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <string>
#include <vector>

enum { VALUES = 100, THREADS = 1024, LIMIT = 32 };

// All values of a thread are needed until its end.
static std::string text_of(const char *directive)
{
    std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry heavy(.param .u64 p) ";

    auto number = [](int i) { return std::to_string(i % VALUES); };
    text += std::string(directive) + " {\n.reg .b32 %v<" + number(VALUES - 1) + "9>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n"
            "ld.param.u64 %d1, [p];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, " + std::to_string(4 * VALUES) +
            ";\nadd.s64 %d1, %d1, %d2;\n";
    for (int i = 0; i < VALUES; i++)
        text += "ld.volatile.global.u32 %v" + number(i) + ", [%d1+" + std::to_string(4 * i) + "];\n";
    for (int i = 0; i < 2 * VALUES; i++)
        text += "mad.lo.u32 %v" + number(i) + ", %v" + number(i + 37) + ", 3, %v" + number(i) + ";\n";
    for (int i = 0; i < VALUES; i++)
        text += "st.volatile.global.u32 [%d1+" + std::to_string(4 * i) + "], %v" + number(i) + ";\n";
    return text + "ret; }\n";
}

struct seen {
    int registers, threads, blocks;
    std::vector<unsigned> values;
};

// What is told of the kernel holds, and as many threads as it says can be launched.
static seen look(CUmodule module)
{
    CUfunction heavy;
    CUdeviceptr values;
    seen seen;
    void *params[] = {&values};

    CHECK_CU(cuModuleGetFunction(&heavy, module, "heavy"));
    CHECK_CU(cuFuncGetAttribute(&seen.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, heavy));
    CHECK_CU(cuFuncGetAttribute(&seen.threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, heavy));
    EXPECT(seen.registers > 0 && seen.registers * seen.threads <= 65536, "%d registers, %d threads", seen.registers,
           seen.threads);
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&seen.blocks, heavy, 128, 0));
    EXPECT(seen.blocks >= 1 && seen.blocks * 128 * seen.registers <= 65536, "%d blocks of %d registers", seen.blocks,
           seen.registers);
    seen.values.resize(THREADS * VALUES);
    for (size_t i = 0; i < seen.values.size(); i++)
        seen.values[i] = (unsigned)i * 2654435761u;
    CHECK_CU(cuMemAlloc(&values, seen.values.size() * 4));
    CHECK_CU(cuMemcpyHtoD(values, seen.values.data(), seen.values.size() * 4));
    for (int first = 0; first < THREADS; first += seen.threads) {
        CUdeviceptr part = values + (size_t)first * VALUES * 4;
        params[0] = &part;
        CHECK_CU(cuLaunchKernel(heavy, 1, 1, 1, (unsigned)(THREADS - first < seen.threads ? THREADS - first : seen.threads),
                                1, 1, 0, NULL, params, NULL));
    }
    CHECK_CU(cuMemcpyDtoH(seen.values.data(), values, seen.values.size() * 4));
    CHECK_CU(cuMemFree(values));
    CHECK_CU(cuModuleUnload(module));
    return seen;
}

static seen load(const char *directive, unsigned limit)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)limit;
    CUmodule module;

    CHECK_CU(cuModuleLoadDataEx(&module, text_of(directive).c_str(), limit ? 1 : 0, &option, &value));
    return look(module);
}

static seen link(unsigned limit)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)limit, *image;
    std::string text = text_of("");
    CUlinkState state;
    CUmodule module;

    CHECK_CU(cuLinkCreate(1, &option, &value, &state));
    CHECK_CU(cuLinkAddData(state, CU_JIT_INPUT_PTX, &text[0], text.size() + 1, "heavy", 0, NULL, NULL));
    CHECK_CU(cuLinkComplete(state, &image, NULL));
    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuLinkDestroy(state));
    return look(module);
}

int main(void)
{
    CHECK(cudaFree(NULL));
    seen free = load("", 0), limited = load("", LIMIT), linked = link(LIMIT), bounded = load(".maxntid 256, 1, 1", LIMIT);

    EXPECT(free.registers > LIMIT, "%d registers", free.registers);
    EXPECT(limited.registers <= LIMIT, "%d registers", limited.registers);
    EXPECT(linked.registers <= LIMIT, "%d registers", linked.registers);
    EXPECT_EQ(limited.threads, 1024);
    EXPECT_EQ(linked.threads, 1024);
    EXPECT(limited.blocks >= free.blocks, "%d blocks, %d without the limit", limited.blocks, free.blocks);
    EXPECT_EQ(bounded.threads, 256);
    EXPECT(limited.values == free.values, "the limit changes results");
    EXPECT(linked.values == free.values, "the limit changes results");
    EXPECT(bounded.values == free.values, "the limit changes results");
    return 0;
}
