"""The curves of the plot: nets of docs/gpu-results.md on more GPUs, and the
published table with more GPUs than it has."""

from fit import h100_costs
from network import clusters
from nets import all_nets
from plot import Curve
from published import H100_PEAK, own_steps, vit_table
from step import simulate, work_of
from validate import vit_step

TITLE = "Efficiency: predicted (lines), published (circles)"
COUNTS = tuple(1 << power for power in range(3, 13))


def own_curve(label, step, samples, costs):
    work = work_of(all_nets()[step.net], step.local, samples, H100_PEAK)
    return Curve(label, f"{1e3 * step.local:.1f} ms on one GPU, bf16\n"
                 "8 H100, 3,200 Gbit/s per node",
                 {count: step.local / simulate(work, count, clusters()["h100"],
                                               costs).seconds
                  for count in COUNTS}, {})


def vit_curve(costs):
    predicted = {count: vit_step(1, costs) / vit_step(count, costs)
                 for count in COUNTS}
    speeds = vit_table()[0]
    published = {count: speed / count / speeds[1]
                 for count, speed in speeds.items() if count in predicted}
    furthest = max((predicted[count] - value
                    for count, value in published.items()), key=abs)
    return Curve("ViT-H/14", "4 H100, 800 Gbit/s per node\n"
                 f"{100 * furthest:+.1f} points from what was published",
                 predicted, published)


def curves():
    costs = h100_costs()
    graphs, eager = own_steps()
    return (own_curve("ResNet-50", eager[1], 64, costs), vit_curve(costs),
            own_curve("Transformer as a CUDA graph", graphs[3], 8, costs))
