"""One step: forward, backward with reductions beside it, optimizer."""

from dataclasses import dataclass, replace
from itertools import accumulate

from buckets import Gradient, by_caps, reduce_in_order
from network import all_reduce
from noise import expected_maximum, normal

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """What one rank computes in a step, in seconds, without ddp."""
    forward: float
    gradients: tuple[Gradient, ...]
    optimizer: float = 0.0
    # The share of backward that is not arithmetic at the processor's peak.
    memory_share: float = 1.0

    @property
    def backward(self):
        return self.gradients[-1].ready

    @property
    def seconds(self):
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True)
class Costs:
    """What the model cannot know of a system."""
    per_gradient: float = 0.0   # seconds that ddp adds for each, on any rank
    interference: float = 0.0   # of collectives with what is memory_share
    spread: float = 0.0         # standard deviation of ranks' speeds
    per_byte: float = 0.0       # as per_gradient


@dataclass(frozen=True)
class Step:
    seconds: float
    exposed: float  # of it, communication that nothing hides


def work_of(net, seconds, samples, peak, forward_share=1 / 3):
    """A net's step of so many seconds on one processor whose peak is in
    multiply-adds per second. Backward takes twice the forward, and a layer its
    share by multiply-adds; its gradients come together."""
    backward = (1 - forward_share) * seconds
    gradients, done = [], 0.0
    for layer in reversed(net.layers):
        done += layer.multiply_adds
        gradients += [
            Gradient(FLOAT * count, backward * done / net.multiply_adds)
            for count in reversed(layer.parameters)]
    arithmetic = 3 * net.multiply_adds * samples / peak
    return Work(forward_share * seconds, tuple(gradients),
                memory_share=max(0.0, 1 - arithmetic / seconds))


def on_ranks(work, ranks, costs, noise=None):
    """The work as the slowest of the ranks does it, beside collectives."""
    slow = 1 + expected_maximum(noise or normal(costs.spread), ranks)
    beside = slow * (1 + costs.interference * work.memory_share *
                     (ranks > 1))
    sizes = accumulate(gradient.size for gradient in work.gradients)
    gradients = tuple(
        replace(gradient, ready=gradient.ready * beside +
                costs.per_gradient * (i + 1) + costs.per_byte * size)
        for i, (gradient, size) in enumerate(zip(work.gradients, sizes)))
    return replace(work, forward=work.forward * slow, gradients=gradients)


def queue(layout=None):
    """How gradients are reduced: layout(sizes) as in buckets.py."""
    def end(gradients, cost):
        sizes = [gradient.size for gradient in gradients]
        return reduce_in_order(gradients, (layout or by_caps)(sizes), cost)
    return end


def simulate(work, ranks, cluster, costs, reduce=None, noise=None):
    """reduce(gradients, cost): when the last reduction ends, since backward
    began."""
    work = on_ranks(work, ranks, costs, noise)
    end = work.backward
    if ranks > 1:
        end = (reduce or queue())(
            work.gradients, lambda size: all_reduce(size, ranks, cluster))
    return Step(work.forward + end + work.optimizer, end - work.backward)
