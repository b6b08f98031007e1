"""Trainings under random faults, over etcd."""

import contextlib
import os
import random
import re
import signal
import time

from etcd_cases import Etcd
from hosts import Hosts
from nodes import Nodes, agents_on, command_of, processes_on
from training import trainer

HOSTS = range(4)
WAYS = ["rank", "agent", "helper", "leave", "crash", "cut", "suspend a rank",
        "suspend an agent"]


class Soak:
    """One training under random faults: ranks, agents and hosts die, cables
    are cut, processes stand still, nodes leave; whatever ended is started
    again, as a scheduler would."""

    def __init__(self, program, hosts, random, size, members):
        self.nodes = Nodes(
            program, hosts, f"--nnodes={size} --node-timeout=3 --last-call=1 "
            "--grace=3 --max-restarts=1000")
        self.etcd = Etcd(self.nodes, members)
        self.nodes.options += self.etcd.options()
        self.hosts = hosts
        self.random = random
        self.words = trainer(self.nodes, 10, 960, 60)
        self.away = {}  # until when a host is gone
        self.asleep = {}  # until when a process stands still
        self.events = []

    def start(self, host):
        self.hosts.mend(host)
        if host in self.etcd.at and not self.etcd.at[host].running():
            self.etcd.start(host)
        self.nodes.start(host, words=self.words, DDP_BACKEND="gloo")

    def disturb(self):
        host = self.random.choice(HOSTS)
        way = self.random.choice(WAYS)
        duration = self.random.uniform(2, 15)
        process = self.nodes.at.get(host)
        if process is None or not process.running() or host in self.away:
            return
        ranks = [pid for pid in processes_on(self.hosts, host)
                 if command_of(pid)[0] == self.words[0]]
        victims = {"rank": ranks, "helper": agents_on(self.hosts, host),
                   "suspend a rank": ranks}.get(way, [process.process.pid])
        if not victims:
            return
        self.events.append(f"{way} n{host}")
        if way in ("crash", "cut"):
            (self.nodes.crash if way == "crash" else self.hosts.cut)(host)
            self.away[host] = time.monotonic() + duration
        elif way.startswith("suspend"):
            self.signal(victims[0], signal.SIGSTOP)
            self.asleep[victims[0]] = time.monotonic() + duration / 2
        elif way == "leave":
            process.process.terminate()
        else:
            self.nodes.crashed += way == "agent"
            self.signal(victims[0], signal.SIGKILL)

    def signal(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def wake(self, now):
        for pid in [pid for pid in self.asleep if now >= self.asleep[pid]]:
            del self.asleep[pid]
            self.signal(pid, signal.SIGCONT)

    def care(self):
        """Starts again what ended; True once the training has."""
        now = time.monotonic()
        self.wake(now)
        for host in HOSTS:
            process = self.nodes.at.get(host)
            if host in self.away and now >= self.away[host]:
                del self.away[host]
                self.hosts.mend(host)
            if process is not None and not process.running() and \
                    process.process.returncode == 0:
                return True
            if host not in self.away and (
                    process is None or not process.running()):
                self.start(host)
        return False

    def run(self, seconds, quiet_after=60):
        """The hash of the weights, and how often samples were seen."""
        deadline = time.monotonic() + seconds
        quiet_from = time.monotonic() + quiet_after
        next_event = time.monotonic() + 5
        while not self.care():
            now = time.monotonic()
            self.nodes.require(now < deadline, f"no end: {self.events}")
            if next_event <= now < quiet_from:
                self.disturb()
                next_event = now + self.random.uniform(0.5, 8)
            time.sleep(0.05)
        return self.finish()

    def finish(self):
        for host in HOSTS:
            self.hosts.mend(host)
        self.wake(float("inf"))
        time.sleep(2)  # the others read how it ended
        for process in self.nodes.job.processes:
            if process.running():
                process.process.send_signal(signal.SIGINT)
        for process in self.nodes.job.processes:
            self.nodes.wait(lambda: not process.running(),
                            f"a ddprun does not end: {self.events}", 40)
        texts = "".join(each.text() for each in self.nodes.job.processes)
        found = re.findall(r"samples were seen (\d+) to (\d+) times, .*; "
                           r"weights (\w+)", texts)
        self.nodes.require(found, f"no training ended: {self.events}")
        self.nodes.wait(
            lambda: not any(processes_on(self.hosts, host) for host in HOSTS),
            f"processes are left: {self.events}", 10)
        return set(found)


def soak(program):
    """An hour of it, or DDP_TEST_MINUTES; DDP_TEST_SEED says where to begin.
    Jobs of four nodes, that wait for who is lost, must end with the weights of
    an undisturbed job; others, of two to four nodes, must miss no sample. Some
    hosts that fail have members of the etcd."""
    seed = int(os.environ.get("DDP_TEST_SEED", "1"))
    end = time.monotonic() + 60 * float(
        os.environ.get("DDP_TEST_MINUTES", "60"))
    hosts = Hosts(5)

    def train(size, members, **limits):
        job = Soak(program, hosts, random.Random(seed), size, members)
        with job.nodes:
            return job, job.run(**limits)

    _, undisturbed = train("4", [4], seconds=100, quiet_after=0)
    rounds = faults = 0
    while time.monotonic() < end:
        size = ("4", "2:4")[seed % 2]
        members = [0, 1, 2] if seed % 3 == 0 else [4]
        job, ends = train(size, members, seconds=300)
        faults += len(job.events)
        print(f"seed {seed}, --nnodes={size}, etcd on {members}: "
              f"{len(job.events)} faults, {ends}: {', '.join(job.events)}",
              flush=True)
        job.nodes.require(
            ends == undisturbed if size == "4" else
            all(int(least) >= 1 and int(most) <= 2
                for least, most, _ in ends),
            f"it ended as {ends}, undisturbed as {undisturbed}")
        seed += 1
        rounds += 1
    print(f"{rounds} trainings with {faults} faults ended right", flush=True)
