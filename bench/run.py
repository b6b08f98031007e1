"""Runs the benchmarks and says which targets are reached.

run.py BUILD_FOLDER [--quick] [--json FILE] [GROUP...]: prints tables, and
writes all results to FILE (BUILD_FOLDER/bench/results.json), and a picture of
each group into the folder "plots" beside FILE. A GROUP is one of GROUPS below,
of which all run unless some are named. All figures are ratios of one run, of
times taken in turns; docs/performance.md says what they mean.
$DDP_PYTHON names the Python to compare with. The exit code is 1 if a case
failed or something that a case needs is missing; the others run all the same.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import plot
import report
from others import OthersShare


SKIPPED = 77  # wire.py's exit code if it may not make network namespaces


class Bench:
    def __init__(self, build, quick):
        self.program = build / "bench" / "ddp_bench"
        self.ddprun = build / "launcher" / "ddprun"
        self.build = build
        self.quick = quick
        self.results = []
        self.failed = []  # the titles of cases
        self.skipped = []  # what lacks
        # Ranks compute with one thread each, in whichever language.
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(self, title, command):
        """Keeps the lines of JSON that a program prints; shows the others."""
        others, start = OthersShare(), time.monotonic()
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                self.results.append(json.loads(line))
            elif line.startswith(("no ", "skipped: ")):
                self.skip(line)
            else:
                print("  " + line, file=sys.stderr)
        took, share = time.monotonic() - start, others.share()
        say(f"{title}: {took:.0f} s, others had {share:.0%} of the CPUs")
        if done.returncode not in (0, SKIPPED):
            say(f"{title}: failed with exit code {done.returncode}")
            self.failed.append(title)

    def skip(self, reason):
        if reason not in self.skipped:
            say(reason)
            self.skipped.append(reason)

    def ranks(self, count, *arguments):
        return [
            *(self.ddprun, "--nproc-per-node", count, "--output", "raw"),
            *(self.program, *arguments),
        ]

    def steps(self):
        seconds = 3 if self.quick else 17
        alone, names, more, sizes = ["mlp200"], ["mlp200", "big100"], [], ()
        if not self.quick:
            alone, names = names, [*names, "resnet18"]
            more = ["accumulation", "unused", "blocks", "blocks_bf16", "lstm"]
            sizes = (3, 4)
        command = self.ranks(2, "step", seconds, *names, *more)
        self.run("steps of 2 ranks", command)
        for size in sizes:
            command = self.ranks(size, "step", seconds / 2, *names)
            self.run(f"steps of {size} ranks", command)
        self.run(
            "steps of 1 rank", self.ranks(1, "step", seconds / 2, *alone)
        )

    def all_reduces(self):
        arguments = ["all_reduce", 2 if self.quick else 20]
        if shutil.which("mpirun"):
            arguments += ["mpi", "gloo", "shm"]
            command = ["mpirun", "-n", 2, self.program, *arguments]
        else:
            self.skip("no mpirun: it is not on PATH")
            command = self.ranks(2, *arguments, "gloo", "shm")
        self.run("all-reduces", command)

    def checkpoints(self):
        # Not in /tmp, which may be no disk.
        with tempfile.TemporaryDirectory(dir=self.build) as folder:
            seconds = 2 if self.quick else 24
            command = [self.program, "checkpoint", seconds, folder]
            self.run("checkpoints", command)

    def sampler(self):
        samples, rounds = (10**7, 3) if self.quick else (10**8, 3)
        command = [self.program, "sampler", samples, rounds]
        self.run(f"sampler of {samples:.0e}", command)

    def memory(self):
        if self.quick:
            return
        found = {}
        for way in ("local", "shm", "gloo", "c10d"):
            before = len(self.results)
            self.run(f"memory, {way}", self.ranks(2, "memory", way))
            for result in self.results[before:]:
                found[way] = result
        for way, result in found.items() if "local" in found else ():
            more = result["peak_mib"] - found["local"]["peak_mib"]
            result["extra_copies"] = more / result["gradient_mib"]
            more = result["pss_mib"] - found["local"]["pss_mib"]
            result["extra_copies_pss"] = more / result["gradient_mib"]

    def many_ranks(self):
        sizes = (2, 8) if self.quick else (2, 8, 32, 128)
        for size in sizes:
            for backend in ("gloo", "shm"):
                self.run(
                    f"{size} ranks, {backend}",
                    [self.program, "ranks", size, backend, free_port()],
                )
        peer = pathlib.Path(__file__).with_name("ranks_peer.py")
        python = os.environ.get("DDP_PYTHON")
        if not python:
            self.skip("no Python: DDP_PYTHON is not set")
        # Its constructor takes seconds per rank.
        for size in sizes[:1] if self.quick else sizes[:2]:
            if python:
                command = [python, "-B", peer, size, free_port()]
                self.run(f"{size} ranks, Python's DDP", command)
        cases = {case["name"]: case for case in self.results}
        for fewer, size in zip(sizes, sizes[1:]):
            before = cases.get(f"ranks_{fewer}_gloo")
            after = cases.get(f"ranks_{size}_gloo")
            if before and after:
                growth = after["form_ms"] / before["form_ms"]
                after["form_over_linear"] = growth * fewer / size
        for size in sizes[:2]:
            own = cases.get(f"ranks_{size}_gloo")
            python = cases.get(f"ranks_{size}_python")
            if own and python:
                own["form_ratio_python"] = own["form_ms"] / python["form_ms"]

    def loaders(self):
        measure = [3, 0, 2] if self.quick else [40, 0, 1, 2, 4]
        self.run("data loaders", [self.program, "loader", *measure])

    def wire(self):
        wire = pathlib.Path(__file__).with_name("wire.py")
        networks = [(2, 1000, "4MB")] if self.quick else [
            (2, 1000, "all"), (4, 1000, "4MB"), (2, 10000, "all")
        ]
        for hosts, megabits, last in networks:
            command = [sys.executable, "-B", wire, self.program]
            self.run(
                f"{hosts} hosts by {megabits} Mbit/s",
                [*command, hosts, megabits, last],
            )

    def launch(self):
        program = pathlib.Path(__file__).with_name("launch.py")
        rounds = 5 if self.quick else 10
        command = [sys.executable, "-B", program, self.build, rounds]
        self.run("launchers", [*command, "--result"])


GROUPS = {
    "launch": [Bench.launch],
    "steps": [Bench.steps],
    "collectives": [Bench.all_reduces],
    "checkpoints": [Bench.checkpoints],
    "sampler": [Bench.sampler],
    "loader": [Bench.loaders],
    "wire": [Bench.wire],
    "ranks": [Bench.memory, Bench.many_ranks],
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def say(text):
    print("bench: " + text, file=sys.stderr, flush=True)


def processor():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    options = parser.parse_intermixed_args()
    groups = options.groups or list(GROUPS)
    if unknown := set(groups) - set(GROUPS):
        parser.error(f"no group {unknown.pop()!r}: {', '.join(GROUPS)}")
    file = options.json or options.build / "bench" / "results.json"

    others, start = OthersShare(), time.monotonic()
    bench = Bench(options.build, options.quick)
    for group in groups:
        for case in GROUPS[group]:
            case(bench)
    share = others.share()

    print(report.tables(bench.results))
    targets = report.check(bench.results)
    print(report.target_table(targets))
    print(
        f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}; "
        f"{time.monotonic() - start:.0f} s, of whose CPU time other programs "
        f"had {share:.1%}"
    )
    if share > 0.05:
        print("Others had more than 5 %: run it again on a quieter machine.")
    outcome = {
        "cases": bench.results,
        "failed": bench.failed,
        "skipped": bench.skipped,
        "targets": targets,
        "others_cpu_share": share,
    }
    file.write_text(json.dumps(outcome, indent=1) + "\n")
    plot.write(bench.results, file.parent / "plots")
    say(f"written: {file}")
    if bench.failed:
        say(f"failed: {', '.join(dict.fromkeys(bench.failed))}")
    if bench.skipped:
        say(f"not everything ran: {'; '.join(bench.skipped)}")
    return 1 if bench.failed or bench.skipped else 0


sys.exit(main())
