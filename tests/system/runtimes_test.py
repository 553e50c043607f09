#!/usr/bin/env python3
"""What is said to programs with a runtime of NVIDIA's inside, or in a library of theirs: who it is that cannot be served, and
what to do about it. Compilers that only look for one work, and nothing is said."""
import os
import shutil

import harness
from harness import app, environment, expect, expect_equal, helper, lines, main, run, scenario, server, through_flyt

SKIPPED = 77


def toolkit_library(name):
    return os.path.join(harness.CUDA, "lib64", name)


@scenario
def a_program_with_the_static_runtime():
    with server() as s:
        result = run(through_flyt(s.url, helper("static_runtime")))
        expect_equal(result.status, 7, "exit status", result)
        expect_equal(lines(result.err), ["flyt: libcuda: static_runtime embeds NVIDIA's static CUDA runtime, which cannot be "
                                         "forwarded: link it again with nvcc -cudart shared"], result)


@scenario
def a_library_with_the_static_runtime():
    """The program is linked to the shared runtime: it is the library that is named, and the program goes on."""
    with server() as s:
        result = run(through_flyt(s.url, helper("opens"), helper("libstatic_plugin.so"), "plugin_multiply"))
        expect_equal((result.status, result.out), (0, "plugin_multiply -1\ncudaFree 0\n"), result)
        expect_equal(lines(result.err), ["flyt: libcuda: libstatic_plugin.so embeds NVIDIA's static CUDA runtime, which cannot "
                                         "be forwarded: link it again with nvcc -cudart shared"], result)


@scenario
def nvml_asks_for_tables_and_nothing_is_said():
    """A library by the name of NVIDIA's own NVML, which asks for such tables and does without."""
    nvml = os.path.join(harness.WORK, "libnvidia-ml.so.1")
    shutil.copy(helper("libstatic_plugin.so"), nvml)
    with server() as s:
        result = run(through_flyt(s.url, helper("opens"), nvml, "plugin_multiply"))
        expect_equal((result.status, result.out, result.err), (0, "plugin_multiply -1\ncudaFree 0\n", ""), result)


@scenario
def nvidia_libraries_with_a_runtime():
    with server() as s:
        for name, function in (("libcublas.so.13", "cublasCreate_v2"), ("libcublasLt.so.13", "cublasLtCreate"),
                               ("libcufft.so.12", "cufftCreate"), ("libcusparse.so.12", "cusparseCreate")):
            result = run(through_flyt(s.url, helper("opens"), toolkit_library(name), function))
            if result.status == SKIPPED:
                print("  %s is not installed" % name)
                continue
            expect_equal(result.status, 0, name, result)
            expect(result.out.endswith("cudaFree 0\n"), name, result)
            said = [line for line in lines(result.err) if line.startswith("flyt: ")]
            for line in said:
                expect(line.endswith(" has a CUDA runtime of its own inside and is not forwarded: its calls fail"), name,
                       result)
            expect(1 <= len(said) <= 2, name, result)


@scenario
def compilers_and_linkers_as_libraries():
    with server() as s:
        for program in ("jit_nvrtc", "jit_nvjitlink", "jit_nvvm"):
            result = run(through_flyt(s.url, app(program)), environment(FLYT_TEST_FORWARDED="1", CUDA_PATH=harness.CUDA))
            if result.status == SKIPPED:
                print("  " + result.out.strip())
                continue
            expect_equal(result.status, 0, program, result)
            expect("libcuda:" not in result.err, program, result)  # why machine code is refused is another matter


main()
