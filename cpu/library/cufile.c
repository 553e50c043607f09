/*
 * libcufile.so.0: cuFile reads and writes files into memory of a GPU that is on the same machine as the files, which it
 * is not here. Every function says so; the program then reads files itself. NVIDIA's own library looks for the GPU's
 * PCI address among the machine's devices, and never ends where it is not there.
 *
 * No argument is looked at, so that the functions need no prototypes of their own; what they return NVIDIA documents:
 * a pair of codes, or a negative code in place of a number of bytes.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

enum { PLATFORM_NOT_SUPPORTED = 5007 }; /* CU_FILE_PLATFORM_NOT_SUPPORTED */

struct outcome {
    int code, cuda_code;
};

static void say(void)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&is_said))
        fputs("flyt: libcufile: files are on this machine and the GPU is on another: cuFile is not supported, and "
              "programs "
              "read and write files themselves\n",
              stderr);
}

#define REFUSED(name)                                                                                                  \
    EXPORT struct outcome name(void);                                                                                  \
    struct outcome name(void)                                                                                          \
    {                                                                                                                  \
        say();                                                                                                         \
        return (struct outcome){PLATFORM_NOT_SUPPORTED, 0};                                                            \
    }

#define TRANSFER(name)                                                                                                 \
    EXPORT ssize_t name(void);                                                                                         \
    ssize_t name(void)                                                                                                 \
    {                                                                                                                  \
        say();                                                                                                         \
        return -PLATFORM_NOT_SUPPORTED;                                                                                \
    }

/* Of what was never made. */
#define NOTHING(name)                                                                                                  \
    EXPORT void name(void);                                                                                            \
    void name(void)                                                                                                    \
    {                                                                                                                  \
    }

REFUSED(cuFileDriverOpen)
REFUSED(cuFileDriverClose)
REFUSED(cuFileDriverClose_v2)
REFUSED(cuFileDriverGetProperties)
REFUSED(cuFileDriverSetPollMode)
REFUSED(cuFileDriverSetMaxDirectIOSize)
REFUSED(cuFileDriverSetMaxCacheSize)
REFUSED(cuFileDriverSetMaxPinnedMemSize)
REFUSED(cuFileHandleRegister)
NOTHING(cuFileHandleDeregister)
REFUSED(cuFileBufRegister)
REFUSED(cuFileBufDeregister)
TRANSFER(cuFileRead)
TRANSFER(cuFileWrite)
REFUSED(cuFileReadAsync)
REFUSED(cuFileWriteAsync)
REFUSED(cuFileBatchIOSetUp)
REFUSED(cuFileBatchIOSubmit)
REFUSED(cuFileBatchIOGetStatus)
REFUSED(cuFileBatchIOCancel)
NOTHING(cuFileBatchIODestroy)
REFUSED(cuFileStreamRegister)
REFUSED(cuFileStreamDeregister)
REFUSED(cuFileGetVersion)
REFUSED(cuFileGetParameterSizeT)
REFUSED(cuFileGetParameterBool)
REFUSED(cuFileGetParameterString)
REFUSED(cuFileGetParameterMinMaxValue)
REFUSED(cuFileGetParameterPosixPoolSlabArray)
REFUSED(cuFileSetParameterSizeT)
REFUSED(cuFileSetParameterBool)
REFUSED(cuFileSetParameterString)
REFUSED(cuFileSetParameterPosixPoolSlabArray)
REFUSED(cuFileGetStatsL1)
REFUSED(cuFileGetStatsL2)
REFUSED(cuFileGetStatsL3)
REFUSED(cuFileGetStatsLevel)
REFUSED(cuFileSetStatsLevel)
REFUSED(cuFileStatsReset)
REFUSED(cuFileStatsStart)
REFUSED(cuFileStatsStop)
REFUSED(cuFileGetBARSizeInKB)

/* Of the driver, which is not open. */
EXPORT long cuFileUseCount(void);
long cuFileUseCount(void)
{
    return 0;
}
