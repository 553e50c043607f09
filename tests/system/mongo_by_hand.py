#!/usr/bin/env python3
"""Changes documents in a MongoDB (or the stand-in) as a person would: a client of a few lines, without authentication.

usage: mongo_by_hand.py HOST:PORT DATABASE insert COLLECTION DOCUMENT…
                                           find   COLLECTION [FILTER]
                                           update COLLECTION FILTER CHANGE      ({"$set": …} or a replacement)
                                           delete COLLECTION FILTER             (all that match)
                                           run    COMMAND
Documents are extended JSON. In tests: `with Client(port) as client: client.insert(database, collection, document)`.
"""
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bson  # noqa: E402


class Client:
    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.socket.close()

    def _receive(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError("the server closed the connection")
            data += part
        return data

    def run(self, database, command):
        """Runs a command; an error in its reply is a RuntimeError."""
        self.number += 1
        body = b"\0\0\0\0\0" + bson.encode({**command, "$db": database})
        self.socket.sendall(struct.pack("<iiii", 16 + len(body), self.number, 0, 2013) + body)
        size, _, _, opcode = struct.unpack("<iiii", self._receive(16))
        reply = bson.decode_at(self._receive(size - 16), 5)[0]
        if opcode != 2013 or reply.get("ok") != 1 or reply.get("writeErrors"):
            raise RuntimeError(bson.dumps(reply))
        return reply

    def insert(self, database, collection, *documents):
        self.run(database, {"insert": collection, "documents": list(documents)})

    def find(self, database, collection, wanted=None):
        cursor = self.run(database, {"find": collection, "filter": wanted or {}})["cursor"]
        rows = cursor["firstBatch"]
        while cursor["id"]:
            cursor = self.run(database, {"getMore": cursor["id"], "collection": collection})["cursor"]
            rows += cursor["nextBatch"]
        return rows

    def update(self, database, collection, wanted, change):
        """How many matched; all of them where the change has operators, else one."""
        is_multi = any(name.startswith("$") for name in change)
        return self.run(database, {"update": collection, "updates": [{"q": wanted, "u": change, "multi": is_multi}]})["n"]

    def delete(self, database, collection, wanted):
        return self.run(database, {"delete": collection, "deletes": [{"q": wanted, "limit": 0}]})["n"]


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__.strip())
    host, _, port = sys.argv[1].rpartition(":")
    database, verb, *rest = sys.argv[2:]
    with Client(int(port), host) as client:
        if verb == "run":
            print(bson.dumps(client.run(database, bson.loads(rest[0]))))
            return
        collection, values = rest[0], [bson.loads(text) for text in rest[1:]]
        if verb == "insert":
            client.insert(database, collection, *values)
        elif verb == "find":
            for row in client.find(database, collection, *values):
                print(bson.dumps(row))
        elif verb in ("update", "delete"):
            print(getattr(client, verb)(database, collection, *values))
        else:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
