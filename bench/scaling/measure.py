#!/usr/bin/env python3
"""Records steps over gloo between hosts that are network namespaces of this
machine, joined by links of a given speed: the files of traces/.

Usage (as root): measure.py DDP_STEP_TRACE FILE NET HOSTS MBITS [DELAY_MS]
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "bench"), str(ROOT / "tests/multi_node")]
from delayed_network import DelayedNetwork, address  # noqa: E402
from hosts import Hosts, enter_namespaces  # noqa: E402
from job import ranks  # noqa: E402
from others import OthersShare  # noqa: E402

SECONDS = 400
# Bytes of TCP with timestamps, and of what carries them.
TCP_PAYLOAD, IP_PACKET, ETHERNET_FRAME = 1448, 1500, 1514
# layers, width, batch, bucket_cap_mb, steps
NETS = {"mlp12-8mib": ("12", "1024", "1", "8", "15"),
        "mlp12-25mib": ("12", "1024", "1", "25", "15"),
        "mlp36-4mib": ("36", "512", "1", "4", "15"),
        "mlp12-batch64": ("12", "1024", "64", "8", "15")}


def slow_down(hosts, megabits):
    """Bounds what each host sends. The kernel hands over 64 KB at once, and
    wakes up late where the processor is busy: the burst has to hold several."""
    for host in range(len(hosts.holders)):
        hosts.command(host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
                      "rate", f"{megabits}mbit", "burst", "256kb", "latency",
                      "1s")


def record(hosts, words, **variables):
    others = OthersShare()
    with ranks(hosts, [1] * len(hosts.holders), words, OMP_NUM_THREADS="1",
               DDP_BACKEND="gloo", DDP_TIMEOUT="120", **variables) as job:
        results = job.finish(SECONDS)
        job.require(all(code == 0 for _, code in results), "a rank failed")
    text = results[0][0]
    trace = json.loads(text[text.index("{"):])
    trace["processors_of_others"] = others.share() * os.cpu_count()
    return trace


def main():
    program, file, net, *numbers = sys.argv[1:]
    count, megabits, *delay = map(int, numbers)
    enter_namespaces()
    hosts = Hosts(count)
    words = [program, *NETS[net]]
    if delay:
        DelayedNetwork(hosts, megabits, delay[0] / 1e3)
        trace = record(hosts, words, MASTER_ADDR=address(0))
    else:
        slow_down(hosts, megabits)
        trace = record(hosts, words)
    frame = IP_PACKET if delay else ETHERNET_FRAME
    trace["network"] = TCP_PAYLOAD / frame * megabits * 1e6 / 8
    Path(file).write_text(json.dumps(trace) + "\n", encoding="utf-8")
    print(file, trace["all_reduce"], "processors of others:",
          round(trace["processors_of_others"], 2))


if __name__ == "__main__":
    main()
