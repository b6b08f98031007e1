"""The curves of the plot: systems for which measurements exist, larger than
those measured."""

from fit import fit_costs, table_work
from network import clusters
from plot import Curve
from published import GPUS, horovod_efficiencies, pytorch_table
from step import simulate
from validate import horovod_efficiency

TITLE = "Efficiency: predicted (lines), published (circles)"
COUNTS = tuple(1 << power for power in range(3, 15))


def curve(label, system, efficiency, published):
    """efficiency(count): the predicted one."""
    predicted = {count: efficiency(count) for count in COUNTS}
    furthest = max((predicted[count] - value
                    for count, value in published.items()), key=abs)
    return Curve(label, f"{system}\n{100 * furthest:+.1f} points from "
                 "what was published", predicted, published)


def table_curve(net, label, system, costs):
    work, cluster = table_work(net), clusters()["dgx1v"]
    alone, *with_ddp = pytorch_table()[net]
    return curve(
        label, system,
        lambda count: alone / simulate(work, count, cluster, costs).seconds,
        {count: alone / seconds for count, seconds in zip(GPUS, with_ddp)
         if count >= COUNTS[0]})


def horovod_curve(net, label, costs):
    case = next(c for c in horovod_efficiencies() if c.net == net)
    cluster = clusters()["p100-25g"]
    return curve(
        label, "4 P100, 25 Gbit/s per node, rings",
        lambda count: horovod_efficiency(case, count, cluster, costs),
        {512: case.published})


def curves():
    costs = fit_costs()
    dgx = "8 V100, 400 Gbit/s per node"
    return (table_curve("resnet50", "ResNet-50", f"{dgx} (fitted on it)",
                        costs),
            table_curve("resnext101_32x8d", "ResNeXt-101 32x8d", dgx, costs),
            horovod_curve("resnet101", "ResNet-101, Horovod", costs),
            horovod_curve("vgg16", "VGG-16, Horovod", costs))
