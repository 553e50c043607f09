/*
 * Damaged PTX: short modules put together from lines of every kind, their words exchanged, dropped, doubled and cut.
 * The engine must refuse a text by name or run it, and touch nothing that is not the kernel's; a sanitizer sees whether
 * it did. Usage: ptx-fuzz [SECONDS [SEED]].
 */
#include "cpu/softgpu/ptx/ptx.h"
#include "rpc/base/clock.h"
#include "rpc/base/test_random.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT_BYTES_MAX = 16384, WORDS_MAX = 4096, LINES_MAX = 24, MEMORY_BYTES = 1 << 20, GRANULE_SHIFT = 12 };

static uint64_t random_state;

static uint64_t next_random(void)
{
    return test_random_next(&random_state) >> 8;
}

static unsigned below(size_t end)
{
    return (unsigned)(next_random() % end);
}

/* ---- the corpus ---- */

static const char *const heads[] = {".version 8.5 .target sm_90 .address_size 64 \n"};

static const char *const globals[] = {
    ".global .align 8 .u64 list [ 3 ] = { generic ( other ) , k , 7 } ;",
    ".global .align 4 .u32 other = 9 ;",
    ".const .align 4 .f32 factor [ 3 ] = { 0f3F800000 , 2.5 , 3 } ;",
    ".global .align 1 .b8 text [ 8 ] = { 0xFF ( other ) , 0xFF00 ( other ) , 37 , 100 , 10 , 0 } ;",
    ".extern .shared .align 16 .b8 dynamic [ ] ;",
    ".shared .align 8 .b8 fixed [ 64 ] ;",
    ".weak .global .align 4 .b8 weak [ 16 ] ;",
    ".common .global .align 4 .b8 common [ 16 ] ;",
    ".visible .global .align 8 .b8 vector [ 32 ] ;",
    ".extern .func ( .param .b32 r ) vprintf ( .param .b64 f , .param .b64 a ) ;",
    ".extern .func ( .param .b64 r ) malloc ( .param .b64 n ) ;",
    (".func ( .param .b32 r ) twice ( .param .b32 x ) { .reg .b32 %q<4> ; ld.param.u32 %q1 , [ x ] ; "
     "add.s32 %q2 , %q1 , %q1 ; st.param.b32 [ r ] , %q2 ; ret ; }"),
    ".func deep ( ) { .local .align 8 .b8 room [ 64 ] ; call deep , ( ) ; ret ; }",
    ".alias again , twice ;",
    ".section .debug { .b8 1 , 2 }",
    ".file 1 \"x.cu\" \n",
};

/* Registers: %h 16 bits, %r 32, %d 64, %f and %g floats, %p predicates; %d1 points to the kernel's memory. */
static const char *const lines[] = {
    "add.s32 %r1 , %r2 , %r3 ;",
    "@%p1 add.rz.ftz.sat.f32 %f1 , %f2 , 0f40000000 ;",
    "@!%p2 fma.rm.f64 %g1 , %g2 , %g3 , 1.5 ;",
    "mad.hi.sat.s32 %r1 , %r2 , %r3 , -5 ;",
    "mul.wide.u16 %r4 , %h1 , %h2 ;",
    "madc.hi.cc.u32 %r1 , %r2 , %r3 , %r4 ;",
    "div.s64 %d2 , %d3 , %d4 ;",
    "bfi.b64 %d2 , %d3 , %d4 , %r1 , %r2 ;",
    "prmt.b32.ecr %r1 , %r2 , %r3 , %r4 ;",
    "lop3.b32 %r1 , %r2 , %r3 , %r4 , 0x96 ;",
    "shf.l.clamp.b32 %r1 , %r2 , %r3 , 40 ;",
    "shl.b64 %d2 , %d3 , 64 ;",
    "setp.lt.and.f32 %p1|%p2 , %f1 , %f2 , !%p3 ;",
    "set.gt.u32.f32 %r1 , %f1 , %f2 ;",
    "set.eq.f16x2.f16x2 %r1 , %r2 , %r3 ;",
    "selp.b64 %d2 , %d3 , 17 , %p1 ;",
    "cvt.rzi.sat.u8.f32 %r1 , %f1 ;",
    "cvt.rn.bf16.f64 %h1 , %g1 ;",
    "cvt.u16.u64 %h1 , %d2 ;",
    "cvt.s64.s8 %d2 , %r1 ;",
    "fma.rn.relu.f16x2 %r1 , %r2 , %r3 , %r4 ;",
    "min.NaN.f16 %h1 , %h2 , %h3 ;",
    "tanh.approx.f32 %f1 , %f2 ;",
    "dp4a.s32.u32 %r1 , %r2 , %r3 , %r4 ;",
    "mov.b64 { %r1 , %r2 } , %d2 ;",
    "mov.b32 %r1 , { %h1 , %h2 } ;",
    "mov.b64 { _ , %r2 } , %g1 ;",
    "mov.u64 %d5 , list ;",
    "mov.u32 %r5 , fixed ;",
    "mov.u32 %r6 , %laneid ;",
    "mov.u64 %d6 , %clock64 ;",
    "mov.u64 %d7 , twice ;",
    "mov.pred %p1 , -1 ;",
    "ld.global.u32 %r1 , [ %d1 + 4 ] ;",
    "ld.global.nc.L1::no_allocate.v4.f32 { %f1 , %f2 , _ , %f4 } , [ %d1 + 16 ] ;",
    "ld.global.v2.u64 { %d2 , %d3 } , [ %d1 ] ;",
    "ld.global.s8 %r1 , [ %d1 + 3 ] ;",
    "ld.u16 %h1 , [ %d1 + 2 ] ;",
    "ld.acquire.gpu.global.b64 %d2 , [ %d1 ] ;",
    "ld.param.u64 %d8 , [ out ] ;",
    "ld.const.f32 %f1 , [ factor + 4 ] ;",
    "ld.shared.v2.f32 { %f1 , %f2 } , [ fixed + 8 ] ;",
    "ld.local.u32 %r1 , [ room + 8 ] ;",
    "st.global.v4.u32 [ %d1 ] , { %r1 , %r2 , %r3 , %r4 } ;",
    "st.shared.u64 [ %r5 ] , %d2 ;",
    "st.local.b16 [ room + 2 ] , %h1 ;",
    "st.volatile.global.u8 [ %d1 + 1 ] , %r1 ;",
    "atom.global.add.f32 %f1 , [ %d1 ] , %f2 ;",
    "atom.shared.cas.b16 %h1 , [ fixed ] , %h2 , %h3 ;",
    "atom.add.noftz.f16x2 %r1 , [ %d1 ] , %r2 ;",
    "atom.global.inc.u32 %r1 , [ %d1 ] , 5 ;",
    "red.global.max.s64 [ %d1 ] , %d2 ;",
    "cvta.local.u64 %d2 , %d3 ;",
    "cvta.to.global.u64 %d1 , %d1 ;",
    "isspacep.shared %p1 , %d2 ;",
    "shfl.sync.bfly.b32 %r1|%p1 , %r2 , 1 , 0x1f , -1 ;",
    "vote.sync.ballot.b32 %r1 , %p1 , -1 ;",
    "vote.sync.uni.pred %p1 , !%p2 , 0xffff ;",
    "match.all.sync.b64 %r1|%p1 , %d2 , -1 ;",
    "redux.sync.xor.b32 %r1 , %r2 , -1 ;",
    "elect.sync %r1|%p1 , -1 ;",
    "activemask.b32 %r1 ;",
    "bar.sync 0 ;",
    "bar.red.popc.u32 %r1 , 1 , 64 , %p1 ;",
    "barrier.arrive 3 , 64 ;",
    "bar.warp.sync -1 ;",
    "membar.gl ;",
    "fence.acq_rel.sys ;",
    "nanosleep.u32 10 ;",
    "alloca.u64 %d2 , 32 ;",
    "stacksave.u64 %d3 ;",
    "stackrestore.u64 %d3 ;",
    "cp.async.ca.shared.global [ %r5 ] , [ %d1 ] , 16 , %r1 ;",
    "prefetch.global.L2 [ %d1 ] ;",
    "@%p1 bra L0 ;",
    "bra.uni L1 ;",
    "{ .reg .b32 t ; mov.u32 t , 5 ; L9 : @%p3 bra L9 ; }",
    "T0 : .branchtargets L0 , L1 ;",
    "and.b32 %r7 , %r6 , 1 ;",
    "brx.idx %r7 , T0 ;",
    "{ .param .b32 a0 ; .param .b32 r0 ; st.param.b32 [ a0 + 0 ] , %r1 ; call.uni ( r0 ) , twice , ( a0 ) ; "
    "ld.param.b32 %r2 , [ r0 + 0 ] ; }",
    "{ .param .b32 a0 ; .param .b32 r0 ; P0 : .callprototype ( .param .b32 _ ) _ ( .param .b32 _ ) ; "
    "call ( r0 ) , %d7 , ( a0 ) , P0 ; }",
    "{ .param .b64 a0 ; .param .b64 a1 ; .param .b32 r0 ; st.param.b64 [ a0 ] , %d5 ; st.param.b64 [ a1 ] , %d1 ; "
    "call ( r0 ) , vprintf , ( a0 , a1 ) ; }",
    "{ .param .b64 a0 ; .param .b64 r0 ; st.param.b64 [ a0 ] , 64 ; call ( r0 ) , malloc , ( a0 ) ; }",
    "call deep , ( ) ;",
    "@%p1 ret ;",
    "@%p2 exit ;",
    "@%p3 trap ;",
    ".loc 1 2 3 \n",
    ".pragma \"nounroll\" ;",
};

static const char *const odd_words[] = {"0",
                                        "-1",
                                        "4294967296",
                                        "18446744073709551615",
                                        "0x8000000000000000",
                                        "1e400",
                                        "0f7FC00000",
                                        "_",
                                        "{",
                                        "}",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        ",",
                                        ";",
                                        ":",
                                        "!",
                                        "|",
                                        "@",
                                        "+",
                                        "<",
                                        ">",
                                        "=",
                                        "%tid.x",
                                        "%p1",
                                        "%h1",
                                        "%r1",
                                        "%d1",
                                        "%f1",
                                        "%g1",
                                        "WARP_SZ",
                                        "out",
                                        "fixed",
                                        "dynamic",
                                        "room",
                                        "list",
                                        "k",
                                        "twice",
                                        "L0",
                                        "T0",
                                        "/*",
                                        "//",
                                        "\"",
                                        ".b8",
                                        ".u64",
                                        ".align",
                                        ".param"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- texts ---- */

struct text {
    char bytes[TEXT_BYTES_MAX];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    int bytes = vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used, format, values);
    va_end(values);
    if (bytes > 0 && (size_t)bytes < sizeof text->bytes - text->used)
        text->used += (size_t)bytes;
}

static void write_module(struct text *text)
{
    unsigned line_count = 1 + below(LINES_MAX);

    text->used = 0;
    add(text, "%s", heads[0]);
    for (size_t i = 0; i < COUNT(globals); i++) /* nearly all, nearly always in order */
        if (below(64))
            add(text, "%s\n", globals[i]);
    add(text, ".visible .entry k ( .param .u64 out , .param .align 8 .b8 block [ 24 ] ) .maxntid 64 , 1 , 1 {\n"
              ".reg .b16 %%h<8> ; .reg .b32 %%r<8> ; .reg .b64 %%d<9> ; .reg .f32 %%f<8> ; .reg .f64 %%g<8> ;\n"
              ".reg .pred %%p<8> ; .local .align 8 .b8 room [ 32 ] ;\n"
              "ld.param.u64 %%d1 , [ out ] ;\nmov.u32 %%r5 , fixed ;\nL0 :\n");
    for (unsigned i = 0; i < line_count; i++)
        add(text, "%s\n%s", lines[below(COUNT(lines))], i == line_count / 2 ? "L1 :\n" : "");
    add(text, "ret ;\n}\n");
}

/* A word of the corpus, of what is said in odd places, or part of one. */
static const char *any_word(char room[64])
{
    const char *line = below(3) ? lines[below(COUNT(lines))] : globals[below(COUNT(globals))];
    size_t at = below(strlen(line));

    if (!below(3))
        return odd_words[below(COUNT(odd_words))];
    while (at && line[at - 1] != ' ')
        at--;
    snprintf(room, 64, "%.*s", (int)strcspn(line + at, " "), line + at);
    return room;
}

static void damage(struct text *text)
{
    static struct text fresh;
    unsigned changes = below(5);
    char room[64];

    for (; changes; changes--) {
        /* mostly in the kernel's own lines, the last ones */
        size_t at = below(4) ? text->used / 2 + below(text->used / 2) : below(text->used), end;
        char *bytes = text->bytes;

        while (at && bytes[at - 1] != ' ' && bytes[at - 1] != '\n')
            at--;
        end = at + strcspn(bytes + at, " \n");
        fresh.used = 0;
        switch (below(7)) {
        case 0: /* gone */
            add(&fresh, "%.*s%s", (int)at, bytes, bytes + end);
            break;
        case 1: /* twice */
            add(&fresh, "%.*s %s", (int)end, bytes, bytes + at);
            break;
        case 2: /* one modifier less or more */
            if (memchr(bytes + at, '.', end - at) && below(2))
                end = (size_t)((char *)memchr(bytes + at, '.', end - at) - bytes);
            add(&fresh, "%.*s%s %s", (int)end, bytes, below(2) ? any_word(room) : "", bytes + end);
            break;
        case 3: /* another register, of any size */
            if (bytes[at] == '%' && end - at == 3)
                bytes[at + 1] = "hrdfgp"[below(6)];
            continue;
        default: /* another */
            add(&fresh, "%.*s%s%s", (int)at, bytes, any_word(room), bytes + end);
        }
        *text = fresh;
        text->bytes[text->used] = 0;
    }
    if (!below(40))
        text->used = below(text->used + 1);
}

/* ---- running ---- */

struct machine {
    struct flyt_ptx_pool *pool;
    struct flyt_ptx_memory memory;
    char *bytes;
    _Atomic uint8_t mapped[MEMORY_BYTES >> GRANULE_SHIFT];
    atomic_bool cancel, is_over;
};

static void print(void *user, bool is_error, const char *text, size_t text_bytes)
{
}

static uint64_t heap_alloc(void *user, uint64_t bytes)
{
    struct machine *machine = user;

    return bytes <= 4096 ? (uint64_t)(uintptr_t)machine->bytes + MEMORY_BYTES / 2 : 0;
}

static void heap_free(void *user, uint64_t address)
{
}

/* Damaged kernels may loop for ever. */
static void *watch(void *argument)
{
    struct machine *machine = argument;

    while (!atomic_load(&machine->is_over)) {
        usleep(10000);
        atomic_store(&machine->cancel, true);
    }
    return NULL;
}

/* Gives the variables places, one behind the other. False: they need more than there is. */
static bool link_module(struct machine *machine, struct flyt_ptx_module *module)
{
    unsigned count = flyt_ptx_module_variable_count(module);
    uint64_t *addresses = calloc(count + 1, sizeof *addresses);
    uint64_t used = MEMORY_BYTES / 4;
    struct flyt_ptx_diag diag;
    bool is_linked = true;

    for (unsigned i = 0; i < count && is_linked; i++) {
        const struct flyt_ptx_variable *variable = flyt_ptx_module_variable(module, i);

        used = (used + variable->align - 1) & ~((uint64_t)variable->align - 1);
        addresses[i] = (uint64_t)(uintptr_t)machine->bytes + used;
        is_linked = used <= MEMORY_BYTES / 2 && variable->bytes <= MEMORY_BYTES / 2 - used;
        used += variable->bytes;
    }
    is_linked = is_linked && flyt_ptx_module_link(module, addresses, &diag) == CUDA_SUCCESS;
    free(addresses);
    return is_linked;
}

static void run_kernels(struct machine *machine, const struct flyt_ptx_module *module)
{
    uint64_t params[FLYT_PTX_PARAM_BYTES_MAX / 8 + 1];

    for (size_t i = 0; i < COUNT(params); i++)
        params[i] = (uint64_t)(uintptr_t)machine->bytes;
    for (unsigned k = 0; k < flyt_ptx_module_kernel_count(module); k++) {
        struct flyt_ptx_launch launch = {.module = module,
                                         .kernel_index = k,
                                         .grid = {2, 1, 1},
                                         .block = {40, 1, 1},
                                         .dynamic_shared_bytes = 64,
                                         .params = params,
                                         .sm_count = 2,
                                         .memory = &machine->memory,
                                         .print = print,
                                         .heap_alloc = heap_alloc,
                                         .heap_free = heap_free,
                                         .user = machine,
                                         .cancel = &machine->cancel};

        atomic_store(&machine->cancel, false);
        flyt_ptx_launch_run(machine->pool, &launch, NULL);
    }
}

/* What a refusal must say: something, in one line. */
static void check_refusal(CUresult result, const struct flyt_ptx_diag *diag)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY && (!diag->text[0] || strchr(diag->text, '\n'))) {
        fprintf(stderr, "refused with %d without a sentence: '%s'\n", (int)result, diag->text);
        abort();
    }
}

static bool try_text(struct machine *machine, const struct text *text)
{
    static const struct flyt_ptx_target target = {.major = 9, .minor = 0};
    char *exact = malloc(text->used + 1); /* as long as the text, so that a sanitizer sees a read behind it */
    struct flyt_ptx_diag diag = {{0}};
    struct flyt_ptx_module *module = NULL;
    CUresult result;

    memcpy(exact, text->bytes, text->used);
    exact = realloc(exact, text->used ? text->used : 1);
    result = flyt_ptx_module_new(exact, text->used, &target, &diag, &module);
    if (result == CUDA_SUCCESS && link_module(machine, module))
        run_kernels(machine, module);
    else if (result != CUDA_SUCCESS)
        check_refusal(result, &diag);
    flyt_ptx_module_free(module);
    free(exact);
    return result == CUDA_SUCCESS;
}

static void machine_init(struct machine *machine)
{
    machine->bytes = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (machine->bytes == MAP_FAILED || flyt_ptx_pool_new(1, &machine->pool) != CUDA_SUCCESS)
        abort();
    memset((void *)machine->mapped, 3, sizeof machine->mapped);
    machine->memory.granule_shift = GRANULE_SHIFT;
    machine->memory.region_count = 1;
    machine->memory.regions[0] = (struct flyt_ptx_region){.base = (uint64_t)(uintptr_t)machine->bytes,
                                                          .granule_count = COUNT(machine->mapped),
                                                          .mapped = machine->mapped};
}

int main(int argc, char **argv)
{
    static struct machine machine;
    static struct text text;
    uint64_t accepted_count = 0, tried_count = 0;
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    pthread_t watcher;

    random_state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 0x9e3779b97f4a7c15 | 1;
    machine_init(&machine);
    if (pthread_create(&watcher, NULL, watch, &machine))
        abort();
    for (uint64_t end_ms = flyt_clock_ms() + seconds * 1000ull; flyt_clock_ms() < end_ms; tried_count++) {
        write_module(&text);
        damage(&text);
        if (getenv("PTX_FUZZ_SHOW"))
            fprintf(stderr, "---- %" PRIu64 "\n%.*s", tried_count, (int)text.used, text.bytes);
        accepted_count += try_text(&machine, &text);
    }
    atomic_store(&machine.is_over, true);
    pthread_join(watcher, NULL);
    flyt_ptx_pool_free(machine.pool);
    munmap(machine.bytes, MEMORY_BYTES);
    printf("%" PRIu64 " texts, %" PRIu64 " of them ran\n", tried_count, accepted_count);
    return accepted_count ? 0 : 1;
}
