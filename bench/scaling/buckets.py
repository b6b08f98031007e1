"""Which gradients are reduced together.

Gradients are given in the order in which backward computes them. A layout is
the number of gradients of each bucket in that order.
"""

from dataclasses import dataclass
from itertools import accumulate

MIB = 1 << 20


@dataclass(frozen=True)
class Gradient:
    size: int     # bytes
    ready: float  # seconds since backward began


def by_caps(sizes, first=MIB, cap=25 * MIB):
    """Python's DistributedDataParallel after its first iteration: a bucket is
    full when it has reached its cap, which it may exceed by a gradient."""
    layout, count, total, limit = [], 0, 0, first
    for size in sizes:
        count, total = count + 1, total + size
        if total >= limit:
            layout.append(count)
            count, total, limit = 0, 0, cap
    return layout + [count] * (count > 0)


def by_definition(sizes, first=MIB, cap=25 * MIB):
    """Python's before PyTorch 1.7, which never laid buckets out anew: in the
    order of definition, then reversed, so that the small one is the last."""
    return by_caps(sizes[::-1], first, cap)[::-1]


def bucketed(gradients, layout):
    """The size of each bucket, and when its last gradient is ready."""
    ends = list(accumulate(layout))
    groups = [gradients[end - count:end] for end, count in zip(ends, layout)]
    return [Gradient(sum(g.size for g in group), max(g.ready for g in group))
            for group in groups]


def reduce_in_order(gradients, layout, cost, at_once=1):
    """When the last bucket is reduced. cost(size): seconds of a collective on
    its own. Of several at once, one waits out its latency, cost(0), while
    another has the network."""
    latency, ends = cost(0), [0.0] * at_once
    for bucket in bucketed(gradients, layout):
        start = max(bucket.ready, ends[-at_once])
        sends = max(start + latency, ends[-1])
        ends.append(sends + cost(bucket.size) - latency)
    return ends[-1]


def reduce_when_ready(gradients, cost, threshold, cycle):
    """Horovod's tensor fusion (docs/tensor-fusion.rst): each cycle that finds
    the queue empty takes what is ready, up to the threshold."""
    free, index = 0.0, 0
    while index < len(gradients):
        start = max(free, gradients[index].ready)
        start = -(-start // cycle) * cycle
        size = gradients[index].size
        index += 1
        while (index < len(gradients) and gradients[index].ready <= start and
               size + gradients[index].size <= threshold):
            size += gradients[index].size
            index += 1
        free = start + cost(size)
    return free


def earliest_end(gradients, cost):
    """Of all layouts.

    The end of the first j gradients is the least over i < j of
    max(end(i), ready(j)) + cost(size from i to j): what comes later only waits
    for it, so the best end of a part is part of a best whole.
    """
    offsets = [0, *accumulate(g.size for g in gradients)]
    ends = [0.0]
    for j, gradient in enumerate(gradients, start=1):
        ends.append(min(max(ends[i], gradient.ready) +
                        cost(offsets[j] - offsets[i]) for i in range(j)))
    return ends[-1]


def fewest_buckets(gradients, cost, deadline):
    """A layout that ends by then, with as few buckets as can be.

    From the end: with k buckets for what follows gradient i, the latest time
    by which all before it must be reduced; None where they cannot do it.
    """
    offsets = [0, *accumulate(g.size for g in gradients)]
    count = len(gradients)
    latest, counts = [None] * count + [deadline], []
    while latest[0] is None:
        if len(counts) == count:
            raise ValueError("no layout ends by the deadline")
        before, latest = latest, [None] * (count + 1)
        counts.append([0] * count)
        for i in range(count):
            for j in range(i + 1, count + 1):
                if before[j] is None:
                    continue
                start = before[j] - cost(offsets[j] - offsets[i])
                if start >= gradients[j - 1].ready and (
                        latest[i] is None or start > latest[i]):
                    latest[i], counts[-1][i] = start, j - i
    layout, i = [], 0
    for taken in reversed(counts):
        layout.append(taken[i])
        i += taken[i]
    return layout


def best_layout(gradients, cost, slack=0.0):
    """The fewest buckets that end within this time, in seconds, of the
    earliest possible end."""
    end = earliest_end(gradients, cost)
    rounding = 1e-9 * end
    return fewest_buckets(gradients, cost, end + slack + rounding)
