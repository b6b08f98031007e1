"""ddprun on several hosts that are joined by a bad network: a hostile, a slow
or an odd one."""

import os
import shutil
import signal
import subprocess
import sys
import time

from hosts import Hosts, skip
from nodes import PORT, WORKER, Nodes, on_hosts

FOLDER = os.path.dirname(os.path.realpath(__file__))


def meets_and_restarts(nodes, count, *options):
    """So many nodes, of which the first has the options, meet at its address;
    a rank of the last one is killed, upon which all run again."""
    hosts = list(range(count))
    for host in hosts:
        nodes.start(host, *(options if host == 0 else []))
    nodes.wait_for_ranks(count, hosts, seconds=10)
    nodes.require_said(f"store {nodes.hosts.address(0)}:", hosts[-1])
    nodes.kill_rank(hosts[-1])
    nodes.wait_for_ranks(count, hosts, 1, 5)
    nodes.interrupt(hosts[-1], hosts)


@on_hosts(4, "--nnodes=2:3 --node-timeout=2 --last-call=0 --max-restarts=1 "
          "--rdzv-id=job")
def hostile_values(nodes):
    """Who reaches the store without the token changes nothing."""
    python = os.environ.get("DDP_PYTHON", "python3")
    finds_torch = "import importlib.util as u; assert u.find_spec('torch')"
    if subprocess.run([python, "-c", finds_torch],
                      capture_output=True).returncode != 0:
        skip("DDP_PYTHON names no Python that has torch")

    def texts():
        return [nodes.at[host].text() for host in (0, 1)]

    def intrude(*token):
        return nodes.beside(3, python, f"{FOLDER}/intruder.py",
                            nodes.hosts.address(0), str(PORT), "job", *token)

    def intrude_in_vain():
        before = texts()
        intruder = intrude()
        nodes.wait(lambda: not intruder.running(), "the intruder is slow", 40)
        time.sleep(3)  # more than the node timeout
        nodes.require(texts() == before, "the intruder was heard")
        return intruder.text()

    nodes.start_all((0, 1))
    nodes.require("intruded" in intrude_in_vain(), "it was stopped")
    nodes.start(2)
    nodes.wait_for_ranks(3, range(3))
    nodes.kill_rank(1)
    nodes.wait_for_ranks(3, range(3), 1, 5)
    # Nor does a node come back because what it once said is said again.
    nodes.leave(2)
    nodes.wait_for_ranks(2, (0, 1), 1)
    intrude_in_vain()
    # The same with the token is heard: it was not for its form.
    intrude("secret")
    nodes.wait(lambda: "stopped" in texts()[0].split("restart 1")[-1],
               "not even a token helps")


@on_hosts(3, "--nnodes=3 --max-restarts=1")
def slow_network(nodes):
    """At 100 kbit/s a job starts, fails and ends as usual, and what a rank
    says of its failure arrives."""
    for host in range(3):
        nodes.hosts.slow_down(host, 0.1, burst=2)
    last_words = f"seq 5000 | tail -n 200 >&2; echo {'x' * 4000} >&2; exit 7"
    nodes.start_all(range(3), script=f"trap '{last_words}' USR1;" + WORKER,
                    seconds=15)
    nodes.kill_rank(1)
    nodes.wait_for_ranks(3, range(3), 1, 5)
    nodes.kill_rank(2, signal.SIGUSR1)
    nodes.finish(range(3), 7, 10)
    nodes.require_said("x" * 1000, 0, 1, 2)


def start_over_a_proxy(nodes, delay, stall):
    """Two nodes, of which the second one reaches the first over a delay."""
    hosts = nodes.hosts
    hosts.set_names(1, f"{hosts.address(1)} n1", f"{hosts.address(2)} n0")
    proxy = nodes.beside(2, sys.executable, f"{FOLDER}/slow_proxy.py",
                         hosts.address(2), str(PORT), hosts.address(0), delay,
                         stall)
    nodes.wait(lambda: "listening" in proxy.text(), "there is no proxy")
    nodes.start_all((0, 1), 30)
    return proxy


@on_hosts(3, "--nnodes=1:2 --max-restarts=2")
def delayed_network(nodes):
    """Delays and stalls make no node lost at the default timeout, and what
    happens crosses them."""
    proxy = start_over_a_proxy(nodes, "0.2", "2")
    nodes.kill_rank(1)
    nodes.wait_for_ranks(2, (0, 1), 1, 15)
    nodes.wait(lambda: proxy.text().count("stalled") >= 3,
               "the proxy does not stall", 40)
    nodes.kill_rank(0)
    nodes.wait_for_ranks(2, (0, 1), 2, 15)
    for host in (0, 1):
        nodes.require("has not responded" not in nodes.at[host].text(),
                      "a node is called lost")
    nodes.interrupt(1, (0, 1), 20)


@on_hosts(3, "--nnodes=1:2 --last-call=3")
def delayed_leave(nodes):
    """The rendezvous' host leaves politely; the other reads that over a delay,
    and says it."""
    start_over_a_proxy(nodes, "0.1", "0")
    nodes.leave(0)
    nodes.finish([1], 75, 10)
    nodes.require_said("node n0 was stopped by signal 15", 1)


def ipv6(program):
    """Hosts without IPv4 meet at an address, and by a name."""
    hosts = Hosts(3, ipv6=True)
    for endpoint in (f"[{hosts.address(0)}]:{PORT}", f"n0:{PORT}"):
        with Nodes(program, hosts, "--nnodes=3 --max-restarts=1 "
                   f"--rdzv-endpoint={endpoint}") as nodes:
            meets_and_restarts(nodes, 3)


@on_hosts(3, "--nnodes=3 --max-restarts=1")
def own_name_is_loopback(nodes):
    """A host that knows itself as 127.0.1.1 serves the endpoint to others."""
    nodes.hosts.set_names(0, "127.0.1.1 n0", f"{nodes.hosts.address(1)} n1")
    meets_and_restarts(nodes, 3)


@on_hosts(2, f"--nnodes=2 --rdzv-endpoint=train-0.train:{PORT}")
def late_own_name(nodes):
    """A host serves the endpoint although its name, like a pod's, resolves only
    some seconds after its start."""
    for host in range(2):
        nodes.start(host)
    nodes.wait_for("waiting for the rendezvous at train-0.train", 0)
    for host in range(2):
        nodes.hosts.set_names(
            host, f"{nodes.hosts.address(0)} n0 train-0.train",
            f"{nodes.hosts.address(1)} n1")
    nodes.wait_for_ranks(2, range(2), seconds=10)
    nodes.interrupt(0, range(2))


@on_hosts(4, "--nnodes=3 --max-restarts=1")
def mute_name_server(nodes):
    """A name server that never answers does not delay nodes of which others
    know no names."""
    nodes.hosts.serve_no_names(3)
    for host in range(3):
        nodes.hosts.ask_for_names(host, {0, host})
    meets_and_restarts(nodes, 3)


@on_hosts(2, "--nnodes=2 --max-restarts=1 --bind=0.0.0.0")
def all_addresses(nodes):
    """Nodes that listen at all of their addresses tell others one."""
    meets_and_restarts(nodes, 2)


def two_networks(program):
    """The endpoint has two addresses, of which one node cannot reach the
    first; its host prefers the other one, or is told to listen at both."""
    hosts = Hosts(3, networks=2)
    hosts.cut(2, network=1)
    at_both = ["--bind=0.0.0.0", f"--local-addr={hosts.address(0)}"]
    for own_order, options in (((0, 1), ()), ((1, 0), at_both)):
        for host, order in enumerate((own_order, (1, 0), (1, 0))):
            hosts.set_names(host, *(f"{hosts.address(0, network)} n0"
                                    for network in order))
        with Nodes(program, hosts, "--nnodes=3 --max-restarts=1") as nodes:
            meets_and_restarts(nodes, 3, *options)


def shift_clock(seconds):
    """The variables of a process whose clock goes ahead."""
    library = "/dev/shm/libclock_shift.so"  # a path without spaces
    if not os.path.exists(library):  # no process has it open
        shutil.copy(f"{os.path.dirname(sys.argv[2])}/libclock_shift.so",
                    library)
    return {"LD_PRELOAD": library, "CLOCK_SHIFT": str(seconds)}


@on_hosts(3, "--nnodes=1:3 --last-call=1 --max-restarts=1")
def different_clocks(nodes):
    """An elastic job on hosts whose clocks are minutes apart: one joins, a
    rank fails, and the report's times are right."""
    begin = time.time()
    nodes.start(0)
    nodes.start(1, **shift_clock(60))
    nodes.wait_for_ranks(2, (0, 1))
    nodes.start(2, **shift_clock(-60))
    nodes.wait_for_ranks(3, range(3))
    nodes.kill_rank(2)
    nodes.wait_for_ranks(3, range(3), 1, 5)
    nodes.kill_rank(1)
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
