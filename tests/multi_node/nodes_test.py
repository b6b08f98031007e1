#!/usr/bin/env python3
"""ddprun on several hosts: jobs that start, fail, and get new nodes.

Usage: nodes_test.py DDPRUN TRAINER CASE, with a function of this file or of
those that it imports.
"""

import os
import re
import signal
import sys
import time

import failure_cases
import in_process_cases
import loss_cases
import mistake_cases
import network_cases
import remote_cases
import scheduler_cases
import soak
from hosts import Hosts, enter_namespaces
from job import Process
from nodes import (PORT, WORKER, Nodes, crash, require_nothing_left,
                   workers_on)
from training import require_all_seen, step_of, trainer


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
        seconds = nodes.interrupt(1, range(4), 5)
        print(f"ended in {seconds:.2f} s", flush=True)
        require_nothing_left(nodes, range(4))


def failed_rank(program):
    """All stop, and end with the rank's code and its report."""
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
        nodes.start_all(range(3))
        for restart in (1, 2):
            start = time.monotonic()
            os.kill(workers_on(hosts, restart)[0], signal.SIGKILL)
            nodes.wait_for_ranks(3, range(3), restart)
            print(f"restarted in {time.monotonic() - start:.2f} s", flush=True)
        os.kill(workers_on(hosts, 0)[0], signal.SIGKILL)
        nodes.finish(range(3), 137, 5)
        require_nothing_left(nodes, range(3))


def interrupted_failure(program):
    """Ctrl-C while a failed job ends hides neither code nor report; a second
    one kills all, also where another node's came first."""
    hosts = Hosts(2)
    deaf = WORKER.replace("trap", "trap '' TERM HUP INT #")
    with Nodes(program, hosts, ["--nnodes=2", "--grace=60"]) as nodes:
        nodes.start(0, words=("bash", "-c", WORKER.replace("TERM", "TERM;"
                                                           "trap 'exit 5' USR1")))
        nodes.start(1, words=("bash", "-c", deaf))
        nodes.wait_for_ranks(2, range(2))
        os.kill(workers_on(hosts, 0)[0], signal.SIGUSR1)
        nodes.wait(lambda: "waiting for rank 1 to stop" in nodes.at[1].text(),
                   "n1 does not say whom it waits for")
        nodes.require("exited with code 5" in nodes.at[1].text(),
                      "nor why")
        for _ in range(2):
            nodes.at[0].process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        nodes.finish(range(2), 5, 3)
        for host in range(2):
            nodes.require("rank 0 (pid" in nodes.at[host].text() and
                          nodes.report(host)["exit_code"] == 5,
                          f"n{host} does not tell of rank 0")
        nodes.start_all(range(2), words=("bash", "-c", deaf))
        nodes.at[0].process.send_signal(signal.SIGHUP)
        for _ in range(2):
            time.sleep(0.5)
            nodes.at[1].process.send_signal(signal.SIGINT)
        nodes.finish(range(2), 129, 3)
        require_nothing_left(nodes, range(2))


def second_interrupt(program):
    """A second Ctrl-C on one node kills the ranks of all that take their
    time."""
    hosts = Hosts(3)
    slow = "trap '' TERM INT;" + WORKER.replace("trap", "true")
    with Nodes(program, hosts, ["--nnodes=3", "--grace=60"]) as nodes:
        nodes.start_all(range(3), words=("bash", "-c", slow))
        nodes.at[1].process.send_signal(signal.SIGINT)
        time.sleep(1)
        for host in range(3):
            nodes.require(nodes.at[host].running(), f"n{host} did not wait")
        seconds = nodes.interrupt(1, range(3), 3)
        print(f"killed in {seconds:.2f} s", flush=True)
        nodes.require("asked again to end the job; killing all ranks"
                      in nodes.at[2].text(), "n2 does not say why")
        require_nothing_left(nodes, range(3))


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
        nodes.interrupt(1, range(4), 10)
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
        nodes.start_all((1, 2, 3))
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


def jobs_at_a_server(program):
    """One job after another, by the same name: the second is not told how the
    first one ended."""
    hosts = Hosts(3)
    serving = Process(
        hosts.on(0) + [program, "--rdzv-server", f"--rdzv-endpoint=n0:{PORT}"],
        {})
    for code in (7, 0, 3):
        with Nodes(program, hosts,
                   ["--nnodes=2", "--rdzv-backend=server"]) as nodes:
            for host in (1, 2):
                nodes.start(host, words=(
                    "sh", "-c", f"echo job; sleep 0.5; exit {code}"))
            nodes.finish((1, 2), code, 15)
            for host in (1, 2):
                nodes.require("job" in nodes.at[host].text(),
                              f"n{host} ran nothing")
    # Nor do jobs last there that nobody is left to end.
    with Nodes(program, hosts, ["--nnodes=2", "--rdzv-backend=server",
                                "--node-timeout=2"]) as nodes:
        for end in ("killed", "cut off"):
            for host in (1, 2):
                nodes.start(host)
            nodes.wait_for_ranks(2, (1, 2))
            nodes.start(0)
            nodes.finish([0], 2, 10)  # while it runs, it takes no other
            for host in (1, 2):
                if end == "killed":
                    nodes.at[host].process.kill()
                else:
                    hosts.cut(host)
            nodes.finish((1, 2), -9 if end == "killed" else 75, 15)
            for host in (1, 2):
                hosts.mend(host)
                nodes.start(host)
            nodes.wait_for_ranks(2, (1, 2))
            nodes.interrupt(1, (1, 2), 5)
    serving.process.kill()


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


def main():
    enter_namespaces()
    program, _, case = sys.argv[1:]
    for cases in (failure_cases, in_process_cases, loss_cases, mistake_cases,
                  network_cases, remote_cases, scheduler_cases, soak,
                  sys.modules[__name__]):
        if hasattr(cases, case):
            getattr(cases, case)(program)
            return
    sys.exit(f"there is no case '{case}'")


main()
