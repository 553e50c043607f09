"""The time from starting python to the end of PyTorch's first kernel, `import torch` included, in processes of their own.

usage: start.py FLYT_RUN WAY=URL...    natively and with FLYT_RUN --server URL, in turns: medians of 5, side by side
       start.py                        such a process: prints the clock when its kernel has ended
"""
import statistics
import subprocess
import sys
import time

RUNS, LIMIT_S = 5, 120


def kernel():
    import torch
    torch.ones(4, device="cuda").add_(1)
    torch.cuda.synchronize()
    print(time.monotonic())


def once(command):
    begin = time.monotonic()    # the same clock in all processes
    said = subprocess.run([*command, sys.executable, __file__], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S).stdout
    return float(said) - begin


def main():
    from ways import table
    commands = {"native": []}
    for word in sys.argv[2:]:
        way, _, url = word.partition("=")
        commands[way] = [sys.argv[1], "--server", url, "--"]
    times = {way: [] for way in commands}
    for _ in range(RUNS):
        for way, command in commands.items():
            times[way].append(once(command))
    print("\n".join(table({way: {"start_to_first_kernel": (1e3 * statistics.median(all_of_it), "ms")} for way, all_of_it in times.items()})))


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else kernel()
