// Attributes of GPU core dumps, as driver 580 has them: sizes, what is set is what is got, a context begins with what
// holds for the process then, and what cannot be read or set. Nothing faults here, and nothing enables a dump.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static size_t size_of(CUcoredumpSettings attribute)
{
    size_t size = 0;

    CHECK_CU(cuCoredumpGetAttributeGlobal(attribute, NULL, &size));
    return size;
}

static bool get_bool(CUcoredumpSettings attribute)
{
    bool value = false;
    size_t size = sizeof value;

    const CUresult code = cuCoredumpGetAttribute(attribute, &value, &size);
    EXPECT(code == CUDA_SUCCESS, "attribute %d of a context: %d", (int)attribute, (int)code);
    return value;
}

static bool get_bool_global(CUcoredumpSettings attribute)
{
    bool value = false;
    size_t size = sizeof value;

    CHECK_CU(cuCoredumpGetAttributeGlobal(attribute, &value, &size));
    return value;
}

static void set_bool_global(CUcoredumpSettings attribute, bool value)
{
    size_t size = sizeof value;

    CHECK_CU(cuCoredumpSetAttributeGlobal(attribute, &value, &size));
}

static int get_flags(void)
{
    int value = -1;
    size_t size = sizeof value;

    CHECK_CU(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &value, &size));
    return value;
}

static void expect_file(const char *expected)
{
    char name[1024] = "none";
    size_t size = sizeof name;

    CHECK_CU(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
    EXPECT(strcmp(name, expected) == 0, "got '%s'", name);
}

static void expect_name_global(CUcoredumpSettings attribute, const char *expected)
{
    char name[1024] = "none";
    size_t size = sizeof name;

    CHECK_CU(cuCoredumpGetAttributeGlobal(attribute, name, &size));
    EXPECT(strcmp(name, expected) == 0, "got '%s'", name);
}

/* Those of a context, that is. */
static void no_context(void)
{
    bool value = true;
    size_t size = sizeof value;

    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &value, &size), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_FILE, NULL, &size), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(!get_bool_global(CU_COREDUMP_LIGHTWEIGHT));
}

/* A context of the defaults. */
static void defaults(void)
{
    EXPECT_EQ(size_of(CU_COREDUMP_ENABLE_ON_EXCEPTION), sizeof(bool));
    EXPECT_EQ(size_of(CU_COREDUMP_FILE), 1024);
    EXPECT_EQ(size_of(CU_COREDUMP_PIPE), 1024);
    EXPECT_EQ(size_of(CU_COREDUMP_GENERATION_FLAGS), sizeof(int));
    EXPECT(!get_bool(CU_COREDUMP_ENABLE_ON_EXCEPTION));
    EXPECT(get_bool(CU_COREDUMP_TRIGGER_HOST));
    EXPECT(!get_bool(CU_COREDUMP_LIGHTWEIGHT));
    EXPECT(!get_bool_global(CU_COREDUMP_ENABLE_USER_TRIGGER));
    EXPECT_EQ(get_flags(), CU_COREDUMP_DEFAULT_FLAGS);
    /* Documented are core.cuda.HOST.PID and corepipe.cuda.HOST.PID. */
    expect_file("");
    expect_name_global(CU_COREDUMP_FILE, "");
    expect_name_global(CU_COREDUMP_PIPE, "");
}

static void sizes_that_count(void)
{
    int value = 0;
    char name[1024];
    size_t size = sizeof value;

    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &value, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuCoredumpGetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &value, &size), CUDA_ERROR_INVALID_VALUE);
    size = 1;
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &value, &size), CUDA_ERROR_INVALID_VALUE);
    size = sizeof name;
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, name, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(size, sizeof name);
    size = 4;
    CHECK_CU(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
    EXPECT_EQ(size, 4);
}

/* What is the process's alone. */
static void what_a_context_does_not_have(void)
{
    bool value = true;
    char name[1024];
    size_t size = sizeof value;

    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &value, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, NULL, &size), CUDA_ERROR_INVALID_VALUE);
    size = sizeof name;
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_PIPE, name, &size), CUDA_ERROR_INVALID_VALUE);
}

static void of_the_process(void)
{
    char file[] = "/nowhere/core.of.mine", pipe[] = "a.pipe", name[1024];
    size_t size = sizeof file;
    CUcontext context;

    CHECK_CU(cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, file, &size));
    size = sizeof pipe;
    CHECK_CU(cuCoredumpSetAttributeGlobal(CU_COREDUMP_PIPE, pipe, &size));
    set_bool_global(CU_COREDUMP_TRIGGER_HOST, false);
    set_bool_global(CU_COREDUMP_LIGHTWEIGHT, true);
    size = sizeof name;
    CHECK_CU(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
    EXPECT(strcmp(name, file) == 0, "got '%s'", name);
    size = sizeof name;
    CHECK_CU(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, name, &size));
    EXPECT(strcmp(name, pipe) == 0, "got '%s'", name);
    EXPECT(!get_bool_global(CU_COREDUMP_TRIGGER_HOST));
    EXPECT(get_bool_global(CU_COREDUMP_LIGHTWEIGHT));

    /* One that is made begins with this. */
    CHECK_CU(cuCtxCreate(&context, NULL, 0, 0));
    EXPECT(!get_bool(CU_COREDUMP_TRIGGER_HOST));
    EXPECT(get_bool(CU_COREDUMP_LIGHTWEIGHT));
    EXPECT_EQ(get_flags() & CU_COREDUMP_LIGHTWEIGHT_FLAGS, CU_COREDUMP_LIGHTWEIGHT_FLAGS);
    expect_file(file);
    CHECK_CU(cuCtxDestroy(context));
}

static void of_a_context(void)
{
    int flags = CU_COREDUMP_SKIP_GLOBAL_MEMORY | CU_COREDUMP_SKIP_ABORT;
    char file[] = "core.of.the.context";
    size_t size = sizeof flags;

    CHECK_CU(cuCoredumpSetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
    EXPECT_EQ(get_flags(), flags);
    EXPECT(!get_bool(CU_COREDUMP_LIGHTWEIGHT));
    size = sizeof file;
    CHECK_CU(cuCoredumpSetAttribute(CU_COREDUMP_FILE, file, &size));
    expect_file(file);
}

static void what_is_wrong(void)
{
    bool value = true;
    size_t size = sizeof value;

    EXPECT_CU(cuCoredumpGetAttribute((CUcoredumpSettings)0, &value, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuCoredumpGetAttribute(CU_COREDUMP_MAX, &value, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuCoredumpSetAttributeGlobal(CU_COREDUMP_MAX, &value, &size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, &value, NULL), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CUcontext context;

    CHECK_CU(cuInit(0));
    no_context();
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    defaults();
    sizes_that_count();
    what_a_context_does_not_have();
    of_a_context();
    of_the_process();
    what_is_wrong();
    return 0;
}
