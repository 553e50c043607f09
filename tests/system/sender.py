"""programs/sender.cu in a VM of a whole system: it calls its GPU without a pause until it is told to end."""
import harness
from harness import expect, expect_equal, within

ALLOCATIONS, ASKERS = 12, 3


class Sender:
    """One in VM `i`, which calls its GPU when this returns."""

    def __init__(self, system, i):
        self.process = system.start_in_vm(i, harness.helper("sender"), "-", str(ALLOCATIONS), str(ASKERS))
        within(60, lambda: [s for s in system.flytctl("sessions") if s["calls"] > 1000 and s["program"] == "sender"],
               "it calls its GPU")

    def ends_right(self, what):
        """Tells it to end: every launch that it made was executed, once."""
        result = harness.finish(self.process, timeout=600)  # which closes its standard input
        words = result.out.split()
        expect_equal((result.status, result.err, words[::2]), (0, "", ["launched", "of"]), what, result)
        expect(words[1] == words[3] and int(words[1]) > 0, "launches executed, and made:", what, result)
