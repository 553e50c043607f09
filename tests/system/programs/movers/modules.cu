// Modules of the driver API and libraries of the runtime, loaded from PTX that the program writes.
#include "movers.h"

#include <stdio.h>
#include <string>

/* A module with a variable `counter`, first `first`, and a kernel that steps it and says what it is now. */
static std::string counting_ptx(uint32_t first, uint32_t factor)
{
    char text[1200];

    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_75\n.address_size 64\n"
             ".visible .global .align 4 .u32 counter = %u;\n"
             ".visible .const .align 4 .u32 factor = %u;\n"
             ".visible .entry count(.param .u64 place, .param .u32 term)\n{\n"
             "    .reg .u32 %%r<6>;\n    .reg .u64 %%d<2>;\n"
             "    ld.param.u64 %%d0, [place];\n    cvta.to.global.u64 %%d1, %%d0;\n"
             "    ld.param.u32 %%r0, [term];\n    ld.global.u32 %%r1, [counter];\n    ld.const.u32 %%r2, [factor];\n"
             "    mad.lo.u32 %%r3, %%r1, %%r2, %%r0;\n"
             "    st.global.u32 [counter], %%r3;\n    st.global.u32 [%%d1], %%r3;\n    ret;\n}\n",
             first, factor);
    return text;
}

/* A loaded module with what its counter must be. */
struct counting_module {
    CUmodule module;
    CUfunction function;
    CUdeviceptr counter;
    uint32_t want, factor;

    void load(uint32_t first, uint32_t by)
    {
        std::string text = counting_ptx(first, by);
        size_t bytes;

        CHECK_CU(cuModuleLoadData(&module, text.c_str()));
        CHECK_CU(cuModuleGetFunction(&function, module, "count"));
        CHECK_CU(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
        EXPECT_EQ(bytes, sizeof(uint32_t));
        want = first;
        factor = by;
    }
    /* `out` is a word of device memory. */
    void count(uint32_t term, uint32_t *out)
    {
        void *arguments[] = {&out, &term};
        uint32_t value;

        CHECK_CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        want = want * factor + term;
        mover_expect_words(out, {want}, "what the module's kernel says");
        CHECK_CU(cuMemcpyDtoH(&value, counter, sizeof value));
        EXPECT_EQ(value, want);
    }
    void write(uint32_t value)
    {
        CHECK_CU(cuMemcpyHtoD(counter, &value, sizeof value));
        want = value;
    }
};

struct two_modules : mover {
    counting_module one, other;
    uint32_t *out;

    void set_up() override
    {
        out = mover_words(1);
        one.load(5, 3);
        other.load(1000000, 7);
    }
    void round() override
    {
        one.count(random(), out);
        other.count(random(), out);
        one.count(1, out);
        if (number % 5 == 0)
            other.write(random());
        EXPECT(one.counter != other.counter, "two variables are at %llx", (unsigned long long)one.counter);
    }
};

struct module_comes_and_goes : mover {
    counting_module kept;
    uint32_t *out;

    void set_up() override
    {
        out = mover_words(1);
        kept.load(1, 11);
    }
    void round() override
    {
        counting_module passing;

        passing.load(random(), random() | 1);
        passing.count(random(), out);
        kept.count(random(), out);
        passing.count(2, out);
        CHECK_CU(cuModuleUnload(passing.module));
        kept.count(3, out);
    }
};

struct many_modules : mover {
    enum { MODULES = 12 };
    counting_module modules[MODULES];
    uint32_t *out;

    void set_up() override
    {
        out = mover_words(1);
        for (counting_module &one : modules)
            one.load(random(), random() | 1);
    }
    void round() override
    {
        counting_module &replaced = modules[random(MODULES)];

        for (counting_module &one : modules)
            one.count(random(), out);
        CHECK_CU(cuModuleUnload(replaced.module));
        replaced.load(random(), random() | 1);
    }
};

struct library_of_runtime : mover {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    uint32_t *counter, *out, want = 40;

    void set_up() override
    {
        std::string text = counting_ptx(want, 13);
        size_t bytes;

        out = mover_words(1);
        CHECK(cudaLibraryLoadData(&library, text.c_str(), NULL, NULL, 0, NULL, NULL, 0));
        text.assign(text.size(), '?');
        CHECK(cudaLibraryGetKernel(&kernel, library, "count"));
        CHECK(cudaLibraryGetGlobal((void **)&counter, &bytes, library, "counter"));
        EXPECT_EQ(bytes, sizeof *counter);
    }
    void round() override
    {
        uint32_t term = random();
        void *arguments[] = {&out, &term};

        CHECK(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), arguments, 0, 0));
        want = want * 13 + term;
        mover_expect_words(out, {want}, "what the library's kernel says");
        mover_expect_words(counter, {want}, "the library's variable");
    }
};

static const char caller_ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                                 ".extern .func (.param .u32 ret) twice(.param .u32 value);\n"
                                 ".visible .global .align 4 .u32 sum = 1;\n"
                                 ".visible .entry add(.param .u32 term)\n{\n"
                                 "    .reg .u32 %r<5>;\n"
                                 "    ld.param.u32 %r0, [term];\n"
                                 "    {\n    .param .u32 given;\n    .param .u32 back;\n"
                                 "    st.param.u32 [given], %r0;\n"
                                 "    call (back), twice, (given);\n"
                                 "    ld.param.u32 %r1, [back];\n    }\n"
                                 "    ld.global.u32 %r2, [sum];\n"
                                 "    add.u32 %r3, %r2, %r1;\n"
                                 "    st.global.u32 [sum], %r3;\n    ret;\n}\n";
static const char called_ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                                 ".visible .func (.param .u32 ret) twice(.param .u32 value)\n{\n"
                                 "    .reg .u32 %r<3>;\n"
                                 "    ld.param.u32 %r0, [value];\n"
                                 "    add.u32 %r1, %r0, %r0;\n"
                                 "    st.param.u32 [ret], %r1;\n    ret;\n}\n";

struct linked_module : mover {
    CUmodule module;
    CUfunction add;
    CUdeviceptr sum;
    uint32_t want = 1;

    void set_up() override
    {
        CUlinkState link;
        void *image;
        size_t bytes;

        CHECK(cudaFree(0));
        CHECK_CU(cuLinkCreate(0, NULL, NULL, &link));
        CHECK_CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)caller_ptx, sizeof caller_ptx, "caller", 0, NULL, NULL));
        CHECK_CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)called_ptx, sizeof called_ptx, "called", 0, NULL, NULL));
        CHECK_CU(cuLinkComplete(link, &image, &bytes));
        CHECK_CU(cuModuleLoadData(&module, image));
        CHECK_CU(cuLinkDestroy(link));
        CHECK_CU(cuModuleGetFunction(&add, module, "add"));
        CHECK_CU(cuModuleGetGlobal(&sum, &bytes, module, "sum"));
    }
    void round() override
    {
        uint32_t term = random(), value;
        void *arguments[] = {&term};

        CHECK_CU(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        want += 2 * term;
        CHECK_CU(cuMemcpyDtoH(&value, sum, sizeof value));
        EXPECT_EQ(value, want);
    }
};

static const mover_entry entries[] = {
    {"two_modules", MOVER_CODE, mover_make<two_modules>, "two modules with variables of one name"},
    {"module_comes_and_goes", MOVER_CODE, mover_make<module_comes_and_goes>,
     "a module loaded and unloaded in every round"},
    {"many_modules", MOVER_CODE, mover_make<many_modules>, "twelve modules, of which one is replaced in every round"},
    {"library_of_runtime", MOVER_CODE, mover_make<library_of_runtime>,
     "a library of the runtime, its kernel and variable"},
    {"linked_module", MOVER_CODE, mover_make<linked_module>, "a module that the program has linked"},
};
MOVER_FAMILY(modules, entries);
