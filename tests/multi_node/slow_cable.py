"""One end of a cable on which each packet takes half a millisecond, unlike on a
bridge: slow_cable.py SOCKET ADDRESS, with a socket to the other end's process.
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEADERS = 0x1001


def main():
    other = socket.socket(fileno=int(sys.argv[1]))
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF,
                struct.pack("16sH22x", b"slow0", IFF_TUN_WITHOUT_HEADERS))
    subprocess.check_call(["ip", "address", "add", sys.argv[2], "dev", "slow0"])
    subprocess.check_call(["ip", "link", "set", "slow0", "up"])
    print("ready", flush=True)
    while True:
        for each in select.select([tun, other], [], [])[0]:
            if each == tun:
                packet = os.read(tun, 65536)
                time.sleep(0.0005)
                other.send(packet)
            else:
                os.write(tun, other.recv(65536))


main()
