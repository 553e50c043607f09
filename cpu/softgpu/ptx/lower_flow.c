#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/join.h"
#include "cpu/softgpu/ptx/lower.h"

#include <string.h>

static const char *label_of(struct ptx_lower *lower, const struct ptx_operand *operand)
{
    if (operand->kind != PTX_OPERAND_SYMBOL)
        flyt_ptx_lower_invalid(lower, "a label is expected");
    return flyt_ptx_scope_label(lower->statement->scope, operand->name);
}

/* Jumps where the guard holds; without a guard always. */
static void emit_branch(struct ptx_lower *lower, const char *label, bool is_inverted)
{
    const struct ptx_statement *statement = lower->statement;
    struct ptx_vinsn *vinsn;

    if (!statement->has_guard) {
        vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_jump);
        vinsn->ending = PTX_ENDS_JUMP;
    } else {
        vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_branch);
        vinsn->op[0] = (struct ptx_vop){PTX_VOP_VREG, statement->guard};
        vinsn->flags = statement->is_guard_negated != is_inverted ? PTX_INSN_NEGATED : 0;
        vinsn->ending = PTX_ENDS_BRANCH;
    }
    vinsn->label = label;
}

static void lower_bra(struct ptx_lower *lower)
{
    emit_branch(lower, label_of(lower, flyt_ptx_lower_operand(lower, 0)), false);
}

/* For what cannot stand behind a guard: jumps over it where the guard does not hold. Returns the label to place. */
static const char *skip_unless_guard(struct ptx_lower *lower)
{
    const char *over;

    if (!lower->statement->has_guard)
        return NULL;
    over = flyt_ptx_lower_new_label(lower);
    emit_branch(lower, over, true);
    return over;
}

/* brx.idx index, list: op[0] the index; a table of targets. */
static void lower_brx(struct ptx_lower *lower)
{
    const char *over = skip_unless_guard(lower);
    struct ptx_label_list *list;
    struct ptx_vop index = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 0), 4, false, false);
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_branch_table);

    vinsn->op[0] = index;
    list = flyt_ptx_map_find(&lower->function->targets,
                             flyt_ptx_lower_operand(lower, 1)->name ? flyt_ptx_lower_operand(lower, 1)->name : "");
    if (!list)
        flyt_ptx_lower_invalid(lower, "no such list of targets");
    for (unsigned i = 0; i < list->count; i++)
        list->labels[i] = flyt_ptx_scope_label(lower->statement->scope, list->labels[i]);
    vinsn->labels = list;
    vinsn->ending = PTX_ENDS_TABLE;
    if (over)
        flyt_ptx_lower_place_label(lower, over);
}

/* ---- calls ---- */

static const struct {
    const char *name;
    enum ptx_builtin builtin;
    unsigned arg_count;
    unsigned short_arg; /* one that need not have 8 bytes: its place and 1; 0: none */
} builtins[] = {
    {"vprintf", PTX_BUILTIN_PRINT, 2, 0},
    {"__assertfail", PTX_BUILTIN_ASSERT, 5, 3},
    {"malloc", PTX_BUILTIN_MALLOC, 1, 0},
    {"free", PTX_BUILTIN_FREE, 1, 0},
    {"cudaGraphSetConditional", PTX_BUILTIN_CONDITION, 2, 2},
};

static struct ptx_variable *call_variable(struct ptx_lower *lower, const struct ptx_operand *operand)
{
    if (operand->kind != PTX_OPERAND_SYMBOL || !operand->variable || operand->variable->space != PTX_SPACE_LOCAL)
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_NOT_SUPPORTED, lower->statement->line,
                            "call arguments in registers are not supported by the software GPU");
    return operand->variable;
}

static void fill_arguments(struct ptx_lower *lower, struct ptx_call *call, const struct ptx_operand *results,
                           const struct ptx_operand *args)
{
    struct ptx_arena *arena = &lower->module->arena;

    call->arg_count = args ? args->element_count : 0;
    call->arg_offset = flyt_ptx_build_alloc(lower->build, arena, (call->arg_count + 1) * sizeof *call->arg_offset);
    call->arg_bytes = flyt_ptx_build_alloc(lower->build, arena, (call->arg_count + 1) * sizeof *call->arg_bytes);
    for (unsigned i = 0; i < call->arg_count; i++) {
        const struct ptx_variable *variable = call_variable(lower, &args->elements[i]);

        call->arg_offset[i] = (uint32_t)variable->offset;
        call->arg_bytes[i] = (uint32_t)variable->bytes;
    }
    if (results && results->element_count > 1)
        flyt_ptx_lower_invalid(lower, "more than one result");
    if (results && results->element_count) {
        const struct ptx_variable *variable = call_variable(lower, &results->elements[0]);

        call->result_offset = (uint32_t)variable->offset;
        call->result_bytes = (uint32_t)variable->bytes;
    }
}

/* Functions that a GPU's driver has for device code: the CUDA runtime's for launches from kernels, and system calls. */
static bool is_system_function(const char *name)
{
    return !strncmp(name, "cuda", 4) || !strncmp(name, "__cuda", 6) || !strncmp(name, "__nv", 4) ||
           !strncmp(name, "__device_", 9) || !strcmp(name, "__trap");
}

static bool is_device_launch(const char *name)
{
    return is_system_function(name) && (strstr(name, "LaunchDevice") || strstr(name, "GetParameterBuffer"));
}

/* A callee without a body must be one of the built-in functions, or of a unit that is still to come. */
static void fill_builtin(struct ptx_lower *lower, struct ptx_call *call, const char *name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (!strcmp(builtins[i].name, name)) {
            unsigned result_bytes = builtins[i].builtin == PTX_BUILTIN_MALLOC ? 8 : 4;

            if (call->arg_count != builtins[i].arg_count || (call->result_bytes && call->result_bytes < result_bytes))
                flyt_ptx_lower_invalid(lower, "a built-in function is called with other arguments");
            for (unsigned arg = 0; arg < call->arg_count; arg++)
                if (call->arg_bytes[arg] != (arg + 1 == builtins[i].short_arg ? 4 : 8))
                    flyt_ptx_lower_invalid(lower, "a built-in function is called with other arguments");
            call->builtin = builtins[i].builtin;
            return;
        }
    if (is_device_launch(name))
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_NOT_SUPPORTED, lower->statement->line,
                            "device-side launch (%.100s) is not supported by the software GPU", name);
    if (is_system_function(name))
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_NOT_SUPPORTED, lower->statement->line,
                            "call of %.100s, which has no body, is not supported by the software GPU", name);
    if (lower->ir->joining == PTX_JOIN_CLOSED)
        flyt_ptx_join_fail_undefined(lower->build, name, lower->function->unit);
    if (lower->ir->joining == PTX_JOIN_ALONE)
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, lower->statement->line,
                            "unresolved extern function %.100s", name);
}

static void fill_callee(struct ptx_lower *lower, struct ptx_call *call, const struct ptx_function *callee)
{
    call->callee = &lower->module->codes[callee->index];
    if (call->arg_count != callee->param_count || callee->is_entry)
        flyt_ptx_lower_invalid(lower, "the function takes other arguments");
    for (unsigned i = 0; i < call->arg_count; i++)
        if (call->arg_bytes[i] != callee->params[i]->bytes)
            flyt_ptx_lower_invalid(lower, "the function takes arguments of other sizes");
    if (call->result_bytes && (!callee->result || callee->result->bytes != call->result_bytes))
        flyt_ptx_lower_invalid(lower, "the function has another result");
}

/* call[.uni] [(result),] callee [, (args)] [, prototype]: op[0] the address of an indirect callee. */
static void lower_call(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const char *over = skip_unless_guard(lower);
    struct ptx_call *call = flyt_ptx_build_alloc(lower->build, &lower->module->arena, sizeof *call);
    const struct ptx_operand *results = NULL, *args = NULL, *target;
    struct ptx_function *callee = NULL;
    struct ptx_vop address = {0};
    struct ptx_vinsn *vinsn;
    unsigned i = 0;

    if (flyt_ptx_lower_operand(lower, 0)->kind == PTX_OPERAND_LIST)
        results = &statement->operands[i++];
    target = flyt_ptx_lower_operand(lower, i++);
    if (i < statement->operand_count && statement->operands[i].kind == PTX_OPERAND_LIST)
        args = &statement->operands[i++];
    fill_arguments(lower, call, results, args);
    if (target->kind == PTX_OPERAND_REGISTER) {
        address = flyt_ptx_lower_source(lower, target, 8, false, false);
    } else {
        callee =
            target->kind == PTX_OPERAND_SYMBOL ? flyt_ptx_unit_function(lower->function->unit, target->name) : NULL;
        if (!callee)
            flyt_ptx_lower_invalid(lower, "no such function");
        if (callee->has_body)
            fill_callee(lower, call, callee);
        else
            fill_builtin(lower, call, callee->name);
    }
    vinsn = flyt_ptx_lower_emit(lower, call->builtin ? flyt_ptx_exec_builtin : flyt_ptx_exec_call);
    vinsn->op[0] = address;
    vinsn->call = call;
    vinsn->ending = call->builtin ? PTX_ENDS_NOT : PTX_ENDS_FALL; /* control comes back behind it */
    if (over)
        flyt_ptx_lower_place_label(lower, over);
}

/* The end of the function, or with a guard of some lanes. */
static void lower_ending(struct ptx_lower *lower)
{
    const char *operation = lower->statement->modifiers[0];
    struct ptx_vinsn *vinsn;

    vinsn = flyt_ptx_lower_emit_guarded(lower, !strcmp(operation, "ret")    ? flyt_ptx_exec_ret
                                               : !strcmp(operation, "exit") ? flyt_ptx_exec_exit
                                                                            : flyt_ptx_exec_trap);
    vinsn->ending = lower->statement->has_guard ? PTX_ENDS_FALL : PTX_ENDS_STOP;
}

/* alloca.type p, bytes: op[0] result, op[1] bytes; imm the alignment. */
static void lower_alloca(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    struct ptx_vop bytes = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 8, false, false);
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_alloca);

    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, &statement->operands[0], 8);
    vinsn->op[1] = bytes;
    vinsn->definitions = 1;
}

static void lower_stack(struct ptx_lower *lower)
{
    bool is_save = !strcmp(lower->statement->modifiers[0], "stacksave");
    const struct ptx_operand *operand = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop value = is_save ? flyt_ptx_lower_exact_destination(lower, operand, 8)
                                   : flyt_ptx_lower_source(lower, operand, 8, false, false);
    struct ptx_vinsn *vinsn =
        flyt_ptx_lower_emit_guarded(lower, is_save ? flyt_ptx_exec_stack_save : flyt_ptx_exec_stack_restore);

    vinsn->op[0] = value;
    vinsn->definitions = is_save;
}

/* ---- together ---- */

/* shfl.sync.mode.b32 d[|p], a, b, c, members: op[0] d, op[1] p, op[2 … 5] the sources; aux the mode. */
static void lower_shuffle(struct ptx_lower *lower)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    const struct ptx_statement *statement = lower->statement;
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop sources[4];
    struct ptx_vinsn *vinsn;
    unsigned mode = 4;

    for (unsigned i = 0; i < 4; i++)
        if (flyt_ptx_lower_has(lower, modes[i]))
            mode = i;
    if (mode == 4 || !flyt_ptx_lower_has(lower, "sync") || flyt_ptx_lower_type(lower)->bytes != 4)
        flyt_ptx_lower_unsupported(lower);
    for (unsigned i = 0; i < 4; i++)
        sources[i] = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, i + 1), 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_shuffle);
    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, target, 4);
    vinsn->definitions = 1;
    if (target->second && target->second->kind == PTX_OPERAND_REGISTER) {
        vinsn->op[1] = flyt_ptx_lower_exact_destination(lower, target->second, 0);
        vinsn->definitions |= 2;
    }
    memcpy(&vinsn->op[2], sources, sizeof sources);
    vinsn->aux = (uint16_t)mode;
    (void)statement;
}

/* vote.sync.mode d, p, members: op[0] d, op[1] p, op[2] members; aux the mode. */
static void lower_vote(struct ptx_lower *lower)
{
    static const char *const modes[] = {"all", "any", "uni", "ballot"};
    struct ptx_vop p, members;
    struct ptx_vinsn *vinsn;
    unsigned mode = 4;

    for (unsigned i = 0; i < 4; i++)
        if (flyt_ptx_lower_has(lower, modes[i]))
            mode = i;
    if (mode == 4 || !flyt_ptx_lower_has(lower, "sync"))
        flyt_ptx_lower_unsupported(lower);
    p = flyt_ptx_lower_pred(lower, flyt_ptx_lower_operand(lower, 1));
    members = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 2), 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_vote);
    vinsn->op[0] =
        flyt_ptx_lower_exact_destination(lower, flyt_ptx_lower_operand(lower, 0), mode == PTX_VOTE_BALLOT ? 4 : 0);
    vinsn->op[1] = p;
    vinsn->op[2] = members;
    vinsn->definitions = 1;
    vinsn->aux = (uint16_t)mode;
}

/* match.any/all.sync.bN d[|p], a, members: op[0] d, op[1] p, op[2] a, op[3] members; aux bytes, extra 1 for all. */
static void lower_match(struct ptx_lower *lower)
{
    uint8_t bytes = flyt_ptx_lower_type(lower)->bytes;
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop a, members;
    struct ptx_vinsn *vinsn;

    if (bytes != 4 && bytes != 8)
        flyt_ptx_lower_unsupported(lower);
    a = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), bytes, false, false);
    members = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 2), 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_match);
    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, target, 4);
    vinsn->definitions = 1;
    if (target->second && target->second->kind == PTX_OPERAND_REGISTER) {
        vinsn->op[1] = flyt_ptx_lower_exact_destination(lower, target->second, 0);
        vinsn->definitions |= 2;
    }
    vinsn->op[2] = a;
    vinsn->op[3] = members;
    vinsn->aux = bytes;
    vinsn->extra = flyt_ptx_lower_has(lower, "all");
}

/* redux.sync.op.type d, a, members: op[0] d, op[1] a, op[2] members; aux the operation. */
static void lower_redux(struct ptx_lower *lower)
{
    static const struct {
        const char *operation, *type;
        enum ptx_redux redux;
    } kinds[] = {
        {"add", "u32", PTX_REDUX_ADD},   {"add", "s32", PTX_REDUX_ADD},   {"min", "u32", PTX_REDUX_MIN_U},
        {"max", "u32", PTX_REDUX_MAX_U}, {"min", "s32", PTX_REDUX_MIN_S}, {"max", "s32", PTX_REDUX_MAX_S},
        {"and", "b32", PTX_REDUX_AND},   {"or", "b32", PTX_REDUX_OR},     {"xor", "b32", PTX_REDUX_XOR},
    };
    const struct ptx_type *type = flyt_ptx_lower_type(lower);
    struct ptx_vop a, members;
    struct ptx_vinsn *vinsn;
    size_t kind = 0;

    while (kind < sizeof kinds / sizeof *kinds &&
           (!flyt_ptx_lower_has(lower, kinds[kind].operation) || strcmp(type->name, kinds[kind].type)))
        kind++;
    if (kind == sizeof kinds / sizeof *kinds)
        flyt_ptx_lower_unsupported(lower);
    a = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 4, false, false);
    members = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 2), 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_redux);
    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, flyt_ptx_lower_operand(lower, 0), 4);
    vinsn->op[1] = a;
    vinsn->op[2] = members;
    vinsn->definitions = 1;
    vinsn->aux = (uint16_t)kinds[kind].redux;
}

/* activemask.b32 d; elect.sync d|p, members: op[0] d, op[1] p, op[2] members. */
static void lower_activemask(struct ptx_lower *lower)
{
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_activemask);

    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, flyt_ptx_lower_operand(lower, 0), 4);
    vinsn->definitions = 1;
}

static void lower_elect(struct ptx_lower *lower)
{
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop members = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 4, false, false);
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_elect);

    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, target, 4);
    vinsn->definitions = 1;
    if (target->second && target->second->kind == PTX_OPERAND_REGISTER) {
        vinsn->op[1] = flyt_ptx_lower_exact_destination(lower, target->second, 0);
        vinsn->definitions |= 2;
    }
    vinsn->op[2] = members;
}

/* bar.warp.sync members: op[0]. */
static void lower_warp_barrier(struct ptx_lower *lower)
{
    struct ptx_vop members = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 0), 4, false, false);

    flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_warp_barrier)->op[0] = members;
}

/*
 * bar and barrier: sync, arrive, red.popc/and/or, and bar.warp.sync. op[0] the result of red, op[1] number,
 * op[2] thread count or none, op[3] predicate of red, flags its negation; extra the reduction and whether it waits.
 */
static void lower_barrier(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    bool is_red = flyt_ptx_lower_has(lower, "red"), is_arrive = flyt_ptx_lower_has(lower, "arrive");
    enum ptx_reduction reduction = PTX_REDUCE_NONE;
    unsigned next = is_red ? 1 : 0, last = statement->operand_count;
    struct ptx_vop number, threads = {0}, pred = {0};
    struct ptx_vinsn *vinsn;

    if (flyt_ptx_lower_has(lower, "warp")) {
        lower_warp_barrier(lower);
        return;
    }
    if (flyt_ptx_lower_has(lower, "cluster") || (!is_red && !is_arrive && !flyt_ptx_lower_has(lower, "sync")))
        flyt_ptx_lower_unsupported(lower);
    if (is_red) {
        reduction = flyt_ptx_lower_has(lower, "popc")  ? PTX_REDUCE_COUNT
                    : flyt_ptx_lower_has(lower, "and") ? PTX_REDUCE_AND
                                                       : PTX_REDUCE_OR;
        pred = flyt_ptx_lower_pred(lower, flyt_ptx_lower_operand(lower, --last));
    }
    if (last <= next)
        flyt_ptx_lower_invalid(lower, "too few operands");
    number = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, next++), 4, false, false);
    if (next < last)
        threads = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, next++), 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_barrier);
    if (is_red) {
        vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, flyt_ptx_lower_operand(lower, 0),
                                                        reduction == PTX_REDUCE_COUNT ? 4 : 0);
        vinsn->definitions = 1;
    }
    vinsn->op[1] = number;
    vinsn->op[2] = threads;
    vinsn->op[3] = pred;
    vinsn->extra = (uint8_t)(reduction | (is_arrive ? 0 : PTX_BARRIER_WAITS));
}

static void lower_nanosleep(struct ptx_lower *lower)
{
    flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_nanosleep)->may_wait = true;
}

/* Hints to the scheduler of a GPU. */
static void lower_hint(struct ptx_lower *lower)
{
    flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_prefetch);
}

/* ---- mbarrier ---- */

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

/*
 * The address in an operand. The modifiers from `first` on are the space, order and scope, those in `flags`, and at the
 * end b64; others refuse the instruction.
 */
static struct ptx_place take_mbarrier(struct ptx_lower *lower, unsigned first, const char *const *flags,
                                      unsigned operand)
{
    static const char *const orders[] = {"release", "acquire", "relaxed", "cta", "cluster", NULL};
    const struct ptx_statement *statement = lower->statement;
    unsigned last = statement->modifier_count - 1;
    enum ptx_space space = PTX_SPACE_GENERIC;
    struct ptx_place place;

    for (unsigned i = first; i < last; i++)
        if (!flyt_ptx_lower_take_space(statement->modifiers[i], &space) &&
            !is_one_of(statement->modifiers[i], orders) && !is_one_of(statement->modifiers[i], flags))
            flyt_ptx_lower_unsupported(lower);
    if (last < first || strcmp(statement->modifiers[last], "b64") ||
        (space != PTX_SPACE_GENERIC && space != PTX_SPACE_SHARED))
        flyt_ptx_lower_unsupported(lower);
    place = flyt_ptx_lower_place(lower, flyt_ptx_lower_operand(lower, operand), space, 8, false);
    if (place.is_fixed)
        flyt_ptx_lower_invalid(lower, "an address of shared memory is expected");
    return place;
}

static struct ptx_vinsn *emit_mbarrier(struct ptx_lower *lower, ptx_exec_fn *exec, const struct ptx_place *place)
{
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_guarded(lower, exec);

    vinsn->op[1] = place->base;
    vinsn->imm = place->offset;
    vinsn->aux = (uint16_t)place->space;
    return vinsn;
}

/* A 32-bit source, or `missing` where the instruction has no such operand. */
static struct ptx_vop take_number(struct ptx_lower *lower, unsigned operand, uint32_t missing)
{
    return operand < lower->statement->operand_count
               ? flyt_ptx_lower_source(lower, &lower->statement->operands[operand], 4, false, false)
               : flyt_ptx_lower_constant(lower, missing, 4);
}

static void want_operands(struct ptx_lower *lower, unsigned least, unsigned most)
{
    if (lower->statement->operand_count < least || lower->statement->operand_count > most)
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
}

static void lower_mbarrier_init(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 2, (const char *const[]){NULL}, 0);
    struct ptx_vop count;

    want_operands(lower, 2, 2);
    count = take_number(lower, 1, 0);
    emit_mbarrier(lower, flyt_ptx_exec_mbarrier_init, &place)->op[2] = count;
}

static void lower_mbarrier_invalidate(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 2, (const char *const[]){NULL}, 0);

    want_operands(lower, 1, 1);
    emit_mbarrier(lower, flyt_ptx_exec_mbarrier_invalidate, &place);
}

/* arrive and arrive_drop: state, [address][, count], or with expect_tx [address], bytes. */
static void lower_mbarrier_arrive(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 2, (const char *const[]){"noComplete", "expect_tx", NULL}, 1);
    bool expects = flyt_ptx_lower_has(lower, "expect_tx");
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop number, state = {0};
    struct ptx_vinsn *vinsn;

    want_operands(lower, expects ? 3 : 2, 3);
    number = take_number(lower, 2, 1);
    if (target->kind != PTX_OPERAND_SINK)
        state = flyt_ptx_lower_exact_destination(lower, target, 8);
    vinsn = emit_mbarrier(lower, flyt_ptx_exec_mbarrier_arrive, &place);
    vinsn->op[0] = state;
    vinsn->op[2] = expects ? flyt_ptx_lower_constant(lower, 1, 4) : number;
    vinsn->op[3] = expects ? number : (struct ptx_vop){0};
    vinsn->definitions = state.kind == PTX_VOP_VREG;
    vinsn->extra = (uint8_t)((expects ? PTX_MBARRIER_EXPECTS : 0) |
                             (!strcmp(lower->statement->modifiers[1], "arrive_drop") ? PTX_MBARRIER_DROPS : 0));
}

/* expect_tx and complete_tx: [address], bytes. */
static void lower_mbarrier_bytes(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 2, (const char *const[]){NULL}, 0);
    struct ptx_vinsn *vinsn;
    struct ptx_vop bytes;

    want_operands(lower, 2, 2);
    bytes = take_number(lower, 1, 0);
    vinsn = emit_mbarrier(lower, flyt_ptx_exec_mbarrier_bytes, &place);
    vinsn->op[2] = bytes;
    vinsn->extra = !strcmp(lower->statement->modifiers[1], "expect_tx") ? PTX_MBARRIER_EXPECTS : 0;
}

/* test_wait and try_wait: p, [address], state or parity[, time]. The time is that of a wait which need not be made. */
static void lower_mbarrier_wait(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 2, (const char *const[]){"parity", NULL}, 1);
    bool is_parity = flyt_ptx_lower_has(lower, "parity"), is_try = !strcmp(lower->statement->modifiers[1], "try_wait");
    struct ptx_vop phase;
    struct ptx_vinsn *vinsn;

    want_operands(lower, 3, is_try ? 4 : 3);
    phase = flyt_ptx_lower_source(lower, &lower->statement->operands[2], is_parity ? 4 : 8, false, false);
    vinsn = emit_mbarrier(lower, flyt_ptx_exec_mbarrier_wait, &place);
    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, &lower->statement->operands[0], 0);
    vinsn->op[2] = phase;
    vinsn->definitions = 1;
    vinsn->extra = (uint8_t)((is_parity ? PTX_MBARRIER_PARITY : 0) | (is_try ? PTX_MBARRIER_TRIES : 0));
    vinsn->may_wait = true;
}

/* pending_count.b64 count, state: the low bits of a state. */
static void lower_mbarrier_pending(struct ptx_lower *lower)
{
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop state = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 8, false, false);
    struct ptx_vop low = flyt_ptx_lower_resize(lower, state, 8, 4, false);

    if (strcmp(lower->statement->text, "mbarrier.pending_count.b64"))
        flyt_ptx_lower_unsupported(lower);
    flyt_ptx_lower_emit_op(lower, "and.b32", flyt_ptx_lower_exact_destination(lower, target, 4), low,
                           flyt_ptx_lower_constant(lower, PTX_MBARRIER_PENDING, 4), true);
}

/*
 * cp.async.mbarrier.arrive: copies have been made when their instruction is over, so it arrives at once. But with
 * .noinc the phase first waits for one arrival more, for this one.
 */
void flyt_ptx_lower_copies_arrive(struct ptx_lower *lower)
{
    struct ptx_place place = take_mbarrier(lower, 4, (const char *const[]){"noinc", NULL}, 0);
    struct ptx_vop count = flyt_ptx_lower_constant(lower, flyt_ptx_lower_has(lower, "noinc"), 4);

    want_operands(lower, 1, 1);
    emit_mbarrier(lower, flyt_ptx_exec_mbarrier_arrive, &place)->op[2] = count;
}

static void lower_mbarrier(struct ptx_lower *lower)
{
    static const struct ptx_lowering operations[] = {
        {"init", lower_mbarrier_init},
        {"inval", lower_mbarrier_invalidate},
        {"arrive", lower_mbarrier_arrive},
        {"arrive_drop", lower_mbarrier_arrive},
        {"expect_tx", lower_mbarrier_bytes},
        {"complete_tx", lower_mbarrier_bytes},
        {"test_wait", lower_mbarrier_wait},
        {"try_wait", lower_mbarrier_wait},
        {"pending_count", lower_mbarrier_pending},
    };
    const char *operation = lower->statement->modifier_count > 1 ? lower->statement->modifiers[1] : "";

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operation, operations[i].operation)) {
            operations[i].lower(lower);
            return;
        }
    flyt_ptx_lower_unsupported(lower);
}

const struct ptx_lowering flyt_ptx_flow_lowerings[] = {
    {"bra", lower_bra},
    {"brx", lower_brx},
    {"call", lower_call},
    {"ret", lower_ending},
    {"exit", lower_ending},
    {"trap", lower_ending},
    {"alloca", lower_alloca},
    {"stacksave", lower_stack},
    {"stackrestore", lower_stack},
    {"shfl", lower_shuffle},
    {"vote", lower_vote},
    {"match", lower_match},
    {"redux", lower_redux},
    {"activemask", lower_activemask},
    {"elect", lower_elect},
    {"bar", lower_barrier},
    {"barrier", lower_barrier},
    {"mbarrier", lower_mbarrier},
    {"nanosleep", lower_nanosleep},
    {"griddepcontrol", lower_hint},
    {"setmaxnreg", lower_hint},
    {"pmevent", lower_hint},
    {"brkpt", lower_hint},
    {NULL, NULL},
};
