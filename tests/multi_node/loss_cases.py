"""ddprun on several hosts of which some are lost."""

import os
import signal
import time

from hosts import Hosts
from nodes import (PORT, QUICK, WORKER, Nodes, agents_on, name_of, on_hosts,
                   processes_on, workers_on)


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
    nodes.require_said("node n2 was not heard for 3.0 s", 0, 1)


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
    nodes.require(went_on < 7, f"the others took {went_on} s")
    nodes.interrupt(0, range(3), 10)


@on_hosts(4, "--nnodes=2:4" + QUICK)
def lost_first_node(nodes):
    """The host of the rendezvous dies: the others go on without it, and
    without the next one."""
    nodes.start_all(range(4))
    for host in (0, 1):
        nodes.crash(host)
        nodes.wait_for_ranks(3 - host, range(host + 1, 4))
    nodes.interrupt(2, (2, 3), 10)


@on_hosts(3, "--nnodes=2 --node-timeout=3")
def next_job(nodes):
    """A node of the next job comes while the last one's rendezvous waits for a
    node that has not read how it ended."""
    flag = f"{nodes.folder.name}/flag"
    nodes.start(0, script=f"until test -e {flag}; do sleep 0.05; done")
    nodes.start(1, script="echo done")
    nodes.wait_for("done", 1)
    time.sleep(0.5)  # its ddprun tells that
    nodes.hosts.cut(1)
    open(flag, "w").close()
    nodes.wait(lambda: not workers_on(nodes.hosts, 0), "n0 does not finish")
    nodes.start(2)
    nodes.finish([0], 0, 10)
    nodes.start(0)
    nodes.wait_for_ranks(2, (0, 2))
    nodes.interrupt(2, (0, 2))
    nodes.finish([1], 75, 20)


LAST_OF_THREE = "rank 2 of 3 local 0 of 1 node 2 of 3"


@on_hosts(4, f"--nnodes=2:4 --rdzv-endpoint=n0:{PORT},n1,n2,n3" + QUICK)
def first_node_comes_back(nodes):
    """A restarted first node, and a new one, find where the job went on."""
    nodes.start_all(range(3))
    nodes.crash(0)
    nodes.wait_for_ranks(2, (1, 2))
    nodes.hosts.mend(0)
    nodes.start(0)
    nodes.wait_for(LAST_OF_THREE, 0)
    nodes.start(3)
    nodes.wait_for_ranks(4, range(4))
    nodes.interrupt(3, range(4), 10)
    nodes.require_nothing_left()
    # The same while connections of that job still hold the port on n1.
    nodes.start_all(range(3))
    nodes.send(0, signal.SIGKILL)
    nodes.wait_for_ranks(2, (1, 2))
    nodes.start(0)
    nodes.wait_for(LAST_OF_THREE, 0)
    nodes.interrupt(2, range(3), 10)


@on_hosts(3, "--nnodes=2 --max-restarts=1 --node-timeout=3")
def moved_endpoint(nodes):
    """Where a job of one endpoint goes on without its first node, it says
    where others join."""
    nodes.start_all(range(2))
    nodes.leave(0)
    said = "others join at --rdzv-endpoint "
    nodes.wait_for(said, 1)
    endpoint = nodes.at[1].text().split(said)[1].split()[0]
    nodes.start(2, f"--rdzv-endpoint={endpoint}")
    nodes.wait_for_ranks(2, (1, 2))
    nodes.interrupt(2, (1, 2))


def first_node_begins_again(program):
    """Where the only endpoint's host is lost and started again, it is told
    where the job went on, and takes part there; other nodes as well."""
    hosts = Hosts(4)
    for options in ("--nnodes=1:4" + QUICK,
                    "--nnodes=3 --max-restarts=1 --node-timeout=3"):
        with Nodes(program, hosts, options) as nodes:
            nodes.start_all(range(3))
            nodes.send(0, signal.SIGKILL)
            nodes.wait_for("others join at --rdzv-endpoint", 1)
            nodes.start(0)
            nodes.wait_for(LAST_OF_THREE, 0)
            count = 3
            if "--nnodes=3" not in options:
                nodes.send(0, signal.SIGKILL)
                nodes.wait(lambda: nodes.at[1].text().count("2 on 2 nodes") ==
                           2, "the job does not go on")
                nodes.start(3)  # waits for the endpoint, which is gone
                time.sleep(1)
                nodes.start(0)
                nodes.wait_for_ranks(4, range(4))
                count = 4
            # Now that n0 is there, it tells others.
            nodes.send(2, signal.SIGKILL)
            nodes.wait_for("the ddprun of node n2 died", 0)
            nodes.start(2)
            nodes.wait_for(f"of {count} local 0 of 1", 2)
            # And where the job goes on once more.
            nodes.send(1, signal.SIGKILL)
            nodes.wait_for("node n1 served it", 2)
            nodes.start(1)
            nodes.wait_for(f"of {count} local 0 of 1", 1)
            nodes.interrupt(2, range(count), 10)
