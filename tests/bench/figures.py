"""What the measurements in Python share: which machine this is, programs of this folder, tables, medians."""
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
import harness

# FLYT_TEST_SOFTWARE=1: software GPUs also where there is a real one.
HAS_GPU = os.path.exists("/dev/nvidiactl") and os.environ.get("FLYT_TEST_SOFTWARE") != "1"


def bench_program(name):
    return os.path.join(harness.BUILD, "tests", "bench", name)


def native_environment():
    """Of a program that runs without Flyt: NVIDIA's runtime library, of the toolkit or of a bundle, and no MPS."""
    folders = (os.path.join(harness.CUDA, "lib64"), os.path.join(harness.BUILD, "native"),
               os.path.join(harness.BUILD, "bundle", "flyt", "native"),
               os.path.join(os.path.dirname(os.path.realpath(os.path.join(harness.BUILD, "lib"))), "native"))
    found = [folder for folder in folders if os.path.exists(os.path.join(folder, "libcudart.so.13"))]
    harness.expect(found, "no libcudart.so.13 of NVIDIA in", ", ".join(folders))
    env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    return {**env, "LD_LIBRARY_PATH": found[0]}


def gpus():
    """[(name and driver, bytes of memory)] of this machine's GPUs, as NVIDIA's tool says; none where they are software."""
    if not HAS_GPU:
        return []
    said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    rows = [line.rsplit(",", 1) for line in harness.lines(said)]
    return [(name, int(mib) << 20) for name, mib in rows]


def machine():
    """One line."""
    names = [name for name, _ in gpus()]
    return "%s; %d CPU cores." % ("; ".join(names) if names else "Software GPUs", os.cpu_count())


def table(title, rows, head=("figure", "asked", "seen")):
    print("\n%s\n\n| %s |\n|%s" % (title, " | ".join(head), "---|" * len(head)))
    for row in rows:
        print("| %s |" % " | ".join(row))
    sys.stdout.flush()


def spread(values, form="%.3f"):
    """Median, smallest and largest."""
    return "%s (%s–%s)" % tuple(form % value for value in (statistics.median(values), min(values), max(values)))
