"""Predictions beside measurements."""

from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import mean, median

from buckets import MIB, by_definition, reduce_when_ready
from fit import fit_costs, overheads, solve, table_steps, table_work
from network import Link, clusters
from nets import all_nets
from published import (BATCH, GPUS, P100_PEAK, V100_PEAK,
                       horovod_efficiencies, overlap_gains, pytorch_table)
from step import queue, simulate, work_of
from recording import load


@dataclass(frozen=True)
class Row:
    case: str
    measured: float
    predicted: float
    bound: float  # of the difference

    @property
    def error(self):
        return self.predicted - self.measured

    @property
    def holds(self):
        return abs(self.error) <= self.bound


@dataclass(frozen=True)
class Section:
    title: str
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()


def pytorch(costs):
    """Other nets than the one of the fit, and what constants would say."""
    table = pytorch_table()
    measured = {net: overheads(table[net][1:]) for net in table}
    del measured["resnet50"]
    predicted = {net: overheads(table_steps(table_work(net), costs))
                 for net in measured}
    rows = tuple(
        Row(f"{net}, {ranks} GPUs", m, p, 0.03)
        for net in measured
        for ranks, m, p in zip(GPUS[1:], measured[net], predicted[net]))
    remarks = tuple(
        f"{name}: largest error {max(map(abs, errors)):.2%}, "
        f"mean {mean(map(abs, errors)):.2%}"
        for name, errors in rivals(rows).items())
    return Section("PyTorch's table: overhead over one GPU with ddp", rows,
                   remarks)


def rivals(rows):
    """Errors of the model, and of constants from ResNet-50's overheads: by
    number of GPUs, and their mean. rows: net by net, for GPUS from 2."""
    constants = overheads(pytorch_table()["resnet50"][1:])
    return {
        "the model": [row.error for row in rows],
        "constant, ResNet-50's overhead at the same number of GPUs":
            [constant - row.measured
             for row, constant in zip(rows, cycle(constants))],
        "constant, ResNet-50's mean overhead":
            [mean(constants) - row.measured for row in rows]}


def without_ddp(costs):
    """The same against one GPU without ddp: with what ddp costs there."""
    table = pytorch_table()
    rows = tuple(
        Row(f"{net}, {ranks} GPUs", m / table[net][0] - 1,
            p / table[net][0] - 1, 0.03)
        for net in table if net != "resnet50"
        for ranks, m, p in zip(GPUS, table[net][1:],
                               table_steps(table_work(net), costs)))
    return Section("PyTorch's table: overhead over one GPU without ddp", rows)


def speedup(work, cluster, costs):
    seconds = [simulate(work, 32, cluster, costs, queue(by_definition),
                        overlap).seconds for overlap in (False, True)]
    return seconds[0] / seconds[1] - 1


def fitted_clusters(gains, costs):
    """For NCCL and for gloo, with bandwidths from ResNet-50's gains. A gain
    has two causes, little communication and little computation: each range
    has one."""
    nccl = clusters()["v100-100g"]
    tcp = Link(nccl.between.bandwidth, 30e-6, 30e-6)
    gloo = replace(nccl, inside=tcp, between=tcp, algorithms=("ring",))
    work = table_work("resnet50")

    def fitted(cluster, target, low, high):
        return cluster.with_bandwidth(solve(
            lambda b: speedup(work, cluster.with_bandwidth(b), costs),
            target, low, high))

    return (fitted(nccl, gains["resnet50", "nccl"], 3.5e9, 12e9),
            fitted(gloo, gains["resnet50", "gloo"], 0.1e9, 2.5e9))


def overlap(costs):
    """BERT's step time is not published: fitted on its figure for NCCL, or
    that of a net which uses the GPU as well as ResNet-50."""
    gains = overlap_gains()
    nccl, gloo = fitted_clusters(gains, costs)
    net, resnet = all_nets()["bert_large"], all_nets()["resnet50"]

    def predicted(seconds, cluster):
        return speedup(work_of(net, seconds, BATCH, V100_PEAK), cluster, costs)

    fitted = solve(lambda s: predicted(s, nccl), gains["bert_large", "nccl"],
                   0.7, 10)
    alike = (table_work("resnet50").seconds * net.multiply_adds /
             resnet.multiply_adds)
    rows = tuple(
        Row(f"BERT-large over {backend}, step of {seconds:.2f} s",
            gains["bert_large", backend], predicted(seconds, cluster), 0.05)
        for seconds, backend, cluster in (
            (fitted, "gloo", gloo), (alike, "gloo", gloo),
            (alike, "nccl", nccl)))
    return Section("What overlap gains on 32 GPUs", rows, (
        "fitted on ResNet-50's two figures: "
        f"{nccl.between.bandwidth / 1e9:.2f} GB/s between nodes for NCCL, "
        f"{gloo.between.bandwidth / 1e9:.2f} GB/s for gloo",
        f"a step of {fitted:.2f} s is fitted on BERT's figure for NCCL; one "
        f"of {alike:.2f} s uses the GPU as well as ResNet-50 does"))


def fusion(gradients, cost):
    """With the threshold and the cycle that Horovod's page names."""
    return reduce_when_ready(gradients, cost, 64 * MIB, 3.5e-3)


def horovod_efficiency(case, ranks, cluster, costs):
    """Without what c10d's hooks cost: Horovod has its own."""
    work = work_of(all_nets()[case.net], case.seconds, 64, P100_PEAK)
    return case.seconds / simulate(
        work, ranks, cluster, replace(costs, per_gradient=0.0),
        fusion).seconds


def horovod(costs):
    """Nothing is fitted."""
    cluster = clusters()["p100-25g"]
    cases = horovod_efficiencies()
    rows = tuple(
        Row(f"{case.net}, 512 GPUs", case.published,
            horovod_efficiency(case, 512, cluster, costs), 0.05)
        for case in cases)
    vgg = cases[-1]
    needed = solve(lambda b: horovod_efficiency(
        vgg, 512, cluster.with_bandwidth(b), costs), vgg.published, 1e9, 4e9)
    return Section("Horovod's efficiency", rows, (
        f"vgg16 would take {needed / 1e9:.2f} GB/s per server in place of "
        f"{cluster.between.bandwidth / 1e9:.2f}",))


def own_runs(folder):
    """Steps of this library over gloo between network namespaces: the
    predicted one relative to the measured one. Nothing is fitted: the link's
    rate is known, its latency that of a small all-reduce in the same run."""
    rows = []
    for path in sorted(Path(folder).glob("*.json")):
        trace = load(path)
        measured = median(trace.steps)
        rows.append(Row(f"{path.stem}, {1e3 * measured:.0f} ms", 1.0,
                        trace.predict() / measured, 0.10))
    return Section("This library's own steps: predicted to measured",
                   tuple(rows))


def sections(folder):
    costs = fit_costs()
    return (pytorch(costs), without_ddp(costs), overlap(costs),
            horovod(costs), own_runs(folder))


def print_section(section):
    print(f"\n**{section.title}**\n")
    print("| case | measured | predicted | difference | bound | |")
    print("|---|---|---|---|---|---|")
    for row in section.rows:
        print(f"| {row.case} | {row.measured:.1%} | {row.predicted:.1%} | "
              f"{100 * row.error:+.1f} | {100 * row.bound:.0f} | "
              f"{'' if row.holds else 'missed'} |")
    if section.remarks:
        print()
    for remark in section.remarks:
        print(f"- {remark}")


def print_all(folder):
    costs = fit_costs()
    print("Fitted on ResNet-50 of PyTorch's table: ddp adds "
          f"{costs.per_gradient * 1e6:.1f} us per gradient; collectives slow "
          f"{costs.interference:.1%} of what is bound by memory in backward; "
          f"speeds of GPUs have a standard deviation of {costs.spread:.2%}.")
    for section in sections(folder):
        print_section(section)
