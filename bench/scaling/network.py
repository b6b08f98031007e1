"""How long an all-reduce takes: alpha-beta models of three algorithms.

Latencies and bandwidths are of one step between neighbours, in seconds and
bytes per second of one direction. Sources: Thakur et al., "Optimization of
Collective Communication Operations in MPICH" (ring); Sanders et al., "Two-tree
algorithms" (tree); NCCL's own model, src/graph/tuning.cc (which steps of a ring
and a tree cross the network).
"""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Link:
    bandwidth: float
    latency: float
    tree_latency: float


@dataclass(frozen=True)
class Cluster:
    name: str
    per_node: int
    inside: Link   # between the ranks of a node
    between: Link  # of a whole node to the others: all its NICs together
    start: float = 0.0  # of each collective
    algorithms: tuple[str, ...] = ("ring", "tree")

    def nodes(self, ranks):
        return -(-ranks // self.per_node)

    def bottleneck(self, ranks):
        if self.nodes(ranks) == 1:
            return self.inside.bandwidth
        if self.per_node == 1:
            return self.between.bandwidth
        return min(self.inside.bandwidth, self.between.bandwidth)

    def with_bandwidth(self, bandwidth):
        return replace(self, between=replace(self.between,
                                             bandwidth=bandwidth))


def ring(size, ranks, cluster):
    """Reduce-scatter and all-gather, one ring through all ranks: 2 (n - 1)
    steps, of which 2 (nodes - 1) wait for the network."""
    outside = 2 * (cluster.nodes(ranks) - 1)
    steps = 2 * (ranks - 1)
    latency = (outside * cluster.between.latency +
               (steps - outside) * cluster.inside.latency)
    return latency + steps / ranks * size / cluster.bottleneck(ranks)


def tree(size, ranks, cluster):
    """Up and down two binary trees over nodes, a chain inside of each; NCCL
    counts nine tenths of the bandwidth."""
    nodes = cluster.nodes(ranks)
    local = min(ranks, cluster.per_node)
    latency = 2 * ((local - 1) * cluster.inside.tree_latency +
                   math.log2(nodes) * cluster.between.tree_latency)
    return latency + 2 * size / (0.9 * cluster.bottleneck(ranks))


def hierarchical(size, ranks, cluster):
    """Reduce-scatter inside of each node, a ring between nodes for each part,
    all-gather inside: one after the other."""
    nodes = cluster.nodes(ranks)
    local = min(ranks, cluster.per_node)
    inside = (local - 1) * (cluster.inside.latency +
                            size / local / cluster.inside.bandwidth)
    between = 2 * (nodes - 1) * (cluster.between.latency +
                                 size / nodes / cluster.between.bandwidth)
    return 2 * inside + between


def all_reduce(size, ranks, cluster):
    """By the fastest algorithm that the cluster has."""
    if ranks == 1:
        return 0.0
    models = {"ring": ring, "tree": tree, "hierarchical": hierarchical}
    return cluster.start + min(models[name](size, ranks, cluster)
                               for name in cluster.algorithms)


def clusters():
    """Bandwidths of links are NCCL's (src/graph/topo.h): NVLink 2 20 GB/s each,
    NVLink 4 20.6, PCI 3 12, 100 Gbit/s of network 12. Latencies are those of
    its tuning.cc (of 2026 for H100s, else older): rings by protocol Simple,
    trees by LL128."""
    nvlink2 = Link(6 * 20e9, 3.4e-6, 1.2e-6)
    nvlink4 = Link(18 * 20.6e9, 3.4e-6, 1.25e-6)
    pci = Link(12e9, 5.7e-6, 28e-6)
    return {cluster.name: cluster for cluster in (
        Cluster("dgx1v", 8, nvlink2, Link(4 * 12e9, 9.6e-6, 8.5e-6), 8.4e-6),
        Cluster("h100", 8, nvlink4, Link(8 * 48e9, 14e-6, 8.5e-6), 8.4e-6),
        # 4 H100, 4 x 200 Gbit/s.
        Cluster("marenostrum5", 4, nvlink4, Link(4 * 24e9, 14e-6, 8.5e-6),
                8.4e-6),
        # NCCL had no trees before 2.4.
        Cluster("p100-25g", 4, pci, Link(3e9, 9.6e-6, 50e-6), 8.4e-6,
                ("ring",)))}
