"""The faults of a soak: each returns what is told of it, and what ends it."""

import collections
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time

from hosts import command
from nodes import command_of, is_alive, name_of, processes_on

OBSERVER = 4  # the host of an etcd, which has no ranks
ALWAYS = ["SIGKILL", "SIGKILL", "SIGTERM", "SIGTERM", "SIGSTOP", "crash", "cut",
          "slow", "full_disk", "clock", "names"]
# What is said of a program that was killed by signal 9, and within how many
# seconds. That all of a node died is told by others, at the node timeout.
NAMED = {
    "elastic_trainer": (r"rank \d+ \(pid {pid}\) was killed by signal 9", 5),
    "ddp-agent": (r"the agent \(pid {pid}\) was killed by signal 9", 5),
    "ddprun-store": (r"helper process \(pid {pid}\) was killed|"
                     r"the ranks' store \(pid {pid}\) was killed", 5),
    "ddprun-etcd": (r"helper process \(pid {pid}\) was killed", 5),
    "ddprun": (r"the ddprun of node n{host} died|"
               r"node n{host} served the rendezvous", 15)}
CALM = 4  # seconds without a fault or a change
PATIENCE = 15  # seconds that the soak waits for that
EVENTS = 5  # between kills whose names are awaited
# How much more memory the processes of a host get while that is short.
LEAST_BYTES = 1 << 20


def faults_here(hosts):
    """The kinds that this machine allows; prints why others are left out."""
    kinds = list(ALWAYS)
    for kind, probe in (("lossy", lambda: (hosts.lose(OBSERVER, 2),
                                           hosts.lose_none(OBSERVER))),
                        ("memory", lambda: Shortage(hosts, OBSERVER).end())):
        try:
            probe()
            kinds.append(kind)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"left out: {kind}, {error}", flush=True)
    return kinds


def own_cgroup(controller):
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.strip().split(":", 2)
            if controller in controllers.split(","):
                return path
    return "/"


class Shortage:
    """Bounds what memory the present processes of a host may take besides what
    they have. Who wants more is slowed down (cgroup v2) or waits (v1)."""

    def __init__(self, hosts, host):
        root = "/sys/fs/cgroup"
        self.back = f"{root}{own_cgroup('')}"
        self.bound = "memory.high"
        settings = {}
        if os.path.exists(f"{root}/memory/memory.limit_in_bytes"):
            root = self.back = f"{root}/memory{own_cgroup('memory')}"
            self.bound = "memory.limit_in_bytes"
            settings = {"memory.oom_control": 1}  # who has no memory waits
        self.folder = tempfile.mkdtemp(dir=root, prefix="ddp-soak-")
        try:
            for name, value in {**settings, self.bound: LEAST_BYTES}.items():
                self.write(f"{self.folder}/{name}", value)
            for pid in processes_on(hosts, host):
                with contextlib.suppress(ProcessLookupError):
                    self.write(f"{self.folder}/cgroup.procs", pid)
        except OSError:
            self.end()
            raise

    @staticmethod
    def write(path, value):
        fd = os.open(path, os.O_WRONLY)  # without O_CREAT
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)

    def end(self):
        # -1 is v1's word for what v2 calls max.
        none = "max" if self.bound == "memory.high" else -1
        with contextlib.suppress(FileNotFoundError):
            self.write(f"{self.folder}/{self.bound}", none)
        while True:  # processes may start others meanwhile
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            with open(f"{self.folder}/cgroup.procs") as file:
                for pid in file.read().split():
                    with contextlib.suppress(OSError):
                        self.write(f"{self.back}/cgroup.procs", pid)
            time.sleep(0.01)


class Faults:
    """Of the hosts of one training, whose attributes it uses."""

    def __init__(self):
        self.until_kill = 0  # events
        self.calm_ranks, self.calm_since = None, 0
        # The program, its process, what is said, how often, and since when.
        self.awaited = None
        self.named = collections.defaultdict(list)  # seconds, by program

    def is_rank(self, pid):
        return command_of(pid)[0] == self.words[0]

    def is_calm(self, now):
        """Whether all ranks have run for a while without a fault."""
        ranks = self.processes(ranks=True)
        if (self.undo or ranks != self.calm_ranks or
                len(ranks) != self.setup.hosts * self.setup.ranks):
            self.calm_ranks, self.calm_since = ranks, now
        return now > self.calm_since + CALM

    def said(self, pattern):
        return sum(len(re.findall(pattern, process.text()))
                   for process in self.nodes.job.processes)

    def kill_and_await(self, now):
        """Of ddprun's processes and ranks, each program as often: somebody has
        to say soon who was killed."""
        by_name = collections.defaultdict(list)
        for host in range(self.setup.hosts):
            for pid in processes_on(self.hosts, host):
                by_name[name_of(pid)].append((pid, host))
        # Of the only ddprun nobody is left to say it.
        names = NAMED.keys() & by_name.keys() - (
            {"ddprun"} if self.setup.hosts == 1 else set())
        name = self.random.choice(sorted(names))
        pid, host = self.random.choice(by_name[name])
        pattern = NAMED[name][0].format(pid=pid, host=host)
        self.awaited = name, pid, pattern, self.said(pattern), now
        if not self.is_rank(pid):
            self.nodes.crashed += 1
        self.signal(pid, signal.SIGKILL)
        self.events.append(f"{now - self.since:.0f} s kill {name} n{host}")
        self.kinds["SIGKILL in calm"] += 1
        self.until_kill = EVENTS

    def await_name(self, now):
        name, pid, pattern, before, since = self.awaited
        if is_alive(pid):  # the kernel of a busy machine may take seconds
            self.awaited = name, pid, pattern, before, now
        elif self.said(pattern) > before:
            self.named[name].append(now - since)
            self.awaited = None
        else:
            self.nodes.require(now < since + NAMED[name][1],
                               f"nobody says '{pattern}'")

    def signal(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def send(self, host, number):
        """To a process: each program as often."""
        by_name = collections.defaultdict(list)
        for pid in processes_on(self.hosts, host):
            by_name[name_of(pid)].append(pid)
        name = self.random.choice(sorted(by_name))
        pid = self.random.choice(by_name[name])
        is_rank = self.is_rank(pid)
        self.signal(pid, number)
        if number == signal.SIGSTOP:
            return name, lambda: self.signal(pid, signal.SIGCONT)
        if name == "etcd":
            return name, lambda: self.come_back(host)
        if not is_rank:
            self.nodes.crashed += 1
            self.kill_at = time.monotonic() + 10  # a gang may leave its ranks
        return name, None

    def crash(self, host):
        self.nodes.crash(host)
        self.ending = time.monotonic() if self.gang else None
        return self.cut(host)

    def cut(self, host):
        self.hosts.cut(host)
        self.away.add(host)
        return "", lambda: self.come_back(host)

    def come_back(self, host):
        self.hosts.mend(host)
        self.away.discard(host)
        if host in self.setup.members and not self.etcd.at[host].running():
            self.etcd.start(host)

    def slow(self, host):
        self.hosts.slow_down(host, self.random.choice([0.5, 1, 5]))
        return "", lambda: self.hosts.speed_up(host)

    def lossy(self, host):
        self.hosts.lose(host, self.random.choice([2, 10, 30]))
        return "", lambda: self.hosts.lose_none(host)

    def names(self, host):
        """Only its own name and the first host's are known without asking."""
        self.hosts.ask_for_names(host, {0, host})
        return "", lambda: self.hosts.ask_for_no_names(host)

    def memory(self, host):
        return "", Shortage(self.hosts, host).end

    def full_disk(self, _):
        path = f"{self.disk}/filler"
        with contextlib.suppress(OSError), open(path, "wb", 0) as file:
            while file.write(bytes(4096)):
                pass
        return "", lambda: command("rm", "-f", path)

    def clock(self, host):
        seconds = self.random.choice([-1, 1]) * self.random.randint(2, 10000)
        with open(f"/dev/shm/clock-n{host}", "r+") as file:
            file.write(f"{seconds:<20}")
        return f"{seconds:+} s", None
