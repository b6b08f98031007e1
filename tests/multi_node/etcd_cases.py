"""ddprun on several hosts, which meet in an etcd."""

import os
import shutil
import time

from hosts import Hosts, skip
from job import Process
from nodes import Nodes
from training import require_all_seen, step_of, trainer

CLIENTS, PEERS = 2379, 2380
QUICK = " --node-timeout=6 --last-call=1"


class Etcd:
    """An etcd whose members are on some hosts; it ends with the job."""

    def __init__(self, nodes, members):
        beside = os.path.join(os.path.dirname(nodes.program), "ddprun-etcd")
        if not shutil.which("etcd") or not os.path.exists(beside):
            skip("this needs etcd, and ddprun-etcd (libcurl)")
        self.nodes = nodes
        self.members = members
        self.at = {}
        for host in members:
            self.start(host)

    def url(self, host, port):
        return f"http://{self.nodes.hosts.address(host)}:{port}"

    def start(self, host):
        cluster = ",".join(f"m{each}={self.url(each, PEERS)}"
                           for each in self.members)
        clients, peers = (self.url(host, port) for port in (CLIENTS, PEERS))
        self.at[host] = Process(self.nodes.hosts.on(host) + [
            "etcd", "--pre-vote", "--name", f"m{host}", "--data-dir",
            f"/dev/shm/etcd{host}", "--listen-client-urls", clients,
            "--advertise-client-urls", clients, "--listen-peer-urls", peers,
            "--initial-advertise-peer-urls", peers, "--initial-cluster",
            cluster], {})
        self.nodes.job.processes.append(self.at[host])

    def end(self, *hosts):
        for host in hosts:
            self.at[host].process.kill()
            self.at[host].process.wait()

    def options(self):
        endpoints = ",".join(f"n{host}" for host in self.members)
        return ["--rdzv-backend=etcd", f"--rdzv-endpoint={endpoints}"]


def with_etcd(count, members, options):
    """A case of one job on so many hosts, and an etcd on some of them."""
    def decorate(case):
        def run(program):
            with Nodes(program, Hosts(count), options) as nodes:
                etcd = Etcd(nodes, members)
                nodes.options += etcd.options()
                case(nodes, etcd)
                etcd.end(*etcd.members)
        return run
    return decorate


@with_etcd(4, (0, 1, 2), "--nnodes=1:4" + QUICK)
def etcd_lost_nodes(nodes, etcd):
    """Any node may be lost, and a minority of the etcd's members with it."""
    nodes.start_all(range(4), seconds=30)
    nodes.crash(0)
    nodes.wait_for_ranks(3, (1, 2, 3))
    nodes.crash(3)
    nodes.wait_for_ranks(2, (1, 2))
    nodes.leave(1)
    nodes.wait_for_ranks(1, [2])
    nodes.interrupt(2, [2])


@with_etcd(3, (0, 1, 2), "--nnodes=1:3" + QUICK)
def etcd_cut_off(nodes, etcd):
    """A node that is cut off, with a member of the etcd, stops its ranks."""
    nodes.start_all(range(3), seconds=30)
    nodes.hosts.cut(0)
    nodes.wait_for("stopped", 0, 12)
    nodes.wait_for_ranks(2, (1, 2))
    nodes.finish([0], 75, 10)
    nodes.hosts.mend(0)
    nodes.start(0)
    nodes.wait_for_ranks(3, range(3))
    nodes.interrupt(1, range(3))


@with_etcd(3, (0, 1, 2), "--nnodes=1:3 --grace=90" + QUICK)
def etcd_fenced_rank_0(nodes, etcd):
    """A rank 0 that was cut off, and does not end when asked, saves nothing
    any more when it is back."""
    healed = f"{nodes.folder.name}/healed"
    words = trainer(nodes, 3, 960, 30)
    nodes.start(0, words=words, DDP_BACKEND="gloo", DDP_TIMEOUT="15",
                SAVE_ALONE_AFTER=healed)
    for host in (1, 2):
        nodes.start(host, words=words, DDP_BACKEND="gloo", DDP_TIMEOUT="15")
    nodes.wait_for("resumes from step 0 with 3 ranks", 0, 40)
    nodes.wait(lambda: step_of(nodes, 0) >= 10, "no progress", 40)
    nodes.hosts.cut(0)
    nodes.wait_for("with 2 ranks", 1, 40)
    before = step_of(nodes, 0)
    nodes.wait(lambda: step_of(nodes, 0) >= before + 10,
               "no progress without n0", 40)
    nodes.hosts.mend(0)
    with open(healed, "x"):
        nodes.wait_for("cannot save alone:", 0, 40)
    nodes.require_said("was taken over by a later epoch of this job", 0)
    nodes.finish((1, 2), 0, 90)
    nodes.finish([0], 75, 10)
    require_all_seen(nodes, (1, 2), 12)


@with_etcd(3, (0, 1, 2), "--nnodes=2 --node-timeout=30")
def etcd_without_quorum(nodes, etcd):
    """Without a quorum the ranks continue, for less than --node-timeout."""
    nodes.start_all((0, 1), seconds=30)
    etcd.end(1, 2)
    time.sleep(20)
    for host in (1, 2):
        etcd.start(host)
    time.sleep(10)
    for host in (0, 1):
        nodes.require(nodes.at[host].running(), f"n{host} ended")
        nodes.require("stopped" not in nodes.at[host].text(),
                      f"n{host} stopped its ranks")
    nodes.interrupt(1, (0, 1), 10)


@with_etcd(3, (0,), "--nnodes=2 --node-timeout=5")
def jobs_at_an_etcd(nodes, etcd):
    """One job after another, by the same name: the second is not told how the
    first one ended. Nor do jobs last there that nobody is left to end."""
    for code in (7, 0, 3):
        for host in (1, 2):
            nodes.start(host, script=f"echo job; sleep 0.5; exit {code}")
        nodes.finish((1, 2), code, 15)
        nodes.require_said("job", 1, 2)
    for end in ("killed", "cut off"):
        nodes.start_all((1, 2))
        nodes.start(0)
        nodes.finish([0], 2, 10)  # while it runs, it takes no other
        for host in (1, 2):
            if end == "killed":
                nodes.crashed += 1
                nodes.send(host, 9)
            else:
                nodes.hosts.cut(host)
        nodes.finish((1, 2), -9 if end == "killed" else 75, 15)
        for host in (1, 2):
            nodes.hosts.mend(host)
        nodes.start_all((1, 2))
        nodes.interrupt(1, (1, 2))
