"""Stragglers: all ranks wait for the slowest.

A distribution is its quantile function over (0, 1), of the time that a rank
takes beyond the usual, relative to it. The expected maximum of n draws is
the integral of quantile(u ** (1 / n)) over u.
"""

from statistics import NormalDist, mean, median


def expected_maximum(quantile, ranks, points=2000):
    places = ((i + 0.5) / points for i in range(points))
    return mean(quantile(place ** (1 / ranks)) for place in places)


def normal(spread):
    return NormalDist(0, spread).inv_cdf if spread > 0 else lambda _: 0.0


def empirical(samples):
    """Of measured times, relative to their median: between neighbours linear,
    beyond the last one constant, so that a maximum is no more than was seen."""
    middle = median(samples)
    values = sorted(sample / middle - 1 for sample in samples)

    def quantile(place):
        position = min(max(place * len(values) - 0.5, 0), len(values) - 1)
        low = min(int(position), len(values) - 2)
        return values[low] + (position - low) * (values[low + 1] - values[low])

    return quantile
