// The driver's error log: an empty one, what a refused call leaves in it, iterators, callbacks, and what is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned heard;
static char last_heard[512];

static void hear(void *data, CUlogLevel level, char *message, size_t length)
{
    EXPECT_EQ(*(int *)data, 42);
    EXPECT(level == CU_LOG_LEVEL_ERROR || level == CU_LOG_LEVEL_WARNING);
    snprintf(last_heard, sizeof(last_heard), "%.*s", (int)length, message);
    heard++;
}

// Through Flyt a function that is not forwarded is logged once, by its name; each of these is used once here.
static void check_entries(void)
{
    CUlogIterator start, again;
    CUlogsCallbackHandle handle = NULL;
    int user = 42;
    char text[25600], small[8];
    size_t bytes = sizeof(text);

    CHECK_CU(cuLogsCurrent(&start, 0));
    again = start;
    CHECK_CU(cuLogsRegisterCallback(hear, &user, &handle));
    EXPECT(handle != NULL);
    EXPECT_CU(cuDestroyExternalMemory(NULL), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(heard, 1u);
    EXPECT(strstr(last_heard, "cuDestroyExternalMemory") != NULL);
    CHECK_CU(cuLogsUnregisterCallback(handle));
    EXPECT_CU(cuLogsUnregisterCallback(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDestroyExternalSemaphore(NULL), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(heard, 1u);
    bytes = sizeof(small);
    EXPECT_CU(cuLogsDumpToMemory(&start, small, &bytes, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(bytes, (size_t)0);
    bytes = sizeof(text);
    CHECK_CU(cuLogsDumpToMemory(&start, text, &bytes, 0));
    EXPECT_EQ(bytes, strlen(text));
    EXPECT(strstr(text, "cuDestroyExternalMemory") < strstr(text, "cuDestroyExternalSemaphore"));
    bytes = sizeof(text);
    CHECK_CU(cuLogsDumpToMemory(&start, text, &bytes, 0));
    EXPECT_EQ(bytes, (size_t)0);
    // The last message alone finds room, behind a line that says so.
    bytes = 140;
    CHECK(cudaLogsDumpToMemory(&again, text, &bytes, 0));
    EXPECT(strstr(text, "cuDestroyExternalMemory") == NULL && strstr(text, "cuDestroyExternalSemaphore") != NULL);
    EXPECT(bytes < 140 && bytes == strlen(text));
}

static void check_file(void)
{
    char path[] = "/tmp/error-log-XXXXXX", text[4096] = "";
    int fd = mkstemp(path);

    EXPECT(fd >= 0);
    CHECK_CU(cuLogsDumpToFile(NULL, path, 0));
    EXPECT(read(fd, text, sizeof(text) - 1) >= 0);
    EXPECT(!getenv("FLYT_TEST_FORWARDED") || strstr(text, "cuDestroyExternalSemaphore") != NULL);
    close(fd);
    unlink(path);
}

int main(void)
{
    CUlogIterator iterator;
    CUlogsCallbackHandle handle;
    char text[64];
    size_t bytes = sizeof(text);

    CHECK_CU(cuInit(0));
    CHECK_CU(cuLogsCurrent(&iterator, 0));
    CHECK_CU(cuLogsDumpToMemory(&iterator, text, &bytes, 0));
    EXPECT_EQ(bytes, (size_t)0);
    EXPECT_CU(cuLogsCurrent(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLogsRegisterCallback(NULL, NULL, &handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLogsDumpToFile(NULL, "/nowhere/at/all", 0), CUDA_ERROR_INVALID_VALUE);
    if (getenv("FLYT_TEST_FORWARDED"))
        check_entries();
    check_file();
    return 0;
}
