/* Programs' images as nvcc makes them: every form loads and runs; machine code alone is refused; printf comes out. */
#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"
#include "rpc/base/fatbin.h"

static uint64_t places[2]; /* of a variable, in a process that uses the first GPU alone, and the second */

/* In a process of its own. */
static void place_main(int ordinal, int fd)
{
    static const char image[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter;\n"
        ".visible .entry nothing(.param .u32 unused)\n{\n    ret;\n}\n";
    size_t offset, parameter_bytes;
    CUdeviceptr address;
    CUlibrary library;
    CUkernel kernel;
    CUcontext ctx;
    CUmodule module;
    size_t bytes;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, ordinal) || cuCtxSetCurrent(ctx) ||
        cuModuleLoadData(&module, image) || cuModuleGetGlobal(&address, &bytes, module, "counter") ||
        /* What is asked about kernels is answered for the first GPU, which has no context here. */
        cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0) ||
        cuLibraryGetKernel(&kernel, library, "nothing") || cuKernelGetParamInfo(kernel, 0, &offset, &parameter_bytes) ||
        parameter_bytes != 4 || write(fd, &address, sizeof address) != sizeof address)
        _exit(1);
    _exit(0);
}

static uint64_t place_on(int ordinal)
{
    uint64_t address = 0;
    int fds[2], status;

    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (!child)
        place_main(ordinal, fds[1]);
    close(fds[1]);
    assert_int_equal(read(fds[0], &address, sizeof address), sizeof address);
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return address;
}

static int start(void **state)
{
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    places[0] = place_on(0);
    places[1] = place_on(1);
    test_start();
    return 0;
}

static void variables_lie_where_they_do_on_another_gpu(void **state)
{
    assert_int_not_equal(places[0], 0);
    assert_int_equal(places[0], places[1]);
}

/* A file that the build put beside this program, with a NUL behind it. */
static char *sample_read(const char *name, size_t *ret_bytes)
{
    char path[4096], self[3072];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *bytes;
    long total;
    FILE *file;

    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(path, sizeof(path), "%s/samples/%s", self, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    total = ftell(file);
    rewind(file);
    bytes = calloc(1, (size_t)total + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)total, file), total);
    fclose(file);
    *ret_bytes = (size_t)total;
    return bytes;
}

static void run_scale(CUlibrary library)
{
    int values[100], count = 100;
    CUkernel kernel;
    CUdeviceptr data;
    void *params[] = {&data, &count};

    for (int i = 0; i < count; i++)
        values[i] = i;
    assert_ok(cuMemAlloc(&data, sizeof(values)));
    assert_ok(cuMemcpyHtoD(data, values, sizeof(values)));
    assert_ok(cuLibraryGetKernel(&kernel, library, "scale"));
    assert_ok(cuLaunchKernel((CUfunction)kernel, 4, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    assert_ok(cuMemcpyDtoH(values, data, sizeof(values)));
    for (int i = 0; i < count; i++)
        assert_int_equal(values[i], i * (i % 4 + 1) + 100);
    assert_ok(cuMemFree(data));
}

static void every_form_of_an_image_runs(void **state)
{
    static const char *const names[] = {"none.fatbin", "size.fatbin", "speed.fatbin", "text.ptx"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes;
        char *image = sample_read(names[i], &bytes);
        CUlibrary library;

        assert_ok(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
        free(image);
        run_scale(library);
        assert_ok(cuLibraryUnload(library));
    }
}

static void a_wrapper_is_followed(void **state)
{
    size_t bytes;
    char *image = sample_read("size.fatbin", &bytes);
    struct {
        int magic, version;
        const void *data;
        void *rest;
    } wrapper = {0x466243B1, 1, image, NULL};
    CUmodule module;

    assert_ok(cuModuleLoadData(&module, &wrapper));
    assert_ok(cuModuleUnload(module));
    free(image);
}

static void machine_code_alone_is_refused(void **state)
{
    static const char *const names[] = {"code.fatbin", "code.cubin"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes;
        char *image = sample_read(names[i], &bytes);
        CUmodule module;

        assert_int_equal(cuModuleLoadData(&module, image), CUDA_ERROR_NO_BINARY_FOR_GPU);
        free(image);
    }
}

/* The container is cut off everywhere, and every byte of its headers is changed: an error or a load, no crash. */
static void a_broken_image_is_an_error(void **state)
{
    size_t bytes;
    char *image = sample_read("size.fatbin", &bytes);
    struct flyt_fatbin_device device = {.major = 9};
    struct flyt_fatbin_entry entry;
    CUmodule module;
    char *text;
    size_t text_bytes;

    for (size_t n = 0; n < bytes; n++)
        assert_true(flyt_fatbin_choose(image, n, &device, &entry) < 0);
    for (size_t i = 0; i < 80; i++) {
        char right = image[i];

        image[i] = (char)~right;
        if (flyt_fatbin_choose(image, bytes, &device, &entry) == 0 &&
            flyt_fatbin_decompress(&entry, &text, &text_bytes) == 0)
            free(text);
        image[i] = right;
    }
    /* Compressed data that is damaged. */
    assert_int_equal(flyt_fatbin_choose(image, bytes, &device, &entry), 0);
    memset((char *)entry.payload + entry.payload_bytes / 2, 0x5a, 64);
    assert_int_equal(cuModuleLoadData(&module, image), CUDA_ERROR_INVALID_IMAGE);
    free(image);
}

static CUlibrary sample_library(void)
{
    size_t bytes;
    char *image = sample_read("size.fatbin", &bytes);
    CUlibrary library;

    assert_ok(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    free(image);
    return library;
}

/* In the order of the stream, when the stream is waited for, on whatever descriptor 1 is then. */
static void printf_comes_out_when_synchronised(void **state)
{
    CUlibrary library = sample_library();
    CUfunction say = test_kernel(library, "say");
    FILE *capture = tmpfile();
    int out = dup(STDOUT_FILENO), number = 1;
    CUdeviceptr what = 0;
    void *params[] = {&what, &number};
    char text[256] = "";
    CUstream stream;
    size_t n;

    assert_non_null(capture);
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fflush(stdout);
    dup2(fileno(capture), STDOUT_FILENO);
    for (number = 1; number <= 3; number++)
        cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    cuStreamSynchronize(stream);
    dup2(out, STDOUT_FILENO);
    close(out);
    rewind(capture);
    n = fread(text, 1, sizeof(text) - 1, capture);
    text[n] = 0;
    fclose(capture);
    assert_string_equal(text, "nothing says 1\nnothing says 2\nnothing says 3\n");
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuLibraryUnload(library));
}

static void device_malloc_has_its_heap(void **state)
{
    CUlibrary library = sample_library();
    CUdeviceptr sum;
    void *params[] = {&sum};
    size_t heap_bytes;
    int value;

    assert_ok(cuMemAlloc(&sum, 4));
    assert_ok(cuMemsetD32(sum, 0, 1));
    assert_ok(cuLaunchKernel(test_kernel(library, "heap"), 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    assert_ok(cuMemcpyDtoH(&value, sum, 4));
    assert_int_equal(value, 8 * 127 * 128 / 2);
    assert_ok(cuCtxGetLimit(&heap_bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(heap_bytes, 8 << 20);
    assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(sum));
    assert_ok(cuLibraryUnload(library));
}

static void a_cooperative_grid_has_its_barrier(void **state)
{
    enum { BLOCKS = 24 };
    CUlibrary library = sample_library();
    CUdeviceptr data, sum;
    void *params[] = {&data, &sum};
    int value;

    assert_ok(cuMemAlloc(&data, 4 * BLOCKS));
    assert_ok(cuMemAlloc(&sum, 4));
    for (int i = 0; i < 3; i++) {
        assert_ok(cuMemsetD32(sum, 0, 1));
        assert_ok(cuMemsetD32(data, 0, BLOCKS));
        assert_ok(cuLaunchCooperativeKernel(test_kernel(library, "together"), BLOCKS, 1, 1, 64, 1, 1, 0, NULL, params));
        assert_ok(cuMemcpyDtoH(&value, sum, 4));
        assert_int_equal(value, BLOCKS * (BLOCKS + 1) / 2);
    }
    assert_ok(cuMemFree(data));
    assert_ok(cuMemFree(sum));
    assert_ok(cuLibraryUnload(library));
}

/* ---- linked images: machine code of the software GPU ---- */

static const char linked_text[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                                  ".visible .global .align 8 .b8 zeros[5000000];\n.global .u32 one = 1;\n"
                                  ".const .f64 c[10];\n.global .attribute(.managed) .u32 both;\n"
                                  ".visible .entry nothing()\n{\n    ret;\n}\n";

/* The caller frees it. without: a piece of the text that is blanked; NULL: none. */
static char *link_text(const char *without, size_t *ret_bytes)
{
    char text[sizeof(linked_text)], *copy, *at;
    CUlinkState state;
    size_t bytes;
    void *image;

    strcpy(text, linked_text);
    if ((at = without ? strstr(text, without) : NULL))
        memset(at, ' ', strlen(without));
    assert_ok(cuLinkCreate(0, NULL, NULL, &state));
    assert_ok(cuLinkAddData(state, CU_JIT_INPUT_PTX, text, sizeof(text), "unit", 0, NULL, NULL));
    assert_ok(cuLinkComplete(state, &image, &bytes));
    copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, image, bytes);
    assert_ok(cuLinkDestroy(state));
    *ret_bytes = bytes;
    return copy;
}

static Elf64_Shdr *section_of(char *image, const char *name)
{
    const Elf64_Ehdr *header = (const void *)image;
    Elf64_Shdr *sections = (void *)(image + header->e_shoff);

    for (unsigned i = 0; i < header->e_shnum; i++)
        if (!strcmp(image + sections[header->e_shstrndx].sh_offset + sections[i].sh_name, name))
            return &sections[i];
    fail_msg("no section %s", name);
    return NULL;
}

static const Elf64_Sym *symbol_of(char *image, const char *name)
{
    const Elf64_Shdr *table = section_of(image, ".symtab"), *names = section_of(image, ".strtab");

    for (uint64_t at = 0; at < table->sh_size; at += sizeof(Elf64_Sym)) {
        const Elf64_Sym *symbol = (const void *)(image + table->sh_offset + at);

        if (!strcmp(image + names->sh_offset + symbol->st_name, name))
            return symbol;
    }
    fail_msg("no symbol %s", name);
    return NULL;
}

static uint64_t placed_bytes_of(char *image)
{
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    uint64_t bytes = 0;

    for (unsigned i = 0; i < header->e_shnum; i++)
        bytes += sections[i].sh_flags & SHF_ALLOC ? sections[i].sh_size : 0;
    return bytes;
}

static void sections_are_what_a_module_takes(void **state)
{
    const size_t granule = (size_t)2 << 20;
    size_t bytes, before, after, total;
    char *image = link_text(".attribute(.managed)", &bytes);
    CUdeviceptr address;
    CUlibrary library;
    CUmodule module;

    assert_int_equal(section_of(image, ".nv.global")->sh_size, 5000004);
    assert_int_equal(section_of(image, ".nv.global.init")->sh_size, 4);
    assert_int_equal(section_of(image, ".nv.constant3")->sh_size, 80);
    assert_true(section_of(image, ".text")->sh_size >= sizeof(linked_text) - 1);
    assert_int_equal(symbol_of(image, "zeros")->st_size, 5000000);
    assert_int_equal(symbol_of(image, "both")->st_value, 5000000);
    assert_int_equal(symbol_of(image, "both")->st_other, 0);
    assert_int_equal(ELF64_ST_TYPE(symbol_of(image, "nothing")->st_info), STT_FUNC);
    assert_ok(cuMemGetInfo(&before, &total));
    assert_ok(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    assert_ok(cuLibraryGetModule(&module, library));
    assert_ok(cuMemGetInfo(&after, &total));
    assert_in_range(before - after, placed_bytes_of(image) / granule * granule, placed_bytes_of(image) + granule);
    assert_ok(cuLibraryGetGlobal(&address, &bytes, library, "zeros"));
    assert_int_equal(bytes, 5000000);
    assert_ok(cuLibraryUnload(library));
    free(image);
}

/* Who doctors a file, so that it seems to take less, gets nothing placed. */
static void sections_that_lie_are_refused(void **state)
{
    static const char *const names[] = {".nv.global", ".nv.global.init", ".nv.constant3", ".text"};

    for (unsigned i = 0; i < 4; i++) {
        size_t bytes;
        char log[256] = "", *image = link_text(".attribute(.managed)", &bytes);
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)sizeof(log)};
        CUlibrary library;

        section_of(image, names[i])->sh_size -= 1;
        assert_int_equal(cuLibraryLoadData(&library, image, options, values, 2, NULL, NULL, 0),
                         CUDA_ERROR_INVALID_IMAGE);
        section_of(image, names[i])->sh_size += 1;
        section_of(image, names[i])->sh_flags = 0;
        assert_int_equal(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_INVALID_IMAGE);
        free(image);
    }
}

/* They are memory of this process, as all of the device's is: the host has it at the same address. */
static void managed_variables_are_marked(void **state)
{
    size_t bytes;
    char *image = link_text(NULL, &bytes);
    CUdeviceptr address = 0, global = 0;
    CUlibrary library;

    assert_int_equal(symbol_of(image, "both")->st_other, 4);
    assert_int_equal(symbol_of(image, "zeros")->st_other, 0);
    assert_ok(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    assert_int_equal(cuLibraryGetManaged(&address, &bytes, library, "zeros"), CUDA_ERROR_NOT_FOUND);
    assert_ok(cuLibraryGetManaged(&address, &bytes, library, "both"));
    assert_int_equal(bytes, 4);
    assert_ok(cuLibraryGetGlobal(&global, NULL, library, "both"));
    assert_int_equal(global, address);
    assert_int_equal(*(uint32_t *)(uintptr_t)address, 0);
    assert_ok(cuMemsetD32(address, 17, 1));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(*(uint32_t *)(uintptr_t)address, 17);
    assert_ok(cuLibraryUnload(library));
    free(image);
}

static int registers_of(const void *image, unsigned limit)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)limit;
    CUfunction heavy;
    CUmodule module;
    int registers;

    assert_ok(cuModuleLoadDataEx(&module, image, limit ? 1 : 0, &option, &value));
    assert_ok(cuModuleGetFunction(&heavy, module, "heavy"));
    assert_ok(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, heavy));
    assert_ok(cuModuleUnload(module));
    return registers;
}

/* PTX is compiled with the limit of whoever loads it; what is linked already keeps its own. */
static void registers_are_limited_where_ptx_is_compiled(void **state)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *of_all = (void *)40, *of_one = (void *)24, *image;
    CUlinkState link;
    char text[8192];
    int at = sprintf(text, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry heavy(.param .u64 p)\n{\n"
                           ".reg .b64 %%d; .reg .b32 %%v<60>;\nld.param.u64 %%d, [p];\n");

    for (int v = 0; v < 60; v++)
        at += sprintf(text + at, "ld.global.u32 %%v%d, [%%d+%d];\n", v, 4 * v);
    for (int v = 0; v < 60; v++)
        at += sprintf(text + at, "st.global.u32 [%%d+%d], %%v%d;\n", 4 * v, 59 - v);
    sprintf(text + at, "ret;\n}\n");
    assert_int_equal(registers_of(text, 0), 64);
    assert_int_equal(registers_of(text, 32), 32);
    for (int has_own = 0; has_own < 2; has_own++) {
        assert_ok(cuLinkCreate(1, &option, &of_all, &link));
        assert_ok(
            cuLinkAddData(link, CU_JIT_INPUT_PTX, text, strlen(text) + 1, "unit", (unsigned)has_own, &option, &of_one));
        assert_ok(cuLinkComplete(link, &image, NULL));
        assert_int_equal(registers_of(image, 0), has_own ? 24 : 40);
        assert_int_equal(registers_of(image, 32), has_own ? 24 : 40);
        assert_ok(cuLinkDestroy(link));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_an_image_runs),
        cmocka_unit_test(a_wrapper_is_followed),
        cmocka_unit_test(machine_code_alone_is_refused),
        cmocka_unit_test(a_broken_image_is_an_error),
        cmocka_unit_test(printf_comes_out_when_synchronised),
        cmocka_unit_test(device_malloc_has_its_heap),
        cmocka_unit_test(a_cooperative_grid_has_its_barrier),
        cmocka_unit_test(variables_lie_where_they_do_on_another_gpu),
        cmocka_unit_test(sections_are_what_a_module_takes),
        cmocka_unit_test(sections_that_lie_are_refused),
        cmocka_unit_test(managed_variables_are_marked),
        cmocka_unit_test(registers_are_limited_where_ptx_is_compiled),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
