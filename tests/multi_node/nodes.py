"""ddprun on several hosts: a job's nodes, what they say, and what is left."""

import contextlib
import glob
import json
import os
import re
import signal
import tempfile
import time

from job import Job, Process

PORT = 29400
# Says what it was told, and when it was asked to stop; clocks are those of one
# machine. A second signal while bash reads a $(...) in a trap breaks the trap.
WORKER = """
trap 'echo "stopped ${EPOCHREALTIME/[^0-9]/}000."; kill $! 2>/dev/null; exit 143' TERM
echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE" \
     "node $GROUP_RANK of $GROUP_WORLD_SIZE restart" \
     "$TORCHELASTIC_RESTART_COUNT store $MASTER_ADDR."
sleep 1000 & wait
"""


class Nodes:
    """A job with one ddprun on each of some hosts; more can come."""

    def __init__(self, program, hosts, options, token="secret"):
        self.program = program
        self.hosts = hosts
        self.options = options
        self.token = token
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(f"{self.folder.name}/tmp")
        self.job = Job([])
        self.at = {}  # the process of a host's ddprun

    def __enter__(self):
        self.job.__enter__()
        return self

    def __exit__(self, *error):
        self.job.__exit__(*error)
        self.folder.cleanup()

    def report(self, host):
        with open(f"{self.folder.name}/{host}.json") as file:
            return json.load(file)

    def start(self, host, *options, words=("bash", "-c", WORKER), **variables):
        process = Process(
            self.hosts.on(host) +
            [self.program, f"--rdzv-endpoint=n0:{PORT}", *self.options,
             f"--report={self.folder.name}/{host}.json", *options, *words],
            {"DDP_TOKEN": self.token, "OMP_NUM_THREADS": "1",
             "TMPDIR": f"{self.folder.name}/tmp", **variables})
        self.job.processes.append(process)
        self.at[host] = process
        return process

    def require(self, condition, message):
        self.job.require(condition, message)

    def wait(self, condition, message, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.require(time.monotonic() < deadline, message)
            time.sleep(0.01)

    def wait_for_ranks(self, world_size, hosts, restart=0, seconds=20):
        """Until these hosts run all ranks of a job of that size."""
        pattern = re.compile(rf"rank (\d+) of {world_size} .* "
                             rf"restart {restart} store")

        def ranks():
            return {int(rank) for host in hosts
                    for rank in pattern.findall(self.at[host].text())}
        self.wait(lambda: ranks() == set(range(world_size)),
                  f"not all of {world_size} ranks run", seconds)

    def start_all(self, hosts, seconds=20, **arguments):
        """One rank on each of these hosts; returns when all run."""
        for host in hosts:
            self.start(host, **arguments)
        self.wait_for_ranks(len(hosts), hosts, seconds=seconds)

    def interrupt(self, host, hosts, seconds):
        """Ctrl-C on `host` ends the ddpruns of all these hosts; `finish`."""
        self.at[host].process.send_signal(signal.SIGINT)
        return self.finish(hosts, 130, seconds)

    def finish(self, hosts, code, seconds):
        """Seconds until the ddpruns of these hosts had ended, each with that
        code."""
        start = time.monotonic()
        self.wait(lambda: not any([self.at[host].running() for host in hosts]),
                  f"ddprun did not end within {seconds} s", seconds)
        codes = {host: self.at[host].process.returncode for host in hosts}
        self.require(set(codes.values()) == {code}, f"exit codes {codes}")
        return max(self.at[host].ended_at for host in hosts) - start


def processes_on(hosts, host):
    """The processes of a host, but that which holds it."""
    def network(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return None
    own = network(hosts.holders[host])
    return [int(name) for name in os.listdir("/proc") if name.isdigit()
            and int(name) != hosts.holders[host] and network(name) == own]


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")
    except OSError:
        return [""]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def workers_on(hosts, host):
    return [pid for pid in processes_on(hosts, host)
            if command_of(pid)[:2] == ["bash", "-c"]]


def crash(hosts, host):
    """As when the power fails."""
    hosts.cut(host)  # or the kernel would say good-bye
    # Again while there are any: who has not been killed yet can start others.
    while left := processes_on(hosts, host):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def require_nothing_left(nodes, hosts, crashed=0):
    for host in hosts:
        left = [(pid, command_of(pid))
                for pid in processes_on(nodes.hosts, host)]
        nodes.require(not left, f"n{host} still has {left}")
    files = os.listdir(f"{nodes.folder.name}/tmp") + glob.glob("/dev/shm/ddp*")
    nodes.require(len(files) <= crashed, f"files are left: {files}")
