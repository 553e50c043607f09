"""Names and sentences of CUDA's error codes: names from the toolkit's headers, sentences from rpc/api/errors.txt."""
import re

DRIVER = re.compile(r"^\s*(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", re.M)
RUNTIME = re.compile(r"^[\s,]*(cuda(?:Success|Error\w+))\s*=\s*(\d+)", re.M)


class ErrorTableError(Exception):
    """A header or a line of errors.txt that cannot be understood."""


def enum_values(text, begin, end, pattern):
    """{code: name} of the enumeration between two marks."""
    start = text.find(begin)
    stop = text.find(end, start)
    if start < 0 or stop < 0:
        raise ErrorTableError(f"no enumeration between {begin!r} and {end!r} in the toolkit's header")
    return {int(code): name for name, code in pattern.findall(text[start:stop])}


def driver_names(cuda_h):
    return enum_values(cuda_h, "typedef enum cudaError_enum", "} CUresult;", DRIVER)


def runtime_names(driver_types_h):
    return enum_values(driver_types_h, "cudaError\n", "};", RUNTIME)


def load_sentences(path):
    """{code: sentence} from lines `CODE SENTENCE`."""
    out = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        code, _, sentence = line.partition(" ")
        if not code.isdigit() or not sentence or int(code) in out:
            raise ErrorTableError(f"{path}:{number}: expected a new `CODE SENTENCE`")
        out[int(code)] = sentence.strip()
    return out


def in_words(name):
    """A sentence for a code that errors.txt does not know yet: CUDA_ERROR_KEY_ROTATION -> "key rotation"."""
    if name.startswith("CUDA_"):
        return re.sub(r"^CUDA_(ERROR_)?", "", name).replace("_", " ").lower()
    return re.sub(r"(?<!^)([A-Z])", r" \1", re.sub(r"^cuda(Error)?", "", name)).lower()


def table_h(banner):
    return f"""{banner}
#ifndef FLYT_GEN_ERROR_NAMES_H
#define FLYT_GEN_ERROR_NAMES_H

/* The enumerator of a CUresult ("CUDA_ERROR_INVALID_VALUE"); NULL for a code that the toolkit lacks. */
const char *flyt_cuda_error_name(int code);
/* The enumerator of a cudaError_t ("cudaErrorInvalidValue"); NULL for a code that the toolkit lacks. */
const char *flyt_cudart_error_name(int code);
/* What cuGetErrorString and cudaGetErrorString say ("invalid argument"); NULL where the name is NULL. */
const char *flyt_cuda_error_sentence(int code);
const char *flyt_cudart_error_sentence(int code);
/* All four return static strings and may be called from any thread. */

#endif
"""


def table_c(driver, runtime, sentences, banner):
    def switch(function, values):
        cases = "".join(f'    case {code}:\n        return "{text}";\n' for code, text in sorted(values.items()))
        return (f"\nconst char *{function}(int code)\n{{\n    switch (code) {{\n{cases}"
                "    default:\n        return 0;\n    }\n}\n")

    def texts(names):
        return {code: sentences.get(code) or in_words(name) for code, name in names.items()}

    return (f'{banner}\n#include "flyt_error_names.h"\n' + switch("flyt_cuda_error_name", driver)
            + switch("flyt_cuda_error_sentence", texts(driver)) + switch("flyt_cudart_error_name", runtime)
            + switch("flyt_cudart_error_sentence", texts(runtime)))
