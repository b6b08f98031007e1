"""A job: processes on several hosts, what they print and how they end."""

import os
import re
import shutil
import subprocess
import tempfile
import time

from hosts import command, skip

POLL_SECONDS = 0.02
AGENT = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                     "remote_agent.sh")
# mpirun splits the agent's path at spaces; this one is gone with the hosts.
AGENT_LINK = "/dev/shm/remote_agent.sh"
BACKTRACE = re.compile(r"^(Exception raised from|frame #).*\n", re.M)
LAUNCHERS_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
                       "MASTER_PORT")


class Process:
    def __init__(self, words, variables):
        environment = {name: value for name, value in os.environ.items()
                       if name not in LAUNCHERS_VARIABLES}
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            words, env={**environment, **variables},
            stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT)
        self.ended_at = None

    def text(self):
        size = os.fstat(self.output.fileno()).st_size
        text = os.pread(self.output.fileno(), size, 0).decode()
        return BACKTRACE.sub("", text)

    def running(self):
        if self.ended_at is None and self.process.poll() is not None:
            self.ended_at = time.monotonic()
        return self.ended_at is None


class Job:
    """Kills what runs when it is left."""

    def __init__(self, processes):
        self.processes = processes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.process.kill()
            process.process.wait()

    def require(self, condition, message):
        if not condition:
            texts = [f"--- process {number}, exit code "
                     f"{process.process.poll()}:\n{process.text()}"
                     for number, process in enumerate(self.processes)]
            raise AssertionError("\n".join([message, *texts]))

    def wait_for(self, text, seconds):
        """Waits until every process has printed a text."""
        deadline = time.monotonic() + seconds
        while not all(text in process.text() for process in self.processes):
            self.require(
                time.monotonic() < deadline and
                all([process.running() for process in self.processes]),
                f"not all printed '{text}' within {seconds} s")
            time.sleep(POLL_SECONDS)

    def finish(self, seconds):
        """Waits until all have ended; for each its output and exit code."""
        deadline = time.monotonic() + seconds
        while any([process.running() for process in self.processes]):
            self.require(time.monotonic() < deadline,
                         f"not all processes ended within {seconds} s")
            time.sleep(POLL_SECONDS)
        return [(process.text(), process.process.returncode)
                for process in self.processes]


def ranks(hosts, counts, words, **variables):
    """A job by plain variables, which `variables` change, with counts[h] ranks
    on host h."""
    places = [(host, local) for host, count in enumerate(counts)
              for local in range(count)]
    return Job([
        Process(hosts.on(host) + words, {
            "RANK": str(rank), "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(len(places)), "MASTER_PORT": "29500",
            "MASTER_ADDR": hosts.address(places[0][0]), **variables})
        for rank, (host, local) in enumerate(places)])


def mpirun(hosts, ranks, words, count=None, **variables):
    """A process that is Open MPI's, which starts so many ranks on each host,
    or on the first `count`, with these variables."""
    if not shutil.which("mpirun") or "Open MPI" not in command(
            "mpirun", "--version"):
        skip("there is no Open MPI")
    command("ln", "-sf", AGENT, AGENT_LINK)
    return Process(
        hosts.on(0) +
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca",
         "plm_rsh_agent", AGENT_LINK, "--mca", "orte_tmpdir_base", "/dev/shm",
         "--mca", "btl_tcp_if_include", "eth0", "--host",
         ",".join(f"n{host}:{ranks}" for host in
                 range(count or len(hosts.holders))),
         *[word for name in variables for word in ("-x", name)], *words],
        {"HOLDERS": " ".join(map(str, hosts.holders)), **variables})
