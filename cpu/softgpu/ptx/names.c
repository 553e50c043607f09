#include "cpu/softgpu/ptx/names.h"

#include <stdlib.h>
#include <string.h>

/* Each list is in the order of strcmp. */
static const char *const operations[] = {
    "abs",          "activemask",    "add",       "addc",       "alloca",
    "and",          "applypriority", "atom",      "bar",        "barrier",
    "bfe",          "bfi",           "bfind",     "bmsk",       "bra",
    "brev",         "brkpt",         "brx",       "call",       "clusterlaunchcontrol",
    "clz",          "cnot",          "copysign",  "cos",        "cp",
    "createpolicy", "cvt",           "cvta",      "discard",    "div",
    "dp2a",         "dp4a",          "elect",     "ex2",        "exit",
    "fence",        "fma",           "fns",       "getctarank", "griddepcontrol",
    "isspacep",     "istypep",       "ld",        "ldmatrix",   "ldu",
    "lg2",          "lop3",          "mad",       "mad24",      "madc",
    "mapa",         "match",         "max",       "mbarrier",   "membar",
    "min",          "mma",           "mov",       "movmatrix",  "mul",
    "mul24",        "multimem",      "nanosleep", "neg",        "not",
    "or",           "pmevent",       "popc",      "prefetch",   "prefetchu",
    "prmt",         "rcp",           "red",       "redux",      "rem",
    "ret",          "rsqrt",         "sad",       "selp",       "set",
    "setmaxnreg",   "setp",          "shf",       "shfl",       "shl",
    "shr",          "sin",           "slct",      "sqrt",       "st",
    "stackrestore", "stacksave",     "stmatrix",  "sub",        "subc",
    "suld",         "suq",           "sured",     "sust",       "szext",
    "tanh",         "tcgen05",       "tensormap", "testp",      "tex",
    "tld4",         "trap",          "txq",       "vabsdiff",   "vabsdiff2",
    "vabsdiff4",    "vadd",          "vadd2",     "vadd4",      "vavrg2",
    "vavrg4",       "vmad",          "vmax",      "vmax2",      "vmax4",
    "vmin",         "vmin2",         "vmin4",     "vote",       "vset",
    "vset2",        "vset4",         "vshl",      "vshr",       "vsub",
    "vsub2",        "vsub4",         "wgmma",     "wmma",       "xor",
};

static const char *const directives[] = {
    ".abi_preserve",
    ".abi_preserve_control",
    ".address_size",
    ".alias",
    ".align",
    ".attribute",
    ".blocksareclusters",
    ".branchtargets",
    ".callprototype",
    ".calltargets",
    ".common",
    ".const",
    ".entry",
    ".explicitcluster",
    ".extern",
    ".file",
    ".func",
    ".global",
    ".loc",
    ".local",
    ".maxclusterrank",
    ".maxnctapersm",
    ".maxnreg",
    ".maxntid",
    ".minnctapersm",
    ".noreturn",
    ".param",
    ".pragma",
    ".reg",
    ".reqnctapercluster",
    ".reqntid",
    ".samplerref",
    ".section",
    ".shared",
    ".sreg",
    ".surfref",
    ".target",
    ".tex",
    ".texref",
    ".unified",
    ".version",
    ".visible",
    ".weak",
};

/* What special registers begin with: ".x", "_lo" or a number may follow. */
static const char *const registers[] = {
    "%aggr_smem_size",
    "%clock",
    "%cluster_",
    "%clusterid",
    "%ctaid",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%envreg",
    "%globaltimer",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_",
    "%nclusterid",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%pm",
    "%reserved_smem_offset_",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int compare(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

bool flyt_ptx_names_has_operation(const char *name)
{
    return bsearch(name, operations, COUNT(operations), sizeof *operations, compare) != NULL;
}

bool flyt_ptx_names_has_directive(const char *name)
{
    return bsearch(name, directives, COUNT(directives), sizeof *directives, compare) != NULL;
}

bool flyt_ptx_names_has_register(const char *name)
{
    for (unsigned i = 0; i < COUNT(registers); i++)
        if (!strncmp(name, registers[i], strlen(registers[i])))
            return true;
    return false;
}
