"""Reaches the port of a job's rendezvous, but does not know its token: what it
writes there is not to matter.

Usage: intruder.py ADDRESS PORT JOB [TOKEN], with the token it seals by.
"""

import hashlib
import hmac
import json
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
        **json.loads(recorded[0].split(b" ", 1)[1][64:]), "sequence": 1,
        "epoch": 1, "code": 99, "text": "intruder", **entry,
        "type": TYPES.index(entry["type"])})
    key = mac(token.encode(), "ddprun " + job).digest()
    parts = "".join(f"{len(each)}:{each}" for each in (nonce, job, text))
    return "i:1 " + mac(key, parts).hexdigest() + text


recorded = []
while store.check([f"log/{len(recorded)}"]):
    recorded.append(store.get(f"log/{len(recorded)}"))
place = len(recorded)


def append(value):
    global place
    store.set(f"log/{place}", value)
    place += 1


if knows_token:
    first = recorded[0].split(b":")[0].decode()
    append(seal({"type": "end", "from": first, "sequence": 1 << 50}))
    sys.exit()

members = {entry.split(b":")[0].decode() for entry in recorded}
for entry in recorded:  # all that was ever said, once more
    append(entry)
for entry in recorded:  # and as if somebody else had
    append(b"i:" + entry.split(b":", 1)[1].replace(b'"epoch":1', b'"epoch":2'))
for member in members:
    for kind in ("end", "failed", "leave", "stopped", "finished", "re_rendezvous"):
        append(seal({"type": kind, "from": member, "sequence": 1 << 40}))
    append(seal({"type": "lost", "from": min(members), "about": member,
                 "sequence": 1 << 41}))
    append(seal({"type": "plan", "from": member, "epoch": 2,
                 "sequence": 1 << 42, "plan": {
                     "epoch": 2, "restarts": 0, "max_restarts": 9,
                     "nodes": [member]}}))
for value in (b"", b" ", b"i:1 ", b"no space", b"i:1 " + b"f" * 64 + b"{}",
              b"i:1 " + b"\xff\x00" * 1000, b"\x00", b"i:1 " + b"[" * 60000,
              b"i:1 " + b"f" * (64 * 1024), b"i:1 " + b"x" * (3 << 20)):
    append(value)
for number in range(300):
    append(f"i:{number} noise")
store.set(f"log/{place + 5}", "i:1 beyond a hole")
store.set("other", "x" * (3 << 20))
store.set("beat/nobody", "9" * (2 << 20))
for member in members:
    store.set(f"beat/{member}", "no number")
print("intruded", flush=True)
