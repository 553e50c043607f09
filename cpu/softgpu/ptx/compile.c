#include "cpu/softgpu/ptx/compile.h"

#include "cpu/softgpu/ptx/join.h"
#include "cpu/softgpu/ptx/lower.h"
#include "cpu/softgpu/ptx/ops.h"

#include <stdlib.h>
#include <string.h>

/* What a function refers to, found before anything is lowered. */
struct reach {
    struct ptx_function *function;
    uint32_t *callees; /* indexes of functions called directly */
    size_t callee_count, callee_capacity;
    uint32_t *shared; /* shared variables named */
    size_t shared_count, shared_capacity;
    uint32_t *constants; /* module variables in .const space named */
    size_t constant_count, constant_capacity;
    bool calls_indirectly, is_address_taken;
    bool has_alloca;
    uint8_t state;        /* of a walk: 0 not seen, 1 on the path, 2 done */
    uint64_t stack_bytes; /* with what it calls; UINT64_MAX: unbounded */
};

struct compile {
    struct ptx_build *build;
    struct ptx_ir *ir;
    struct flyt_ptx_module *module;
    struct reach *reaches; /* by function index */
    struct ptx_lower lower;
};

static void *scratch(struct compile *compile, size_t bytes)
{
    return flyt_ptx_build_alloc(compile->build, &compile->build->scratch, bytes);
}

static void *lasting(struct compile *compile, size_t bytes)
{
    return flyt_ptx_build_alloc(compile->build, &compile->module->arena, bytes);
}

static void add_index(struct compile *compile, uint32_t **list, size_t *count, size_t *capacity, uint32_t index)
{
    *list = flyt_ptx_build_grow(compile->build, *list, sizeof **list, *count, capacity);
    (*list)[(*count)++] = index;
}

/* ---- what reaches what ---- */

static void note_operand(struct compile *compile, struct reach *reach, const struct ptx_operand *operand,
                         bool is_callee)
{
    struct ptx_function *function;

    for (unsigned i = 0; i < operand->element_count; i++)
        note_operand(compile, reach, &operand->elements[i], false);
    if (operand->kind != PTX_OPERAND_SYMBOL)
        return;
    if (operand->variable) {
        if (operand->variable->space == PTX_SPACE_SHARED)
            add_index(compile, &reach->shared, &reach->shared_count, &reach->shared_capacity,
                      operand->variable->shared_index);
        if (operand->variable->space == PTX_SPACE_CONST)
            add_index(compile, &reach->constants, &reach->constant_count, &reach->constant_capacity,
                      operand->variable->module_index);
        return;
    }
    function = flyt_ptx_unit_function(reach->function->unit, operand->name);
    if (!function || !function->has_body)
        return;
    if (is_callee)
        add_index(compile, &reach->callees, &reach->callee_count, &reach->callee_capacity, function->index);
    else
        compile->reaches[function->index].is_address_taken = true;
}

static void note_function(struct compile *compile, struct reach *reach)
{
    for (const struct ptx_statement *statement = reach->function->first; statement; statement = statement->next) {
        bool is_call = statement->text && !strcmp(statement->modifiers[0], "call");

        reach->has_alloca |= statement->text && !strcmp(statement->modifiers[0], "alloca");
        for (unsigned i = 0; i < statement->operand_count; i++) {
            const struct ptx_operand *operand = &statement->operands[i];

            note_operand(compile, reach, operand, is_call);
            reach->calls_indirectly |= is_call && operand->kind == PTX_OPERAND_REGISTER;
        }
    }
}

static void note_initial_values(struct compile *compile)
{
    for (size_t v = 0; v < compile->ir->module_variable_count; v++) {
        const struct ptx_variable *variable = compile->ir->module_variables[v];

        for (const struct ptx_initial *initial = variable->initial; initial; initial = initial->next) {
            struct ptx_function *function =
                initial->symbol ? flyt_ptx_unit_function(variable->unit, initial->symbol) : NULL;

            if (function && function->has_body)
                compile->reaches[function->index].is_address_taken = true;
        }
    }
}

/* Marks in `marks` all functions that `index` can reach, itself included, without recursing. */
static void mark_reachable(struct compile *compile, uint32_t index, uint8_t *marks)
{
    uint32_t *todo = scratch(compile, (compile->module->code_count + 1) * sizeof *todo);
    size_t todo_count = 0;

    marks[index] = 1;
    todo[todo_count++] = index;
    while (todo_count) {
        const struct reach *reach = &compile->reaches[todo[--todo_count]];

        for (size_t i = 0; i < reach->callee_count; i++)
            if (!marks[reach->callees[i]]) {
                marks[reach->callees[i]] = 1;
                todo[todo_count++] = reach->callees[i];
            }
        for (uint32_t i = 0; reach->calls_indirectly && i < compile->module->code_count; i++)
            if (compile->reaches[i].is_address_taken && !marks[i]) {
                marks[i] = 1;
                todo[todo_count++] = i;
            }
    }
}

/* Stack that a call of function `index` needs; calls by address, recursion and alloca make it unbounded. */
static uint64_t stack_bytes(struct compile *compile, uint32_t index, unsigned depth)
{
    struct reach *reach = &compile->reaches[index];
    uint64_t deepest = 0;

    if (reach->state == 2)
        return reach->stack_bytes;
    if (reach->state == 1 || reach->calls_indirectly || reach->has_alloca || depth > 500)
        return UINT64_MAX;
    reach->state = 1;
    for (size_t i = 0; i < reach->callee_count && deepest != UINT64_MAX; i++) {
        uint64_t bytes = stack_bytes(compile, reach->callees[i], depth + 1);

        deepest = bytes > deepest ? bytes : deepest;
    }
    reach->stack_bytes = deepest == UINT64_MAX ? deepest : deepest + compile->module->codes[index].local_bytes;
    reach->state = 2;
    return reach->stack_bytes;
}

/* ---- variables ---- */

static void compile_initial(struct compile *compile, struct ptx_variable *variable, size_t *pointer_capacity)
{
    struct flyt_ptx_module *module = compile->module;
    uint8_t *bytes = NULL;

    for (const struct ptx_initial *initial = variable->initial; initial; initial = initial->next) {
        struct ptx_pointer_initial pointer = {
            variable->module_index, initial->offset, initial->byte_count, initial->shift_bits, false, 0, initial->bits};
        struct ptx_variable *target;
        struct ptx_function *function;

        if (!initial->symbol) {
            if (!bytes)
                bytes = lasting(compile, variable->bytes);
            memcpy(bytes + initial->offset, &initial->bits, initial->byte_count);
            continue;
        }
        target = flyt_ptx_map_find(&variable->unit->variables, initial->symbol);
        function = flyt_ptx_unit_function(variable->unit, initial->symbol);
        if (compile->ir->joining == PTX_JOIN_OPEN && !target && function && !function->has_body)
            continue;
        if (function && !function->has_body && compile->ir->joining == PTX_JOIN_CLOSED)
            flyt_ptx_join_fail_undefined(compile->build, function->name, function->unit);
        if (!(target && target->space != PTX_SPACE_SHARED) && !(function && function->has_body))
            flyt_ptx_build_fail(compile->build, CUDA_ERROR_INVALID_PTX, initial->line,
                                "initialiser names unknown %.100s", initial->symbol);
        pointer.is_function = !target;
        pointer.target_index = target ? target->module_index : function->index;
        module->pointers = flyt_ptx_build_grow(compile->build, module->pointers, sizeof *module->pointers,
                                               module->pointer_count, pointer_capacity);
        module->pointers[module->pointer_count++] = pointer;
    }
    module->initial[variable->module_index] = bytes;
}

static char *lasting_name(struct compile *compile, const char *name)
{
    return flyt_ptx_build_copy(compile->build, &compile->module->arena, name, strlen(name));
}

static void compile_variables(struct compile *compile)
{
    struct flyt_ptx_module *module = compile->module;
    size_t pointer_capacity = 0;
    void *pointers;

    module->variable_count = (unsigned)compile->ir->module_variable_count;
    module->variables = lasting(compile, (module->variable_count + 1) * sizeof *module->variables);
    module->initial = lasting(compile, (module->variable_count + 1) * sizeof *module->initial);
    for (unsigned v = 0; v < module->variable_count; v++) {
        struct ptx_variable *variable = compile->ir->module_variables[v];

        module->variables[v] = (struct flyt_ptx_variable){
            .name = lasting_name(compile, variable->name),
            .space = variable->space == PTX_SPACE_CONST ? FLYT_PTX_CONST : FLYT_PTX_GLOBAL,
            .bytes = variable->bytes,
            .align = variable->align,
            .is_managed = variable->is_managed,
            .is_visible = variable->is_visible,
            .is_initialised = variable->initial != NULL,
        };
        if (variable->is_extern && compile->ir->joining == PTX_JOIN_CLOSED)
            flyt_ptx_join_fail_undefined(compile->build, variable->name, variable->unit);
        /* In a text of its own, an extern variable of known size is as good as defined, for a GPU's compiler too. */
        if (variable->is_extern && !variable->bytes && compile->ir->joining == PTX_JOIN_ALONE)
            flyt_ptx_build_fail(compile->build, CUDA_ERROR_INVALID_PTX, variable->line,
                                "unresolved extern variable %.100s", variable->name);
        compile_initial(compile, variable, &pointer_capacity);
    }
    pointers = lasting(compile, module->pointer_count * sizeof *module->pointers);
    if (module->pointer_count)
        memcpy(pointers, module->pointers, module->pointer_count * sizeof *module->pointers);
    module->pointers = pointers;
}

/* ---- functions ---- */

static void number_functions(struct compile *compile)
{
    struct flyt_ptx_module *module = compile->module;

    for (struct ptx_function *function = compile->ir->first_function; function; function = function->next)
        if (function->has_body) {
            function->index = module->code_count++;
            module->kernel_count += function->is_entry;
        }
    module->codes = lasting(compile, (module->code_count + 1) * sizeof *module->codes);
    compile->reaches = scratch(compile, (module->code_count + 1) * sizeof *compile->reaches);
    for (struct ptx_function *function = compile->ir->first_function; function; function = function->next)
        if (function->has_body)
            compile->reaches[function->index].function = function;
}

/* The frame of a function: sizes are known before its code is. */
static void describe_code(struct compile *compile, const struct ptx_function *function)
{
    struct ptx_code *code = &compile->module->codes[function->index];

    code->name = lasting_name(compile, function->name);
    code->local_bytes = (uint32_t)((function->frame_bytes + 15) & ~15ull);
    if (!function->is_entry && !code->local_bytes)
        code->local_bytes = 16; /* so that endless recursion runs out of stack */
    code->param_count = function->is_entry ? 0 : function->param_count;
    code->param_offset = lasting(compile, (code->param_count + 1) * sizeof *code->param_offset);
    code->param_bytes = lasting(compile, (code->param_count + 1) * sizeof *code->param_bytes);
    for (unsigned i = 0; i < code->param_count; i++) {
        code->param_offset[i] = (uint32_t)function->params[i]->offset;
        code->param_bytes[i] = (uint32_t)function->params[i]->bytes;
    }
    if (function->result) {
        code->result_offset = (uint32_t)function->result->offset;
        code->result_bytes = (uint32_t)function->result->bytes;
    }
}

/* Places of the shared variables that a kernel can reach; unsized ones begin where the sized ones end. */
static void place_shared(struct compile *compile, const uint8_t *marks, struct ptx_kernel_code *kernel)
{
    struct ptx_ir *ir = compile->ir;
    uint8_t *is_used = scratch(compile, ir->shared_variable_count + 1);
    uint64_t offset = 0, dynamic_align = 16;

    kernel->shared_offset = lasting(compile, (ir->shared_variable_count + 1) * sizeof *kernel->shared_offset);
    for (unsigned f = 0; f < compile->module->code_count; f++)
        for (size_t i = 0; marks[f] && i < compile->reaches[f].shared_count; i++)
            is_used[compile->reaches[f].shared[i]] = 1;
    for (size_t v = 0; v < ir->shared_variable_count; v++) {
        const struct ptx_variable *variable = ir->shared_variables[v];

        if (!is_used[v])
            continue;
        if (!variable->bytes) {
            dynamic_align = variable->align > dynamic_align ? variable->align : dynamic_align;
            continue;
        }
        offset = (offset + variable->align - 1) & ~(uint64_t)(variable->align - 1);
        kernel->shared_offset[v] = (uint32_t)offset;
        offset += variable->bytes;
        if (offset > 256 * 1024)
            flyt_ptx_build_fail(compile->build, CUDA_ERROR_INVALID_PTX, variable->line,
                                "a kernel uses more than 256 KiB of static shared memory");
    }
    for (size_t v = 0; v < ir->shared_variable_count; v++)
        if (is_used[v] && !ir->shared_variables[v]->bytes) {
            offset = (offset + dynamic_align - 1) & ~(dynamic_align - 1);
            kernel->shared_offset[v] = (uint32_t)offset;
        }
    kernel->static_shared_bytes = (uint32_t)offset;
}

static uint32_t const_bytes(struct compile *compile, const uint8_t *marks)
{
    uint8_t *is_counted = scratch(compile, compile->module->variable_count + 1);
    uint64_t sum = 0;

    for (unsigned f = 0; f < compile->module->code_count; f++)
        for (size_t i = 0; marks[f] && i < compile->reaches[f].constant_count; i++) {
            uint32_t v = compile->reaches[f].constants[i];

            sum += is_counted[v]++ ? 0 : compile->module->variables[v].bytes;
        }
    return sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
}

static void describe_kernel(struct compile *compile, struct ptx_function *function, unsigned index)
{
    struct flyt_ptx_kernel *kernel = &compile->module->kernels[index];
    struct ptx_kernel_code *kernel_code = &compile->module->kernel_codes[index];
    uint8_t *marks = scratch(compile, compile->module->code_count + 1);
    uint32_t *offsets = lasting(compile, (function->param_count + 1) * sizeof *offsets);
    uint32_t *sizes = lasting(compile, (function->param_count + 1) * sizeof *sizes);
    uint64_t stack;

    mark_reachable(compile, function->index, marks);
    place_shared(compile, marks, kernel_code);
    stack = stack_bytes(compile, function->index, 0);
    kernel_code->code = &compile->module->codes[function->index];
    kernel_code->stack_bytes = stack > 1u << 20 ? 0 : (uint32_t)stack;
    if (stack != UINT64_MAX && !kernel_code->stack_bytes)
        kernel_code->stack_bytes = 16;
    for (unsigned i = 0; i < function->param_count; i++) {
        offsets[i] = (uint32_t)function->params[i]->offset;
        sizes[i] = (uint32_t)function->params[i]->bytes;
    }
    *kernel = (struct flyt_ptx_kernel){
        .name = kernel_code->code->name,
        .param_count = function->param_count,
        .param_offset = offsets,
        .param_bytes = sizes,
        .params_bytes = (uint32_t)function->params_bytes,
        .static_shared_bytes = kernel_code->static_shared_bytes,
        .local_bytes = kernel_code->code->local_bytes,
        .const_bytes = const_bytes(compile, marks),
        .max_threads = function->max_threads,
        .ptx_version = compile->ir->version,
        .target_version = compile->ir->target,
    };
    memcpy(kernel->required_block, function->required_block, sizeof kernel->required_block);
    memcpy(kernel->required_cluster, function->required_cluster, sizeof kernel->required_cluster);
}

enum { REGISTERS_PER_SM = 65536, REGISTERS_MAX = 255, REGISTERS_MIN = 16 };

/* The loader's limit, where the kernel does not say itself how large its blocks are; 0: none. */
static uint32_t asked_registers(const struct ptx_function *function)
{
    uint32_t asked = function->unit->max_registers;

    if (!asked || function->has_max_threads || function->min_blocks)
        return 0;
    return asked < REGISTERS_MIN ? REGISTERS_MIN : asked;
}

/*
 * A guess at what a GPU would report: registers of the frame, rounded to eight as GPUs allot them. PTX has far more
 * than a GPU's compiler makes of them, and no launch is refused by a guess: so it is never more than what leaves room
 * for the largest block that the kernel may have (maxThreadsPerBlock), and as many of them as the program asks for.
 */
static uint32_t estimate_registers(uint32_t register_bytes, const struct ptx_function *function)
{
    uint32_t limit = function->max_registers ? function->max_registers : asked_registers(function);
    uint32_t registers = (register_bytes / 128 + 8 + 7) & ~7u;
    uint64_t threads = (function->max_threads + 31) & ~31u;
    uint64_t wanted = function->min_blocks && function->has_max_threads ? function->min_blocks * threads : threads;
    uint32_t registers_max =
        wanted < REGISTERS_PER_SM / REGISTERS_MIN ? (uint32_t)(REGISTERS_PER_SM / wanted) & ~7u : REGISTERS_MIN;

    if (limit && limit < registers_max)
        registers_max = limit;
    if (registers_max > REGISTERS_MAX)
        registers_max = REGISTERS_MAX;
    return registers > registers_max ? registers_max : registers;
}

/* Lowers one function and keeps its virtual instructions until all are known. */
static void lower_function(struct compile *compile, struct ptx_function *function, const uint32_t *shared_offset)
{
    struct ptx_lower *lower = &compile->lower;

    compile->build->unit_name = function->unit->name;
    lower->function = function;
    lower->shared_offset = shared_offset;
    lower->vinsns = NULL;
    lower->vinsn_count = lower->vinsn_capacity = 0;
    lower->labels = (struct ptx_map){0};
    flyt_ptx_lower_function(lower);
    flyt_ptx_lower_share_bases(lower);
    flyt_ptx_slots_assign(lower);
}

/* Everything that lowering one function left, until the instructions have their final array. */
struct lowered {
    struct ptx_function *function;
    struct ptx_vinsn *vinsns;
    size_t vinsn_count;
    struct ptx_map labels;
    uint32_t *places;
};

static void compile_functions(struct compile *compile)
{
    struct flyt_ptx_module *module = compile->module;
    struct lowered *lowered = scratch(compile, (module->code_count + 1) * sizeof *lowered);
    unsigned kernel_index = 0;
    size_t at = 0;

    for (unsigned f = 0; f < module->code_count; f++) {
        struct ptx_function *function = compile->reaches[f].function;
        struct ptx_lower *lower = &compile->lower;

        lower_function(compile, function, function->is_entry ? module->kernel_codes[kernel_index].shared_offset : NULL);
        module->codes[f].register_bytes = lower->register_bytes;
        if (function->is_entry)
            module->kernels[kernel_index++].register_count = estimate_registers(lower->register_bytes, function);
        lowered[f] = (struct lowered){function, lower->vinsns, lower->vinsn_count, lower->labels, lower->places};
        module->insn_count += lower->vinsn_count;
    }
    module->insns = calloc(module->insn_count + 1, sizeof *module->insns);
    if (!module->insns)
        flyt_ptx_build_fail(compile->build, CUDA_ERROR_OUT_OF_MEMORY, 0, "out of memory while compiling PTX");
    for (unsigned f = 0; f < module->code_count; f++) {
        struct ptx_lower *lower = &compile->lower;

        lower->function = lowered[f].function;
        lower->vinsns = lowered[f].vinsns;
        lower->vinsn_count = lowered[f].vinsn_count;
        lower->labels = lowered[f].labels;
        lower->places = lowered[f].places;
        module->codes[f].entry = module->insns + at;
        flyt_ptx_slots_encode(lower, module->insns + at);
        at += lower->vinsn_count;
    }
}

/* Moves the constant pool to its lasting, aligned place. */
static void keep_constants(struct compile *compile)
{
    struct flyt_ptx_module *module = compile->module;
    struct ptx_lower *lower = &compile->lower;

    module->constants_bytes = (lower->constants_bytes + 63) & ~(size_t)63;
    module->constants = aligned_alloc(64, module->constants_bytes + 64);
    if (!module->constants)
        flyt_ptx_build_fail(compile->build, CUDA_ERROR_OUT_OF_MEMORY, 0, "out of memory while compiling PTX");
    if (lower->constants_bytes)
        memcpy(module->constants, lower->constants, lower->constants_bytes);
    module->relocation_count = lower->relocation_count;
    module->relocations = lasting(compile, (lower->relocation_count + 1) * sizeof *module->relocations);
    if (lower->relocation_count)
        memcpy(module->relocations, lower->relocations, lower->relocation_count * sizeof *module->relocations);
}

void flyt_ptx_compile(struct ptx_build *build, struct ptx_ir *ir, enum flyt_ptx_isa isa, struct flyt_ptx_module *module)
{
    struct compile compile = {.build = build, .ir = ir, .module = module};
    unsigned kernel_index = 0;

    module->version = ir->version;
    module->target = ir->target;
    number_functions(&compile);
    for (unsigned f = 0; f < module->code_count; f++) {
        note_function(&compile, &compile.reaches[f]);
        describe_code(&compile, compile.reaches[f].function);
    }
    compile_variables(&compile);
    note_initial_values(&compile);
    module->kernels = lasting(&compile, (module->kernel_count + 1) * sizeof *module->kernels);
    module->kernel_codes = lasting(&compile, (module->kernel_count + 1) * sizeof *module->kernel_codes);
    for (unsigned f = 0; f < module->code_count; f++)
        if (compile.reaches[f].function->is_entry)
            describe_kernel(&compile, compile.reaches[f].function, kernel_index++);
    compile.lower = (struct ptx_lower){.build = build, .module = module, .ir = ir};
    flyt_ptx_ops_enter(build, isa, &compile.lower.ops);
    compile_functions(&compile);
    keep_constants(&compile);
}
