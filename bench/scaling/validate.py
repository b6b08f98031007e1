"""Predictions beside measurements."""

from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import mean, median

from buckets import MIB, reduce_when_ready
from fit import (fit_costs, h100_costs, overheads, solve, table_steps,
                 table_work, vit_work)
from network import all_reduce, clusters
from nets import all_nets
from published import (GPUS, P100_PEAK, VIT_BATCH, all_reduces,
                       horovod_efficiencies, own_steps, pytorch_table,
                       vit_table)
from step import simulate, work_of
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


def alone(costs):
    """What the copy costs, on steps that were not used to fit it."""
    return Section("ddp on one H100: overhead over one GPU without ddp", tuple(
        Row(f"{step.net} {'bf16' if step.bf16 else 'fp32'}, "
            f"{1e3 * step.local:.1f} ms", step.overhead,
            4 * all_nets()[step.net].parameters * costs.per_byte / step.local,
            0.01) for step in own_steps()[1]))


def vit_step(ranks, costs):
    """In seconds."""
    return simulate(vit_work(), ranks, clusters()["marenostrum5"],
                    costs).seconds


def vit(costs):
    """Nothing is fitted on it."""
    speeds, small = vit_table()
    rows = tuple(
        Row(f"vit_h_14, {ranks} GPUs", speed / ranks / speeds[1],
            vit_step(1, costs) / vit_step(ranks, costs), 0.05)
        for ranks, speed in speeds.items() if ranks > 1)
    images = 32 * VIT_BATCH  # of a step
    epochs = ((100_000 // images, speeds[32]), (3, small))
    (more, longer), (few, shorter) = ((steps, steps * images / speed)
                                      for steps, speed in epochs)
    step = (longer - shorter) / (more - few)
    return Section("ViT-H/14 on H100s: efficiency over one GPU", rows, (
        f"32 GPUs, from both data sets: {shorter - few * step:.2f} s of an "
        f"epoch are not steps; without them "
        f"{VIT_BATCH / speeds[1] / step:.1%}",))


def nccl():
    """Nothing is fitted."""
    return Section("All-reduces of 16 H100: predicted to measured", tuple(
        Row(f"{mib} MiB, {1e6 * seconds:.0f} us", 1.0,
            all_reduce(mib * MIB, 16, clusters()["h100"]) / seconds, 0.10)
        for mib, seconds in all_reduces().items()))


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
    costs, h100 = fit_costs(), h100_costs()
    return (vit(h100), alone(h100), nccl(), pytorch(costs), horovod(costs),
            own_runs(folder))


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
          f"speeds of GPUs have a standard deviation of {costs.spread:.2%}. "
          "Fitted on docs/gpu-results.md: on an H100, ddp adds "
          f"{h100_costs().per_byte * 1e12:.2f} ps per byte instead.")
    for section in sections(folder):
        print_section(section)
