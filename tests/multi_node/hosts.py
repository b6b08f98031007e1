"""Hosts on one machine: network namespaces, joined by bridges.

Each host has a host name of its own (n0, n1, ...), a loopback interface, and
on network K an interface ethK with the address 10.9.K.(host + 1), or
fd0K::(host + 1). Each can be given an /etc/hosts of its own.

All of it, and each process that is started here, is inside namespaces that end
with this program, whatever way it ends: nothing is left to be removed.
"""

import json
import os
import subprocess
import sys

INSIDE = "DDP_TEST_HOSTS"
PROBE = """
ip link add bridge0 type bridge
ip link add cable0 type veth peer name cable1
tc -V
mount -t tmpfs hosts /dev/shm
unshare --net --uts hostname n0
"""


def skip(reason):
    """Ends this program; CTest shows the test as skipped."""
    print("skipped:", reason, flush=True)
    sys.exit(77)


def enter_namespaces():
    """Runs this program again, in namespaces of its own.

    Where that is not allowed it says so and ends: skipped.
    """
    if os.environ.get(INSIDE):
        return
    enter = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc"]
    if os.geteuid() != 0:
        enter.insert(1, "--map-root-user")
    try:
        reason = subprocess.run(enter + ["sh", "-ec", PROBE], text=True,
                                capture_output=True).stderr
    except OSError as error:
        reason = str(error)
    if reason:
        skip("this needs root, or the right to make network namespaces, and "
             f"the commands ip and tc: {reason}")
    # unshare leaves signals to whoever it started, and that is init in there.
    inside = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", *enter, sys.executable, *sys.argv],
        env={**os.environ, INSIDE: "1"})
    sys.exit(inside.returncode)


def command(*words):
    return subprocess.run(words, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


class Hosts:
    """Hosts 0 to count - 1; call enter_namespaces first."""

    def __init__(self, count, networks=1, ipv6=False):
        self.ipv6 = ipv6
        # Also where MPI puts its files: it is gone with the namespace.
        command("mount", "-t", "tmpfs", "hosts", "/dev/shm")
        names = ["127.0.0.1 localhost"] + ["::1 localhost"] * ipv6
        names += [f"{self.address(host)} n{host}" for host in range(count)]
        with open("/dev/shm/names", "w") as file:
            print(*names, sep="\n", file=file)
        command("mount", "--bind", "/dev/shm/names", "/etc/hosts")
        command("ip", "link", "set", "lo", "up")
        for network in range(networks):
            command("ip", "link", "add", f"bridge{network}", "type", "bridge")
            command("ip", "link", "set", f"bridge{network}", "up")
        self.holders = [self._host(host) for host in range(count)]
        for host in range(count):
            for network in range(networks):
                self._connect(host, network)

    def address(self, host, network=0):
        return (f"fd0{network}::{host + 1}" if self.ipv6
                else f"10.9.{network}.{host + 1}")

    @staticmethod
    def cable(host, network=0):
        """The name of the cable's end in the bridge."""
        return f"cable{network}-{host}"

    def _host(self, host):
        """Starts a process that holds the host's namespaces; its id."""
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-ec",
             f"hostname n{host}; ip link set lo up; echo; "
             "exec sleep infinity"],
            stdout=subprocess.PIPE)
        if not holder.stdout.readline():
            raise RuntimeError(f"host {host} could not be made")
        return holder.pid

    def _connect(self, host, network):
        end = self.cable(host, network)
        command("ip", "link", "add", end, "type", "veth", "peer", "name",
                f"eth{network}", "netns", str(self.holders[host]))
        command("ip", "link", "set", end, "master", f"bridge{network}", "up")
        size, flags = (64, ["nodad"]) if self.ipv6 else (24, [])
        self.command(host, "ip", "address", "add",
                     f"{self.address(host, network)}/{size}", "dev",
                     f"eth{network}", *flags)
        self.command(host, "ip", "link", "set", f"eth{network}", "up")

    def on(self, host):
        """The words that make a command run on a host."""
        return ["nsenter", "--target", str(self.holders[host]), "--net",
                "--uts", "--mount", "--wd"]

    def command(self, host, *words):
        return command(*self.on(host), *words)

    def introduce(self):
        """Gives each host the Ethernet addresses of all: a kernel finds out
        1,024 of them at most, but knows as many as it is told."""
        hosts = range(len(self.holders))
        links = [json.loads(self.command(host, "ip", "-json", "link", "show",
                                         "eth0"))[0] for host in hosts]
        with open("/dev/shm/neighbours", "w") as file:
            for host in hosts:
                print("neigh replace", self.address(host), "lladdr",
                      links[host]["address"], "dev eth0 nud permanent",
                      file=file)
        for host in hosts:
            self.command(host, "ip", "-batch", file.name)

    def set_names(self, host, *lines):
        """Gives it an /etc/hosts of its own."""
        with open(f"/dev/shm/names{host}", "w") as file:
            print("127.0.0.1 localhost", *lines, sep="\n", file=file)
        self.command(host, "mount", "--bind", file.name, "/etc/hosts")

    def serve_no_names(self, host):
        """Makes it a name server that never answers."""
        self.drop(host, "53", "udp")
        with open("/dev/shm/resolv.conf", "w") as file:
            print("nameserver", self.address(host), file=file)

    def ask_for_names(self, host, known):
        """Lets the host ask that name server for those that it does not
        know."""
        self.set_names(host, *(f"{self.address(each)} n{each}"
                               for each in known))
        self.command(host, "mount", "--bind", "/dev/shm/resolv.conf",
                     "/etc/resolv.conf")

    def ask_for_no_names(self, host):
        # Lazily: a process may be reading them.
        self.command(host, "umount", "--lazy", "/etc/hosts",
                     "/etc/resolv.conf")

    def cut(self, host, network=0):
        command("ip", "link", "set", self.cable(host, network), "down")

    def mend(self, host):
        command("ip", "link", "set", self.cable(host), "up")

    def drop(self, host, ports, protocol="tcp"):
        """Lets no packet from other hosts reach these ports."""
        rule = ["ip", "rule", "add", "priority"]
        # What is for the host itself is decided on after this rule.
        self.command(host, *rule, "2", "lookup", "local")
        self.command(host, "ip", "rule", "delete", "priority", "0")
        self.command(host, *rule, "1", "iif", "eth0", "ipproto", protocol,
                     "dport", ports, "blackhole")

    def slow_down(self, host, megabits, burst=None):
        """Bounds what reaches the host, in Mbit per second, but for so many
        kB at once."""
        command("tc", "qdisc", "add", "dev", self.cable(host), "root", "tbf",
                "rate", f"{megabits}mbit", "burst",
                f"{burst or max(32, megabits // 2)}kb", "latency", "1s")

    def speed_up(self, host):
        command("tc", "qdisc", "delete", "dev", self.cable(host), "root")

    def lose(self, host, percent):
        """Drops this part of the packets that reach the host; needs nft."""
        self.command(
            host, "nft", "add table inet lossy; add chain inet lossy packets "
            "{ type filter hook input priority 0; }; add rule inet lossy "
            f"packets numgen random mod 100 < {percent} drop")

    def lose_none(self, host):
        self.command(host, "nft", "delete table inet lossy")

    def bytes_sent(self, host, network=0):
        counts = json.loads(command("ip", "-json", "-statistics", "link",
                                    "show", "dev", self.cable(host, network)))
        return counts[0]["stats64"]["rx"]["bytes"]
