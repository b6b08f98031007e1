"""Trainings under random faults, by each launcher and over each backend."""

import collections
import contextlib
import glob
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback

from etcd_cases import CLIENTS, Etcd
from faults import EVENTS, NAMED, OBSERVER, PATIENCE, Faults, faults_here
from hosts import Hosts, command
from job import mpirun
from network_cases import shift_clock
from nodes import PORT, Nodes, name_of, processes_on

TIMEOUT = 40  # of the ranks' waits
ALL_KEYS = json.dumps({"key": "AA==", "range_end": "AA==", "count_only": True})
Setup = collections.namedtuple(
    "Setup", "launcher backend hosts ranks least members stops")


def draw(random):
    """How a training is run: ranks are those of a host, fewer hosts than all
    do where it is elastic, and members are the hosts of an etcd."""
    launcher = random.choice(
        ["c10d"] + [name for name in ("etcd", "mpirun") if shutil.which(name)]
        + ["torchrun"] * bool(os.environ.get("DDP_PYTHON")))
    backend = random.choice(["gloo", "gloo", "hierarchical", "shm"] +
                            ["mpi"] * 2 * (launcher == "mpirun"))
    hosts = 1 if backend == "shm" else random.randint(2, 4)
    least = 1 + (backend in ("hierarchical", "shm"))
    ranks = random.randint(least, max(least, min(3, 6 // hosts)))
    elastic = launcher in ("c10d", "etcd") and random.random() < .5
    members = (0, 1, 2) if hosts > 2 and random.random() < .5 else (OBSERVER,)
    return Setup(launcher, backend, hosts, ranks,
                 min(hosts, 2) if elastic else hosts,
                 members if launcher == "etcd" else (), random.random() < .7)


class Soak(Faults):
    """One training under random faults. What ended is started again, as a
    scheduler would; under mpirun and torchrun all of it."""

    def __init__(self, program, hosts, disk, faults, random, setup, events):
        super().__init__()
        self.hosts, self.random, self.setup, self.disk, self.faults = (
            hosts, random, setup, disk, faults)
        self.nodes = Nodes(
            program, hosts, f"--nnodes={setup.least}:{setup.hosts} "
            "--node-timeout=5 --last-call=1 --grace=5 --max-restarts=1000 "
            f"--nproc-per-node={setup.ranks}")
        self.gang = setup.launcher in ("mpirun", "torchrun")
        self.etcd = Etcd(self.nodes, setup.members) if setup.members else None
        if self.etcd:
            self.nodes.options += self.etcd.options()
        self.words = [sys.argv[2], f"{disk}/checkpoints", "5", "160"]
        self.variables = {
            "OMP_NUM_THREADS": "1", "DDP_BACKEND": setup.backend,
            "DDP_DEVICE": "cpu", "DDP_TIMEOUT": str(TIMEOUT),
            **({"STOP_SIGNAL": "1"} if setup.stops else {})}
        self.clocks = shift_clock("/dev/shm/clock")
        self.undo = {}  # by fault and host: when, and what ends the fault
        self.away = set()  # hosts
        self.ending = None  # since when a gang has to end
        self.kill_at = None  # when what is left of it is killed
        self.since = time.monotonic()
        self.events, self.kinds = events, collections.Counter()
        self.most = collections.Counter()  # descriptors and MB, by name

    def start(self, host):
        if self.setup.launcher == "mpirun":
            self.nodes.at[0] = mpirun(self.hosts, self.setup.ranks, self.words,
                                      self.setup.hosts, **self.variables,
                                      **self.clocks)
            self.nodes.job.processes.append(self.nodes.at[0])
        elif self.setup.launcher == "torchrun":
            self.nodes.at[host] = self.nodes.beside(
                host, os.environ["DDP_PYTHON"], "-m", "torch.distributed.run",
                f"--nnodes={self.setup.hosts}", "--rdzv-backend=c10d",
                f"--nproc-per-node={self.setup.ranks}", "--no-python",
                f"--rdzv-endpoint=n0:{PORT}", "env",
                # torchrun itself drops hosts whose clocks differ.
                *("=".join(clock) for clock in self.clocks.items()),
                *self.words, TMPDIR=self.nodes.folder.name, **self.variables)
        else:
            self.nodes.start(host, words=self.words, **self.variables,
                             **self.clocks)

    def processes(self, ranks=False):
        """Of the job, without the etcd; or the ranks alone."""
        return [pid for host in range(self.setup.hosts)
                for pid in processes_on(self.hosts, host)
                if name_of(pid) != "etcd" and not ranks or self.is_rank(pid)]

    def disturb(self, now):
        if not self.gang and self.until_kill <= 0:
            self.kill_and_await(now)
            return
        host = self.random.choice([*range(self.setup.hosts), *{
            OBSERVER}.intersection(self.setup.members)])
        way = self.random.choice(self.faults)
        if (host in self.away or self.ending or (way, host) in self.undo or
                not processes_on(self.hosts, host)):
            return
        told, undo = (self.send(host, signal.Signals[way])
                      if way.startswith("SIG") else getattr(self, way)(host))
        self.events.append(f"{now - self.since:.0f} s {way} {told} n{host}")
        self.kinds[way] += 1
        self.until_kill -= 1
        self.calm_since = now
        if undo:
            self.undo[way, host] = (now + self.random.uniform(2, 15), undo)

    def end_faults(self, now):
        for key in [key for key in self.undo if now >= self.undo[key][0]]:
            self.undo.pop(key)[1]()
            self.calm_since = now

    def care(self):
        """Starts again what ended; True once the training has."""
        now = time.monotonic()
        self.end_faults(now)
        running = {host for host, process in self.nodes.at.items()
                   if process.running()}
        if any(self.nodes.at[host].process.returncode == 0
               for host in self.nodes.at.keys() - running):
            return True
        hosts = range(1 if self.setup.launcher == "mpirun" else
                      self.setup.hosts)
        if self.gang and not self.is_gone(now, len(running) == len(hosts)):
            return False
        for host in set(hosts) - running - self.away:
            self.start(host)
        return False

    def is_gone(self, now, whole):
        """Whether a gang, which ends once a part has, can be started again.
        Ranks have to end by themselves, but for launchers that are killed."""
        if not self.nodes.at:
            return True
        if not whole or self.kill_at:
            self.ending = self.ending or now
        if not self.ending:
            return False
        ranks, left = self.processes(ranks=True), self.processes()
        self.nodes.require(not ranks or now < self.ending + 3 * TIMEOUT,
                           f"ranks {ranks} do not end")
        if not ranks or self.kill_at and now > self.kill_at:
            for pid in left:
                self.signal(pid, signal.SIGKILL)
        if left or self.away:
            return False
        self.ending = self.kill_at = None
        return True

    def measure(self):
        for host in range(OBSERVER + 1):
            for pid in processes_on(self.hosts, host):
                with contextlib.suppress(OSError), \
                        open(f"/proc/{pid}/statm") as file:
                    self.most |= collections.Counter({
                        f"MB {name_of(pid)}": int(file.read().split()[1]) >> 8,
                        f"descriptors {name_of(pid)}":
                        len(os.listdir(f"/proc/{pid}/fd"))})

    def run(self, pause_ms, seconds, quiet_after):
        """The hash of the weights, and how often samples were seen."""
        self.words.append(str(pause_ms * self.setup.hosts * self.setup.ranks))
        next_event = self.since + 5
        for turn in itertools.count():
            if self.care():
                return self.finish()
            now = time.monotonic()
            self.nodes.require(now < self.since + seconds, "no end")
            if self.awaited:
                self.await_name(now)
            elif next_event <= now < self.since + quiet_after:
                if self.gang or self.until_kill > 0 or self.is_calm(now):
                    self.disturb(now)
                    next_event = now + self.random.uniform(0.5, 8)
                elif now > next_event + PATIENCE:
                    self.until_kill = EVENTS
            if turn % 100 == 0:
                self.measure()
            time.sleep(0.05)

    def finish(self):
        self.end_faults(float("inf"))
        time.sleep(2)  # the others read how it ended
        for process in self.nodes.at.values():
            if process.running():
                process.process.send_signal(
                    signal.SIGKILL if self.gang else signal.SIGINT)
        self.nodes.wait(lambda: not self.processes(), "processes are left", 90)
        if self.etcd:
            self.nodes.wait(lambda: not self.keys(), "keys are left", 90)
            self.etcd.end(*self.setup.members)
        ports = [line for host in range(OBSERVER + 1) for line in
                 self.hosts.command(host, "ss", "-Htan").splitlines()
                 if line.startswith(("LISTEN", "ESTAB", "CLOSE-WAIT"))]
        self.nodes.require(not ports, f"ports are left: {ports}")
        known = r"step-\d+\.pt|latest|\.epoch|\.lock"
        files = [name for name in os.listdir(f"{self.disk}/checkpoints")
                 if not re.fullmatch(known, name)]
        self.nodes.require(not files, f"files are left: {files}")
        texts = [process.text() for process in self.nodes.job.processes]
        for text in texts:
            for step, resumed in re.findall(r"stopped at step (\d+)(?:.|\n)*?"
                                            r"resumes from step (\d+)", text):
                self.nodes.require(int(resumed) >= int(step),
                                   f"resumes from {resumed}, not {step}")
        self.nodes.require(all(most < 200 for name, most in self.most.items()
                               if "ddp" in name), f"too much: {self.most}")
        return set(re.findall(r"samples were seen (\d+) to (\d+) times, .*; "
                              r"weights (\w+)", "".join(texts)))

    def keys(self):
        host = self.setup.members[0]
        answer = self.hosts.command(
            host, sys.executable, "-c", "import http.client as h; "
            f"c = h.HTTPConnection('{self.hosts.address(host)}', {CLIENTS}, "
            f"timeout=20); c.request('POST', '/v3/kv/range', '{ALL_KEYS}'); "
            "print(c.getresponse().read().decode())")
        return int(json.loads(answer).get("count", 0))

    def clean(self):
        """Also after a failure, nothing remains on the hosts."""
        with contextlib.suppress(Exception):
            self.end_faults(float("inf"))
        for host in range(OBSERVER + 1):
            self.nodes.crash(host)
            self.hosts.mend(host)
        for process in self.nodes.job.processes:
            process.process.wait()
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
            pass  # this process inherits those whose parents end
        for path in [f"{self.disk}/checkpoints", *glob.glob("/dev/shm/etcd*"),
                     *glob.glob("/dev/shm/ompi*")]:
            shutil.rmtree(path, ignore_errors=True)


def is_watched(name):
    return "ddp" in name or "elastic_trainer" in name


def compare_quarters(mosts):
    """Prints the medians of what the first and the last trainings took at
    most; returns what has doubled, if a few trainings cannot explain it."""
    quarter = len(mosts) // 4
    grown = []
    for name in sorted({name for most in mosts for name in most}):
        first, last = (
            [most[name] for most in part if name in most]
            for part in (mosts[:quarter], mosts[len(mosts) - quarter:]))
        if not is_watched(name) or not first or not last:
            continue
        before, after = statistics.median(first), statistics.median(last)
        print(f"{name}: median {before:g} in the first quarter, {after:g} in "
              f"the last")
        if quarter >= 3 and after > 2 * before:
            grown.append(name)
    if grown:
        print("grown:", *grown)
    return grown


def soak(program):
    """An hour of it, or DDP_TEST_MINUTES, but one training at least;
    DDP_TEST_SEED says where to begin. Jobs of a fixed size must end with the
    weights of an undisturbed one; elastic ones must miss no sample."""
    end = time.monotonic() + 60 * float(
        os.environ.get("DDP_TEST_MINUTES", "60"))
    # Hosts see what is mounted before they are made.
    disk = tempfile.mkdtemp()
    command("mount", "-t", "tmpfs", "-o", "size=4m", "disk", disk)
    hosts = Hosts(OBSERVER + 1)
    hosts.serve_no_names(OBSERVER)
    faults = faults_here(hosts)
    for host in range(OBSERVER + 1):
        command("truncate", "-s", "20", f"/dev/shm/clock-n{host}")
    undisturbed, wrong, mosts = {}, [], []
    named = collections.defaultdict(list)
    counts = {name: collections.Counter() for name in ("trainings", "faults")}

    def train(seed, setup, events, *limits):
        job = Soak(program, hosts, disk, faults, random.Random(seed), setup,
                   events)
        try:
            with job.nodes:
                return job.run(*limits)
        finally:
            job.clean()
            counts["faults"] += job.kinds
            mosts[-1] |= job.most
            for name, seconds in job.named.items():
                named[name] += seconds

    def check(seed, setup, events):
        ends = train(seed, setup, events, 180, 900, 60)
        assert ends and all(least != "0" and int(most) <= 2
                            for least, most, _ in ends), ends
        if setup.least < setup.hosts:
            return
        # Gloo adds in the order of the ranks, wherever they are.
        key = (setup.hosts * setup.ranks if setup.backend == "gloo"
               else setup[1:4])
        if key not in undisturbed:
            undisturbed[key] = train(seed, setup._replace(
                launcher="mpirun" if setup.backend == "mpi" else "c10d",
                members=()), [], 0, 600, 0)
        assert ends == undisturbed[key], f"{ends}, not {undisturbed[key]}"

    for seed in itertools.count(int(os.environ.get("DDP_TEST_SEED", "1"))):
        setup = draw(random.Random(seed))
        counts["trainings"][f"{setup.launcher} {setup.backend}"] += 1
        events, since, result = [], time.monotonic(), "right"
        mosts.append(collections.Counter())
        try:
            check(seed, setup, events)
        except Exception:
            wrong.append(seed)
            result = f"WRONG: {traceback.format_exc()}"
        most = ", ".join(f"{count} {name}" for name, count in
                         sorted(mosts[-1].items()) if is_watched(name))
        print(f"seed {seed}, {setup}, {time.monotonic() - since:.0f} s, "
              f"{len(events)} faults ({', '.join(events)}); at most {most}: "
              f"{result}", flush=True)
        if time.monotonic() > end:
            break
    command("umount", disk)
    os.rmdir(disk)
    for name, counter in counts.items():
        print(f"{name}:", *(f"{count} {key}," for key, count in
                            sorted(counter.items())))
    for name, seconds in sorted(named.items()):
        print(f"{len(seconds)} killed {name}, named after {min(seconds):.1f} "
              f"to {max(seconds):.1f} s (at most {NAMED[name][1]} s)")
    grown = compare_quarters(mosts)
    print(sum(counts["trainings"].values()), "trainings, of which went wrong:",
          wrong or "none")
    sys.exit(bool(wrong or grown))
