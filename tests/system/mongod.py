"""The stand-in for MongoDB (mongod_stand_in.py says what it is not) in a test of this folder.

    mongod = Mongod()
    start_a_manager(store=mongod.uri("flyt"))
    mongod.client.insert("flyt", "vm_required_resources", {"vm_ip": "10.0.0.1", "compute_units": 16, "memory": 4.5})
    mongod.say("cut_after 1")       # its lines for faults
    mongod.pause(); mongod.resume()
"""
import os
import signal
import subprocess

import harness
import mongo_by_hand


class Mongod:
    def __init__(self):
        program = os.path.join(harness.ROOT, "tests", "system", "mongod_stand_in.py")
        self.process = harness.start(["python3", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     bufsize=1)
        line = self.process.stdout.readline()
        harness.expect(line.startswith("listening on "), "the stand-in said", repr(line))
        self.port = int(line.split()[-1])

    def uri(self, database):
        return "mongodb://127.0.0.1:%d/%s" % (self.port, database)

    @property
    def client(self):
        """A new connection, as of a person; it ends with its last use."""
        return mongo_by_hand.Client(self.port)

    def ask(self, line):
        """Writes a line, returns what is answered."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def say(self, line):
        answer = self.ask(line)
        harness.expect(answer == "ok", "the stand-in answered", repr(answer), "to", repr(line))

    def pause(self):
        harness.stop(self.process.pid)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)
