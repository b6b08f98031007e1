"""The training that nodes_test.py runs over several hosts, and what it says."""

import os
import re
import sys


def trainer(nodes, epochs, samples, pause_ms):
    folder = f"{nodes.folder.name}/checkpoints"
    return [sys.argv[2], folder, str(epochs), str(samples), str(pause_ms)]


def require_all_seen(nodes, hosts, most_repeated):
    """That the job has ended well, and every sample was seen once in each
    epoch: but for what a sampler repeats where ranks do not divide samples."""
    texts = "".join(nodes.at[host].text() for host in hosts)
    found = re.findall(r"samples were seen (\d+) to (\d+) times, (\d+) more",
                       texts)
    nodes.require(len(found) == 1, f"the end was told {len(found)} times")
    least, most, repeated = map(int, found[0])
    nodes.require(least == 1 and most <= 2 and repeated <= most_repeated,
                  f"samples were seen {found[0]}")


def step_of(nodes, host):
    """The step of the last checkpoint."""
    try:
        names = os.listdir(f"{nodes.folder.name}/checkpoints")
    except OSError:
        return 0
    return max([int(step) for name in names
                for step in re.findall(r"(\d+)", name)], default=0)
