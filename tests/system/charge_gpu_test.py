#!/usr/bin/env python3
"""What modules and streams take of this machine's NVIDIA GPU is charged, and agrees with what NVML says of the process; no
spelling of PTX gets by a limit. Needs a GPU; FLYT_TEST_SOFTWARE=1 tries the scenario on software GPUs."""
import os

import harness
from charged import Modules, add_modules_vm, used_bytes
from cluster import System
from harness import expect, expect_equal, main, scenario, skip, within
from nvml import Nvml
from steady import MIB, is_idle

# Charged are whole granules of 2 MiB, some of them before the driver takes them.
TOLERANCE_BYTES = 8 * MIB
IS_SOFTWARE = os.environ.get("FLYT_TEST_SOFTWARE") == "1"

if not IS_SOFTWARE and not os.path.exists("/dev/nvidiactl"):
    skip("no NVIDIA GPU here")


def system(mps):
    node = {"mps": mps, "warm": 1} if not IS_SOFTWARE else {"warm": 1}
    if mps == "start":
        node["mps_dir"] = os.path.join(harness.WORK, "mps")
    return System(nodes=1, vms=1, hardware=not IS_SOFTWARE, namespaces=False, sms=132, memory="4G", node=node)


class Agreement:
    """Between what is charged and what NVML says of the server's process, as far as both have grown since this was made:
    what its context takes is not the VM's."""

    def __init__(self, whole):
        self.whole, self.nvml = whole, None if IS_SOFTWARE else Nvml()
        self.pid = whole.flytctl("sessions")[0]["server_pid"]
        self.begin = self.look()
        if not self.begin[0]:
            print("    NVML says nothing of process %d: only the ledger is looked at" % self.pid)

    def look(self):
        return self.nvml and self.nvml.process_bytes(self.pid), used_bytes(self.whole)

    def holds(self, what):
        """The node manager corrects the ledger once a second."""
        seen = []

        def is_close():
            seen[:] = self.look()
            return abs((seen[0] - self.begin[0]) - (seen[1] - self.begin[1])) <= TOLERANCE_BYTES
        if self.begin[0]:
            within(30, is_close, "NVML's figure and the charge grow alike: " + what)
            print("    %s: NVML %+d MiB, charged %+d MiB" % (
                what, (seen[0] - self.begin[0]) // MIB, (seen[1] - self.begin[1]) // MIB))


@scenario
def what_a_module_takes_is_charged():
    for mps in ("off",) if IS_SOFTWARE else ("off", "start"):
        with system(mps) as whole:
            add_modules_vm(whole)
            program = Modules(whole)
            for name, answer in program.refusals():
                expect(answer in ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_PTX"),
                       "a module of 1 GiB, spelled", name, "is answered with", answer)
            before = used_bytes(whole)
            agreement = Agreement(whole)
            expect_equal(program.ask("load"), "CUDA_SUCCESS", "a module of 40 MiB")

            def more(least, most):
                return lambda: least * MIB <= used_bytes(whole) - before <= most * MIB
            within(30, more(40, 48), "its memory is charged")
            agreement.holds("a module of 40 MiB")
            expect_equal(program.ask("unload"), "CUDA_SUCCESS", "its end")
            within(30, more(-8, 8), "it is not charged any more")
            expect_equal(program.ask("streams 100"), "CUDA_SUCCESS", "100 streams")
            within(30, more(44, 68), "the streams are charged")
            agreement.holds("100 streams")
            print("    %s: %d MiB before, %d MiB with 100 streams" % (mps, before // MIB, used_bytes(whole) // MIB))
            expect_equal(program.ask("streams 1000"), "CUDA_ERROR_OUT_OF_MEMORY", "1000 more")
            program.ends()
            is_idle(whole)


main()
