"""Predicts a DDP step's time on many GPUs: python3 bench/scaling --help."""

import argparse
from dataclasses import replace
from pathlib import Path

from buckets import MIB, best_layout, bucketed, by_caps, reduce_in_order
from fit import h100_costs
from network import all_reduce, clusters
from nets import all_nets
from noise import empirical
from plot import svg
from predictions import TITLE, curves
from published import H100_PEAK
from recording import load
from step import Costs, on_ranks, queue, simulate, work_of
from validate import print_all

TRACES = Path(__file__).parent / "traces"


def arguments():
    parser = argparse.ArgumentParser(
        prog="scaling", description="Predicts a DDP step's time on many GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
            ("predict", "step time and efficiency, by number of GPUs"),
            ("best-buckets", "the buckets that end a step first")):
        add_system(commands.add_parser(name, help=text))
    commands.choices["best-buckets"].add_argument(
        "--slack", type=float, default=0.0005,
        help="of a step, given away for fewer buckets")
    validate = commands.add_parser(
        "validate", help="predictions beside measurements")
    validate.add_argument("--traces", default=TRACES,
                          help="folder of recorded steps")
    commands.add_parser("plot", help="efficiency by number of GPUs, as SVG"
                        ).add_argument("file")
    return parser.parse_args()


def add_system(parser):
    parser.add_argument("--trace", help="what ddp_step_trace recorded, or:")
    parser.add_argument("--net", choices=all_nets(), default="resnet50_64")
    parser.add_argument("--milliseconds", type=float, default=32.1,
                        help="of a step on one GPU without ddp")
    parser.add_argument("--samples", type=int, default=64, help="in it")
    parser.add_argument("--teraflops", type=float,
                        default=2 * H100_PEAK / 1e12, help="the GPU's peak")
    parser.add_argument("--cluster", choices=clusters(), default="h100")
    parser.add_argument("--gbits", type=float,
                        help="between nodes, in place of the cluster's")
    parser.add_argument("--per-node", type=int, help="likewise")
    parser.add_argument("--algorithms", help="of ring,tree,hierarchical")
    parser.add_argument("--first-mib", type=float, default=1)
    parser.add_argument("--cap-mib", type=float, default=25)
    parser.add_argument("--gpus", default="8,64,512,1024,4096")


def cluster_of(options):
    cluster = clusters()[options.cluster]
    if options.gbits:
        cluster = cluster.with_bandwidth(options.gbits / 8 * 1e9)
    if options.per_node:
        cluster = replace(cluster, per_node=options.per_node)
    if options.algorithms:
        cluster = replace(cluster,
                          algorithms=tuple(options.algorithms.split(",")))
    return cluster


def system_of(options):
    """The work, what the model adds to it, and the noise."""
    if options.trace:
        trace = load(options.trace)
        return trace.work, Costs(), empirical(trace.compute)
    work = work_of(all_nets()[options.net], options.milliseconds / 1e3,
                   options.samples, options.teraflops / 2 * 1e12)
    return work, h100_costs(), None


def predict(options):
    work, costs, noise = system_of(options)
    cluster = cluster_of(options)
    layout = default_layout(options)
    print(f"{'GPUs':>6} {'step ms':>9} {'exposed ms':>11} {'efficiency':>11}")
    for ranks in map(int, options.gpus.split(",")):
        step = simulate(work, ranks, cluster, costs, queue(layout),
                        noise=noise)
        print(f"{ranks:6} {1e3 * step.seconds:9.1f} {1e3 * step.exposed:11.2f}"
              f" {work.seconds / step.seconds:11.1%}")
    print("A prediction. How far such differ from measurements: "
          "`python3 bench/scaling validate`.")


def default_layout(options):
    return lambda sizes: by_caps(sizes, options.first_mib * MIB,
                                 options.cap_mib * MIB)


def best_buckets(options):
    work, costs, noise = system_of(options)
    cluster = cluster_of(options)
    for ranks in map(int, options.gpus.split(",")):
        slowest = on_ranks(work, ranks, costs, noise)

        def cost(size, ranks=ranks):
            return all_reduce(size, ranks, cluster)

        usual = default_layout(options)([g.size for g in slowest.gradients])
        best = best_layout(slowest.gradients, cost,
                           slack=options.slack * slowest.seconds)
        for name, layout in (("by caps", usual), ("best", best)):
            end = reduce_in_order(slowest.gradients, layout, cost)
            sizes = [f"{bucket.size / MIB:.1f}"
                     for bucket in bucketed(slowest.gradients, layout)]
            print(f"{ranks:6} GPUs, {name:>7}: "
                  f"{1e3 * (slowest.forward + end + slowest.optimizer):.2f} "
                  f"ms, buckets of MiB: {' '.join(sizes)}")


def main():
    options = arguments()
    if options.command == "predict":
        predict(options)
    elif options.command == "best-buckets":
        best_buckets(options)
    elif options.command == "validate":
        print_all(options.traces)
    else:
        Path(options.file).write_text(svg(TITLE, curves()), encoding="utf-8")


if __name__ == "__main__":
    main()
