// What concerns the process: what kernels print, children, sleep, errors that stay.
#include "movers.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <map>
#include <string>

extern char **environ;

// ---- printf

static __global__ void print_lines(uint32_t number, uint32_t lines)
{
    for (uint32_t i = 0; i < lines; i++)
        printf("<%u:%u:%u:%s>\n", number, threadIdx.x, i, "text");
}

/* Each line comes once, those of a thread in their order, and when the program has waited all of them are there. */
struct printed_lines : mover {
    enum { THREADS = 6, LINES = 3 };
    int file, output;

    void set_up() override
    {
        file = memfd_create("printed", MFD_CLOEXEC);
        output = dup(1);
        EXPECT(file >= 0 && output >= 0, "no file for what is printed");
    }
    std::string captured()
    {
        std::string text((size_t)lseek(file, 0, SEEK_END), 0);

        EXPECT(pread(file, &text[0], text.size(), 0) == (ssize_t)text.size(), "what was printed cannot be read");
        return text;
    }
    void round() override
    {
        std::map<unsigned, unsigned> next; /* line, by thread */
        size_t at = 0;

        fflush(stdout);
        EXPECT(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0 && dup2(file, 1) == 1, "no file for a round");
        print_lines<<<1, THREADS>>>(number, LINES);
        CHECK_LAUNCH();
        mover_sleep_ms(random(3));
        CHECK(cudaDeviceSynchronize());
        fflush(stdout);
        EXPECT(dup2(output, 1) == 1, "the standard output is lost");
        std::string text = captured();
        while (at < text.size()) {
            unsigned round_number, thread, line;
            int used = 0;
            EXPECT(sscanf(text.c_str() + at, "<%u:%u:%u:text>\n%n", &round_number, &thread, &line, &used) == 3 &&
                       used > 0,
                   "at byte %zu of what was printed: %s", at, text.c_str());
            EXPECT(round_number == number && thread < THREADS && line == next[thread],
                   "line %u of thread %u of round %u is there, expected %u of round %u: %s", line, thread, round_number,
                   next[thread], number, text.c_str());
            next[thread]++;
            at += (size_t)used;
        }
        for (unsigned thread = 0; thread < THREADS; thread++)
            EXPECT(next[thread] == LINES, "thread %u has printed %u lines: %s", thread, next[thread], text.c_str());
    }
};

// ---- children and sleep

struct forked_children : mover {
    enum { WORDS = 1000 };
    mover_stepper stepper;

    void set_up() override
    {
        stepper.make(8);
    }
    /* Whatever children do that do not use CUDA, the parent's work goes on. */
    void round() override
    {
        static const char *const words[] = {"true", NULL};
        int status = 0;
        pid_t pid;

        stepper.step(random(), 0, 100);
        if (number % 2) {
            pid = fork();
            if (pid == 0)
                _exit(33);
        } else if (posix_spawnp(&pid, "true", NULL, NULL, (char *const *)words, environ) != 0) {
            pid = -1;
        }
        EXPECT(pid > 0, "no child");
        stepper.step(random(), 0, 100);
        EXPECT(waitpid(pid, &status, 0) == pid, "the child is lost");
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == (number % 2 ? 33 : 0), "the child's status is 0x%x", status);
        stepper.check("what the parent made meanwhile");
    }
};

/* Makes no call at all between the beginning and the end. */
struct sleeper : mover {
    enum { WORDS = 100000 };
    uint32_t *words;

    void set_up() override
    {
        words = mover_words(WORDS);
        mover_fill(words, WORDS, 31);
        CHECK(cudaDeviceSynchronize());
    }
    void round() override
    {
        mover_sleep_ms(20);
    }
    void finish() override
    {
        mover_expect_pattern(words, WORDS, 31, "what was there before the sleep");
    }
};

/* Sleeps with work on its way, of which it learns later. */
struct sleeper_with_work : mover {
    cudaStream_t stream;
    cudaEvent_t event;
    mover_stepper stepper;

    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&event));
        stepper.make(6);
    }
    void round() override
    {
        for (int i = 0; i < 10; i++)
            stepper.step(random(), stream, 2000);
        CHECK(cudaEventRecord(event, stream));
        mover_sleep_ms(5 + random(20));
        CHECK(cudaEventSynchronize(event));
        stepper.check("what was made during the sleep");
    }
};

// ---- the device, reset

static __device__ uint32_t resets_forget = 5;

static __global__ void read_variable(uint32_t *ret_value)
{
    *ret_value = resets_forget++;
}

/* Everything goes, variables are what they were at the beginning, and all is made anew. */
struct device_resets : mover {
    enum { WORDS = 3000, KEPT_ROUNDS = 50 };
    uint32_t *words, *value, kept;

    void make()
    {
        words = mover_words(WORDS);
        value = mover_words(1);
        mover_fill(words, WORDS, number);
        kept = number;
    }
    void set_up() override
    {
        make();
    }
    void round() override
    {
        read_variable<<<1, 1>>>(value);
        CHECK_LAUNCH();
        mover_expect_words(value, {5 + (number - 1) % KEPT_ROUNDS}, "a variable since the last reset");
        mover_expect_pattern(words, WORDS, kept, "memory since the last reset");
        if (number % KEPT_ROUNDS == 0) {
            CHECK(cudaDeviceReset());
            make();
        }
    }
};

// ---- errors that stay

static __global__ void store_nowhere(uint32_t *nowhere)
{
    *nowhere = 1;
}

static __global__ void trap(void)
{
    asm("trap;");
}

struct broken_context : mover {
    uint32_t *words;
    cudaStream_t stream;
    cudaError_t code = cudaSuccess;

    virtual void break_it() = 0;
    void set_up() override
    {
        words = mover_words(100);
        CHECK(cudaStreamCreate(&stream));
        break_it();
        code = cudaDeviceSynchronize();
        EXPECT(code != cudaSuccess, "the context is not broken");
        EXPECT_CODE(cudaGetLastError(), code);
    }
    /* For ever and for every call that needs the context. */
    void round() override
    {
        uint32_t word = 4711;
        size_t bytes;
        void *memory = NULL;
        int count;

        EXPECT_CODE(cudaDeviceSynchronize(), code);
        EXPECT_CODE(cudaStreamQuery(stream), code);
        EXPECT_CODE(cudaMemcpy(&word, words, sizeof word, cudaMemcpyDeviceToHost), code);
        EXPECT_EQ(word, 4711);
        EXPECT_CODE(cudaMalloc(&memory, 100), code);
        EXPECT_CODE(cudaMemGetInfo(&bytes, &bytes), code);
        store_nowhere<<<1, 1>>>(words);
        EXPECT_CODE(cudaGetLastError(), code);
        CHECK(cudaGetDeviceCount(&count));
        mover_sleep_ms(5);
    }
};

struct wrong_address : broken_context {
    void break_it() override
    {
        store_nowhere<<<1, 1>>>((uint32_t *)16);
        CHECK_LAUNCH();
    }
    void round() override
    {
        EXPECT_EQ(code, cudaErrorIllegalAddress);
        broken_context::round();
    }
};

struct trapped : broken_context {
    void break_it() override
    {
        trap<<<1, 1>>>();
        CHECK_LAUNCH();
    }
};

static const mover_entry entries[] = {
    {"printed_lines", 0, mover_make<printed_lines>, "what kernels print, line for line"},
    {"forked_children", 0, mover_make<forked_children>, "children that do not use CUDA"},
    {"sleeper", 0, mover_make<sleeper>, "no call at all until the end"},
    {"sleeper_with_work", 0, mover_make<sleeper_with_work>, "sleep with work on its way"},
    {"device_resets", 0, mover_make<device_resets>, "the device reset every few rounds"},
    {"wrong_address", MOVER_FAULTS, mover_make<wrong_address>, "a store to a wrong address, and its error for ever"},
    {"trapped", MOVER_FAULTS, mover_make<trapped>, "a kernel that traps, and its error for ever"},
};
MOVER_FAMILY(process, entries);
