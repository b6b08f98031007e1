"""What a launcher costs: ddprun, torchrun and mpirun, and below them the bare
start of the processes, in turns.

launch.py BUILD_FOLDER [ROUNDS] [--result]: prints a table for 1, 2 and 8
ranks. Milliseconds from just before the launcher is started to the first line
of main() of the first and the last rank, and to the launcher's end; its CPU
time (with that of the ranks, which do nothing); then, while ranks wait, the
memory and wake-ups of its processes, ddprun's store helper apart. torchrun
(the one beside $DDP_PYTHON) runs 3 rounds at most. With --result prints the
start of the first of 2 ranks by ddprun, and its ratios to the others', for
run.py.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time

RECORD = struct.Struct("iq")  # bench_launch_worker's: its process, nanoseconds
TIMES = ("first_ms", "last_ms", "total_ms", "cpu_ms")
TORCHRUN_ROUNDS = 3
IDLE_SECONDS = 3
PATIENCE_SECONDS = 60
OPEN_NULL = "/dev/null", os.O_RDWR, 0
NULL = [(os.POSIX_SPAWN_OPEN, fd, *OPEN_NULL) for fd in range(3)]


def free_port():
    """torchrun's own default is the same for all, and may be in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def find_launchers(build, folder):
    """By name, what makes the commands of its processes for a number of ranks;
    says which are not there. What they leave goes into `folder`."""
    worker = build / "bench" / "bench_launch_worker"
    ddprun, mpirun = build / "launcher" / "ddprun", shutil.which("mpirun")
    python = pathlib.Path(os.environ.get("DDP_PYTHON", ""))
    torchrun = python.parent / "torchrun"
    found = {
        "fork+exec": lambda ranks: [[worker]] * ranks,
        "ddprun": lambda ranks: [[ddprun, "--nproc-per-node", ranks, worker]],
    }
    if mpirun:
        found["mpirun"] = lambda ranks: [
            [mpirun, "--oversubscribe", "-n", ranks, worker]
        ]
    else:
        print("no mpirun: it is not on PATH")
    if torchrun.exists():
        options = ("--no-python", "--log-dir", folder, "--nproc-per-node")
        found["torchrun"] = lambda ranks: [
            [torchrun, *options, ranks, "--master-port", free_port(), worker]
        ]
    else:
        print("no torchrun: there is none beside $DDP_PYTHON")
    return found


class Run:
    """A launcher that runs, and the pipes of its ranks: the one that they
    write to when they begin, and the one at whose end they leave."""

    def __init__(self, commands, ranks, folder, hold=False):
        self.commands, self.ranks, self.processes = commands, ranks, []
        self.started = self.open_pipe(folder / "started")
        self.held = self.open_pipe(folder / "hold") if hold else None
        pipes = {"DDP_BENCH_STARTED_PIPE": folder / "started"}
        if hold:
            pipes["DDP_BENCH_HOLD_PIPE"] = folder / "hold"
        environment = os.environ | pipes
        self.start = time.monotonic_ns()
        for command in commands:
            words = [str(word) for word in command]
            self.processes.append(
                os.posix_spawn(words[0], words, environment, file_actions=NULL)
            )

    @staticmethod
    def open_pipe(path):
        """For reading and writing: nobody waits for another end."""
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR)

    def milliseconds(self, nanoseconds):
        return (nanoseconds - self.start) / 1e6

    def records(self):
        """The process of each rank, and when its main() began."""
        found = []
        end = time.monotonic() + PATIENCE_SECONDS
        while len(found) < self.ranks:
            if select.select([self.started], [], [], 1)[0]:
                found.append(RECORD.unpack(os.read(self.started, RECORD.size)))
            elif time.monotonic() > end:
                sys.exit(f"no start within a minute: {self.commands}")
            else:
                self.check_alive()
        return found

    def check_alive(self):
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if any(os.waitid(os.P_PID, one, how) for one in self.processes):
            sys.exit(f"ended before its ranks began: {self.commands}")

    def let_go(self):
        os.close(self.held)
        self.held = None

    def wait(self):
        """Until its end; milliseconds of CPU time."""
        cpu = 0
        while self.processes:
            _, status, usage = os.wait4(self.processes.pop(), 0)
            if status != 0:
                sys.exit(f"wait status {status}: {self.commands}")
            cpu += usage.ru_utime + usage.ru_stime
        return cpu * 1e3

    def close(self):
        for process in self.processes:
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
        for pipe in filter(None, (self.started, self.held)):
            os.close(pipe)


def measure_start(commands, ranks, folder):
    with contextlib.closing(Run(commands, ranks, folder)) as run:
        starts = [run.milliseconds(when) for _, when in run.records()]
        cpu = run.wait()
        total = run.milliseconds(time.monotonic_ns())
        return dict(zip(TIMES, (min(starts), max(starts), total, cpu)))


def measure_starts(launchers, ranks, rounds, folder):
    """By launcher and figure, its values; a first round warms up."""
    values = {launcher: {key: [] for key in TIMES} for launcher in launchers}
    for i in range(-1, rounds):
        for launcher, commands in launchers.items():
            if launcher != "torchrun" or i < TORCHRUN_ROUNDS:
                times = measure_start(commands(ranks), ranks, folder)
                for key in TIMES if i >= 0 else ():
                    values[launcher][key].append(times[key])
    return values


def field(path, name):
    """A number in a file of /proc; 0 where there is none."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0


def costs(process, ranks):
    """Of it and its children but the ranks, the store helper apart (True): MiB
    at most, MiB with shared pages divided by who share them, and wake-ups."""
    folder = pathlib.Path(f"/proc/{process}")
    if process in ranks or not folder.exists():
        return {}
    threads = list((folder / "task").iterdir())
    name = "voluntary_ctxt_switches"
    switches = sum(field(thread / "status", name) for thread in threads)
    peak = field(folder / "status", "VmHWM") / 1024
    share = field(folder / "smaps_rollup", "Pss") / 1024
    helper = (folder / "comm").read_text().strip() == "ddprun-store"
    sums = {helper: [peak, share, switches]}
    for thread in threads:
        for child in (thread / "children").read_text().split():
            for kind, more in costs(int(child), ranks).items():
                before = sums.get(kind, (0, 0, 0))
                sums[kind] = [a + b for a, b in zip(before, more)]
    return sums


def measure_idle(commands, ranks, folder):
    """As `costs`, with wake-ups per second, while ranks wait."""
    with contextlib.closing(Run(commands, ranks, folder, hold=True)) as run:
        workers = {process for process, _ in run.records()}
        time.sleep(1)  # what start-up left
        before = costs(run.processes[0], workers)
        time.sleep(IDLE_SECONDS)
        after = costs(run.processes[0], workers)
        run.let_go()
        run.wait()
    for kind, (_, _, woken) in before.items():
        after[kind][2] = (after[kind][2] - woken) / IDLE_SECONDS
    return after


def print_table(launchers, rounds, folder):
    heads = ("first main() ms", "last main() ms", "end ms", "CPU ms")
    print(f"{'launcher':19} ranks", *(f"{head:>24}" for head in heads), end="")
    print("  peak MiB  PSS MiB  wake-ups/s")
    for ranks in (1, 2, 8):
        found = measure_starts(launchers, ranks, rounds, folder)
        for launcher, commands in launchers.items():
            print(f"{launcher:19} {ranks:5}", end="")
            for values in found[launcher].values():
                low, middle, high = statistics.quantiles(
                    values, n=4, method="inclusive"
                )
                text = f"{middle:.1f} [{low:.1f}, {high:.1f}]"
                print(f" {text:>24}", end="")
            idle = measure_idle(commands(ranks), ranks, folder)
            for helper, sums in sorted(idle.items()):
                start = f"\n{'  its store helper':125}" if helper else ""
                print(start, *(f"{value:9.1f}" for value in sums), end="")
            print()


def result(values):
    first = {launcher: times["first_ms"] for launcher, times in values.items()}
    own = first.pop("ddprun")
    found = {"name": "launch", "rounds": len(own)}
    found["seconds"] = statistics.median(own) / 1e3
    for launcher, times in first.items():
        ratios = [a / b for a, b in zip(own, times)]
        found["ratio_" + launcher] = statistics.median(ratios)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--result", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        launchers = find_launchers(options.build.resolve(), folder)
        if options.result:
            values = measure_starts(launchers, 2, options.rounds, folder)
            print(json.dumps(result(values)))
        else:
            print_table(launchers, options.rounds, folder)


main()
