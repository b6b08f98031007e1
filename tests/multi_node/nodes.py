"""ddprun on several hosts: a job's nodes, what they say, and what is left."""

import contextlib
import functools
import glob
import json
import os
import re
import signal
import tempfile
import time

from hosts import Hosts
from job import Job, Process

PORT = 29400
QUICK = " --node-timeout=3 --last-call=1"
# Says what it was told, and when it was asked to stop; clocks are those of one
# machine. A second signal while bash reads a $(...) in a trap breaks the trap.
WORKER = """
trap 'echo "stopped ${EPOCHREALTIME/[^0-9]/}000."; kill $! 2>/dev/null; exit 143' TERM
echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE" \
     "node $GROUP_RANK of $GROUP_WORLD_SIZE restart" \
     "$TORCHELASTIC_RESTART_COUNT store $MASTER_ADDR:$MASTER_PORT."
sleep 1000 & wait
"""


class Nodes:
    """A job with one ddprun on each of some hosts; more can come. Where all of
    them end, they leave nothing."""

    def __init__(self, program, hosts, options=""):
        self.program = program
        self.hosts = hosts
        self.options = options.split()
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(f"{self.folder.name}/tmp")
        self.job = Job([])
        self.at = {}  # the process of a host's ddprun
        self.crashed = 0  # hosts, of each of which a file may be left

    def __enter__(self):
        self.job.__enter__()
        return self

    def __exit__(self, *error):
        ended = not any([process.running() for process in self.at.values()])
        self.job.__exit__(*error)
        if ended and error[0] is None:
            self.require_nothing_left()
        self.folder.cleanup()

    def report(self, host):
        with open(f"{self.folder.name}/{host}.json") as file:
            return json.load(file)

    def start(self, host, *options, script=WORKER, words=(), **variables):
        """Ranks that run the words, or a script of bash."""
        self.at[host] = self.beside(
            host, self.program, f"--rdzv-endpoint=n0:{PORT}", *self.options,
            f"--report={self.folder.name}/{host}.json", *options,
            *(words or ("bash", "-c", script)), **{
                "DDP_TOKEN": "secret", "OMP_NUM_THREADS": "1",
                "TMPDIR": f"{self.folder.name}/tmp", **variables})

    def beside(self, host, *words, **variables):
        """A process that ends with the job."""
        process = Process(self.hosts.on(host) + list(words), variables)
        self.job.processes.append(process)
        return process

    def require(self, condition, message):
        self.job.require(condition, message)

    def require_said(self, text, *hosts):
        for host in hosts:
            self.require(text in self.at[host].text(),
                         f"n{host} does not say '{text}'")

    def require_nothing_left(self):
        for host in self.at:
            left = [(pid, command_of(pid))
                    for pid in processes_on(self.hosts, host)]
            self.require(not left, f"n{host} still has {left}")
        files = (os.listdir(f"{self.folder.name}/tmp") +
                 glob.glob("/dev/shm/ddp*"))
        self.require(len(files) <= self.crashed, f"files are left: {files}")

    def wait(self, condition, message, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.require(time.monotonic() < deadline, message)
            time.sleep(0.01)

    def wait_for(self, text, host, seconds=20):
        self.wait(lambda: text in self.at[host].text(),
                  f"n{host} does not say '{text}'", seconds)

    def lengths(self, hosts):
        """How much the processes of these hosts have said so far."""
        return {host: len(self.at[host].text()) for host in hosts}

    def wait_for_ranks(self, world_size, hosts, restart=0, seconds=20,
                       after=None):
        """Until these hosts run all ranks of a job of that size, which meet at
        one place. The lengths `after` end what is not considered."""
        after = after or {}
        start = time.monotonic()
        pattern = re.compile(rf"rank (\d+) of {world_size} .* "
                             rf"restart {restart} store (\S+)\.")

        def is_complete():
            at = {}
            for host in hosts:
                text = self.at[host].text()[after.get(host, 0):]
                for rank, place in pattern.findall(text):
                    at.setdefault(place, set()).add(int(rank))
            return any(len(ranks) == world_size for ranks in at.values())
        self.wait(is_complete,
                  f"not all of {world_size} ranks run at one place", seconds)
        print(f"{world_size} ranks run after {time.monotonic() - start:.2f} s",
              flush=True)

    def wait_until_gone(self):
        """Until no host has a rank."""
        self.wait(lambda: not any(workers_on(self.hosts, host) for host in
                                  range(len(self.hosts.holders))),
                  "ranks are left", 10)

    def start_all(self, hosts, seconds=20, **arguments):
        """One rank on each of these hosts; returns when all run."""
        for host in hosts:
            self.start(host, **arguments)
        self.wait_for_ranks(len(hosts), hosts, seconds=seconds)

    def send(self, host, number):
        self.at[host].process.send_signal(number)

    def kill_rank(self, host, number=signal.SIGKILL):
        os.kill(workers_on(self.hosts, host)[0], number)

    def crash(self, host):
        """As when the power fails."""
        self.crashed += 1
        self.hosts.cut(host)  # or the kernel would say good-bye
        # Again while there are any: who has not been killed yet can start
        # others.
        while left := processes_on(self.hosts, host):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def leave(self, host, seconds=5):
        """The host's ranks are asked to end, as a scheduler asks."""
        self.send(host, signal.SIGTERM)
        self.finish([host], 143, seconds)

    def interrupt(self, host, hosts, seconds=5):
        """Ctrl-C on `host` ends the ddpruns of all these hosts."""
        self.send(host, signal.SIGINT)
        self.finish(hosts, 130, seconds)

    def finish(self, hosts, code, seconds):
        """Waits until the ddpruns of these hosts have ended, each with that
        code."""
        start = time.monotonic()
        self.wait(lambda: not any([self.at[host].running() for host in hosts]),
                  f"ddprun did not end within {seconds} s", seconds)
        codes = {host: self.at[host].process.returncode for host in hosts}
        self.require(set(codes.values()) == {code}, f"exit codes {codes}")
        print(f"{list(hosts)} ended with {code} after "
              f"{time.monotonic() - start:.2f} s", flush=True)


def on_hosts(count, options=""):
    """A case of one job, whose ddpruns have these options."""
    def decorate(case):
        @functools.wraps(case)
        def run(program):
            with Nodes(program, Hosts(count), options) as nodes:
                case(nodes)
        return run
    return decorate


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


def told_of(pid, what):
    """A text of proc(5); empty where there is no such process."""
    try:
        with open(f"/proc/{pid}/{what}") as file:
            return file.read()
    except OSError:
        return ""


def command_of(pid):
    return told_of(pid, "cmdline").split("\0")


def name_of(pid):
    return told_of(pid, "comm").strip()


def is_alive(pid):
    """Whether it has not ended, whatever its parent knows."""
    state = told_of(pid, "stat").rpartition(") ")[2][:1]
    return state not in ("", "Z", "X")


def workers_on(hosts, host):
    return [pid for pid in processes_on(hosts, host)
            if command_of(pid)[:2] == ["bash", "-c"]]


def agents_on(hosts, host):
    return [pid for pid in processes_on(hosts, host)
            if name_of(pid) == "ddp-agent"]
