"""Programs that use ddp::elastic: their processes outlive changes of nodes."""

import os
import re
import signal
import sys
import time

from hosts import Hosts
from nodes import Nodes, crash, require_nothing_left
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
        seconds = nodes.interrupt(0, [0], 10)
        print(f"ended after {seconds:.2f} s", flush=True)
        require_nothing_left(nodes, range(5), crashed=2)
