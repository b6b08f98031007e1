#!/usr/bin/env python3
"""Jobs over several hosts: their results, their failures, their interfaces.

Usage: multi_node_test.py PROGRAM CASE, with multi_node_trainer and a function
of this file.
"""

import re
import subprocess
import sys
import time

import delayed_network
from hosts import Hosts, command, enter_namespaces, skip
from job import Job, Process, mpirun, ranks

# Each wait is bounded by DDP_TIMEOUT; START covers the ranks' start besides.
TIMEOUT = 10
START = 40
STEPS = "8"
FOREVER = "1000000"


def hashes(job, places, seconds=START):
    """The ranks' hashes after a run that succeeds; places[rank] is the place
    on its host that it should have."""
    results = job.finish(seconds)
    job.require(all(code == 0 for _, code in results), "a process failed")
    text = "".join(text for text, _ in results)
    found = {int(rank): place for rank, place in re.findall(
        rf"rank (\d+) of {len(places)}, local rank (\d+ of \d+)", text)}
    job.require(found == dict(enumerate(places)), f"places are {found}")
    values = dict(re.findall(r"rank (\d+): hash (\w+)", text))
    job.require(len(values) == len(places), f"hashes are {values}")
    job.require(len(set(values.values())) == 1, f"the ranks differ: {values}")
    return set(values.values())


def seconds_to_failure(job, start, alive, reasons):
    """When the last of the processes that are `alive` had failed, all of them
    with one of the reasons."""
    results = job.finish(START + TIMEOUT)
    for number in alive:
        text, code = results[number]
        job.require(code != 0, f"process {number} did not fail")
        job.require(any(re.search(reason, text) for reason in reasons),
                    f"process {number} does not say why it failed")
        print(*re.findall(r"what\(\): .*", text), flush=True)
    return max(job.processes[number].ended_at for number in alive) - start


def run(hosts, counts, words, **variables):
    return ranks(hosts, counts, words, **{
        "OMP_NUM_THREADS": "1", "DDP_BACKEND": "gloo",
        "DDP_TIMEOUT": str(TIMEOUT), **variables})


THREE_BY_TWO = ["0 of 2", "1 of 2"] * 3


def on_one_host(hosts, words):
    with run(hosts, [6], words, MASTER_ADDR="127.0.0.1") as job:
        return hashes(job, [f"{rank} of 6" for rank in range(6)])


def training(program):
    """Three hosts with two ranks give the bits of one host with six, started
    by plain variables."""
    hosts = Hosts(3)
    words = [program, STEPS]
    expected = on_one_host(hosts, words)
    print(f"one host: {expected}", flush=True)
    with run(hosts, [2, 2, 2], words) as job:
        found = hashes(job, THREE_BY_TWO)
    assert found == expected, f"{found} over three hosts"


def many_hosts(program):
    """64 hosts of one rank train together."""
    hosts = Hosts(64)
    hosts.introduce()
    with run(hosts, [1] * 64, [program, "20"], DDP_TIMEOUT="300") as job:
        hashes(job, ["0 of 1"] * 64, 500)


def training_by_mpirun(program):
    """So do three hosts by mpirun, whether it says where to meet or not. The
    backend mpi adds the ranks in an order of its own."""
    hosts = Hosts(3)
    words = [program, STEPS]
    expected = on_one_host(hosts, words)
    for backend, address in (
            ("gloo", {"MASTER_ADDR": "n0", "MASTER_PORT": "29500"}),
            ("gloo", {}), ("mpi", {})):
        with Job([mpirun(hosts, 2, words, OMP_NUM_THREADS="1",
                         DDP_TIMEOUT=str(TIMEOUT), DDP_BACKEND=backend,
                         **address)]) as job:
            found = hashes(job, THREE_BY_TWO)
        assert found == expected or backend == "mpi", f"{found}, {address}"


def hierarchical(program):
    """By itself the job reduces within hosts first, which sends less."""
    hosts = Hosts(2)
    hosts.slow_down(0, 20)
    hosts.slow_down(1, 20)
    sent, seconds = [], []
    for backend, named in (("gloo", "gloo"), ("auto", "hierarchical")):
        before = hosts.bytes_sent(0) + hosts.bytes_sent(1)
        start = time.monotonic()
        with run(hosts, [2, 2], [program, "30"], DDP_BACKEND=backend,
                 DDP_DEVICE="cpu") as job:
            hashes(job, ["0 of 2", "1 of 2"] * 2)
            job.require(all(f"{named} over" in process.text()
                            for process in job.processes), f"not {named}")
        seconds.append(time.monotonic() - start)
        sent.append(hosts.bytes_sent(0) + hosts.bytes_sent(1) - before)
    print(f"gloo sent {sent[0]} bytes in {seconds[0]:.1f} s, hierarchical "
          f"{sent[1]} in {seconds[1]:.1f} s")
    # A ring of four ranks sends 3/2 of each gradient per host, one of two
    # hosts 1.
    assert sent[1] < 0.8 * sent[0]
    with run(hosts, [2, 2], [program, FOREVER], DDP_BACKEND="auto",
             DDP_DEVICE="cpu") as job:
        job.wait_for("step 3\n", START)
        start = time.monotonic()
        job.processes[3].process.kill()
        seconds = seconds_to_failure(
            job, start, range(3), ["over hierarchical failed"])
    assert seconds < 8, f"the others took {seconds:.1f} s to fail"


def slurm_step(program):
    """The tasks of a Slurm step without PMIx meet over a link on which a
    connection takes time."""
    hosts = Hosts(2)
    try:
        delayed_network.DelayedNetwork(hosts, 1000, 0.0005)
    except (OSError, subprocess.CalledProcessError) as error:
        skip(f"this needs /dev/net/tun and sysctl: {error}")
    with Job([Process(hosts.on(host) + [program, STEPS], {
            "OMP_NUM_THREADS": "1", "DDP_BACKEND": "gloo",
            "DDP_TIMEOUT": str(TIMEOUT), "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": delayed_network.address(0),
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0",
            "SLURM_NODEID": str(host), "SLURM_PROCID": str(host)})
              for host in (0, 1)]) as job:
        hashes(job, ["0 of 1"] * 2)


def lost_host(program, host, reason, named_by):
    """All fail within the timeout where a host is cut off; the ranks
    `named_by` say with `reason` whom they missed."""
    hosts = Hosts(3)
    with run(hosts, [1, 2, 1], [program, FOREVER]) as job:
        job.wait_for("step 3\n", START)
        start = time.monotonic()
        hosts.cut(host)
        seconds = seconds_to_failure(job, start, range(4), ["over gloo failed"])
        for rank in named_by:
            job.require(reason in job.processes[rank].text(),
                        f"rank {rank} does not say: {reason}")
    print(f"host {host} cut off: all ranks fail within {seconds:.2f} s")
    assert seconds < TIMEOUT + 8, f"the ranks took {seconds:.1f} s to fail"


def lost_last_host(program):
    lost_host(program, 2, "; rank 3 has not reached", [0, 1, 2])


def lost_first_host(program):
    """The one that has the store."""
    lost_host(program, 0, "; ranks 1-3 have not reached", [0])


def slow_link(program):
    """Over a slow link a job goes on, with the same bits."""
    hosts = Hosts(3)
    seconds = []
    found = []
    for megabits in (None, 1):
        if megabits:
            hosts.slow_down(1, megabits)
        start = time.monotonic()
        with run(hosts, [1, 1, 1], [program, "2"]) as job:
            found.append(hashes(job, ["0 of 1"] * 3))
        seconds.append(time.monotonic() - start)
    print(f"two steps took {seconds[0]:.1f} s, and {seconds[1]:.1f} s over a "
          f"link with {megabits} Mbit/s")
    assert found[0] == found[1], f"{found[1]} over a slow link: {found[0]}"
    # 4/3 of 150 KB in each step, and the parameters before.
    assert seconds[1] > 4, "the link was not slow"


def closed_ports(hosts, program, reasons):
    """Where a firewall drops packets all fail."""
    with run(hosts, [1, 2], [program, STEPS], DDP_TIMEOUT="3") as job:
        seconds = seconds_to_failure(job, time.monotonic(), range(3), reasons)
    print(f"all ranks fail within {seconds:.1f} s")
    assert seconds < 12


def closed_store(program):
    """With the address that was not reached, within the timeout."""
    hosts = Hosts(2)
    hosts.drop(0, "29500")
    closed_ports(hosts, program, [
        "waited 3 s at 10.9.0.1:29500 for ranks 1 and 2",
        "could not reach rank 0's store at 10.9.0.1:29500 within 3 s"])


def closed_gloo(program):
    """gloo's ports: with the host that does not answer, in the same time."""
    hosts = Hosts(2)
    hosts.command(0, "sysctl", "-qw",
                  "net.ipv4.ip_local_port_range=40000 40999")
    hosts.drop(0, "40000-40999")
    closed_ports(hosts, program, [
        r"connecting over gloo failed.*timed out after 3 s; the host of "
        r"rank \d of 3 at 10\.9\.0\.\d does not answer on port \d+"])


def own_name(program):
    """MASTER_ADDR may be a name that means the loopback interface at home, but
    not elsewhere."""
    hosts = Hosts(2)
    with open("/dev/shm/debian", "w") as file:
        print("127.0.0.1 localhost", "127.0.1.1 n0", sep="\n", file=file)

    def named(last_rank):
        return ["unshare", "--mount", "sh", "-ec",
                f"[ $RANK -gt {last_rank} ] || "
                "mount --bind /dev/shm/debian /etc/hosts; "
                'exec "$0" "$@"', program, STEPS]

    for variables in ({}, {"DDP_INTERFACE": "eth0"}):
        with run(hosts, [2, 1], named(1), MASTER_ADDR="n0",
                 **variables) as job:
            hashes(job, ["0 of 2", "1 of 2", "0 of 1"])
    with run(hosts, [2, 1], named(2), MASTER_ADDR="n0",
             DDP_TIMEOUT="6") as job:
        seconds_to_failure(job, time.monotonic(), range(3), [
            "waited 6 s at n0:29500 for rank 2, which did not join",
            re.escape("could not reach rank 0's store at n0:29500 (127.0.1.1) "
                      "within 6 s")])


def mute_name_server(program):
    """A name server that does not answer delays the start by little."""
    hosts = Hosts(1)
    with open("/dev/shm/resolv.conf", "w") as file:
        print("nameserver 127.0.0.2", file=file)
    command("mount", "--bind", "/dev/shm/resolv.conf", "/etc/resolv.conf")
    mute = ("import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); "
            "s.bind(('127.0.0.2', 53)); print('bound', flush=True); "
            "sys.stdin.read()")
    with subprocess.Popen(hosts.on(0) + [sys.executable, "-c", mute],
                          stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        # A lookup takes 10 s by default.
        with run(hosts, [3], [program, STEPS], DDP_TIMEOUT="9",
                 MASTER_ADDR="127.0.0.1") as job:
            hashes(job, [f"{rank} of 3" for rank in range(3)])
            job.require(all("cannot be retrieved" not in process.text()
                            for process in job.processes), "a warning")


def traffic(hosts, words, named, **variables):
    """Bytes that the busiest host sent on networks 0 and 1 during a run."""
    def sent():
        return [[hosts.bytes_sent(host, network) for network in (0, 1)]
                for host in range(len(hosts.holders))]

    before = sent()
    with run(hosts, [1, 1, 1], words, **variables) as job:
        hashes(job, ["0 of 1"] * 3)
        job.require(all(f"gloo over {named}\n" in process.text()
                        for process in job.processes), f"not over {named}")
    counts = [max(host[network] - old[network]
                  for host, old in zip(sent(), before)) for network in (0, 1)]
    print(f"{named} with {variables}: {counts} bytes", flush=True)
    return counts


def interface(program):
    """Gradients travel over the interface that is named."""
    hosts = Hosts(3, networks=2)
    words = [program, STEPS]
    # Each rank sends 4/3 of 150 KB in a step.
    least, rest = 1_000_000, 200_000
    for chosen, named, arguments, variables in (
            (0, "unset and unset", [], {}),
            (1, "unset and =eth1", ["eth1"], {"DDP_INTERFACE": "eth0"}),
            (0, "eth0 and =eth1", [], {"DDP_INTERFACE": "eth1",
                                       "GLOO_SOCKET_IFNAME": "eth0"}),
            (1, "unset and ib0", [], {"DDP_INTERFACE": "eth1",
                                     "NCCL_SOCKET_IFNAME": "ib0"})):
        counts = traffic(hosts, words + arguments, named, **variables)
        assert counts[chosen] > least and counts[1 - chosen] < rest, counts


def connects(hosts, host, address):
    probe = f"exec 3<>/dev/tcp/{address}/29500"
    return subprocess.run(hosts.on(host) + ["bash", "-c", probe],
                          stderr=subprocess.DEVNULL).returncode == 0


def listener(program):
    """Rank 0's store listens on the interface that is named alone."""
    hosts = Hosts(2, networks=2)
    addresses = [hosts.address(0, network) for network in (0, 1)]
    for variables, expected in (
            ({}, [True, True]),
            ({"DDP_INTERFACE": "eth0"}, [True, False]),
            # MASTER_ADDR says where the ranks meet, and that is elsewhere.
            ({"DDP_INTERFACE": "eth1"}, [True, True])):
        with run(hosts, [1, 1], [program, FOREVER], **variables) as job:
            job.wait_for("step 1\n", START)
            found = [connects(hosts, 1, address) for address in addresses]
        print(f"{variables}: connects to {addresses}: {found}", flush=True)
        assert found == expected, f"{found}, expected {expected}"


def interface_errors(program):
    """An interface that cannot be used is an error that names the others."""
    hosts = Hosts(2, networks=3)
    for name in ("eth1", "eth2"):
        hosts.command(1, "ip", "link", "set", name, "down")
    hosts.command(0, "ip", "address", "flush", "dev", "eth1")
    option = re.escape("(ProcessGroupOptions::interface or DDP_INTERFACE)")
    on_0 = re.escape("eth0 (10.9.0.1), eth1 (has no address), "
                     "eth2 (10.9.2.1), lo (127.0.0.1)")
    on_1 = re.escape("eth0 (10.9.0.2), eth1 (is down), eth2 (is down), "
                     "lo (127.0.0.1)")
    for counts, name, message in (
            ([2, 0], "eth7", f"does not exist on host n0, which has: {on_0}"),
            ([0, 2], "eth1", f"is down on host n1, which has: {on_1}"),
            ([2, 0], "eth1", f"has no address on host n0, which has: {on_0}"),
            # Of one host: the other's rank says so too.
            ([1, 1], "eth2", f"is down on host n1, which has: {on_1}")):
        with run(hosts, counts, [program, STEPS], DDP_INTERFACE=name) as job:
            start = time.monotonic()
            seconds_to_failure(
                job, start, (0, 1), [f"interface '{name}' {option} {message}"])


def main():
    enter_namespaces()
    program, case = sys.argv[1:]
    globals()[case](program)


main()
