#!/usr/bin/env python3
"""Programs that use two devices, on a server with two software GPUs (the other tests' servers have one)."""
from harness import app, expect_equal, main, run, scenario, server, through_flyt


@scenario
def one_of_two_is_reset():
    with server("unix", ("--soft", "2")) as s:
        for name in ("device_reset_one_of_two", "device_reset", "devices", "peer_atomics", "managed_devices", "graph_devices"):
            result = run(through_flyt(s.url, app(name)))
            expect_equal(result.status, 0, name, result)


main()
