/* What lanes of a warp come to together by redux.sync: every operation, with members of all kinds, against the same
 * counted in another way. Shuffles, votes and matches are compared in test_kernels.cu. */
#include "cpu/softgpu/ptx/test.h"

#include <stdbool.h>
#include <stdio.h>

enum { KINDS = 9, LEFT = 77 };

/* Lane i has a value and its members in memory, and leaves its result of each kind; LEFT where it has no members. */
#define REDUX(kind, at)                                                                                                \
    "mov.u32 %r4, 77;\n@%p1 redux.sync." kind " %r4, %r2, %r3;\nst.global.u32 [%rd2+" #at "], %r4;\n"
static const char text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 memory) {\n"
    ".reg .b32 %r<5>; .reg .b64 %rd<3>; .reg .pred %p1;\nld.param.u64 %rd1, [memory];\n"
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n"
    "ld.global.u32 %r2, [%rd2];\nld.global.u32 %r3, [%rd2+128];\nsetp.ne.u32 %p1, %r3, 0;\n" REDUX("add.s32", 256)
        REDUX("add.u32", 384) REDUX("min.s32", 512) REDUX("min.u32", 640) REDUX("max.s32", 768) REDUX("max.u32", 896)
            REDUX("and.b32", 1024) REDUX("or.b32", 1152) REDUX("xor.b32", 1280) "ret; }\n";

struct memory {
    uint32_t values[32], members[32], results[KINDS][32];
};

/* Bit for bit what so many values have, and the sum and the ends of them as wide numbers. */
static uint32_t bits(const uint32_t *values, uint32_t members, unsigned kind)
{
    uint32_t out = 0;
    for (unsigned bit = 0; bit < 32; bit++) {
        unsigned have = 0, all = (unsigned)__builtin_popcount(members);
        for (unsigned lane = 0; lane < 32; lane++)
            have += members >> lane & values[lane] >> bit & 1;
        const bool is_set[] = {have == all, have > 0, have % 2 == 1};
        out += (uint32_t)is_set[kind] << bit;
    }
    return out;
}

static uint32_t expected(const uint32_t *values, uint32_t members, unsigned kind)
{
    int64_t sum = 0, least = INT64_MAX, most = INT64_MIN;
    if (kind >= 6)
        return bits(values, members, kind - 6);
    for (unsigned lane = 0; lane < 32; lane++) {
        int64_t one = kind % 2 ? (int64_t)values[lane] : (int32_t)values[lane];
        if (!(members >> lane & 1))
            continue;
        sum += one;
        least = one < least ? one : least;
        most = one > most ? one : most;
    }
    return (uint32_t)(kind < 2 ? sum : kind < 4 ? least : most);
}

static uint32_t value(unsigned lane, unsigned turn)
{
    static const uint32_t ends[] = {0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0x55555555};
    return lane % 4 == turn % 4 ? ends[(lane / 4 + turn) % 8] : (lane * 4 + turn + 1) * 2654435761u;
}

/* `members` of each lane; only the first `threads` lanes are there. */
static void reduce(uint32_t (*members)(unsigned lane), unsigned threads)
{
    struct memory *memory = flyt_ptx_harness_alloc(&harness, sizeof *memory);
    for (unsigned turn = 0; turn < 8; turn++) {
        for (unsigned lane = 0; lane < threads; lane++) {
            memory->values[lane] = value(lane, turn);
            memory->members[lane] = members(lane);
        }
        assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, threads, (uint64_t)(uintptr_t)memory), CUDA_SUCCESS);
        for (unsigned kind = 0; kind < KINDS; kind++)
            for (unsigned lane = 0; lane < threads; lane++) {
                uint32_t want = members(lane) ? expected(memory->values, members(lane), kind) : LEFT;
                if (memory->results[kind][lane] != want)
                    fail_msg("turn %u, kind %u, lane %u: %#x, not %#x", turn, kind, lane, memory->results[kind][lane],
                             want);
            }
    }
}

static uint32_t all(unsigned lane)
{
    return 0xffffffff;
}

static uint32_t halves(unsigned lane)
{
    return lane < 16 ? 0x0000ffff : 0xffff0000;
}

static uint32_t tiles(unsigned lane)
{
    return 0xfu << (lane & ~3u);
}

static uint32_t alone(unsigned lane)
{
    return 1u << lane;
}

/* Two sets, and the others take no part. */
static uint32_t some(unsigned lane)
{
    static const uint32_t sets[] = {0x80000301, 0x0ff0f002};
    return sets[0] >> lane & 1 ? sets[0] : sets[1] >> lane & 1 ? sets[1] : 0;
}

static uint32_t first_twenty(unsigned lane)
{
    return 0x000fffff;
}

static void members_are_reduced(void **state)
{
    (void)state;
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    reduce(all, 32);
    reduce(halves, 32);
    reduce(tiles, 32);
    reduce(alone, 32);
    reduce(some, 32);
    reduce(first_twenty, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(members_are_reduced)};

    return RUN_WITH_EACH_ISA(tests, set_up);
}
