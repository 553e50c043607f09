/*
 * Loads and stores at addresses of many shapes, in every space, by all lanes and by some: the engine finds places for
 * whole rows of lanes where it can, and nothing may tell.
 */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <string.h>

enum { LANES = 32, ROOM = 1024, PAGE = FLYT_PTX_HARNESS_GRANULE };

/* A kernel's parameters: ROOM bytes of data, each lane's offset in them, where results go. */
static uint8_t *data, *dumps;
static uint32_t *offsets;
static uint64_t *loaded;

/* How a space is reached: what gives %rd9, where the data begins, and the base of the access. */
struct space {
    const char *name, *declaration, *begin, *base;
    bool is_per_lane;
};

static const struct space spaces[] = {
    {"global", "", "mov.u64 %rd9, %rd1;", "%rd5", false},
    {"shared", ".shared .align 16 .b8 room[1024];", "mov.u64 %rd9, room;", "%rd5", false},
    {"shared", ".shared .align 16 .b8 room[1024];", "mov.u64 %rd9, room;", "%r9", false},
    {"local", ".local .align 16 .b8 room[1024];", "mov.u64 %rd9, room;", "%rd5", true},
    {"", "", "mov.u64 %rd9, %rd1;", "%rd5", false},
    {"", ".shared .align 16 .b8 room[1024];", "mov.u64 %rd8, room; cvta.shared.u64 %rd9, %rd8;", "%rd5", false},
    {"", ".local .align 16 .b8 room[1024];", "mov.u64 %rd8, room; cvta.local.u64 %rd9, %rd8;", "%rd5", true},
};

struct type {
    const char *name, *registers, *read, *from_data; /* elements; what goes to `loaded`; 32 bits into %a */
    unsigned bytes, count;
    bool is_signed;
};

static const struct type types[] = {
    {"u8", "%a", "cvt.u64.u32 %rd7, %a", "", 1, 1, false},
    {"s8", "%a", "cvt.u64.u32 %rd7, %a", "", 1, 1, true},
    {"u16", "%a", "cvt.u64.u32 %rd7, %a", "", 2, 1, false},
    {"s16", "%a", "cvt.u64.u32 %rd7, %a", "", 2, 1, true},
    {"u32", "%a", "cvt.u64.u32 %rd7, %a", "", 4, 1, false},
    {"u64", "%q", "mov.u64 %rd7, %q", "mov.b64 %q, {%a, %b};", 8, 1, false},
    {"v2.u32", "{%a, %b}", "mov.b64 %rd7, {%a, %b}", "", 4, 2, false},
    {"v4.u16", "{%a, %b, %c, %d}", "mad.lo.u32 %a, %b, 3, %a; mad.lo.u32 %c, %d, 5, %c; mov.b64 %rd7, {%a, %c}", "", 2,
     4, false},
    {"v4.u32", "{%a, %b, %c, %d}", "mad.lo.u32 %a, %b, 3, %a; mad.lo.u32 %c, %d, 5, %c; mov.b64 %rd7, {%a, %c}", "", 4,
     4, false},
};

/* In units of the access: where a lane's place is. */
static unsigned consecutive(unsigned lane)
{
    return lane;
}
static unsigned equal(unsigned lane)
{
    (void)lane;
    return 5;
}
static unsigned tiles_of_16(unsigned lane)
{
    return lane / 16 * 24 + lane % 16;
}
static unsigned tiles_of_8(unsigned lane)
{
    return (3 - lane / 8) * 12 + lane % 8;
}
static unsigned one_row(unsigned lane)
{
    return lane % 8 + 3;
}
static unsigned overlapping_rows(unsigned lane)
{
    return lane / 8 * 4 + lane % 8;
}
static unsigned equal_in_tiles(unsigned lane)
{
    return lane / 16 * 17;
}
static unsigned equal_in_rows(unsigned lane)
{
    return 40 - lane / 8 * 9;
}
static unsigned backward(unsigned lane)
{
    return 31 - lane;
}
static unsigned every_second(unsigned lane)
{
    return lane * 2;
}
static unsigned scattered(unsigned lane)
{
    return lane * 37 % 61;
}
static unsigned almost_consecutive(unsigned lane)
{
    return lane == 21 ? 50 : lane;
}
static unsigned almost_equal(unsigned lane)
{
    return lane == 31 ? 6 : 5;
}

static unsigned (*const shapes[])(unsigned lane) = {
    consecutive,    equal,         tiles_of_16, tiles_of_8,   one_row,   overlapping_rows,
    equal_in_tiles, equal_in_rows, backward,    every_second, scattered, almost_consecutive,
    almost_equal,
};

static const uint32_t masks[] = {0xffffffff, 1, 0x80000000, 0x55555555, 0xffff, 0xff00ff00, 0x7fffffff, 0x12345678};

/* Loads by the lanes in `lanes`, then stores by them, then every lane's copy of all that it sees. */
static void load_kernel(const struct space *space, const struct type *type)
{
    char text[4096];
    const char *dot = *space->name ? "." : "";

    snprintf(
        text, sizeof text,
        HEAD
        ".visible .entry access(.param .u64 data, .param .u64 offsets, .param .u64 loaded, .param .u64 dumps, "
        ".param .u32 lanes) {\n"
        ".reg .pred %%p<3>; .reg .b32 %%r<12>, %%a, %%b, %%c, %%d; .reg .b64 %%rd<16>, %%q; %s\n"
        "ld.param.u64 %%rd1, [data]; ld.param.u64 %%rd2, [offsets]; ld.param.u64 %%rd3, [loaded];\n"
        "ld.param.u64 %%rd4, [dumps]; ld.param.u32 %%r1, [lanes]; mov.u32 %%r2, %%tid.x; %s\n"
        "mov.u32 %%r3, 0;\n"
        "FILL: cvt.u64.u32 %%rd10, %%r3; add.s64 %%rd11, %%rd1, %%rd10; add.s64 %%rd12, %%rd9, %%rd10;\n"
        "ld.global.u32 %%r4, [%%rd11]; st%s%s.u32 [%%rd12], %%r4; add.s32 %%r3, %%r3, 4;\n"
        "setp.lt.u32 %%p1, %%r3, 1024; @%%p1 bra FILL;\n"
        "mul.wide.u32 %%rd10, %%r2, 4; add.s64 %%rd10, %%rd2, %%rd10; ld.global.u32 %%r5, [%%rd10];\n"
        "cvt.u64.u32 %%rd10, %%r5; add.s64 %%rd5, %%rd9, %%rd10; sub.s64 %%rd5, %%rd5, 64; cvt.u32.u64 %%r9, %%rd5;\n"
        "shr.u32 %%r6, %%r1, %%r2; and.b32 %%r6, %%r6, 1; setp.ne.u32 %%p2, %%r6, 0;\n"
        "mov.u32 %%a, 11; mov.u32 %%b, 22; mov.u32 %%c, 33; mov.u32 %%d, 44; mov.u64 %%q, 55; bar.sync 0;\n"
        "@%%p2 ld%s%s.%s %s, [%s+64];\n"
        "%s; mul.wide.u32 %%rd10, %%r2, 8; add.s64 %%rd10, %%rd3, %%rd10; st.global.u64 [%%rd10], %%rd7;\n"
        "mad.lo.u32 %%a, %%r2, 0x01020304, 0x11111111; add.u32 %%b, %%a, 0x10101010;\n"
        "add.u32 %%c, %%b, 0x10101010; add.u32 %%d, %%c, 0x10101010; %s bar.sync 0;\n"
        "@%%p2 st%s%s.%s [%s+64], %s;\n"
        "bar.sync 0; mov.u32 %%r3, 0; mul.wide.u32 %%rd10, %%r2, 1024; add.s64 %%rd13, %%rd4, %%rd10;\n"
        "DUMP: cvt.u64.u32 %%rd10, %%r3; add.s64 %%rd11, %%rd13, %%rd10; add.s64 %%rd12, %%rd9, %%rd10;\n"
        "ld%s%s.u32 %%r4, [%%rd12]; st.global.u32 [%%rd11], %%r4; add.s32 %%r3, %%r3, 4;\n"
        "setp.lt.u32 %%p1, %%r3, 1024; @%%p1 bra DUMP; ret; }\n",
        space->declaration, space->begin, dot, space->name, dot, space->name, type->name, type->registers, space->base,
        type->read, type->from_data, dot, space->name, type->name, space->base, type->registers, dot, space->name);
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
}

/* Element e of a lane's access, as a register has it. */
static uint64_t element(const struct type *type, const uint8_t *memory, unsigned lane, unsigned e)
{
    uint64_t value = 0;

    memcpy(&value, memory + offsets[lane] + e * type->bytes, type->bytes);
    if (type->is_signed && value >> (type->bytes * 8 - 1))
        value = (uint32_t)(value | ~0ull << type->bytes * 8);
    return value;
}

static uint64_t expected_load(const struct type *type, const uint8_t *memory, unsigned lane, bool is_running)
{
    uint64_t values[4] = {11, 22, 33, 44};

    if (type->bytes == 8)
        return is_running ? element(type, memory, lane, 0) : 55;
    for (unsigned e = 0; is_running && e < type->count; e++)
        values[e] = element(type, memory, lane, e);
    if (type->count == 1)
        return values[0];
    if (type->count == 2)
        return values[0] | values[1] << 32;
    return (uint32_t)(values[0] + values[1] * 3) | (uint64_t)(uint32_t)(values[2] + values[3] * 5) << 32;
}

static void expect_store(const struct type *type, uint8_t *memory, unsigned lane)
{
    for (unsigned e = 0; e < type->count; e++) {
        uint64_t a = (uint32_t)(lane * 0x01020304u + 0x11111111u * 1 + e * 0x10101010u);

        if (type->bytes == 8)
            a |= (uint64_t)(uint32_t)(a + 0x10101010u) << 32;
        memcpy(memory + offsets[lane] + e * type->bytes, &a, type->bytes);
    }
}

static void check_access(const struct space *space, const struct type *type, unsigned shape, uint32_t lanes)
{
    static uint8_t before[LANES][ROOM], after[LANES][ROOM];
    unsigned unit = type->bytes * type->count, units = ROOM / unit;

    for (unsigned i = 0; i < ROOM; i++)
        data[i] = (uint8_t)(i * 167 + i / 256 + 3);
    for (unsigned lane = 0; lane < LANES; lane++) {
        offsets[lane] = shapes[shape](lane) % units * unit;
        memcpy(before[lane], data, ROOM);
    }
    memcpy(after, before, sizeof after);
    for (unsigned lane = 0; lane < LANES; lane++)
        if (lanes >> lane & 1)
            expect_store(type, after[space->is_per_lane ? lane : 0], lane);
    assert_int_equal(FLYT_PTX_RUN(&harness, "access", 1, LANES, (uintptr_t)data, (uintptr_t)offsets, (uintptr_t)loaded,
                                  (uintptr_t)dumps, lanes),
                     CUDA_SUCCESS);
    for (unsigned lane = 0; lane < LANES; lane++) {
        uint64_t expected = expected_load(type, before[lane], lane, lanes >> lane & 1);
        const uint8_t *seen = after[space->is_per_lane ? lane : 0];

        if (loaded[lane] != expected || memcmp(dumps + lane * ROOM, seen, ROOM))
            fail_msg("ld and st.%s.%s [%s], shape %u, lanes %08x: lane %u loaded %llx, expected %llx; memory %s",
                     space->name, type->name, space->base, shape, lanes, lane, (unsigned long long)loaded[lane],
                     (unsigned long long)expected, memcmp(dumps + lane * ROOM, seen, ROOM) ? "differs" : "is right");
    }
}

static void lanes_reach_their_own_places(void **state)
{
    (void)state;
    for (size_t space = 0; space < sizeof spaces / sizeof *spaces; space++)
        for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
            load_kernel(&spaces[space], &types[type]);
            for (unsigned shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
                for (size_t mask = 0; mask < sizeof masks / sizeof *masks; mask++)
                    check_access(&spaces[space], &types[type], shape, masks[mask]);
        }
}

/* ---- faults ---- */

/* Each lane in `lanes` adds one to the word at its address. */
static const char faults_text[] =
    HEAD ".visible .entry load(.param .u64 at, .param .u32 lanes) {\n"
         ".reg .pred %p1; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"
         "ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [lanes]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 8;\n"
         "add.s64 %rd3, %rd1, %rd2; ld.global.u64 %rd4, [%rd3]; shr.u32 %r3, %r1, %r2; and.b32 %r3, %r3, 1;\n"
         "setp.ne.u32 %p1, %r3, 0; @%p1 ld.global.u32 %r4, [%rd4]; ret; }\n"
         ".visible .entry store(.param .u64 at, .param .u32 lanes) {\n"
         ".reg .pred %p1; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"
         "ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [lanes]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 8;\n"
         "add.s64 %rd3, %rd1, %rd2; ld.global.u64 %rd4, [%rd3]; shr.u32 %r3, %r1, %r2; and.b32 %r3, %r3, 1;\n"
         "setp.ne.u32 %p1, %r3, 0; @%p1 st.global.u32 [%rd4], %r1; ret; }\n"
         ".visible .entry shared(.param .u64 at, .param .u32 lanes) {\n"
         ".reg .pred %p1; .reg .b32 %r<8>; .reg .b64 %rd<8>; .shared .align 4 .b8 room[256];\n"
         "ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [lanes]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 8;\n"
         "add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r4, [%rd3]; mov.u32 %r5, room; add.u32 %r4, %r4, %r5; shr.u32 %r3, "
         "%r1, %r2; and.b32 %r3, %r3, 1;\n"
         "setp.ne.u32 %p1, %r3, 0; @%p1 st.shared.u32 [%r4], %r1; ret; }\n";

struct fault {
    const char *kernel, *what;
    int64_t start, step, odd_lane, odd; /* lane i's address: start + i × step, of one lane another */
    uint32_t lanes;
    CUresult result;
};

/* Of `pages`: the third page is not mapped, the fifth is read-only. */
static const struct fault faults[] = {
    {"load", "consecutive", 0, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"load", "into the hole", 2 * PAGE - 124, 4, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"load", "up to the hole", 2 * PAGE - 128, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"load", "up to the hole but for the last lane", 2 * PAGE - 124, 4, -1, 0, ~0u >> 1, CUDA_SUCCESS},
    {"load", "around the hole", 0, 4, 9, 3 * PAGE, ~0u, CUDA_SUCCESS},
    {"load", "one lane in the hole", 0, 4, 31, 2 * PAGE, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"load", "a lane that does not run in the hole", 0, 4, 31, 2 * PAGE, ~0u >> 1, CUDA_SUCCESS},
    {"load", "all lanes in the hole", 2 * PAGE, 0, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"load", "strided over the hole", 0, PAGE / 2, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"load", "one lane misaligned", 0, 4, 7, 30, ~0u, CUDA_ERROR_MISALIGNED_ADDRESS},
    {"load", "all lanes misaligned", 2, 4, -1, 0, ~0u, CUDA_ERROR_MISALIGNED_ADDRESS},
    {"load", "equal and misaligned", 2, 0, -1, 0, ~0u, CUDA_ERROR_MISALIGNED_ADDRESS},
    {"load", "read-only", 4 * PAGE, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"store", "consecutive", 0, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"store", "read-only", 4 * PAGE, 4, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"store", "last lane read-only", 4 * PAGE - 124, 4, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"store", "one lane at null", 0, 4, 3, INT64_MIN, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"store", "one lane misaligned", 0, 4, 31, 1, ~0u, CUDA_ERROR_MISALIGNED_ADDRESS},
    {"shared", "all of it", 0, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"shared", "its end", 128, 4, -1, 0, ~0u, CUDA_SUCCESS},
    {"shared", "one lane behind its end", 132, 4, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"shared", "a lane that does not run behind its end", 132, 4, -1, 0, ~0u >> 1, CUDA_SUCCESS},
    {"shared", "around the end of numbers", -64, 4, -1, 0, ~0u, CUDA_ERROR_ILLEGAL_ADDRESS},
    {"shared", "misaligned", 2, 4, -1, 0, ~0u, CUDA_ERROR_MISALIGNED_ADDRESS},
};

static void a_lane_that_may_not_ends_the_launch(void **state)
{
    uint64_t *at = flyt_ptx_harness_alloc(&harness, LANES * sizeof *at);
    size_t first_page;
    char *pages;

    (void)state;
    assert_int_equal(flyt_ptx_harness_load(&harness, faults_text), CUDA_SUCCESS);
    pages = flyt_ptx_harness_alloc(&harness, 8 * PAGE);
    pages += -(uintptr_t)pages % PAGE;
    first_page = (size_t)(pages - harness.base) / PAGE;
    harness.mapped[first_page + 2] = 0;
    harness.mapped[first_page + 4] = 1;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *fault = &faults[i];
        uint64_t base = strcmp(fault->kernel, "shared") ? (uintptr_t)pages : 0;
        CUresult result;

        memset(pages, 0, PAGE);
        for (int lane = 0; lane < LANES; lane++)
            at[lane] = base + (uint64_t)(lane == fault->odd_lane ? fault->odd : fault->start + lane * fault->step);
        if (fault->odd == INT64_MIN)
            at[fault->odd_lane] = 0;
        result = FLYT_PTX_RUN(&harness, fault->kernel, 1, LANES, (uintptr_t)at, fault->lanes);
        if (result != fault->result)
            fail_msg("%s %s: %d, expected %d", fault->kernel, fault->what, (int)result, (int)fault->result);
        if (result != CUDA_SUCCESS) /* no lane has stored */
            for (int byte = 0; byte < PAGE; byte++)
                assert_int_equal(pages[byte], 0);
    }
    memset((void *)harness.mapped, 3, FLYT_PTX_HARNESS_BYTES / PAGE);
}

/*
 * Accesses with one base: the first finds out how its addresses lie, and those behind it must not be told wrong by a
 * guard, by a base that has changed, or by lanes that come to meet the others in the middle of a block of instructions.
 */
static const char shared_base[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry k(.param .u64 data, .param .u64 offsets, .param .u64 out) {\n%s\n"
    ".reg .pred %%p<4>; .reg .b32 %%r<24>; .reg .b64 %%rd<16>;\n"
    "ld.param.u64 %%rd1, [data]; ld.param.u64 %%rd2, [offsets]; ld.param.u64 %%rd3, [out];\n"
    "mov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd4, %%r1, 4; add.s64 %%rd5, %%rd2, %%rd4; ld.global.u32 %%r2, [%%rd5];\n"
    "%s\n" /* %%rd9: where the data begins */
    "cvt.u64.u32 %%rd10, %%r2; add.s64 %%rd6, %%rd9, %%rd10; cvt.u32.u64 %%r6, %%rd6; add.s64 %%rd7, %%rd9, %%rd4;\n"
    "cvt.u32.u64 %%r7, %%rd7; mul.wide.u32 %%rd4, %%r1, 32; add.s64 %%rd3, %%rd3, %%rd4;\n"
    "and.b32 %%r3, %%r1, 1; setp.eq.u32 %%p1, %%r3, 1; setp.lt.u32 %%p2, %%r1, 16;\n"
    "mov.u32 %%r12, 0; mov.u32 %%r13, 0; @!%%p2 bra OTHERS;\n"
    "MEET: ld.%s.u32 %%r10, [%s]; bar.warp.sync 0xffffffff; ld.%s.u32 %%r11, [%s+4]; @%%p1 ld.%s.u32 %%r12, [%s-4];\n"
    "ld.%s.u32 _, [%s]; @%%p1 add.s64 %%rd6, %%rd6, 8; @%%p1 add.s32 %%r6, %%r6, 8; ld.%s.u32 %%r14, [%s];\n"
    "ld.%s.u32 %%r15, [%s+8]; mov.u32 %%r6, %%r15; cvt.u64.u32 %%rd6, %%r15;\n"
    "st.global.u32 [%%rd3], %%r10; st.global.u32 [%%rd3+4], %%r11; st.global.u32 [%%rd3+8], %%r12;\n"
    "@%%p1 st.global.u32 [%%rd3+12], %%r13; st.global.u32 [%%rd3+16], %%r14; st.global.u32 [%%rd3+20], %%r15; ret;\n"
    "OTHERS: ld.%s.u32 %%r13, [%s]; ld.%s.u32 %%r16, [%s+4]; add.s32 %%r13, %%r13, %%r16; bra MEET; }\n";

static void a_base_is_looked_at_once(void **state)
{
    static const struct {
        const char *space, *declaration, *begin, *base, *other_base;
    } ways[] = {
        {"global", "", "mov.u64 %rd9, %rd1;", "%rd6", "%rd7"},
        {"shared", ".shared .align 16 .b8 room[1024];", "mov.u64 %rd9, room;", "%r6", "%r7"},
        {"volatile.shared", ".shared .align 16 .b8 room[1024];", "mov.u64 %rd9, room;", "%rd6", "%rd7"},
    };
    static const char fill[] =
        "mov.u32 %r20, 0; FILL: cvt.u64.u32 %rd11, %r20; add.s64 %rd12, %rd1, %rd11; ld.global.u32 %r21, [%rd12];\n"
        "add.s64 %rd12, %rd9, %rd11; st.shared.u32 [%rd12], %r21; add.s32 %r20, %r20, 4; setp.lt.u32 %p3, %r20, 1024;\n"
        "@%p3 bra FILL; bar.sync 0;";
    uint32_t *words = (uint32_t *)(void *)data, *out = (uint32_t *)(void *)dumps;
    char text[8192], begin[1024];

    (void)state;
    for (uint32_t i = 0; i < ROOM / 4; i++)
        words[i] = 1000 + i;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        const char *space = ways[w].space, *base = ways[w].base, *other = ways[w].other_base;

        snprintf(begin, sizeof begin, "%s %s", ways[w].begin, *ways[w].declaration ? fill : "");
        snprintf(text, sizeof text, shared_base, ways[w].declaration, begin, space, base, space, base, space, base,
                 space, base, space, base, space, base, space, other, space, other);
        assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (unsigned lane = 0; lane < LANES; lane++)
                offsets[lane] = 4 * shapes[s](lane) + 8;
            memset(out, 0, LANES * 32);
            assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, LANES, (uintptr_t)data, (uintptr_t)offsets, (uintptr_t)out),
                             CUDA_SUCCESS);
            for (unsigned lane = 0; lane < LANES; lane++) {
                uint32_t at = 1000 + offsets[lane] / 4, odd = lane & 1;
                const uint32_t expected[] = {
                    at,           at + 1,          odd ? at - 1 : 0, odd && lane >= 16 ? 2001 + 2 * lane : 0,
                    at + 2 * odd, at + 2 + 2 * odd};

                assert_memory_equal(&out[8 * lane], expected, sizeof expected);
            }
        }
    }
}

/* What the first access may, the next one need not. */
static void each_place_behind_a_base_is_checked(void **state)
{
    static const struct {
        const char *what, *access;
        CUresult result;
    } cases[] = {
        {"the last place", "ld.shared.u32 %r3, [%r2+896];", CUDA_SUCCESS},
        {"all behind the last", "ld.shared.u32 %r3, [%r2+1024];", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"one lane behind it", "st.shared.u32 [%r2+900], %r3;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"before all", "ld.shared.u32 %r3, [%r2-4];", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"not aligned", "ld.shared.u32 %r3, [%r2+2];", CUDA_ERROR_MISALIGNED_ADDRESS},
        {"not aligned, into nothing", "ld.shared.u32 _, [%r2+2];", CUDA_ERROR_MISALIGNED_ADDRESS},
    };
    char text[2048];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUresult result;

        snprintf(text, sizeof text,
                 ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 n) {\n"
                 ".shared .align 16 .b8 room[1024]; .reg .b32 %%r<4>;\nmov.u32 %%r1, %%tid.x; mov.u32 %%r2, room; "
                 "mad.lo.u32 %%r2, %%r1, 4, %%r2;\n"
                 "ld.shared.u32 %%r3, [%%r2]; ld.shared.u32 %%r3, [%%r2+4]; %s ret; }\n",
                 cases[i].access);
        assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
        result = FLYT_PTX_RUN(&harness, "k", 1, LANES, 0);
        if (result != cases[i].result)
            fail_msg("%s: %d, expected %d", cases[i].what, (int)result, (int)cases[i].result);
    }
}

static int allocate(void **state)
{
    (void)state;
    data = flyt_ptx_harness_alloc(&harness, ROOM);
    dumps = flyt_ptx_harness_alloc(&harness, (uint64_t)LANES * ROOM);
    offsets = flyt_ptx_harness_alloc(&harness, LANES * sizeof *offsets);
    loaded = flyt_ptx_harness_alloc(&harness, LANES * sizeof *loaded);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lanes_reach_their_own_places, allocate),
        cmocka_unit_test(a_lane_that_may_not_ends_the_launch),
        cmocka_unit_test_setup(a_base_is_looked_at_once, allocate),
        cmocka_unit_test(each_place_behind_a_base_is_checked),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
