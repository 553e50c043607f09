#!/usr/bin/env python3
"""The client libraries built with address and undefined-behaviour sanitizers, in ordinary programs: no report."""
import os
import re
import subprocess

import harness
from harness import app, environment, expect, expect_equal, main, run, scenario, server, skip

SANITIZED = os.path.join(harness.ROOT, "build-address-undefined")
REPORT = re.compile(r"ERROR: (Address|Leak)Sanitizer|runtime error:")
PROGRAMS = ("memory", "memory_2d", "memory_async", "bulk_copies", "streams", "stream_legacy", "events", "host_functions",
            "launch", "launch_driver", "launch_large_parameters", "managed", "managed_attach", "managed_advise",
            "managed_ends", "managed_variable", "managed_library",
            "module_driver", "module_dlopen", "library_driver",
            "symbols", "errors", "contexts", "not_supported", "threads_own_streams", "threads_shared_streams",
            "graph_nodes", "graph_capture", "graph_memory", "graph_conditional", "graph_bodies", "graph_between",
            "graph_changes", "graph_programmatic", "pool_host", "pool_managed", "virtual_host", "notification", "pinned_chain",
            "memory_host", "memory_mapped", "fork_child", "fork_pinned", "process_ends", "fault_address")


ON_THE_HOST = ("managed", "managed_attach", "managed_advise", "managed_ends", "managed_concurrent", "managed_library",
               "pool_managed")


def sanitizer_libraries():
    """The run-time libraries, which must come before everything else in a program that was built without them."""
    found = [subprocess.run(["gcc", "-print-file-name=" + name], capture_output=True, text=True, check=True).stdout.strip()
             for name in ("libasan.so", "libubsan.so")]
    return [os.path.realpath(path) for path in found]


@scenario
def programs():
    libraries = os.path.join(SANITIZED, "lib")
    preload = ":".join(sanitizer_libraries() + [os.path.join(libraries, n) for n in ("libcudart.so.13", "libcuda.so.1")])
    with server("unix") as s:
        # Leaks are the programs' own business: many end in the middle of their work.
        env = environment(FLYT_SERVER=s.url, FLYT_TEST_FORWARDED="1", LD_PRELOAD=preload, LD_LIBRARY_PATH=libraries,
                          ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0", UBSAN_OPTIONS="print_stacktrace=1")
        for where, names in (("device", PROGRAMS), ("host", ON_THE_HOST)):
            for name in names:
                result = run([app(name)], {**env, "FLYT_MANAGED_MEMORY": where}, timeout=120)
                expect(result.status == 0 and not REPORT.search(result.err), where, name, result)


if not os.path.exists(os.path.join(SANITIZED, "lib", "libcudart.so.13")):
    skip("the libraries are not built with sanitizers (make SANITIZE=address,undefined client)")
main()
