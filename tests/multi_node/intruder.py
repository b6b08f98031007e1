"""Reaches the port of a job's rendezvous, but does not know its token: what it
writes there is not to matter.

Usage: intruder.py ADDRESS PORT JOB [TOKEN], with the token it seals by.
"""

import hashlib
import hmac
import json
import re
import sys

from torch.distributed import TCPStore

address, port, job, token = (*sys.argv[1:], "another")[:4]
knows_token = len(sys.argv) > 4
store = TCPStore(address, int(port), None, False, wait_for_workers=False)
nonce = store.get("nonce").decode()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256)


TYPES = ("join", "leave", "lost", "plan", "ready", "start", "failed",
         "stopped", "finished", "re_rendezvous", "end")


def seal(entry):
    text = json.dumps({
        **json.loads(recorded[0][64:]), "sequence": 1,
        "epoch": 1, "code": 99, "text": "intruder", **entry,
        "type": TYPES.index(entry["type"])})
    key = mac(token.encode(), "ddprun " + job).digest()
    parts = "".join(f"{len(each)}:{each}" for each in (nonce, job, text))
    return mac(key, parts).hexdigest() + text


def entries_in(block):
    """As members read a block: up to what an earlier intruder put there."""
    while found := re.match(rb"(\d{1,7}) ", block):
        entry = block[found.end():][:int(found[1])]
        if len(entry) > 64 and entry[64:65] == b"{":
            yield entry
        block = block[found.end() + int(found[1]):]


recorded = []
place = 0
while store.check([f"log/{place}"]):
    recorded += entries_in(store.get(f"log/{place}"))
    place += 1


def append(value):
    global place
    if isinstance(value, str):
        value = value.encode()
    for each in (b"%d %s" % (len(value), value), value):
        store.set(f"log/{place}", each)
        place += 1


def writer_of(entry):
    return json.loads(entry[64:])["from"]


if knows_token:
    first = writer_of(recorded[0])
    append(seal({"type": "end", "from": first, "sequence": 1 << 50}))
    sys.exit()

members = {writer_of(entry) for entry in recorded}
for entry in recorded:  # all that was ever said, once more
    append(entry)
for entry in recorded:  # and of another epoch
    append(entry.replace(b'"epoch":1', b'"epoch":2'))
for member in members:
    for kind in ("end", "failed", "leave", "stopped", "finished", "re_rendezvous"):
        append(seal({"type": kind, "from": member, "sequence": 1 << 40}))
    append(seal({"type": "lost", "from": min(members), "about": member,
                 "sequence": 1 << 41}))
    append(seal({"type": "plan", "from": member, "epoch": 2,
                 "sequence": 1 << 42, "plan": {
                     "epoch": 2, "restarts": 0, "max_restarts": 9,
                     "nodes": [member]}}))
for value in (b"", b" ", b"1 ", b"no space", b"f" * 64 + b"{}",
              b"\xff\x00" * 1000, b"\x00", b"[" * 60000, b"-1 x",
              b"99999999999999999999999999 x", b"18446744073709551615 x",
              b"f" * (320 * 1024), b"x" * (3 << 20)):
    append(value)
    store.queue_push("posts", value)
for number in range(300):
    append(f"{number} noise")
store.set("posts", "no queue")
store.set(f"log/{place + 5}", "7 beyond a hole")
store.set("other", "x" * (3 << 20))
store.set("beat/nobody", "9" * (2 << 20))
for member in members:
    store.set(f"beat/{member}", "no number")
print("intruded", flush=True)
