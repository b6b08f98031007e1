"""Trainings under random faults."""

import contextlib
import os
import random
import re
import signal
import time

from etcd_cases import Etcd
from hosts import Hosts
from nodes import Nodes, command_of, processes_on
from training import trainer


class Soak:
    """One training under random faults: ranks and hosts die, cables are cut,
    nodes leave; whatever ended is started again, as a scheduler would."""

    HOSTS = range(4)

    def __init__(self, program, hosts, random):
        self.nodes = Nodes(
            program, hosts, "--nnodes=2:4 --node-timeout=3 --last-call=1 "
            "--grace=3 --max-restarts=1000")
        self.etcd = Etcd(self.nodes, [4])  # on a host that nothing happens to
        self.nodes.options += self.etcd.options()
        self.hosts = hosts
        self.random = random
        self.words = trainer(self.nodes, 10, 960, 60)
        self.away = {}  # until when a host is gone
        self.events = []

    def start(self, host):
        self.hosts.mend(host)
        self.nodes.start(host, words=self.words, DDP_BACKEND="gloo")

    def disturb(self):
        host = self.random.choice(self.HOSTS)
        what = self.random.choice(
            ["rank", "rank", "agent", "leave", "crash", "cut"])
        process = self.nodes.at.get(host)
        if process is None or not process.running() or host in self.away:
            return
        self.events.append(f"{what} n{host}")
        workers = [pid for pid in processes_on(self.hosts, host)
                   if command_of(pid)[0] == self.words[0]]
        if what == "rank" and workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[0], signal.SIGKILL)
        elif what == "agent":
            self.nodes.crashed += 1
            process.process.kill()
        elif what == "leave":
            process.process.terminate()
        elif what in ("crash", "cut"):
            (self.nodes.crash if what == "crash" else self.hosts.cut)(host)
            self.away[host] = time.monotonic() + self.random.uniform(2, 15)

    def care(self):
        """Starts again what ended; True once the training has."""
        now = time.monotonic()
        for host in self.HOSTS:
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

    def run(self, seconds):
        deadline = time.monotonic() + seconds
        quiet_from = time.monotonic() + 60
        next_event = time.monotonic() + 5
        while not self.care():
            now = time.monotonic()
            self.nodes.require(now < deadline, f"no end: {self.events}")
            if next_event <= now < quiet_from:
                self.disturb()
                next_event = now + self.random.uniform(0.5, 8)
            time.sleep(0.05)
        print(f"{len(self.events)} faults: {', '.join(self.events)}",
              flush=True)
        self.finish()

    def finish(self):
        for host in self.HOSTS:
            self.hosts.mend(host)
        time.sleep(2)  # the others read how it ended
        for process in self.nodes.job.processes:
            if process.running():
                process.process.send_signal(signal.SIGINT)
        for process in self.nodes.job.processes:
            self.nodes.wait(lambda: not process.running(),
                            f"a ddprun does not end: {self.events}", 40)
        texts = "".join(each.text() for each in self.nodes.job.processes)
        found = re.findall(r"samples were seen (\d+) to (\d+) times", texts)
        self.nodes.require(found and all(int(least) >= 1 and int(most) <= 2
                                         for least, most in found),
                           f"samples were seen {found}: {self.events}")
        self.nodes.wait(
            lambda: not any(processes_on(self.hosts, host)
                            for host in self.HOSTS),
            f"processes are left: {self.events}", 10)


def soak(program):
    """An hour of it, or DDP_TEST_MINUTES; DDP_TEST_SEED says where to begin."""
    seed = int(os.environ.get("DDP_TEST_SEED", "1"))
    end = time.monotonic() + 60 * float(
        os.environ.get("DDP_TEST_MINUTES", "60"))
    hosts = Hosts(5)
    rounds = 0
    while time.monotonic() < end:
        print(f"seed {seed}: ", end="", flush=True)
        job = Soak(program, hosts, random.Random(seed))
        with job.nodes:
            job.run(300)
        seed += 1
        rounds += 1
    print(f"{rounds} trainings ended right", flush=True)
