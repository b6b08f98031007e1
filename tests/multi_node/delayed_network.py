"""A network with a delay between hosts that are network namespaces, for
kernels without netem.

Each host has an interface tun0 whose packets, of up to 64 KB, come to this
process; after the delay it hands them to the host that they are for.
"""

import ctypes
import fcntl
import os
import select
import struct
import threading
import time
from collections import deque

# linux/if_tun.h
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
VNET_HEADER, IP_DESTINATION = 10, 16  # bytes
LARGEST = VNET_HEADER + (1 << 16)


def address(host):
    return f"10.8.0.{host + 1}"


def enter(process):
    """This thread uses the network of a process from here on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{process}/ns/net", "rb") as namespace:
        if libc.setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def open_tun(process):
    """The interface tun0 of a process's network."""
    enter(process)
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"tun0", flags))
        fcntl.ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
        return tun
    finally:
        enter("self")


class DelayedNetwork:
    """Joins the hosts of hosts.py a second time."""

    def __init__(self, hosts, megabits, seconds):
        self.seconds = seconds
        # In the main thread: "self" is its network.
        self.tuns = [open_tun(holder) for holder in hosts.holders]
        for host in range(len(self.tuns)):
            for words in (
                    f"ip address add {address(host)}/24 dev tun0",
                    "ip link set tun0 up",
                    "sysctl -qw net.ipv4.tcp_slow_start_after_idle=0",
                    f"tc qdisc add dev tun0 root tbf rate {megabits}mbit "
                    "burst 256kb latency 1s"):
                hosts.command(host, *words.split())
        threading.Thread(target=self._forward, daemon=True).start()

    def _forward(self):
        poll = select.epoll()
        for tun in self.tuns:
            poll.register(tun, select.EPOLLIN)
        waiting = deque()  # (when, where to, packet)
        while True:
            wait = waiting[0][0] - time.monotonic() if waiting else 1
            ready = poll.poll(max(0, wait))
            now = time.monotonic()
            for tun, _ in ready:
                packet = os.read(tun, LARGEST)
                host = packet[VNET_HEADER + IP_DESTINATION + 3] - 1
                if packet[VNET_HEADER] >> 4 == 4 and host < len(self.tuns):
                    waiting.append((now + self.seconds, host, packet))
            while waiting and waiting[0][0] <= now:
                _, host, packet = waiting.popleft()
                os.write(self.tuns[host], packet)
