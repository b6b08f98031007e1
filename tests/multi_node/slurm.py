"""A Slurm of its own on the hosts, without users, munge or cgroups: Debian's
programs, installed, or unpacked (dpkg -x slurmctld, slurmd, slurm-client,
slurm-wlm-basic-plugins, libmunge2) into the folder that DDP_SLURM names."""

import os
import shutil
import subprocess
import time

from hosts import skip

ROOT = os.environ.get("DDP_SLURM", "")
LIBRARIES = f"{ROOT}/usr/lib/x86_64-linux-gnu"
PLUGINS = f"{LIBRARIES}/slurm-wlm"
FOLDER = "/dev/shm/slurm"
CONFIGURATION = """
ClusterName=lab
SlurmctldHost=n0
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmUser=root
SlurmdUser=root
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
NodeName=n[0-{last}] CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def program(folder, name):
    return shutil.which(f"{ROOT}/usr/{folder}/{name}-wlm") or shutil.which(
        f"{ROOT}/usr/{folder}/{name}")


def require_slurm():
    if not program("sbin", "slurmctld") or not program("sbin", "slurmd"):
        skip("there is no Slurm: install slurmctld and slurmd, or unpack them "
             "and set DDP_SLURM")


class Slurm:
    def __init__(self, hosts):
        count = len(hosts.holders)
        os.makedirs(f"{FOLDER}/state")
        with open(f"{FOLDER}/slurm.conf", "w") as file:
            file.write(CONFIGURATION.format(
                plugins=PLUGINS, folder=FOLDER, last=count - 1,
                cpus=os.cpu_count()))
        self.hosts = hosts
        self.variables = {"SLURM_CONF": f"{FOLDER}/slurm.conf",
                          "LD_LIBRARY_PATH": f"{LIBRARIES}:{PLUGINS}"}
        self.daemons = [self._start(0, "slurmctld", "-D", "-i")]
        for host in range(count):
            self.daemons.append(self._start(
                host, "slurmd", "-D", "-N", f"n{host}", "-d",
                program("sbin", "slurmstepd")))

    def _start(self, host, name, *options):
        # Away from the test's own output.
        log = open(f"{FOLDER}/{name}-{host}.out", "w")
        return subprocess.Popen(
            self.hosts.on(host) + [program("sbin", name), *options],
            env={**os.environ, **self.variables}, stdout=log, stderr=log)

    def command(self, name, *words):
        return self.hosts.on(0) + [program("bin", name), *words]

    def output(self, name, *words):
        return subprocess.run(
            self.command(name, *words), text=True, capture_output=True,
            env={**os.environ, **self.variables}).stdout

    def wait_until_up(self, seconds):
        count = len(self.hosts.holders)
        deadline = time.monotonic() + seconds
        while self.output("sinfo", "-h", "-N", "-t", "idle",
                          "-o", "%N").count("n") < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"Slurm is not up: {self.logs()}")
            time.sleep(0.1)

    @staticmethod
    def logs():
        texts = []
        for name in sorted(os.listdir(FOLDER)):
            path = f"{FOLDER}/{name}"
            if name.endswith((".log", ".out")) and os.path.getsize(path):
                with open(path, errors="replace") as file:
                    texts.append(f"--- {name}\n{file.read()[-3000:]}")
        return "\n".join(texts)

    def stop(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
