"""What is fitted, on which figures."""

from dataclasses import replace

from buckets import by_definition
from network import clusters
from nets import all_nets
from published import (BATCH, GPUS, H100_PEAK, V100_PEAK, VIT_BATCH,
                       own_steps, pytorch_table, vit_table)
from step import Costs, queue, simulate, work_of


def table_work(net):
    return work_of(all_nets()[net], pytorch_table()[net][0], BATCH, V100_PEAK)


def table_steps(work, costs):
    """Of PyTorch's table, for GPUS."""
    cluster = clusters()["dgx1v"]
    return [simulate(work, ranks, cluster, costs,
                     queue(by_definition)).seconds for ranks in GPUS]


def overheads(steps):
    """Over one GPU."""
    return [seconds / steps[0] - 1 for seconds in steps[1:]]


def least_squares(residuals, start, delta=1e-3, rounds=5):
    """Gauss-Newton in two variables."""
    x = list(start)
    for _ in range(rounds):
        base = residuals(*x)
        a = [(r - b) / delta for r, b in zip(residuals(x[0] + delta, x[1]),
                                             base)]
        b = [(r - b) / delta for r, b in zip(residuals(x[0], x[1] + delta),
                                             base)]
        aa, ab, bb = dot(a, a), dot(a, b), dot(b, b)
        ra, rb = dot(a, base), dot(b, base)
        determinant = aa * bb - ab * ab
        x[0] -= (bb * ra - ab * rb) / determinant
        x[1] -= (aa * rb - ab * ra) / determinant
    return x


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def fit_costs():
    """The model's three costs, on ResNet-50 of PyTorch's table alone: what ddp
    adds on one GPU from that row, the other two from those of 2 to 16."""
    net, times = all_nets()["resnet50"], pytorch_table()["resnet50"]
    work = table_work("resnet50")
    per_gradient = (times[1] - times[0]) / net.tensors
    measured = overheads(times[1:])

    def residuals(interference, spread):
        steps = table_steps(work, Costs(per_gradient, interference, spread))
        return [a - b for a, b in zip(overheads(steps), measured)]

    interference, spread = least_squares(residuals, (0.05, 0.01))
    return Costs(per_gradient, interference, spread)


def h100_costs():
    """What ddp adds per byte, by least squares on steps as CUDA graphs: no cost
    per gradient is visible there. The rest is that of V100s: one GPU shows
    neither interference nor spread."""
    sizes = [4 * all_nets()[step.net].parameters for step in own_steps()[0]]
    added = [step.ddp - step.local for step in own_steps()[0]]
    return replace(fit_costs(), per_gradient=0.0,
                   per_byte=dot(sizes, added) / dot(sizes, sizes))


def vit_work():
    """Of the table, on one GPU."""
    return work_of(all_nets()["vit_h_14"], VIT_BATCH / vit_table()[0][1],
                   VIT_BATCH, H100_PEAK)


def solve(function, target, low, high):
    """Where a monotonic function has a value, by bisection of the ratio; the
    end that is nearer where it has none."""
    rising = function(high) > function(low)
    for _ in range(50):
        middle = (low * high) ** 0.5
        if (function(middle) < target) == rising:
            low = middle
        else:
            high = middle
    return middle
