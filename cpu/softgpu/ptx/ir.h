/*
 * A PTX module as parsed: names resolved, nothing compiled yet. Everything lives in the build's scratch arena unless
 * said otherwise.
 */
#ifndef FLYT_SOFTGPU_PTX_IR_H
#define FLYT_SOFTGPU_PTX_IR_H

#include "cpu/softgpu/ptx/build.h"

enum ptx_space {
    PTX_SPACE_GENERIC, /* no space named */
    PTX_SPACE_GLOBAL,
    PTX_SPACE_CONST,
    PTX_SPACE_SHARED,
    PTX_SPACE_LOCAL, /* also .param of device functions: both lie in the thread's stack */
    PTX_SPACE_PARAM, /* the parameters of a kernel */
};

enum ptx_type_class {
    PTX_CLASS_NONE,
    PTX_CLASS_BITS,
    PTX_CLASS_UNSIGNED,
    PTX_CLASS_SIGNED,
    PTX_CLASS_FLOAT,
    PTX_CLASS_PRED
};

/* A fundamental type; `bytes` is 0 for predicates. */
struct ptx_type {
    const char *name; /* without the dot, e.g. "u32" */
    uint8_t bytes;
    enum ptx_type_class class;
};

/* The type called name (without the dot), or NULL. */
const struct ptx_type *flyt_ptx_type_find(const char *name);

/* A variable: module scope, function scope or parameter. */
struct ptx_variable {
    const char *name;
    enum ptx_space space;
    const struct ptx_type *type;
    uint64_t bytes;
    uint32_t align;
    bool is_extern, is_visible, is_managed, is_weak, is_common;
    unsigned line;
    struct ptx_unit *unit;       /* of module scope: where it is defined, or declared as long as it is not */
    unsigned module_index;       /* of .global and .const: index among the module's variables */
    unsigned shared_index;       /* of .shared: index among the module's shared variables */
    uint64_t offset;             /* of .local: in the function's stack frame; of .param of a kernel: in the buffer */
    struct ptx_initial *initial; /* list; NULL: zeros */
};

/* One initialiser: bytes[0 … byte_count) at `offset`, or the address of a symbol. */
struct ptx_initial {
    struct ptx_initial *next;
    uint64_t offset;
    uint8_t byte_count;
    uint64_t bits;      /* value, or what is added to the symbol's address */
    const char *symbol; /* NULL: a number */
    uint8_t shift_bits; /* mask(symbol) forms take one byte of the address: how far to shift it right */
    unsigned line;
};

enum ptx_operand_kind {
    PTX_OPERAND_REGISTER,
    PTX_OPERAND_NUMBER,
    PTX_OPERAND_SYMBOL,  /* variable, function, label, prototype: by what `name` means to the instruction */
    PTX_OPERAND_SPECIAL, /* %tid.x … */
    PTX_OPERAND_ADDRESS, /* [base+offset] */
    PTX_OPERAND_VECTOR,  /* {a, b, …} */
    PTX_OPERAND_SINK,    /* _ */
    PTX_OPERAND_LIST,    /* (a, b, …) of a call */
};

struct ptx_operand {
    enum ptx_operand_kind kind;
    bool is_negated;               /* !p */
    bool is_minus;                 /* -r, of video instructions */
    const char *selector;          /* of REGISTER: r.h1, of video instructions; NULL: none */
    bool has_more;                 /* of ADDRESS: a second element, as the coordinates of textures */
    uint32_t vreg;                 /* of REGISTER: index among the function's virtual registers */
    uint8_t number_kind;           /* of NUMBER: enum ptx_number_kind */
    int64_t value;                 /* of NUMBER: the bits; of ADDRESS and SYMBOL: the offset added to it */
    const char *name;              /* of SYMBOL and SPECIAL */
    struct ptx_variable *variable; /* of SYMBOL where it is one; NULL otherwise */
    struct ptx_operand *elements;  /* of VECTOR and LIST; of ADDRESS: the base, and what follows */
    unsigned element_count;
    struct ptx_operand *second; /* p|q: q */
};

enum { PTX_OPERANDS_MAX = 8, PTX_MODIFIERS_MAX = 14 };

struct ptx_scope;

struct ptx_statement {
    struct ptx_statement *next;
    const struct ptx_scope *scope; /* the braces around it: what label names mean here */
    unsigned line;
    const char *label;                        /* a label stands here; no instruction in this statement */
    const char *text;                         /* the whole instruction word */
    const char *modifiers[PTX_MODIFIERS_MAX]; /* its parts between dots; modifiers[0] is the operation */
    unsigned modifier_count;
    bool has_guard, is_guard_negated;
    uint32_t guard; /* predicate register */
    struct ptx_operand operands[PTX_OPERANDS_MAX];
    unsigned operand_count;
};

/* .branchtargets and .callprototype, by label. */
struct ptx_label_list {
    const char **labels;
    unsigned count;
};

struct ptx_prototype {
    struct ptx_variable *params, *results; /* arrays; names are meaningless */
    unsigned param_count, result_count;
};

struct ptx_function {
    const char *name;
    bool is_entry, is_visible, is_extern, is_weak, has_body;
    unsigned line, index;         /* index among the functions that have a body */
    struct ptx_unit *unit;        /* as of a variable */
    struct ptx_function *alias;   /* NULL, or what the name stands for (.alias) */
    struct ptx_variable **params; /* offsets set: in the parameter buffer, or in the stack frame */
    unsigned param_count;
    struct ptx_variable *result; /* NULL: none. More than one result does not occur in the ABI */
    uint64_t params_bytes;
    uint64_t frame_bytes; /* stack: parameters, result, .local variables, call parameters */
    uint32_t max_threads, required_block[3], required_cluster[3];
    bool has_max_threads;               /* the program says it: its registers are kept few enough for such a block */
    uint32_t min_blocks, max_registers; /* .minnctapersm, .maxnreg; 0: it does not say */
    struct ptx_statement *first;
    struct ptx_map targets;    /* label → struct ptx_label_list */
    struct ptx_map prototypes; /* label → struct ptx_prototype */
    uint8_t *vreg_bytes;       /* size of each virtual register: 0 predicate, 2, 4, 8 */
    size_t vreg_count, vreg_capacity;
    struct ptx_function *next;
};

/*
 * One text of those that make the module, and what the names of module scope mean in it. A name that several units
 * share
 * (.extern, .visible, .weak, .common) means one object in all of them: see join.c.
 */
struct ptx_unit {
    const char *name;       /* for messages; NULL where the module is one text */
    unsigned max_registers; /* of kernels that say nothing of their own; 0: no limit */
    struct ptx_map variables, functions;
};

enum ptx_joining {
    PTX_JOIN_ALONE,  /* the module is one text, as loaders take it */
    PTX_JOIN_OPEN,   /* units; others that define what is missing may follow */
    PTX_JOIN_CLOSED, /* units; nothing may be missing */
};

struct ptx_ir {
    int version; /* 90 for 9.0; of units the highest */
    int target;  /* 75 for sm_75; likewise */
    enum ptx_joining joining;
    struct ptx_map shared_variable_names, shared_function_names; /* names that units share */
    struct ptx_variable **module_variables;                      /* .global and .const, in order of declaration */
    size_t module_variable_count, module_variable_capacity;
    struct ptx_variable **shared_variables;
    size_t shared_variable_count, shared_variable_capacity;
    struct ptx_function *first_function, **last_function;
};

/* The function-wide name of the label that `name` means in `scope`: inner braces may reuse a name. `name` if none. */
const char *flyt_ptx_scope_label(const struct ptx_scope *scope, const char *name);

/* What a function's name means in a unit, .alias followed; NULL: nothing. */
struct ptx_function *flyt_ptx_unit_function(const struct ptx_unit *unit, const char *name);

/* Parses a whole module; leaves through the build's way out when it is refused. */
struct ptx_ir *flyt_ptx_parse(struct ptx_build *build, const struct flyt_ptx_unit *units, unsigned unit_count,
                              enum ptx_joining joining, const struct flyt_ptx_target *target);

#endif
