"""ddprun on several hosts of which some are lost."""

import os
import signal
import time

from nodes import QUICK, WORKER, agents_on, name_of, on_hosts, processes_on


@on_hosts(3, "--nnodes=1:3 --last-call=1 --node-timeout=60")
def killed_ddprun(nodes):
    """Others know at once that the agent, or all of a ddprun, was killed."""
    # Children of ranks are swept by the front, or the agent.
    alone = WORKER.replace("sleep 1000 & wait", "exec sleep 1000")
    nodes.start_all(range(3), script=alone)
    os.kill(agents_on(nodes.hosts, 2)[0], signal.SIGKILL)
    nodes.wait_for_ranks(2, (0, 1))
    nodes.finish([2], 137, 5)
    nodes.require_said("the ddprun of node n2 died", 0)
    for pid in processes_on(nodes.hosts, 1):
        if name_of(pid) in ("ddp-agent", "ddprun"):
            os.kill(pid, signal.SIGKILL)
    nodes.crashed = 1
    nodes.wait_for_ranks(1, [0])  # long before the node's timeout
    nodes.interrupt(0, [0])


@on_hosts(3, "--nnodes=1:3" + QUICK)
def still_agent(nodes):
    """An agent that stands still is as one that is lost; when it goes on, it
    ends."""
    nodes.start_all(range(3))
    [agent] = agents_on(nodes.hosts, 2)
    os.kill(agent, signal.SIGSTOP)
    nodes.wait_for_ranks(2, (0, 1))
    os.kill(agent, signal.SIGCONT)
    nodes.finish([2], 75, 5)
    nodes.interrupt(0, (0, 1))


@on_hosts(3, "--nnodes=3 --node-timeout=3")
def lost_node(nodes):
    """A job of a fixed size ends where a node is lost."""
    nodes.start_all(range(3))
    nodes.crash(2)
    nodes.finish((0, 1), 75, 10)
    nodes.require_said("node n2 has not responded for 3.0 s", 0, 1)


@on_hosts(2, "--nnodes=2 --max-restarts=3 --node-timeout=3")
def node_lost(nodes):
    """With restarts left, it waits until there are as many nodes again."""
    nodes.start_all(range(2))
    start = time.monotonic()
    nodes.crash(1)
    nodes.wait_for("stopped", 0, 6)
    nodes.require(time.monotonic() > start + 1, "n1 was not waited for")
    nodes.hosts.mend(1)
    before = nodes.lengths([0])
    nodes.start(1)
    nodes.wait_for_ranks(2, range(2), seconds=6, after=before)
    nodes.interrupt(0, range(2))


@on_hosts(2, "--nnodes=1:2 --max-restarts=3 --node-timeout=3")
def launcher_on_a_killed(nodes):
    """The ddprun that serves the rendezvous is killed: the other one ends."""
    nodes.start_all(range(2))
    nodes.crashed = 1
    nodes.send(0, signal.SIGKILL)
    nodes.finish([1], 75, 20)


@on_hosts(4, "--nnodes=2:4" + QUICK)
def cut_cable(nodes):
    """Both sides notice; the smaller one stops, the other goes on."""
    nodes.start_all(range(4))
    nodes.hosts.cut(3)
    start = time.monotonic()
    nodes.wait_for("stopped", 3, 5)
    nodes.wait_for_ranks(3, range(3))
    went_on = time.monotonic() - start
    nodes.finish([3], 75, 25)  # after a search for the others
    nodes.require(1 < went_on < 7, f"the others took {went_on} s")
    nodes.interrupt(0, range(3), 10)


@on_hosts(4, "--nnodes=2:4" + QUICK)
def lost_first_node(nodes):
    """The host of the rendezvous dies: all end, and can begin anew."""
    nodes.start_all(range(4))
    nodes.crash(0)
    nodes.finish((1, 2, 3), 75, 10)
    nodes.require_said("node n0 served the rendezvous", 1, 2, 3)
    nodes.hosts.mend(0)
    nodes.start_all(range(4))
    nodes.leave(0)
    nodes.finish((1, 2, 3), 75, 5)
