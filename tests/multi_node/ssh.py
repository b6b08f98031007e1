"""OpenSSH between the hosts, as root, with a key of its own: Debian's server,
installed, or unpacked (dpkg -x openssh-server, libwrap0) into the folder that
DDP_SSHD names."""

import os
import shutil
import subprocess
import time

from hosts import skip

ROOT = os.environ.get("DDP_SSHD", "")
FOLDER = "/dev/shm/ssh"
CONFIGURATION = f"""
HostKey {FOLDER}/key
AuthorizedKeysFile {FOLDER}/key.pub
PidFile none
StrictModes no
UsePAM no
"""
# What a user has in ~/.ssh/config.
SHELL = (f"ssh -i {FOLDER}/key -o BatchMode=yes -o StrictHostKeyChecking=no "
         "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR")


def require_ssh():
    if (os.geteuid() != 0 or not shutil.which("ssh") or
            not os.access(f"{ROOT}/usr/sbin/sshd", os.X_OK)):
        skip("there is no OpenSSH: install openssh-server and -client, or "
             "unpack the server and set DDP_SSHD")


class Servers:
    """One on each of the hosts."""

    def __init__(self, hosts):
        self.hosts = hosts
        os.mkdir(FOLDER)
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", f"{FOLDER}/key"],
                       check=True)
        with open(f"{FOLDER}/configuration", "w") as file:
            file.write(CONFIGURATION)
        # The user and the folder that a package makes when it is installed.
        shutil.copy("/etc/passwd", f"{FOLDER}/passwd")
        with open(f"{FOLDER}/passwd", "a") as file:
            file.write("sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        for command in (f"mount --bind {FOLDER}/passwd /etc/passwd",
                        "mount -t tmpfs run /run", "mkdir -m 755 /run/sshd"):
            for host in range(len(hosts.holders)):
                hosts.command(host, *command.split())

    def start(self):
        libraries = ":".join(f"{ROOT}{folder}/x86_64-linux-gnu"
                             for folder in ("/lib", "/usr/lib"))
        self.processes = [subprocess.Popen(
            self.hosts.on(host) +
            [f"{ROOT}/usr/sbin/sshd", "-D", "-E", "/dev/null", "-f",
             f"{FOLDER}/configuration"],
            env={**os.environ, "LD_LIBRARY_PATH": libraries})
            for host in range(len(self.hosts.holders))]
        for host in range(len(self.processes)):
            deadline = time.monotonic() + 10
            words = [*self.hosts.on(0), *SHELL.split(), f"n{host}", "true"]
            while subprocess.run(words, stderr=subprocess.DEVNULL).returncode:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"n{host} has no sshd")
                time.sleep(0.1)

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.wait()
