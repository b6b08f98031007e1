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

import etcd_cases
import in_process_cases
import loss_cases
import mistake_cases
import network_cases
import remote_cases
import scheduler_cases
import soak
from hosts import enter_namespaces
from nodes import PORT, QUICK, WORKER, on_hosts, workers_on
from training import require_all_seen, step_of, trainer


@on_hosts(4, "--nnodes=4")
def static_start(nodes):
    """Nodes with different numbers of ranks, in the order of --node-rank."""
    counts = [2, 1, 3, 1]
    for host in (3, 1, 0, 2):
        nodes.start(host, f"--nproc-per-node={counts[host]}",
                    f"--node-rank={host}")
    nodes.wait_for_ranks(7, range(4))
    first = 0
    for host, count in enumerate(counts):
        for local in range(count):
            nodes.require_said(
                f"rank {first} of 7 local {local} of {count} node {host} of 4 "
                "restart 0 store 10.9.0.1:", host)
            first += 1
    nodes.interrupt(1, range(4))


@on_hosts(2, "--nnodes=1:2 --node-timeout=3")
def joined_as_first(nodes):
    """A node runs alone after the last call, and another one joins, whose name
    sorts before its own."""
    nodes.hosts.command(1, "hostname", "b")
    with open("/etc/hosts", "a") as file:
        print(nodes.hosts.address(1), "b", file=file)
    start = time.monotonic()
    nodes.start_all([0], seconds=6)
    nodes.require(time.monotonic() > start + 2, "n0 did not wait for others")
    nodes.start(1)
    nodes.wait_for_ranks(2, range(2), seconds=6)
    nodes.interrupt(0, range(2))


def finishes_after(seconds):
    return WORKER.replace("sleep 1000", f"sleep {seconds}")


@on_hosts(2, "--nnodes=2")
def finished_later(nodes):
    """A node whose ranks have finished waits for the other node's."""
    nodes.start(0, script=finishes_after(1))
    nodes.start(1, script=finishes_after(6))
    nodes.wait_for_ranks(2, range(2))
    start = time.monotonic()
    nodes.finish(range(2), 0, 9)
    nodes.require(all(process.ended_at > start + 3
                      for process in nodes.at.values()), "one did not wait")


@on_hosts(2, "--nnodes=2")
def killed_after_others_finished(nodes):
    """The code of a rank that is killed is also that of a node whose ranks had
    finished."""
    nodes.start(0, script=finishes_after(1))
    nodes.start(1)
    nodes.wait_for_ranks(2, range(2))
    nodes.wait(lambda: not workers_on(nodes.hosts, 0), "n0's rank goes on")
    time.sleep(2)  # what n0's ddprun has to say is said
    nodes.kill_rank(1)
    nodes.finish(range(2), 137, 3)


@on_hosts(3, "--nnodes=3 --nproc-per-node=2")
def failed_rank(nodes):
    """All stop, and end with the rank's code and its report."""
    for host in range(3):
        nodes.start(host, script="trap 'date +%s%N; exit 3' USR1;" + WORKER)
    nodes.wait_for_ranks(6, range(3))
    start = time.time_ns()
    nodes.kill_rank(1)
    nodes.finish(range(3), 137, 5)
    nodes.require_said("node n1: ", 0, 2)
    nodes.require_said("killed by signal 9", 0, 1, 2)
    for host in range(3):
        text = nodes.at[host].text()
        stops = [int(ns) for ns in re.findall(r"stopped (\d+)\.", text)]
        nodes.require(len(stops) == (1 if host == 1 else 2),
                      f"{len(stops)} ranks of n{host} were stopped")
        slowest = (max(stops) - start) / 1e6
        print(f"n{host}: stopped after {slowest:.1f} ms", flush=True)
        report = nodes.report(host)
        nodes.require(report["exit_code"] == 137 and
                      report["outcome"] == "failed" and
                      [node["host"] for node in report["nodes"]] ==
                      ["n0", "n1", "n2"], f"report of n{host}: {report}")


@on_hosts(2, "--nnodes=2")
def slow_death(nodes):
    """The first failure is not what others die of sooner."""
    nodes.start(0, script="trap 'echo Connection closed by peer >&2; exit 1' "
                "USR1;" + WORKER)
    nodes.start(1, script=WORKER.replace("exit 143", "kill -SEGV $$"))
    nodes.wait_for_ranks(2, range(2))
    nodes.kill_rank(0, signal.SIGUSR1)
    nodes.finish(range(2), 139, 5)
    nodes.require_said("rank 1 (pid", 0, 1)
    nodes.require_said("signal 11", 0, 1)
    roots = [nodes.report(host)["root"] for host in range(2)]
    nodes.require(roots == [None, 1], f"the reports blame ranks {roots}")


@on_hosts(2, "--nnodes=2 --hang-timeout=2")
def hang(nodes):
    """A node whose rank is silent goes on while the other's rank moves; when
    both are silent, each node ends with the stack of its rank."""
    worker = f"{os.path.dirname(sys.argv[2])}/../launcher/launcher_test_worker"
    all_steps = (5, 250)  # of 20 ms
    for host, steps in enumerate(all_steps):
        nodes.start(host, words=[worker, "beat", "1", str(steps)])
    nodes.finish(range(2), 124, 40)
    for host, steps in enumerate(all_steps):
        nodes.require_said("no progress for 2.0 s (--hang-timeout); all ranks "
                           f"were ended\n  rank {host} (pid ", host)
        report = nodes.report(host)
        rank = report["ranks"][0]
        nodes.require(report["outcome"] == "timeout" and
                      rank["step"] == steps and
                      "net::forward()" in str(rank["stack"]),
                      f"report of n{host}: {report}")


@on_hosts(3, "--nnodes=3 --max-restarts=2")
def restarts(nodes):
    """All nodes count restarts alike, whichever node fails."""
    nodes.start_all(range(3))
    for restart in (1, 2):
        nodes.kill_rank(restart)
        nodes.wait_for_ranks(3, range(3), restart)
    nodes.kill_rank(0)
    nodes.finish(range(3), 137, 5)


@on_hosts(2, "--nnodes=2 --grace=60")
def interrupted_failure(nodes):
    """Ctrl-C while a failed job ends hides neither code nor report; a second
    one kills all, also where another node's came first."""
    deaf = WORKER.replace("trap", "trap '' TERM HUP INT #")
    nodes.start(0, script=WORKER.replace("TERM", "TERM; trap 'exit 5' USR1"))
    nodes.start(1, script=deaf)
    nodes.wait_for_ranks(2, range(2))
    nodes.kill_rank(0, signal.SIGUSR1)
    nodes.wait_for("waiting for rank 1 to stop", 1)
    nodes.require_said("exited with code 5", 1)
    for _ in range(2):
        nodes.send(0, signal.SIGINT)
        time.sleep(1)
    nodes.finish(range(2), 5, 3)
    nodes.require_said("rank 0 (pid", 0, 1)
    for host in range(2):
        nodes.require(nodes.report(host)["exit_code"] == 5,
                      f"n{host} does not report rank 0's code")
    nodes.start_all(range(2), script=deaf)
    nodes.send(0, signal.SIGHUP)
    for _ in range(2):
        time.sleep(1)
        nodes.send(1, signal.SIGINT)
    nodes.finish(range(2), 129, 3)


@on_hosts(3, "--nnodes=3 --grace=60")
def second_interrupt(nodes):
    """A second Ctrl-C on one node kills the ranks of all that take their
    time."""
    nodes.start_all(range(3), script="trap '' TERM INT;" +
                    WORKER.replace("trap", "true"))
    nodes.send(1, signal.SIGINT)
    time.sleep(1)
    for host in range(3):
        nodes.require(nodes.at[host].running(), f"n{host} did not wait")
    nodes.interrupt(1, range(3), 3)
    nodes.require_said("received a second request to end the job; "
                       "killing all ranks", 2)


@on_hosts(2, "--nnodes=2")
def interrupts_on_two_nodes(nodes):
    """Ctrl-C on each of two nodes, of which the second was being stopped, is
    the failure of no rank."""
    nodes.start_all(range(2), script="trap '' TERM;" +
                    WORKER.replace("trap", "true"))
    nodes.send(1, signal.SIGINT)
    nodes.wait_for("stopping all ranks", 1)
    time.sleep(0.5)  # n0 has asked its rank to end, which it did not
    nodes.interrupt(0, range(2), 10)
    nodes.require(nodes.report(0)["outcome"] == "stopped",
                  f"n0 reports {nodes.report(0)}")


@on_hosts(2, "--nnodes=2")
def still_reader(nodes):
    """A node whose output nobody reads ends with the code of the job."""
    fifo = f"{nodes.folder.name}/fifo"
    os.mkfifo(fifo)
    reader = nodes.beside(1, "sh", "-c", f"exec sleep 1000 <{fifo}")
    nodes.start(0, script="sleep 2; exit 3")
    nodes.at[1] = nodes.beside(
        1, "sh", "-c", f'exec "$0" "$@" >{fifo}', nodes.program,
        f"--rdzv-endpoint=n0:{PORT}", "--nnodes=2", "bash", "-c",
        "head -c 200000 /dev/zero; sleep 100", DDP_TOKEN="secret",
        OMP_NUM_THREADS="1", TMPDIR=f"{nodes.folder.name}/tmp")
    nodes.finish(range(2), 3, 30)
    reader.process.kill()
    reader.process.wait()


@on_hosts(4, "--nnodes=1:4" + QUICK)
def elastic(nodes):
    """Nodes come and go while the job runs; no restart is counted."""
    nodes.start_all([0])
    nodes.start(2, "--nproc-per-node=2")
    nodes.wait_for_ranks(3, (0, 2))
    nodes.start(1)
    nodes.start(3)
    nodes.wait_for_ranks(5, range(4))
    stay = (0, 1, 3)
    before = nodes.lengths(stay)
    nodes.leave(2, 5)
    nodes.wait_for_ranks(3, stay, after=before)
    before = nodes.lengths(stay)
    nodes.start(2, "--nproc-per-node=2")  # comes back
    nodes.wait_for_ranks(5, range(4), after=before)
    nodes.interrupt(1, range(4), 10)


@on_hosts(4, "--nnodes=2:4 --grace=5" + QUICK)
def training(nodes):
    """A training over gloo goes on while one node is lost and one comes."""
    words = trainer(nodes, 3, 960, 30)
    for host in range(3):
        nodes.start(host, words=words, DDP_BACKEND="gloo")
    nodes.wait(lambda: step_of(nodes, 0) >= 10, "no progress", 40)
    nodes.crash(2)
    before = step_of(nodes, 0)
    nodes.wait(lambda: step_of(nodes, 0) >= before + 10,
               "no progress without n2", 40)
    nodes.start(3, words=words, DDP_BACKEND="gloo")
    nodes.wait(lambda: "with 3 ranks" in
               nodes.at[0].text().split("has not responded")[-1],
               "n3 takes no part", 40)
    nodes.finish((0, 1, 3), 0, 90)
    require_all_seen(nodes, (0, 1, 3), 12)


def main():
    enter_namespaces()
    program, _, case = sys.argv[1:]
    for cases in (etcd_cases, in_process_cases, loss_cases, mistake_cases,
                  network_cases, remote_cases, scheduler_cases, soak,
                  sys.modules[__name__]):
        if hasattr(cases, case):
            getattr(cases, case)(program)
            return
    sys.exit(f"there is no case '{case}'")


main()
