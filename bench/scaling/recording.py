"""Steps that ddp_step_trace recorded: JSON, times in milliseconds.

ranks, forward, optimizer; gradients: bytes and ready, since backward began;
buckets: bytes, in the order of reduction; all_reduce: bytes and ms of a small
and a large one; compute_steps: forward and backward of each step without
communication; synced_steps: whole steps with it. network (added by
measure.py): bytes per second of a link.
"""

import json
from dataclasses import dataclass

from buckets import Gradient, reduce_in_order
from network import Cluster, Link
from noise import empirical
from step import Costs, Work, simulate

GLOO_THREADS = 2  # c10d's default: so many collectives run at once


@dataclass(frozen=True)
class Trace:
    ranks: int
    work: Work
    layout: tuple[int, ...]
    latency: float          # of a step of a ring
    bandwidth: float
    compute: tuple[float, ...]
    steps: tuple[float, ...]

    def cluster(self):
        link = Link(self.bandwidth, self.latency, self.latency)
        return Cluster("trace", 1, link, link, algorithms=("ring",))

    def predict(self):
        def reduce(gradients, cost):
            return reduce_in_order(gradients, self.layout, cost,
                                   at_once=GLOO_THREADS)
        return simulate(self.work, self.ranks, self.cluster(), Costs(), reduce,
                        noise=empirical(self.compute)).seconds


def layout_of(gradients, sizes):
    """How many gradients fill each bucket."""
    layout, index = [], 0
    for size in sizes:
        start, filled = index, 0
        while filled < size:
            filled += gradients[index].size
            index += 1
        layout.append(index - start)
    return tuple(layout)


def seconds(milliseconds):
    return tuple(value / 1e3 for value in milliseconds)


def load(path):
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    gradients = tuple(Gradient(g["bytes"], g["ready"] / 1e3)
                      for g in record["gradients"])
    ranks = record["ranks"]
    small = record["all_reduce"][0]["ms"] / 1e3
    return Trace(
        ranks, Work(record["forward"] / 1e3, gradients,
                    record["optimizer"] / 1e3),
        layout_of(gradients, record["buckets"]), small / (2 * (ranks - 1)),
        record["network"], seconds(record["compute_steps"]),
        seconds(record["synced_steps"]))
