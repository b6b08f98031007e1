"""ddprun on several hosts of which some are lost."""

import os
import signal
import time

from hosts import Hosts
from nodes import (PORT, WORKER, Nodes, crash, name_of, processes_on,
                   require_nothing_left, workers_on)


def killed_ddprun(program):
    """Others know at once that the agent, or all of a ddprun, was killed."""
    hosts = Hosts(3)
    options = ["--nnodes=1:3", "--last-call=1", "--node-timeout=60"]
    with Nodes(program, hosts, options) as nodes:
        # Children of ranks are swept by the front, or the agent.
        alone = WORKER.replace("sleep 1000 & wait", "exec sleep 1000")
        nodes.start_all(range(3), words=("bash", "-c", alone))
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
        nodes.wait_for_ranks(1, [0])  # long before the node's timeout
        print(f"agent and front: {time.monotonic() - start:.2f} s", flush=True)
        nodes.interrupt(0, [0], 5)
        require_nothing_left(nodes, range(3), crashed=1)


def still_agent(program):
    """An agent that stands still is as one that is lost; when it goes on, it
    ends."""
    hosts = Hosts(3)
    options = ["--nnodes=1:3", "--last-call=1", "--node-timeout=3"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start_all(range(3))
        agent = [pid for pid in processes_on(hosts, 2)
                 if name_of(pid) == "ddp-agent"][0]
        start = time.monotonic()
        os.kill(agent, signal.SIGSTOP)
        nodes.wait_for_ranks(2, (0, 1))
        print(f"noticed in {time.monotonic() - start:.2f} s", flush=True)
        os.kill(agent, signal.SIGCONT)
        nodes.finish([2], 75, 5)
        nodes.interrupt(0, (0, 1), 5)
        require_nothing_left(nodes, range(3))


def lost_node(program):
    """A job of a fixed size ends where a node is lost."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=3", "--node-timeout=3"]) as nodes:
        nodes.start_all(range(3))
        crash(hosts, 2)
        seconds = nodes.finish((0, 1), 75, 10)
        print(f"noticed in {seconds:.2f} s", flush=True)
        for host in (0, 1):
            nodes.require("node n2 was not heard for 3.0 s" in
                          nodes.at[host].text(), f"n{host} does not say why")
        require_nothing_left(nodes, range(3), crashed=1)


def cut_cable(program):
    """Both sides notice; the smaller one stops, the other goes on."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start_all(range(4))
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
        nodes.interrupt(0, range(3), 10)
        require_nothing_left(nodes, range(4))


def lost_first_node(program):
    """The host of the rendezvous dies: the others go on without it, and
    without the next one."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start_all(range(4))
        start = time.monotonic()
        crash(hosts, 0)
        nodes.wait_for_ranks(3, range(1, 4))
        print(f"went on after {time.monotonic() - start:.2f} s", flush=True)
        start = time.monotonic()
        crash(hosts, 1)
        nodes.wait_for_ranks(2, range(2, 4))
        print(f"went on after {time.monotonic() - start:.2f} s", flush=True)
        nodes.interrupt(2, (2, 3), 10)
        require_nothing_left(nodes, range(4), crashed=2)


def next_job(program):
    """A node of the next job comes while the last one's rendezvous waits for a
    node that has not read how it ended."""
    hosts = Hosts(3)
    with Nodes(program, hosts, ["--nnodes=2", "--node-timeout=3"]) as nodes:
        flag = f"{nodes.folder.name}/flag"
        nodes.start(0, words=("bash", "-c", f"until test -e {flag}; do "
                              "sleep 0.05; done"))
        nodes.start(1, words=("bash", "-c", "echo done"))
        nodes.wait(lambda: "done" in nodes.at[1].text(), "n1 does not run")
        time.sleep(0.5)  # its ddprun tells that
        hosts.cut(1)
        open(flag, "w").close()
        nodes.wait(lambda: not workers_on(hosts, 0), "n0 does not finish")
        nodes.start(2)
        nodes.finish([0], 0, 10)
        nodes.start(0)
        nodes.wait_for_ranks(2, (0, 2))
        nodes.interrupt(2, (0, 2), 5)
        nodes.finish([1], 75, 20)
        require_nothing_left(nodes, range(3))


def first_node_comes_back(program):
    """A restarted first node, and a new one, find where the job went on."""
    hosts = Hosts(4)
    options = ["--nnodes=2:4", "--node-timeout=3", "--last-call=1",
               f"--rdzv-endpoint=n0:{PORT},n1,n2,n3"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start_all(range(3))
        crash(hosts, 0)
        nodes.wait_for_ranks(2, (1, 2))
        hosts.mend(0)
        nodes.start(0)
        nodes.wait(lambda: "rank 2 of 3 local 0 of 1 node 2 of 3" in
                   nodes.at[0].text(), "n0 does not take part as the last")
        nodes.start(3)
        nodes.wait_for_ranks(4, range(4))
        nodes.interrupt(3, range(4), 10)
        require_nothing_left(nodes, range(4), crashed=1)
        # The same while connections of that job still hold the port on n1.
        nodes.start_all(range(3))
        nodes.at[0].process.kill()
        nodes.wait_for_ranks(2, (1, 2))
        nodes.start(0)
        nodes.wait(lambda: "rank 2 of 3 local 0 of 1 node 2 of 3" in
                   nodes.at[0].text(), "n0 begins a job of its own")
        nodes.interrupt(2, range(3), 10)


def moved_endpoint(program):
    """Where a job of one endpoint goes on without its first node, it says
    where others join."""
    hosts = Hosts(3)
    options = ["--nnodes=2", "--max-restarts=1", "--node-timeout=3"]
    with Nodes(program, hosts, options) as nodes:
        nodes.start_all(range(2))
        nodes.at[0].process.send_signal(signal.SIGTERM)
        nodes.finish([0], 143, 5)
        said = "others join at --rdzv-endpoint "
        nodes.wait(lambda: said in nodes.at[1].text(), "it does not say where")
        endpoint = nodes.at[1].text().split(said)[1].split()[0]
        nodes.start(2, f"--rdzv-endpoint={endpoint}")
        nodes.wait_for_ranks(2, (1, 2))
        nodes.interrupt(2, (1, 2), 5)
        require_nothing_left(nodes, range(3))


def first_node_begins_again(program):
    """Where the only endpoint's host is lost and started again, it is told
    where the job went on, and takes part there; other nodes as well."""
    hosts = Hosts(4)
    for options in (["--nnodes=1:4", "--last-call=1"],
                    ["--nnodes=3", "--max-restarts=1"]):
        with Nodes(program, hosts, [*options, "--node-timeout=3"]) as nodes:
            nodes.start_all(range(3))
            nodes.at[0].process.kill()
            nodes.wait(lambda: "others join at --rdzv-endpoint" in
                       nodes.at[1].text(), "the job does not go on")
            nodes.start(0)
            nodes.wait(lambda: "rank 2 of 3 local 0 of 1 node 2 of 3" in
                       nodes.at[0].text(), "n0 does not take part as the last")
            if "--nnodes=3" not in options:
                nodes.at[0].process.kill()
                nodes.wait(lambda: nodes.at[1].text().count("2 on 2 nodes") ==
                           2, "the job does not go on")
                nodes.start(3)  # waits for the endpoint, which is gone
                time.sleep(1)
                nodes.start(0)
                nodes.wait_for_ranks(4, range(4))
            # Now that n0 is there, it tells others.
            nodes.at[2].process.kill()
            nodes.wait(lambda: "the ddprun of node n2 died" in
                       nodes.at[0].text(), "n2 is not missed")
            nodes.start(2)
            count = 4 if 3 in nodes.at else 3
            nodes.wait(lambda: f"of {count} local 0 of 1" in
                       nodes.at[2].text(), "n2 does not find the job")
            # And where the job goes on once more.
            nodes.at[1].process.kill()
            nodes.wait(lambda: "node n1 served it" in nodes.at[2].text(),
                       "n1 is not missed")
            nodes.start(1)
            nodes.wait(lambda: f"of {count} local 0 of 1" in
                       nodes.at[1].text(), "n1 does not find the job")
            nodes.interrupt(2, range(count), 10)
            require_nothing_left(nodes, range(4))
