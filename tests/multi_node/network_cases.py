"""ddprun on several hosts that are joined by a bad network: a hostile, a slow
or an odd one."""

import os
import shutil
import signal
import subprocess
import sys
import time

from hosts import Hosts, skip
from job import Process
from nodes import PORT, WORKER, Nodes, require_nothing_left, workers_on

FOLDER = os.path.dirname(os.path.realpath(__file__))


def end(nodes, hosts, seconds=5, others=()):
    """Ends the job by Ctrl-C on the last of the hosts: nothing is left."""
    took = nodes.interrupt(hosts[-1], hosts, seconds)
    print(f"ended in {took:.2f} s", flush=True)
    for process in others:
        process.process.kill()
        process.process.wait()
    require_nothing_left(nodes, hosts)


def restarted(nodes, victim, hosts, restart, seconds):
    """Kills a rank on `victim`: all run again within so many seconds."""
    start = time.monotonic()
    os.kill(workers_on(nodes.hosts, victim)[0], signal.SIGKILL)
    nodes.wait_for_ranks(len(hosts), hosts, restart, seconds)
    print(f"restarted in {time.monotonic() - start:.2f} s", flush=True)


def started(nodes, hosts, seconds):
    start = time.monotonic()
    nodes.start_all(hosts, seconds)
    print(f"started in {time.monotonic() - start:.2f} s", flush=True)


def helper(nodes, host, *words):
    process = Process(nodes.hosts.on(host) + list(words), {})
    nodes.job.processes.append(process)
    return process


def hostile_values(program):
    """Who reaches the store without the token changes nothing."""
    python = os.environ.get("DDP_PYTHON", "python3")
    finds_torch = "import importlib.util as u; assert u.find_spec('torch')"
    if subprocess.run([python, "-c", finds_torch],
                      capture_output=True).returncode != 0:
        skip("DDP_PYTHON names no Python that has torch")
    hosts = Hosts(4)
    options = ["--nnodes=2:3", "--node-timeout=2", "--last-call=0",
               "--max-restarts=1", "--rdzv-id=job"]
    with Nodes(program, hosts, options) as nodes:
        started(nodes, (0, 1), 20)
        before = [nodes.at[host].text() for host in (0, 1)]
        intruder = [python, f"{FOLDER}/intruder.py", hosts.address(0),
                    str(PORT), "job"]
        first = helper(nodes, 3, *intruder)
        nodes.wait(lambda: not first.running(), "the intruder is slow", 40)
        nodes.require("intruded" in first.text(), "the intruder was stopped")
        time.sleep(3)  # more than the node timeout
        nodes.require([nodes.at[host].text() for host in (0, 1)] == before,
                      "the intruder was heard")
        nodes.start(2)
        nodes.wait_for_ranks(3, range(3))
        restarted(nodes, 1, range(3), 1, 5)
        # Nor does a node come back because what it once said is said again.
        nodes.at[2].process.send_signal(signal.SIGTERM)
        nodes.finish([2], 143, 5)
        nodes.wait_for_ranks(2, (0, 1), 1)
        before = [nodes.at[host].text() for host in (0, 1)]
        again = helper(nodes, 3, *intruder)
        nodes.wait(lambda: not again.running(), "the intruder is slow", 40)
        time.sleep(1)
        nodes.require([nodes.at[host].text() for host in (0, 1)] == before,
                      "what is repeated is heard")
        # The same with the token is heard: it was not for its form.
        helper(nodes, 3, *intruder, "secret")
        nodes.wait(lambda: "stopped" in nodes.at[0].text().split(
            "restart 1")[-1], "not even a token helps")


def slow_network(program):
    """At 100 kbit/s a job starts, fails and ends as usual, and what a rank
    says of its failure arrives."""
    hosts = Hosts(3)
    for host in range(3):
        hosts.slow_down(host, 0.1, burst=2)
    last_words = f"seq 5000 | tail -n 200 >&2; echo {'x' * 4000} >&2; exit 7"
    worker = f"trap '{last_words}' USR1;" + WORKER
    with Nodes(program, hosts, ["--nnodes=3", "--max-restarts=1"]) as nodes:
        start = time.monotonic()
        nodes.start_all(range(3), words=("bash", "-c", worker), seconds=15)
        print(f"started in {time.monotonic() - start:.2f} s", flush=True)
        restarted(nodes, 1, range(3), 1, 5)
        os.kill(workers_on(hosts, 2)[0], signal.SIGUSR1)
        seconds = nodes.finish(range(3), 7, 10)
        print(f"failed in {seconds:.2f} s", flush=True)
        for host in range(3):
            nodes.require("x" * 1000 in nodes.at[host].text(),
                          f"n{host} does not say why")
        require_nothing_left(nodes, range(3))


def delayed_network(program):
    """Delays and stalls make no node lost at the default timeout, and what
    happens crosses them."""
    hosts = Hosts(3)
    hosts.set_names(1, f"{hosts.address(1)} n1", f"{hosts.address(2)} n0")
    options = ["--nnodes=1:2", "--max-restarts=2"]
    with Nodes(program, hosts, options) as nodes:
        proxy = helper(nodes, 2, sys.executable, f"{FOLDER}/slow_proxy.py",
                       hosts.address(2), str(PORT), hosts.address(0), "0.2",
                       "2")
        nodes.wait(lambda: "listening" in proxy.text(), "there is no proxy")
        started(nodes, (0, 1), 30)
        restarted(nodes, 1, (0, 1), 1, 15)
        nodes.wait(lambda: proxy.text().count("stalled") >= 3,
                   "the proxy does not stall", 40)
        restarted(nodes, 0, (0, 1), 2, 15)
        for host in (0, 1):
            nodes.require("was not heard" not in nodes.at[host].text(),
                          "a node is called lost")
        end(nodes, (0, 1), 20, [proxy])


def delayed_leave(program):
    """The rendezvous' host leaves politely; the other reads that over a delay,
    and goes on though it is half of the nodes and not the first."""
    hosts = Hosts(3)
    hosts.set_names(1, f"{hosts.address(1)} n1", f"{hosts.address(2)} n0")
    with Nodes(program, hosts, ["--nnodes=1:2", "--last-call=3"]) as nodes:
        proxy = helper(nodes, 2, sys.executable, f"{FOLDER}/slow_proxy.py",
                       hosts.address(2), str(PORT), hosts.address(0), "0.1",
                       "0")
        nodes.wait(lambda: "listening" in proxy.text(), "there is no proxy")
        started(nodes, (0, 1), 20)
        nodes.at[0].process.send_signal(signal.SIGTERM)
        nodes.finish([0], 143, 5)
        nodes.wait_for_ranks(1, [1])
        end(nodes, [1], 5, [proxy])


def ipv6(program):
    """Hosts without IPv4 meet at an address, and by a name."""
    hosts = Hosts(3, ipv6=True)
    for endpoint in (f"[{hosts.address(0)}]:{PORT}", f"n0:{PORT}"):
        options = ["--nnodes=3", "--max-restarts=1",
                   f"--rdzv-endpoint={endpoint}"]
        with Nodes(program, hosts, options) as nodes:
            started(nodes, range(3), 10)
            nodes.require(f"store {hosts.address(0)}." in
                          nodes.at[2].text(), "ranks meet elsewhere")
            restarted(nodes, 1, range(3), 1, 5)
            end(nodes, range(3))


def own_name_is_loopback(program):
    """A host that knows itself as 127.0.1.1 serves the endpoint to others."""
    hosts = Hosts(3)
    hosts.set_names(0, "127.0.1.1 n0", f"{hosts.address(1)} n1")
    with Nodes(program, hosts, ["--nnodes=3", "--max-restarts=1"]) as nodes:
        started(nodes, range(3), 10)
        nodes.require(f"store {hosts.address(0)}." in nodes.at[2].text(),
                      "ranks meet elsewhere")
        restarted(nodes, 2, range(3), 1, 5)
        end(nodes, range(3))


def all_addresses(program):
    """Nodes that listen at all of their addresses tell others one."""
    hosts = Hosts(2)
    options = ["--nnodes=2", "--max-restarts=1", "--bind=0.0.0.0"]
    with Nodes(program, hosts, options) as nodes:
        started(nodes, range(2), 10)
        nodes.require(f"store {hosts.address(0)}." in nodes.at[1].text(),
                      "ranks meet elsewhere")
        restarted(nodes, 1, range(2), 1, 5)
        end(nodes, range(2))


def two_networks(program):
    """The endpoint has two addresses, of which one node cannot reach the
    first; its host prefers the other one, or is told to listen at both."""
    hosts = Hosts(3, networks=2)
    hosts.cut(2, network=1)
    at_both = ["--bind=0.0.0.0", f"--local-addr={hosts.address(0)}"]
    for own_order, options in (((0, 1), []), ((1, 0), at_both)):
        for host, order in enumerate((own_order, (1, 0), (1, 0))):
            hosts.set_names(host, *(f"{hosts.address(0, network)} n0"
                                    for network in order))
        common = ["--nnodes=3", "--max-restarts=1"]
        with Nodes(program, hosts, common) as nodes:
            start = time.monotonic()
            for host in range(3):
                nodes.start(host, *(options if host == 0 else []))
            nodes.wait_for_ranks(3, range(3), seconds=10)
            print(f"started in {time.monotonic() - start:.2f} s", flush=True)
            restarted(nodes, 2, range(3), 1, 5)
            end(nodes, range(3))


def different_clocks(program):
    """An elastic job on hosts whose clocks are minutes apart: one joins, a
    rank fails, and the report's times are right."""
    hosts = Hosts(3)
    library = "/dev/shm/libclock_shift.so"  # a path without spaces
    shutil.copy(f"{os.path.dirname(sys.argv[2])}/libclock_shift.so", library)
    options = ["--nnodes=1:3", "--last-call=1", "--max-restarts=1"]
    with Nodes(program, hosts, options) as nodes:
        begin = time.time()
        nodes.start(0)
        nodes.start(1, LD_PRELOAD=library, CLOCK_SHIFT="60")
        nodes.wait_for_ranks(2, (0, 1))
        nodes.start(2, LD_PRELOAD=library, CLOCK_SHIFT="-60")
        nodes.wait_for_ranks(3, range(3))
        restarted(nodes, 2, range(3), 1, 5)
        os.kill(workers_on(hosts, 1)[0], signal.SIGKILL)
        nodes.finish(range(3), 137, 5)
        seconds = time.time() - begin
        for host, shift in ((0, 0), (1, 60), (2, -60)):
            report = nodes.report(host)
            nodes.require(0 < report["duration_s"] < seconds,
                          f"n{host}: {report['duration_s']} s")
            for rank in report["ranks"]:
                at = rank["time_ns"] / 1e9 - shift
                nodes.require(begin < at < begin + seconds and
                              0 < rank["duration_s"] < seconds,
                              f"n{host}: {rank}")
        require_nothing_left(nodes, range(3))
