"""ddprun on several hosts where users got something wrong: they are told what,
and no job is disturbed by it."""

import contextlib
import os
import re
import signal
import sys
import time

from hosts import Hosts
from nodes import PORT, Nodes, agents_on, on_hosts


def mistakes(program):
    """What does not belong to a job is told so, and does not disturb it."""
    hosts = Hosts(3)
    with Nodes(program, hosts, "--nnodes=2") as nodes:
        nodes.start(0)
        nodes.start(1, "--node-rank=1")
        nodes.wait_for_ranks(2, (0, 1))
        for options, said in (
                ([], r"has all its nodes \(n0, n1\) and accepts no other node"),
                (["--nnodes=3"], "--nnodes differs on node n[01]: "
                 "3 here, 2 there"),
                (["--max-restarts=1"], "--max-restarts differs on node"),
                (["--local-addr=nowhere"], "--local-addr nowhere: does not")):
            nodes.start(2, *options)
            nodes.finish([2], 2, 5)
            nodes.require(re.search(said, nodes.at[2].text()),
                          f"not said: {said}")
        nodes.require(nodes.at[0].running(), "the job was disturbed")
        nodes.interrupt(0, (0, 1))
    with Nodes(program, hosts, "--nnodes=3 --node-rank=1") as nodes:
        nodes.start(0)
        nodes.wait_for("1 of 3 joined", 0)
        nodes.start(1)
        nodes.finish([1], 2, 5)
        nodes.require_said("node n0 has the same --node-rank, 1", 1)
    with Nodes(program, hosts, "--nnodes=1:3 --last-call=1") as nodes:
        nodes.start_all([0])
        nodes.start(1, "--last-call=5")
        time.sleep(1)  # it waits to be taken in
        nodes.interrupt(1, [1])
        nodes.require(nodes.at[0].running(), "it ended the job")
    with Nodes(program, hosts, "--nnodes=2 --join-timeout=4") as nodes:
        nodes.start(0, f"--rdzv-endpoint=n2:{PORT}")
        nodes.finish([0], 124, 30)
        nodes.require_said(f"waiting for the rendezvous at n2:{PORT} (n2: "
                           "Connection refused)", 0)
        nodes.start(0, f"--rdzv-endpoint=nowhere:{PORT}")
        nodes.finish([0], 124, 30)
        nodes.require("name" in nodes.at[0].text().split("(nowhere: ")[1],
                      "the name is not doubted")


@on_hosts(2, "--nnodes=2")
def taken_port(nodes):
    """A port that is free a moment later costs that moment."""
    holder = nodes.beside(
        0, sys.executable, "-c", "import socket, time; s = socket."
        f"create_server(('10.9.0.1', {PORT})); time.sleep(6)")
    time.sleep(0.5)
    nodes.start(0)
    first = nodes.at[0]
    nodes.start(0, "--join-timeout=4")
    nodes.finish([0], 124, 30)
    nodes.require_said(
        "(n0: a process listens there, but does not answer; if it is another "
        "program, use another port)", 0)
    nodes.at[0] = first
    holder.process.wait()
    nodes.wait_for("1 of 2 joined (n0)", 0, 30)
    nodes.start(1)
    nodes.wait_for_ranks(2, range(2))
    nodes.interrupt(0, (0, 1))


@on_hosts(3, "--nnodes=2 --node-timeout=3")
def wrong_token(nodes):
    """A node with another token takes no part, and disturbs nobody."""
    nodes.start(0)
    nodes.start(2, "--join-timeout=12", DDP_TOKEN="another")
    nodes.finish([2], 2, 40)
    nodes.require_said("a node uses a different token", 2)
    nodes.wait_for("a node uses a different token", 0)
    nodes.start(1)
    nodes.wait_for_ranks(2, (0, 1))
    nodes.interrupt(1, (0, 1))


@on_hosts(2, "--nnodes=2 --join-timeout=7")
def missing_nodes(nodes):
    """What is waited for is said; Ctrl-C and the timeout end the wait."""
    nodes.start(0)
    nodes.start(1, f"--rdzv-endpoint=n0:{PORT + 1}")
    nodes.wait_for("1 of 2 joined (n0)", 0, 10)
    nodes.interrupt(1, [1], 2)
    nodes.finish([0], 124, 10)
    nodes.require_said("after 7.0 s still waiting for nodes", 0)


def missing_program(program):
    """A node without the program ends a job that needs it, with its code; in
    one that went on without a node, it does not take that place."""
    hosts = Hosts(3)
    said = "node n1: ./trainer: no such program"
    with Nodes(program, hosts, "--nnodes=3") as nodes:
        nodes.start(1, words=("./trainer",))
        nodes.wait_for("waiting for them", 1)
        nodes.start(0)
        nodes.start(2)
        nodes.finish(range(3), 127, 10)
        nodes.require_said(said, 0, 2)
        nodes.require(nodes.report(1)["exit_code"] == 127,
                      f"n1 reports {nodes.report(1)}")
    with Nodes(program, hosts, "--nnodes=2 --max-restarts=1") as nodes:
        nodes.start_all(range(2))
        nodes.leave(1)
        nodes.start(1, words=("./trainer",))
        nodes.finish([1], 127, 10)
        nodes.wait_for(said, 0)
        nodes.start(2)
        nodes.wait_for_ranks(2, (0, 2))
        nodes.interrupt(2, (0, 2))
    with Nodes(program, hosts,
               "--nnodes=1:2 --max-restarts=1 --last-call=1") as nodes:
        script = f"{nodes.folder.name}/script"
        with open(script, "w") as file:
            file.write("#!/no/such/interpreter\n")
        os.chmod(script, 0o755)
        nodes.start_all([0])
        before = nodes.lengths([0])
        nodes.start(1, words=(script,))
        nodes.finish([1], 127, 10)
        nodes.wait_for_ranks(1, [0], after=before)
        nodes.kill_rank(0)
        nodes.wait_for_ranks(1, [0], 1)
        nodes.kill_rank(0)
        nodes.finish([0], 137, 10)
        nodes.require(nodes.report(0)["restarts"] == 1,
                      f"n0 reports {nodes.report(0)}")


@on_hosts(3, "--nnodes=3")
def failure_at_once(nodes):
    """A rank fails while another node is about to start its own: that one
    learns of both at a time, as it is slow."""
    for _ in range(15):
        for host in range(3):
            nodes.start(host, words=["sleep", "60"] if host != 1 else
                        ["false"])
        deadline = time.monotonic() + 10
        while any(nodes.at[host].running() for host in range(3)):
            nodes.require(time.monotonic() < deadline, "it goes on")
            slow = agents_on(nodes.hosts, 2)
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in slow:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.03)
        nodes.finish(range(3), 1, 5)
