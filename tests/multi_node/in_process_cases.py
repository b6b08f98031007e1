"""Programs that use ddp::elastic: their processes outlive changes of nodes."""

import os
import re
import signal
import sys

import etcd_cases
from etcd_cases import with_etcd
from nodes import QUICK, command_of, on_hosts, processes_on
from training import require_all_seen


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
    words = [sys.argv[2], "-", "2", str(samples), "20"]
    for host in hosts:
        nodes.start(host, words=words)


def wait_for_same_processes(nodes, hosts, before, seconds=40):
    """Until the processes of these hosts have done a step in a job of theirs
    alone; `before` it was of so many ranks."""
    def pids(size):
        return pids_of(nodes, hosts, size)
    nodes.wait(lambda: pids(len(hosts)), "they do not go on", seconds)
    nodes.wait(lambda: pids(len(hosts)) == pids(before),
               f"other processes than {pids(before)}")
    epochs = [re.findall(r"epoch \w+:(\d+)\.", nodes.at[host].text())
              for host in hosts]
    nodes.require(all(len(own) == len(set(own)) > 1 for own in epochs),
                  f"ranks are told the same epoch again: {epochs}")
    nodes.require(len({own[-1] for own in epochs}) == 1,
                  f"ranks are told different epochs: {epochs}")


@on_hosts(4, "--nnodes=2:4" + QUICK)
def in_process_join(nodes):
    """Nodes join: the ranks of the others go on from the same step, in the
    same processes, and nothing is done twice."""
    start_training(nodes, (0, 1))
    wait_for_steps(nodes, (0, 1), 2)
    for newcomer in (2, 3):
        old = range(newcomer)
        start_training(nodes, [newcomer])
        wait_for_steps(nodes, range(newcomer + 1), newcomer + 1)
        pids = pids_of(nodes, old, newcomer)
        nodes.wait(lambda: pids_of(nodes, old, newcomer + 1) == pids,
                   f"other processes than {pids}")
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


@on_hosts(4, "--nnodes=2:4 --grace=5" + QUICK)
def in_process_loss(nodes):
    """One host crashes and one is cut off: the others go on in the same
    processes, and every sample counts once."""
    start_training(nodes, range(4))
    wait_for_steps(nodes, range(4), 4)
    for lose, lost, left in ((nodes.crash, 2, (0, 1, 3)),
                             (nodes.hosts.cut, 3, (0, 1))):
        lose(lost)
        wait_for_same_processes(nodes, left, 4)
        wait_for_steps(nodes, left, len(left))
    nodes.finish([3], 75, 30)
    nodes.finish((0, 1), 0, 60)
    require_all_seen(nodes, (0, 1), 16)


@with_etcd(3, (0, 1, 2), "--nnodes=2:3 --grace=5" + etcd_cases.QUICK)
def in_process_lost_first_node(nodes, _etcd):
    """The host of a member of the etcd and of the ranks' store crashes, and
    with it rank 0."""
    start_training(nodes, range(3))
    wait_for_steps(nodes, range(3), 3)
    nodes.crash(0)
    wait_for_same_processes(nodes, (1, 2), 3)
    nodes.require_said("[0] rank 0 of 2", 1)
    nodes.finish((1, 2), 0, 60)
    require_all_seen(nodes, (1, 2), 16)


@on_hosts(2, "--nnodes=2 --max-restarts=1 --nproc-per-node=2")
def in_process_failure(nodes):
    """A rank is killed: those of its node are started again and get the state
    of the others, which live on."""
    start_training(nodes, (0, 1))
    wait_for_steps(nodes, (0, 1), 4)
    before = [pids_of(nodes, [host], 4) for host in (0, 1)]
    os.kill(min(before[1]), signal.SIGKILL)
    nodes.wait(lambda: pids_of(nodes, [1], 4) > before[1],
               "n1 does not go on", 40)
    nodes.finish((0, 1), 0, 60)
    after = [pids_of(nodes, [host], 4) for host in (0, 1)]
    nodes.require(after[0] == before[0] and len(after[1] - before[1]) == 2,
                  f"processes were {before}, are {after}")
    require_all_seen(nodes, (0, 1), 16)


def trainers_on(nodes, host):
    return [pid for pid in processes_on(nodes.hosts, host)
            if command_of(pid)[:1] == [sys.argv[2]]]


@on_hosts(3, "--nnodes=2:3 --max-restarts=3 --grace=8" + QUICK)
def in_process_failure_of_both(nodes):
    """A rank dies while it pauses, and one of a new node while the first
    node's others are being ended, which takes all of --grace: they start
    together afterwards."""
    words = ["bash", "-c", "trap '' TERM; exec \"$0\" \"$@\"", sys.argv[2],
             "-", "2", "9600", "20"]
    nodes.start(0, "--nproc-per-node=2", words=words)
    nodes.start(1, words=words)
    wait_for_steps(nodes, (0, 1), 3)
    nodes.crash(1)
    nodes.wait_for("1 of 2 to 3 joined", 0)
    os.kill(trainers_on(nodes, 0)[0], signal.SIGKILL)
    nodes.start(2, words=words)
    nodes.wait(lambda: trainers_on(nodes, 2), "n2 has no rank")
    os.kill(trainers_on(nodes, 2)[0], signal.SIGKILL)
    wait_for_steps(nodes, [2], 3, 60)
    nodes.send(0, signal.SIGINT)
    nodes.interrupt(2, (0, 2), 20)


@on_hosts(5, "--nnodes=2:5 --grace=5" + QUICK)
def in_process_losses(nodes):
    """Nodes are lost while the others form a group without the one before,
    and while a job has to wait for nodes; Ctrl-C ends such a wait."""
    start_training(nodes, range(5), samples=9600)
    wait_for_steps(nodes, range(5), 5)
    nodes.crash(4)
    nodes.wait_for("n4 has not responded", 0, 10)
    nodes.crash(3)
    wait_for_same_processes(nodes, (0, 1, 2), 5, 60)
    nodes.leave(2, 10)
    wait_for_same_processes(nodes, (0, 1), 5)
    nodes.leave(1, 10)
    nodes.wait_for("1 of 2 to 5 joined", 0)
    nodes.interrupt(0, [0], 10)
