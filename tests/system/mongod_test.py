#!/usr/bin/env python3
"""The stand-in for MongoDB and the client that changes documents by hand, as tests and people use them. The stores'
own tests (control/store) drive the stand-in through libmongoc."""
import json
import os

import bson
from harness import ROOT, expect, expect_equal, main, run, scenario
from mongod import Mongod

BY_HAND = os.path.join(ROOT, "tests", "system", "mongo_by_hand.py")


@scenario
def by_hand():
    mongod = Mongod()

    def hand(*arguments):
        return run(["python3", BY_HAND, "127.0.0.1:%d" % mongod.port, "flyt", *arguments])

    expect_equal(hand("insert", "vms", '{"vm_ip":"10.0.0.1","memory":4.5}', '{"_id":{"$numberLong":"7"},"n":1}').status, 0)
    rows = [json.loads(line) for line in hand("find", "vms").out.splitlines()]
    expect_equal(len(rows), 2, "documents")
    expect_equal(rows[0], {"_id": 7, "n": 1})
    expect_equal(rows[1]["vm_ip"], "10.0.0.1")
    expect("$oid" in rows[1]["_id"], "an ObjectId is made:", rows[1])
    expect_equal(hand("update", "vms", '{"vm_ip":"10.0.0.1"}', '{"$set":{"memory":8}}').out.strip(), "1")
    expect_equal(json.loads(hand("find", "vms", '{"memory":{"$gte":8}}').out)["memory"], 8)
    expect_equal(hand("delete", "vms", "{}").out.strip(), "2")
    expect_equal(hand("find", "vms").out, "")
    failed = hand("run", '{"noSuchCommand":1}')
    expect(failed.status != 0 and "no such command" in failed.err, "an error is one:", failed)


@scenario
def batches_and_types():
    mongod = Mongod()
    documents = [{"_id": "%04d" % i, "when": bson.Date(i), "big": bson.Int64(i), "list": [i, None, {"x": 0.5}]}
                 for i in range(500)]
    with mongod.client as client:
        client.insert("flyt", "events", *documents)
        expect_equal(client.find("flyt", "events"), documents, "all batches")
        try:
            client.insert("flyt", "events", {"_id": "0007"})
            expect(False, "the same _id twice was accepted")
        except RuntimeError as error:
            expect("11000" in str(error), error)


@scenario
def faults():
    mongod = Mongod()
    mongod.say("cut_after 1")
    try:
        with mongod.client as client:
            client.insert("flyt", "vms", {"_id": 1})
        expect(False, "the connection was not cut")
    except EOFError:
        pass
    with mongod.client as client:
        expect_equal(client.find("flyt", "vms"), [{"_id": 1}], "it was applied")
        mongod.say("step_down")
        try:
            client.insert("flyt", "vms", {"_id": 2})
            expect(False, "a server that is no primary wrote")
        except RuntimeError as error:
            expect("10107" in str(error), error)
        mongod.say("step_up")
        client.insert("flyt", "vms", {"_id": 2})
    expect_equal(mongod.ask("count"), "2")
    expect(mongod.ask("nonsense").startswith("error: "), "nonsense was understood")


main()
