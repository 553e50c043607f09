"""Entry points of the replaced libraries whose rows say everything: what they check, and what they call in the core.

    entry LIBRARY CLASS SYMBOL [SAME…] = CORE[(ARGUMENT, …)] [WORDS]

See rpc/api/GRAMMAR.md. Parameters are those of the toolkit's headers; where the library exports SYMBOL_ptsz, that is the
same with the calling thread's default stream.
"""
import re
from dataclasses import dataclass, field

import rows

DEFAULT_STREAM = "DEFAULT_STREAM"  # among the arguments of what has no stream of its own
STREAMS = {"cuda": "CUstream", "cudart": "cudaStream_t"}
WRAPPERS = {"released": "flyt_cuda_unless_released", "context first": "flyt_cuda_context_first"}


@dataclass
class Made:
    """How an entry point is made: the core's function, its arguments (None: all parameters), and what is checked."""
    entry: object
    same: list
    core: str
    arguments: list | None = None
    need: list = field(default_factory=list)
    need_context: bool = False
    handle: str = ""
    kernel: str = ""
    wrapper: str = ""
    is_in_context: bool = False
    is_unentered: bool = False


def arguments_end(text):
    """The place behind the parenthesis that closes the one which text begins with."""
    depth = 0
    for place, one in enumerate(text):
        depth += (one == "(") - (one == ")")
        if not depth:
            return place + 1
    return -1


def split_arguments(text):
    out, depth, start = [], 0, 0
    for place, one in enumerate(text + ","):
        depth += (one == "(") - (one == ")")
        if one == "," and not depth:
            out.append(text[start:place].strip())
            start = place + 1
    return [one for one in out if one]


def parse_words(made, text):
    place = made.entry.place
    for words in filter(None, (one.split() for one in text.split(","))):
        if words[0] == "need" and words[1:]:
            made.need_context = words[-2:] == ["after", "context"]
            made.need = words[1:-2] if made.need_context else words[1:]
        elif words[0] == "handle" and len(words) == 2:
            made.handle = words[1]
        elif words[0] == "kernel" and len(words) == 2 and made.entry.library == "cudart":
            made.kernel = words[1]
        elif words == ["in", "context"] and made.entry.library == "cuda":
            made.is_in_context = True
        elif " ".join(words) in WRAPPERS:
            made.wrapper = WRAPPERS[" ".join(words)]
        elif words == ["unentered"]:
            made.is_unentered = True
        else:
            raise rows.TableError(f"{place}: unknown word {words[0]} of an entry point")


def parse(entry):
    """The Made of an entry's row, which has a core (Entry.core)."""
    found = re.fullmatch(r"\s*(\w+)\s*(.*)", entry.core)
    if not found:
        raise rows.TableError(f"{entry.place}: expected `= FUNCTION[(ARGUMENT, …)] [WORDS]`")
    made, rest = Made(entry, entry.same, found[1]), found[2]
    if rest.startswith("("):
        end = arguments_end(rest)
        if end < 0:
            raise rows.TableError(f"{entry.place}: a parenthesis is not closed")
        made.arguments, rest = split_arguments(rest[1:end - 1]), rest[end:]
    parse_words(made, rest)
    return made


# ---- C ----

def check_names(made, parameters):
    names = {one.name for one in parameters}
    for name in [*made.need, *filter(None, [made.handle, made.kernel])]:
        if name not in names:
            raise rows.TableError(f"{made.entry.place}: {made.entry.symbol} has no parameter {name}, but {' '.join(sorted(names))}")


def core_call(made, parameters):
    arguments = [one.name for one in parameters] if made.arguments is None else made.arguments
    return f"{made.core}({', '.join(arguments)})"


def cuda_body(made, parameters):
    out = []
    if made.handle:
        out.append(f"    if (!{made.handle})\n        return CUDA_ERROR_INVALID_HANDLE; /* even before cuInit */")
    if not made.is_unentered:
        out.append("    FLYT_CUDA_ENTER();")
    if made.is_in_context:
        out.append("    CUresult context = flyt_cuda_need_context();\n    if (context != CUDA_SUCCESS)\n        return context;")
    if made.need:
        code = "flyt_cuda_invalid_value()" if made.need_context else "CUDA_ERROR_INVALID_VALUE"
        out.append(f"    if ({' || '.join('!' + name for name in made.need)})\n        return {code};")
    call = core_call(made, parameters)
    out.append(f"    return {made.wrapper}({call});" if made.wrapper else f"    return {call};")
    return "\n".join(out)


def cudart_body(made, parameters):
    out = []
    if made.need:
        out.append(f"    if ({' || '.join('!' + name for name in made.need)})\n        return flyt_cudart_fail(cudaErrorInvalidValue);")
    call = core_call(made, parameters)
    if made.kernel:
        return "\n".join(out + ["    CUfunction KERNEL;",
                                f"    cudaError_t error = flyt_cudart_enter_kernel({made.kernel}, &KERNEL);",
                                "    if (error != cudaSuccess)\n        return flyt_cudart_fail(error);",
                                f"    return flyt_cudart_result({call});"])
    if made.is_unentered:
        return "\n".join(out + [f"    return flyt_cudart_result({call});"])
    out += ["    CUresult result = flyt_cudart_enter();",
            f"    return flyt_cudart_result(result != CUDA_SUCCESS ? result : {call});"]
    return "\n".join(out)


def per_thread(library, symbol, parameters):
    """The name's variant for per-thread default streams."""
    declarations = ", ".join(one.declaration for one in parameters)
    arguments = ", ".join(f"flyt_stream_per_thread({one.name})" if one.type == STREAMS[library] else one.name
                          for one in parameters)
    macro = "FLYT_CUDA_PTSZ" if library == "cuda" else "FLYT_CUDART_PTSZ"
    return f"{macro}({symbol}, ({declarations}), ({arguments}))"


def one_c(made, prototypes, exported):
    library, symbol = made.entry.library, made.entry.symbol
    if symbol not in prototypes:
        raise rows.TableError(f"{made.entry.place}: the toolkit's headers do not declare {symbol}")
    parameters = prototypes[symbol]
    check_names(made, parameters)
    body = (cuda_body if library == "cuda" else cudart_body)(made, parameters)
    kind = "CUresult CUDAAPI" if library == "cuda" else "cudaError_t"
    declarations = ", ".join(one.declaration for one in parameters) or "void"
    if (symbol + "_ptds" in exported) != (DEFAULT_STREAM in body):
        raise rows.TableError(f"{made.entry.place}: {symbol} says {DEFAULT_STREAM} where it has a variant _ptds, and only there")
    out = [f"/* {made.entry.place} */\n{kind} {symbol}({declarations})\n{{\n{body.replace(DEFAULT_STREAM, 'NULL')}\n}}"]
    if symbol + "_ptsz" in exported:
        out.append(per_thread(library, symbol, parameters))
    if symbol + "_ptds" in exported:
        head = f"{kind} {symbol}_ptds({declarations})"
        if library == "cudart":
            out.append(f'__attribute__((visibility("default"))) {head};')
        out.append(f"{head}\n{{\n{body.replace(DEFAULT_STREAM, 'CU_STREAM_PER_THREAD')}\n}}")
    for same in made.same:
        out += [f"FLYT_CUDA_SAME({same}{twin}, {symbol}{twin});" for twin in ("", "_ptsz") if not twin or same + twin in exported]
    return "\n".join(out) + "\n"


def library_c(library, entries, prototypes, exported, headers, banner):
    """Every entry point of a library that its row makes. `headers`: those of the core that declare what they call."""
    out = [banner, '#include "cpu/cuda/driver.h"' if library == "cuda" else
           '#include "cpu/cudart/cudart.h"\n#include "cpu/cudart/registry.h"']
    out += [f'#include "{header}"' for header in headers] + [""]
    for entry in entries:
        if entry.library == library and entry.core:
            out.append(one_c(parse(entry), prototypes, exported))
    return "\n".join(out)
