#!/usr/bin/env python3
"""ddprun on several hosts: jobs that start, fail, lose nodes and get new ones.

Usage: nodes_test.py DDPRUN TRAINER CASE, with a function of this file.
"""

import contextlib
import glob
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

from hosts import Hosts, command, enter_namespaces
from job import Job, Process
from slurm import Slurm, require_slurm

PORT = 29400
SECRET = "hush-hush"
REMOTE_SHELL = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "remote_shell.sh")
# Says what it was told, and when it was asked to stop; clocks are those of one
# machine.
WORKER = """
echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE" \
     "node $GROUP_RANK of $GROUP_WORLD_SIZE restart" \
     "$TORCHELASTIC_RESTART_COUNT store $MASTER_ADDR."
trap 'echo "stopped $(date +%s%N)."; kill $! 2>/dev/null; exit 143' TERM
sleep 1000 & wait
"""


class Nodes:
    """A job with one ddprun on each of some hosts; more can come."""

    def __init__(self, program, hosts, options, token="secret"):
        self.program = program
        self.hosts = hosts
        self.options = options
        self.token = token
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(f"{self.folder.name}/tmp")
        self.job = Job([])
        self.at = {}  # the process of a host's ddprun

    def __enter__(self):
        self.job.__enter__()
        return self

    def __exit__(self, *error):
        self.job.__exit__(*error)
        self.folder.cleanup()

    def report(self, host):
        with open(f"{self.folder.name}/{host}.json") as file:
            return json.load(file)

    def start(self, host, *options, words=("bash", "-c", WORKER), **variables):
        process = Process(
            self.hosts.on(host) +
            [self.program, f"--rdzv-endpoint=n0:{PORT}", *self.options,
             f"--report={self.folder.name}/{host}.json", *options, *words],
            {"DDP_TOKEN": self.token, "OMP_NUM_THREADS": "1",
             "TMPDIR": f"{self.folder.name}/tmp", **variables})
        self.job.processes.append(process)
        self.at[host] = process
        return process

    def require(self, condition, message):
        self.job.require(condition, message)

    def wait(self, condition, message, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.require(time.monotonic() < deadline, message)
            time.sleep(0.01)

    def wait_for_ranks(self, world_size, hosts, restart=0, seconds=20):
        """Until these hosts run all ranks of a job of that size."""
        pattern = re.compile(rf"rank (\d+) of {world_size} .* "
                             rf"restart {restart} store")

        def ranks():
            return {int(rank) for host in hosts
                    for rank in pattern.findall(self.at[host].text())}
        self.wait(lambda: ranks() == set(range(world_size)),
                  f"not all of {world_size} ranks run", seconds)

    def finish(self, hosts, code, seconds):
        """Seconds until the ddpruns of these hosts had ended, each with that
        code."""
        start = time.monotonic()
        self.wait(lambda: not any([self.at[host].running() for host in hosts]),
                  f"ddprun did not end within {seconds} s", seconds)
        codes = {host: self.at[host].process.returncode for host in hosts}
        self.require(set(codes.values()) == {code}, f"exit codes {codes}")
        return max(self.at[host].ended_at for host in hosts) - start


def processes_on(hosts, host):
    """The processes of a host, but that which holds it."""
    def network(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return None
    own = network(hosts.holders[host])
    return [int(name) for name in os.listdir("/proc") if name.isdigit()
            and int(name) != hosts.holders[host] and network(name) == own]


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")
    except OSError:
        return [""]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def workers_on(hosts, host):
    return [pid for pid in processes_on(hosts, host)
            if command_of(pid)[:2] == ["bash", "-c"]]


def crash(hosts, host):
    """As when the power fails."""
    hosts.cut(host)  # or the kernel would say good-bye
    for pid in processes_on(hosts, host):
        with contextlib.suppress(ProcessLookupError):  # its parent's death did
            os.kill(pid, signal.SIGKILL)


def require_nothing_left(nodes, hosts, crashed=0):
    for host in hosts:
        left = [(pid, command_of(pid))
                for pid in processes_on(nodes.hosts, host)]
        nodes.require(not left, f"n{host} still has {left}")
    files = os.listdir(f"{nodes.folder.name}/tmp") + glob.glob("/dev/shm/ddp*")
    nodes.require(len(files) <= crashed, f"files are left: {files}")


def static_start(program):
    """Nodes with different numbers of ranks, in the order of --node-rank."""
    hosts = Hosts(4)
    counts = [2, 1, 3, 1]
    with Nodes(program, hosts, ["--nnodes=4"]) as nodes:
        begin = time.monotonic()
        for host in (3, 1, 0, 2):
            nodes.start(host, f"--nproc-per-node={counts[host]}",
                        f"--node-rank={host}")
        nodes.wait_for_ranks(7, range(4))
        print(f"started in {time.monotonic() - begin:.2f} s", flush=True)
        first = 0
        for host, count in enumerate(counts):
            for local in range(count):
                line = (f"rank {first} of 7 local {local} of {count} node "
                        f"{host} of 4 restart 0 store 10.9.0.1.")
                nodes.require(line in nodes.at[host].text(), f"no '{line}'")
                first += 1
        nodes.at[1].process.send_signal(signal.SIGINT)
        seconds = nodes.finish(range(4), 130, 5)
        print(f"ended in {seconds:.2f} s", flush=True)
        require_nothing_left(nodes, range(4))


def failed_rank(program):
    """All stop within 50 ms, and end with the rank's code and its report."""
    hosts = Hosts(3)
    failing = "trap 'date +%s%N; exit 3' USR1;" + WORKER
    with Nodes(program, hosts, ["--nnodes=3", "--nproc-per-node=2"]) as nodes:
        for host in range(3):
            nodes.start(host, words=("bash", "-c", failing))
        nodes.wait_for_ranks(6, range(3))
        victim = workers_on(hosts, 1)[0]
        start = time.time_ns()
        os.kill(victim, signal.SIGKILL)
        nodes.finish(range(3), 137, 5)
        for host in range(3):
            text = nodes.at[host].text()
            stops = [int(ns) for ns in re.findall(r"stopped (\d+)\.", text)]
            nodes.require(len(stops) == (1 if host == 1 else 2),
                          f"{len(stops)} ranks of n{host} were stopped")
            slowest = (max(stops) - start) / 1e6
            print(f"n{host}: stopped after {slowest:.1f} ms", flush=True)
            nodes.require(slowest < 50, f"n{host} took {slowest} ms")
            nodes.require(re.search(r"killed by signal 9", text),
                          f"n{host} does not say what happened")
            nodes.require(host == 1 or "node n1: " in text,
                          f"n{host} does not say where")
            report = nodes.report(host)
            nodes.require(report["exit_code"] == 137 and
                          report["outcome"] == "failed" and
                          [node["host"] for node in report["nodes"]] ==
                          ["n0", "n1", "n2"], f"report of n{host}: {report}")
        require_nothing_left(nodes, range(3))


def slow_death(program):
    """The first failure is not what others die of sooner."""
    hosts = Hosts(2)
    victim = ("trap 'echo Connection reset by peer >&2; exit 1' USR1;" + WORKER)
    culprit = WORKER.replace("exit 143", "kill -SEGV $$")
    with Nodes(program, hosts, ["--nnodes=2"]) as nodes:
        nodes.start(0, words=("bash", "-c", victim))
        nodes.start(1, words=("bash", "-c", culprit))
        nodes.wait_for_ranks(2, range(2))
        os.kill(workers_on(hosts, 0)[0], signal.SIGUSR1)
        nodes.finish(range(2), 139, 5)
        for host in range(2):
            nodes.require("rank 1 (pid" in nodes.at[host].text() and
                          "signal 11" in nodes.at[host].text(),
                          f"n{host} does not name rank 1")
        require_nothing_left(nodes, range(2))


def restarts(program):
    """All nodes count restarts alike, whichever node fails."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=3", "--max-restarts=2"]) as nodes:
        for host in range(3):
            nodes.start(host)
        nodes.wait_for_ranks(3, range(3))
        for restart in (1, 2):
            start = time.monotonic()
            os.kill(workers_on(hosts, restart)[0], signal.SIGKILL)
            nodes.wait_for_ranks(3, range(3), restart)
            print(f"restarted in {time.monotonic() - start:.2f} s", flush=True)
        os.kill(workers_on(hosts, 0)[0], signal.SIGKILL)
        nodes.finish(range(3), 137, 5)
        require_nothing_left(nodes, range(3))


def killed_ddprun(program):
    """Others know at once that the agent, or all of a ddprun, was killed."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=1:3", "--last-call=1"]) as nodes:
        # Children of ranks are swept by the front, or the agent.
        alone = WORKER.replace("sleep 1000 & wait", "exec sleep 1000")
        for host in range(3):
            nodes.start(host, words=("bash", "-c", alone))
        nodes.wait_for_ranks(3, range(3))
        agent = [pid for pid in processes_on(hosts, 2)
                 if name_of(pid) == "ddp-agent"]
        start = time.monotonic()
        os.kill(agent[0], signal.SIGKILL)
        nodes.wait_for_ranks(2, (0, 1))
        print(f"agent: {time.monotonic() - start:.2f} s", flush=True)
        nodes.finish([2], 137, 5)
        nodes.require("the ddprun of node n2 died" in nodes.at[0].text(),
                      "n0 does not say why")
        start = time.monotonic()
        for pid in processes_on(hosts, 1):
            if name_of(pid) in ("ddp-agent", "ddprun"):
                os.kill(pid, signal.SIGKILL)
        nodes.wait_for_ranks(1, [0])
        seconds = time.monotonic() - start
        print(f"agent and front: {seconds:.2f} s", flush=True)
        nodes.require(seconds < 3, f"it took {seconds} s")
        nodes.at[0].process.send_signal(signal.SIGINT)
        nodes.finish([0], 130, 5)
        require_nothing_left(nodes, range(3), crashed=1)


def still_agent(program):
    """An agent that stands still is as one that is lost; when it goes on, it
    ends."""
    hosts = Hosts(3)
    options = ["--nnodes=1:3", "--last-call=1", "--node-timeout=3"]
    with Nodes(program, hosts, options) as nodes:
        for host in range(3):
            nodes.start(host)
        nodes.wait_for_ranks(3, range(3))
        agent = [pid for pid in processes_on(hosts, 2)
                 if name_of(pid) == "ddp-agent"][0]
        start = time.monotonic()
        os.kill(agent, signal.SIGSTOP)
        nodes.wait_for_ranks(2, (0, 1))
        print(f"noticed in {time.monotonic() - start:.2f} s", flush=True)
        os.kill(agent, signal.SIGCONT)
        nodes.finish([2], 75, 5)
        nodes.at[0].process.send_signal(signal.SIGINT)
        nodes.finish((0, 1), 130, 5)
        require_nothing_left(nodes, range(3))


def lost_node(program):
    """A job of a fixed size ends where a node is lost."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=3", "--node-timeout=3"]) as nodes:
        for host in range(3):
            nodes.start(host)
        nodes.wait_for_ranks(3, range(3))
        crash(hosts, 2)
        seconds = nodes.finish((0, 1), 75, 10)
        print(f"noticed in {seconds:.2f} s", flush=True)
        nodes.require(2 < seconds < 6, f"it took {seconds} s")
        for host in (0, 1):
            nodes.require("node n2 was not heard for 3.0 s" in
                          nodes.at[host].text(), f"n{host} does not say why")
        require_nothing_left(nodes, range(3), crashed=1)


def cut_cable(program):
    """Both sides notice; the smaller one stops, the other goes on."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        for host in range(4):
            nodes.start(host)
        nodes.wait_for_ranks(4, range(4))
        hosts.cut(3)
        start = time.monotonic()
        nodes.wait(lambda: "stopped" in nodes.at[3].text(),
                   "the ranks of n3 were not stopped", 5)
        stopped = time.monotonic() - start
        nodes.wait_for_ranks(3, range(3))
        went_on = time.monotonic() - start
        nodes.finish([3], 75, 25)  # after a search for the others
        print(f"cut off: stopped after {stopped:.2f} s, ended after "
              f"{time.monotonic() - start:.2f} s; the others went on after "
              f"{went_on:.2f} s", flush=True)
        nodes.require(went_on < 7, f"the others took {went_on} s")
        nodes.at[0].process.send_signal(signal.SIGINT)
        nodes.finish(range(3), 130, 10)
        require_nothing_left(nodes, range(4))


def lost_first_node(program):
    """The host of the rendezvous dies: the others go on without it, and
    without the next one."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        for host in range(4):
            nodes.start(host)
        nodes.wait_for_ranks(4, range(4))
        start = time.monotonic()
        crash(hosts, 0)
        nodes.wait_for_ranks(3, range(1, 4))
        print(f"went on after {time.monotonic() - start:.2f} s", flush=True)
        start = time.monotonic()
        crash(hosts, 1)
        nodes.wait_for_ranks(2, range(2, 4))
        print(f"went on after {time.monotonic() - start:.2f} s", flush=True)
        nodes.at[2].process.send_signal(signal.SIGINT)
        nodes.finish((2, 3), 130, 10)
        require_nothing_left(nodes, range(4), crashed=2)


def first_node_comes_back(program):
    """A restarted first node, and a new one, find where the job went on."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1",
               f"--rdzv-endpoint=n0:{PORT},n1,n2,n3"]
    with Nodes(program, hosts, options) as nodes:
        for host in range(3):
            nodes.start(host)
        nodes.wait_for_ranks(3, range(3))
        crash(hosts, 0)
        nodes.wait_for_ranks(2, (1, 2))
        hosts.mend(0)
        nodes.start(0)
        nodes.wait(lambda: "rank 2 of 3 local 0 of 1 node 2 of 3" in
                   nodes.at[0].text(), "n0 does not take part as the last")
        nodes.start(3)
        nodes.wait_for_ranks(4, range(4))
        nodes.at[3].process.send_signal(signal.SIGINT)
        nodes.finish(range(4), 130, 10)
        require_nothing_left(nodes, range(4), crashed=1)


def elastic(program):
    """Nodes come and go while the job runs; no restart is counted."""
    hosts = Hosts(4)
    options = ["--nnodes=1:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start(0)
        nodes.wait_for_ranks(1, [0])
        start = time.monotonic()
        nodes.start(2, "--nproc-per-node=2")
        nodes.wait_for_ranks(3, (0, 2))
        print(f"joined in {time.monotonic() - start:.2f} s", flush=True)
        nodes.start(1)
        nodes.start(3)
        nodes.wait_for_ranks(5, range(4))
        start = time.monotonic()
        nodes.at[2].process.send_signal(signal.SIGTERM)
        nodes.wait_for_ranks(3, (0, 1, 3))
        nodes.finish([2], 143, 5)
        print(f"left in {time.monotonic() - start:.2f} s", flush=True)
        nodes.start(2, "--nproc-per-node=2")  # comes back
        nodes.wait_for_ranks(5, range(4))
        nodes.at[1].process.send_signal(signal.SIGINT)
        nodes.finish(range(4), 130, 10)
        require_nothing_left(nodes, range(4))


def server(program):
    """A server of its own outlives any node; the job does not outlive it."""
    hosts = Hosts(4)
    options = ["--nnodes=1:3", "--node-timeout=3", "--last-call=1",
               "--rdzv-backend=server"]
    with Nodes(program, hosts, options) as nodes:
        serving = Process(
            hosts.on(0) + [program, "--rdzv-server",
                           f"--rdzv-endpoint=n0:{PORT}"], {})
        nodes.job.processes.append(serving)
        for host in (1, 2, 3):
            nodes.start(host)
        nodes.wait_for_ranks(3, (1, 2, 3))
        nodes.require(f"10.9.0.1:{PORT}" in serving.text(),
                      "the server does not say where it listens")
        crash(hosts, 1)
        nodes.wait_for_ranks(2, (2, 3))
        crash(hosts, 2)  # half of the nodes, but the server knows
        nodes.wait_for_ranks(1, [3])
        serving.process.send_signal(signal.SIGTERM)
        seconds = nodes.finish([3], 75, 10)
        print(f"without the server: {seconds:.2f} s", flush=True)
        require_nothing_left(nodes, range(4), crashed=2)


def wrong_token(program):
    """A node with another token takes no part, and disturbs nobody."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=2", "--node-timeout=3"]) as nodes:
        nodes.start(0)
        nodes.start(2, "--join-timeout=3", DDP_TOKEN="another")
        nodes.finish([2], 124, 10)
        nodes.start(1)
        nodes.wait_for_ranks(2, (0, 1))
        nodes.at[1].process.send_signal(signal.SIGINT)
        nodes.finish((0, 1), 130, 5)
        require_nothing_left(nodes, range(3))


def missing_nodes(program):
    """What is waited for is said; Ctrl-C and the timeout end the wait."""
    hosts = Hosts(2)
    with Nodes(program, hosts, ["--nnodes=2", "--join-timeout=7"]) as nodes:
        nodes.start(0)
        nodes.start(1, f"--rdzv-endpoint=n0:{PORT + 1}")
        nodes.wait(lambda: "1 of 2 joined (n0)" in nodes.at[0].text(),
                   "it does not say who is missing", 10)
        nodes.at[1].process.send_signal(signal.SIGINT)
        nodes.finish([1], 130, 2)
        nodes.finish([0], 124, 10)
        nodes.require("after 7.0 s still waiting for nodes" in
                      nodes.at[0].text(), "it does not say why it ended")
        require_nothing_left(nodes, range(2))


@contextlib.contextmanager
def by_remote_shell(program, hosts, *options, words=("bash", "-c", WORKER)):
    """A job that one ddprun on n0 starts on all of its hosts."""
    with Nodes(program, hosts, []) as nodes:
        nodes.at[0] = Process(
            hosts.on(0) + [program, f"--rsh={REMOTE_SHELL}", *options, *words],
            {"HOLDERS": " ".join(map(str, hosts.holders)), "DDP_TOKEN": SECRET,
             "OMP_NUM_THREADS": "1", "TMPDIR": f"{nodes.folder.name}/tmp"})
        nodes.job.processes.append(nodes.at[0])
        yield nodes
        nodes.wait(lambda: not any(processes_on(hosts, host)
                                   for host in range(len(hosts.holders))),
                   "processes are left", 2)
        require_nothing_left(nodes, range(len(hosts.holders)))


def hosts_by_remote_shell(program):
    """One ddprun starts the others, and ends them, whatever way it ends."""
    hosts = Hosts(3)
    three = "--hosts=n0:2,n1:1,n2:1"
    say = ("echo", "${local_rank}", "a 'quoted' $word")
    with by_remote_shell(program, hosts, three, words=say) as nodes:
        seconds = nodes.finish([0], 0, 10)
        print(f"started and ended in {seconds:.2f} s", flush=True)
        lines = sorted(nodes.at[0].text().splitlines())
        nodes.require(lines == [f"[{rank}] {local} a 'quoted' $word" for
                                rank, local in enumerate((0, 1, 0, 0))],
                      f"the output is {lines}")
    with by_remote_shell(
            program, hosts, three, "--env=WORD=two words",
            words=("bash", "-c", "[[ $RANK != 3 ]] || sleep 3;"  # others wait
                   "echo $PWD, $WORD, ${HOLDERS:-none}, "
                   "${DDP_STARTER:-none}, ${DDP_TOKEN:-none}")) as nodes:
        nodes.finish([0], 0, 15)
        for rank, holders in (
                (0, " ".join(map(str, hosts.holders))), (3, "none")):
            line = (f"[{rank}] {os.getcwd()}, two words, {holders}, none, "
                    "none\n")
            nodes.require(line in nodes.at[0].text(), f"no '{line}'")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with by_remote_shell(program, hosts, three) as nodes:
            nodes.wait_for_ranks(4, [0])
            commands = [command_of(pid) for host in range(3)
                        for pid in processes_on(hosts, host)]
            nodes.require(SECRET not in str(commands), "the secret is seen")
            nodes.at[0].process.send_signal(number)
            seconds = nodes.finish([0], code, 5)
            print(f"{number.name}: ended in {seconds:.2f} s", flush=True)
            stopped = set(re.findall(r"\[(\d)\] stopped", nodes.at[0].text()))
            nodes.require(number == signal.SIGINT or len(stopped) == 4,
                          f"of the ranks, {stopped} were asked to stop")
    deaf = ("bash", "-c", WORKER.replace("trap", "trap '' INT TERM #"))
    with by_remote_shell(program, hosts, three, words=deaf) as nodes:
        nodes.wait_for_ranks(4, [0])
        nodes.at[0].process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        nodes.require(nodes.at[0].running(), "ranks ended at once")
        nodes.at[0].process.send_signal(signal.SIGINT)
        seconds = nodes.finish([0], 130, 5)
        print(f"again: ended in {seconds:.2f} s", flush=True)
    for host in range(3):
        with by_remote_shell(program, hosts, three) as nodes:
            nodes.wait_for_ranks(4, [0])
            os.kill(workers_on(hosts, host)[0], signal.SIGUSR2)
            seconds = nodes.finish([0], 128 + signal.SIGUSR2, 5)
            print(f"failed rank: ended in {seconds:.2f} s", flush=True)


def hosts_lost(program):
    """Hosts that cannot be reached, and a starter that is killed."""
    hosts = Hosts(3)
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n7") as nodes:
        seconds = nodes.finish([0], 75, 5)
        print(f"unreachable: ended in {seconds:.2f} s", flush=True)
        nodes.require("ddprun was not started on n7: remote_shell.sh ended "
                      "with exit code 255: connect to host n7 port 22: No "
                      "route to host\n" in nodes.at[0].text(),
                      "it does not say why")
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n2") as nodes:
        nodes.wait_for_ranks(3, [0])
        shells = [pid for pid in processes_on(hosts, 0)
                  if REMOTE_SHELL in command_of(pid) and
                  "n1" in command_of(pid)]
        os.kill(shells[0], signal.SIGKILL)
        seconds = nodes.finish([0], 75, 10)
        print(f"cut off: ended in {seconds:.2f} s", flush=True)
        nodes.require("n1 was cut off: remote_shell.sh ended with exit code "
                      "137" in nodes.at[0].text(), "it does not say why")
    with by_remote_shell(program, hosts, "--hosts=n0,n1,n2") as nodes:
        nodes.wait_for_ranks(3, [0])
        nodes.at[0].process.kill()
        start = time.monotonic()
        nodes.wait(lambda: not any(processes_on(hosts, host)
                                   for host in range(3)),
                   "ranks survive the starter", 10)
        print(f"killed: all ended in {time.monotonic() - start:.2f} s",
              flush=True)


def check(program):
    """--check tells what is off between nodes, and that nothing is."""
    hosts = Hosts(3)
    three = ["--hosts=n0:8,n1,n2", "--port-range=20000-20009", "--check"]

    def outcome(code, *options):
        with by_remote_shell(program, hosts, *three, *options,
                             words=()) as nodes:
            seconds = nodes.finish([0], code, 60)
            print(f"exit code {code} after {seconds:.2f} s:\n"
                  f"{nodes.at[0].text()}", flush=True)
            return nodes.at[0].text()

    text = outcome(0, "--env=DDP_DEVICE=cpu")
    for host in range(3):
        assert re.search(rf"^{host}     n{host} +10.9.0.{host + 1} .* ok$",
                         text, re.M), f"n{host} is not there"
    for pair in ("n0 and n1", "n0 and n2", "n1 and n2"):
        found = re.search(rf"^  {pair}  (\d+\.\d) Gbit/s$", text, re.M)
        assert found and float(found[1]) > 0, f"no bandwidth of {pair}"
    assert text.endswith("\nnothing is off\n")

    with open("/etc/hosts") as file:
        names = file.read()
    for wrong, said in (
            ("10.9.0.77 n2", "means 10.9.0.77, which does not reach it "
             "(10.9.0.3 does)"),
            ("10.9.0.2 n2", "means 10.9.0.2, which does not reach it "
             "(10.9.0.3 does)"),
            ("", "does not resolve")):
        with open("/etc/hosts", "w") as file:
            file.write(names.replace("10.9.0.3 n2", wrong))
        # Where it is started from, it is reached all the same.
        text = outcome(1, "--env=DDP_DEVICE=cpu")
        lines = [f"n{host}: the name n2 {said}" for host in (0, 1)]
        assert text.splitlines()[-2:] == lines, "not said"
    with open("/etc/hosts", "w") as file:
        file.write(names)

    hosts.drop(2, "20000-20009")
    text = outcome(1)
    for host in (0, 1):
        assert re.search(rf"^n{host}: cannot connect to n2 at 10.9.0.3 port "
                         r"2000\d: Connection timed out$", text, re.M)
    assert "Gbit" not in text
    hosts.drop(0, "20000-20009")  # nor can they meet
    text = outcome(124, "--join-timeout=4")
    assert "still waiting for nodes" in text


def trainer(nodes, epochs, samples, pause_ms):
    folder = f"{nodes.folder.name}/checkpoints"
    return [sys.argv[2], folder, str(epochs), str(samples), str(pause_ms)]


def require_all_seen(nodes, hosts, most_repeated):
    """That the job has ended well, and every sample was seen once in each
    epoch: but for what a sampler repeats where ranks do not divide samples."""
    texts = "".join(nodes.at[host].text() for host in hosts)
    found = re.findall(r"samples were seen (\d+) to (\d+) times, (\d+) more",
                       texts)
    nodes.require(len(found) == 1, f"the end was told {len(found)} times")
    least, most, repeated = map(int, found[0])
    nodes.require(least == 1 and most <= 2 and repeated <= most_repeated,
                  f"samples were seen {found[0]}")


def step_of(nodes, host):
    """The step of the last checkpoint."""
    try:
        names = os.listdir(f"{nodes.folder.name}/checkpoints")
    except OSError:
        return 0
    return max([int(step) for name in names
                for step in re.findall(r"(\d+)", name)], default=0)


def training(program):
    """A training over gloo goes on while one node is lost and one comes."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1",
               "--grace=5"]
    with Nodes(program, hosts, options) as nodes:
        words = trainer(nodes, 3, 960, 30)

        def start(host):
            nodes.start(host, words=words, DDP_BACKEND="gloo")
        for host in range(3):
            start(host)
        nodes.wait(lambda: step_of(nodes, 0) >= 10, "no progress", 40)
        crash(hosts, 2)
        before = step_of(nodes, 0)
        nodes.wait(lambda: step_of(nodes, 0) >= before + 10,
                   "no progress without n2", 40)
        start(3)
        nodes.wait(lambda: "with 3 ranks" in
                   nodes.at[0].text().split("was not heard")[-1],
                   "n3 takes no part", 40)
        nodes.finish((0, 1, 3), 0, 90)
        require_all_seen(nodes, (0, 1, 3), 12)
        require_nothing_left(nodes, range(4), crashed=1)


def under_slurm(program):
    """srun starts one ddprun on each node: no option says where they meet."""
    require_slurm()
    hosts = Hosts(3)
    slurm = Slurm(hosts)
    slurm.wait_until_up(30)

    def srun(*words):
        nodes = Nodes(program, hosts, [])
        process = Process(
            slurm.command("srun", "-N3", "--ntasks-per-node=1",
                          "--export=ALL", *words),
            {**slurm.variables, "DDP_TOKEN": "secret",
             "TMPDIR": f"{nodes.folder.name}/tmp"})
        nodes.job.processes.append(process)
        nodes.at = {host: process for host in range(3)}
        return nodes
    words = [program, "--nproc-per-node=2", "bash", "-c", WORKER]
    with srun(*words) as nodes:
        nodes.wait_for_ranks(6, [0])
        for host in range(3):
            nodes.require(f"rank {2 * host} of 6 local 0 of 2 node {host} of "
                          "3" in nodes.at[0].text(), f"n{host} is not itself")
        os.kill(workers_on(hosts, 1)[0], signal.SIGKILL)
        seconds = nodes.finish([0], 137, 10)
        print(f"a rank was killed: srun ended in {seconds:.2f} s", flush=True)
    with srun(*words) as nodes:
        nodes.wait_for_ranks(6, [0])
        job = slurm.output("squeue", "-h", "-o", "%i").strip()
        start = time.monotonic()
        slurm.output("scancel", job)
        nodes.wait(lambda: not nodes.at[0].running(), "scancel does not end it")
        print(f"scancel: {time.monotonic() - start:.2f} s", flush=True)
        nodes.wait(lambda: not any(workers_on(hosts, host)
                                   for host in range(3)), "ranks are left", 10)
    with tempfile.TemporaryDirectory() as folder:
        with srun(program, "--nproc-per-node=1", sys.argv[2], folder, "1",
                  "240", "0") as nodes:
            nodes.finish([0], 0, 60)
            require_all_seen(nodes, [0], 6)
    slurm.stop()


def under_mpirun(program):
    """So does mpirun; it has to be told where the first node is."""
    if not shutil.which("mpirun") or "Open MPI" not in command(
            "mpirun", "--version"):
        print("[skipped] there is no Open MPI")
        return
    hosts = Hosts(3)
    agent = "/dev/shm/remote_agent.sh"
    command("ln", "-s", os.path.join(
        os.path.dirname(os.path.realpath(__file__)), "remote_agent.sh"), agent)
    with Nodes(program, hosts, []) as nodes:
        process = Process(
            hosts.on(0) +
            ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent,
             "--mca", "orte_tmpdir_base", "/dev/shm", "--host",
             "n0:1,n1:1,n2:1", "-x", "MASTER_ADDR=n0", "-x", "DDP_TOKEN",
             program, "--nproc-per-node=2", "bash", "-c", WORKER],
            {"HOLDERS": " ".join(map(str, hosts.holders)),
             "DDP_TOKEN": "secret", "TMPDIR": f"{nodes.folder.name}/tmp"})
        nodes.job.processes.append(process)
        nodes.at = {0: process}
        nodes.wait_for_ranks(6, [0])
        os.kill(workers_on(hosts, 1)[0], signal.SIGKILL)
        nodes.finish([0], 137, 10)
        nodes.wait(lambda: not any(workers_on(hosts, host)
                                   for host in range(3)), "ranks are left", 10)


class Soak:
    """One training under random faults: ranks and hosts die, cables are cut,
    nodes leave; whatever ended is started again, as a scheduler would."""

    HOSTS = range(4)

    def __init__(self, program, hosts, random):
        options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1",
                   "--grace=3", "--max-restarts=1000",
                   f"--rdzv-endpoint=n0:{PORT},n1,n2,n3"]
        self.nodes = Nodes(program, hosts, options)
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
            process.process.kill()
        elif what == "leave":
            process.process.terminate()
        elif what in ("crash", "cut"):
            crash(self.hosts, host) if what == "crash" else \
                self.hosts.cut(host)
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
    hosts = Hosts(4)
    rounds = 0
    while time.monotonic() < end:
        print(f"seed {seed}: ", end="", flush=True)
        job = Soak(program, hosts, random.Random(seed))
        with job.nodes:
            job.run(300)
        seed += 1
        rounds += 1
    print(f"{rounds} trainings ended right", flush=True)


def trained(nodes, hosts, what="did"):
    """What ranks on these hosts say: (rank, world size, pid, step) each."""
    pattern = re.compile(rf"rank (\d+) of (\d+) pid (\d+) {what} step (\d+)\.")
    return [tuple(map(int, found)) for host in hosts
            for found in pattern.findall(nodes.at[host].text())]


def pause_of(nodes, host, before, after):
    """Seconds between a rank's last step in one group and its first in the
    next."""
    def times(size):
        return [int(ms) for ms in re.findall(
            rf"of {size} pid \d+ did step \d+\. (\d+)", nodes.at[host].text())]
    return (times(after)[0] - times(before)[-1]) / 1e3


def pids_of(nodes, hosts, world_size):
    return {pid for _, size, pid, _ in trained(nodes, hosts)
            if size == world_size}


def wait_for_steps(nodes, hosts, world_size, seconds=40):
    """Until these hosts have done some steps in a job of that size."""
    def steps(host):
        return {step for _, size, _, step in trained(nodes, [host])
                if size == world_size}
    nodes.wait(lambda: all(len(steps(host)) >= 5 for host in hosts),
               f"no progress with {world_size} ranks", seconds)


def start_training(nodes, hosts, samples=960):
    words = [sys.argv[2], "2", str(samples), "20"]
    for host in hosts:
        nodes.start(host, words=words)


def require_same_processes(nodes, hosts, before, after):
    pids = pids_of(nodes, hosts, before)
    nodes.wait(lambda: pids_of(nodes, hosts, after) == pids,
               f"other processes than {pids}")


def in_process_join(program):
    """Nodes join: the ranks of the others go on from the same step, in the
    same processes, and nothing is done twice."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        start_training(nodes, (0, 1))
        wait_for_steps(nodes, (0, 1), 2)
        for newcomer in (2, 3):
            old = range(newcomer)
            begin = time.monotonic()
            start_training(nodes, [newcomer])
            nodes.wait(lambda: pids_of(nodes, [newcomer], newcomer + 1),
                       f"n{newcomer} takes no part", 40)
            print(f"n{newcomer} trained after {time.monotonic() - begin:.2f} "
                  "s", flush=True)
            wait_for_steps(nodes, range(newcomer + 1), newcomer + 1)
            require_same_processes(nodes, old, newcomer, newcomer + 1)
            pause = pause_of(nodes, 0, newcomer, newcomer + 1)
            print(f"n0 paused for {pause:.2f} s", flush=True)
            last = {max(step for _, size, _, step in trained(nodes, [host])
                        if size == newcomer) for host in old}
            first = {step for _, size, _, step in
                     trained(nodes, range(newcomer + 1), "goes on from")
                     if size == newcomer + 1}
            nodes.require(first == last and len(first) == 1,
                          f"went on from {first} after {last}")
        nodes.finish(range(4), 0, 60)
        require_all_seen(nodes, range(4), 16)
        require_nothing_left(nodes, range(4))


def in_process_loss(program):
    """One host crashes and one is cut off: the others go on in the same
    processes, and every sample counts once."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1",
               "--grace=5"]
    with Nodes(program, hosts, options) as nodes:
        start_training(nodes, range(4))
        wait_for_steps(nodes, range(4), 4)
        for lost, left in ((2, (0, 1, 3)), (3, (0, 1))):
            begin = time.monotonic()
            if lost == 2:
                crash(hosts, lost)
            else:
                hosts.cut(lost)
            nodes.wait(lambda: pids_of(nodes, left, len(left)),
                       "the others do not go on", 40)
            print(f"went on without n{lost} after "
                  f"{time.monotonic() - begin:.2f} s", flush=True)
            wait_for_steps(nodes, left, len(left))
            require_same_processes(nodes, left, 4, len(left))
        nodes.finish([3], 75, 30)
        nodes.finish((0, 1), 0, 60)
        require_all_seen(nodes, (0, 1), 16)
        require_nothing_left(nodes, range(4), crashed=1)


def in_process_lost_first_node(program):
    """The host of the rendezvous and of the ranks' store crashes, and with it
    rank 0."""
    hosts = Hosts(3)
    options = ["--nnodes=2:3", "--node-timeout=3", "--last-call=1",
               "--grace=5"]
    with Nodes(program, hosts, options) as nodes:
        start_training(nodes, range(3))
        wait_for_steps(nodes, range(3), 3)
        begin = time.monotonic()
        crash(hosts, 0)
        nodes.wait(lambda: pids_of(nodes, (1, 2), 2),
                   "the others do not go on", 40)
        print(f"went on after {time.monotonic() - begin:.2f} s", flush=True)
        require_same_processes(nodes, (1, 2), 3, 2)
        nodes.require("[0] rank 0 of 2" in nodes.at[1].text(),
                      "n1's rank has its old number")
        nodes.finish((1, 2), 0, 60)
        require_all_seen(nodes, (1, 2), 16)
        require_nothing_left(nodes, range(3), crashed=1)


def in_process_failure(program):
    """A rank is killed: those of its node are started again and get the state
    of the others, which live on."""
    hosts = Hosts(2)
    options = ["--nnodes=2", "--max-restarts=1", "--nproc-per-node=2"]
    with Nodes(program, hosts, options) as nodes:
        start_training(nodes, (0, 1))
        wait_for_steps(nodes, (0, 1), 4)
        before = [pids_of(nodes, [host], 4) for host in (0, 1)]
        begin = time.monotonic()
        os.kill(min(before[1]), signal.SIGKILL)
        nodes.wait(lambda: pids_of(nodes, [1], 4) > before[1],
                   "n1 does not go on", 40)
        print(f"went on after {time.monotonic() - begin:.2f} s", flush=True)
        nodes.finish((0, 1), 0, 60)
        after = [pids_of(nodes, [host], 4) for host in (0, 1)]
        nodes.require(after[0] == before[0] and
                      len(after[1] - before[1]) == 2,
                      f"processes were {before}, are {after}")
        require_all_seen(nodes, (0, 1), 16)
        require_nothing_left(nodes, range(2))


def in_process_losses(program):
    """Nodes are lost while the others form a group without the one before,
    and while a job has to wait for nodes; Ctrl-C ends such a wait."""
    hosts = Hosts(5)
    options = ["--nnodes=2:5", "--node-timeout=3", "--last-call=1",
               "--grace=5"]
    with Nodes(program, hosts, options) as nodes:
        start_training(nodes, range(5), samples=9600)
        wait_for_steps(nodes, range(5), 5)
        crash(hosts, 4)
        nodes.wait(lambda: "n4 was not heard" in nodes.at[0].text(),
                   "the loss of n4 was not noticed", 10)
        crash(hosts, 3)
        begin = time.monotonic()
        nodes.wait(lambda: pids_of(nodes, (0, 1, 2), 3),
                   "the others do not go on", 60)
        print(f"went on after {time.monotonic() - begin:.2f} s", flush=True)
        require_same_processes(nodes, (0, 1, 2), 5, 3)
        nodes.at[2].process.send_signal(signal.SIGTERM)
        nodes.finish([2], 143, 10)
        nodes.wait(lambda: pids_of(nodes, (0, 1), 2), "no progress", 20)
        require_same_processes(nodes, (0, 1), 5, 2)
        nodes.at[1].process.send_signal(signal.SIGTERM)
        nodes.finish([1], 143, 10)
        nodes.wait(lambda: "1 of 2 to 5 joined" in nodes.at[0].text(),
                   "n0 does not wait for nodes", 20)
        nodes.at[0].process.send_signal(signal.SIGINT)
        seconds = nodes.finish([0], 130, 10)
        print(f"ended after {seconds:.2f} s", flush=True)
        require_nothing_left(nodes, range(5), crashed=2)


def main():
    enter_namespaces()
    program, _, case = sys.argv[1:]
    globals()[case](program)


main()
