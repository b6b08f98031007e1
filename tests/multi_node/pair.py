"""A job of two hosts, A and B, and what becomes of each."""

import re
import time

from hosts import Hosts
from nodes import Nodes

A, B = 0, 1  # hosts; A serves the rendezvous
SAID = re.compile(r"rank \d+ of (\d+) restart (\d+) meets at (\S+)\.")
RANK = """
trap 'echo "is stopped."; kill $! 2>/dev/null; exit 143' TERM
echo "rank $RANK of $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT" \
     "meets at $MASTER_ADDR:$MASTER_PORT."
sleep %s & wait $!
"""


def rank_for(seconds):
    return RANK % seconds


FOREVER = rank_for(1000)


class Ended:
    """What can be expected of a host: its launcher ends with a code."""

    def __init__(self, code, least=0.0, most=3.0):
        self.code, self.least, self.most = code, least, most


class Stopped:
    """What can be expected of a host: its rank is stopped, and it waits."""

    def __init__(self, least=0.0, most=3.0):
        self.least, self.most = least, most


class Again:
    """What can be expected of a host: its rank runs again."""

    def __init__(self, world_size, restart=0, least=0.0, most=3.0):
        self.said = (str(world_size), str(restart))
        self.least, self.most = least, most


class Pair(Nodes):
    """With ddprun on both hosts."""

    node_timeout = 3
    patience = 30  # how long it is watched
    settling = 0.2  # how long, once something has become of both
    later = 2  # how much later the other one's ranks finish

    def __init__(self, program, nodes, restarts=0):
        super().__init__(
            program, Hosts(2), f"--nnodes={nodes} --max-restarts={restarts} "
            f"--node-timeout={self.node_timeout}")

    def start(self, host, rank=FOREVER, **variables):
        super().start(host, script=rank, **variables)

    def begin(self, a=FOREVER, b=FOREVER):
        """Starts both, and waits until their ranks run together."""
        self.start(A, a)
        self.start(B, b)
        self.wait(lambda: all("2" in [size for size, *_ in self.starts(host)]
                              for host in (A, B)), "not both ranks run", 60)

    def starts(self, host):
        """Of each of its ranks: the world's size, the number of restarts and
        the meeting point."""
        return SAID.findall(self.at[host].text())

    def stops(self, host):
        return self.at[host].text().count("is stopped.")

    def watch(self, expected):
        """Sees what becomes of the hosts until each has ended or started its
        rank again, and compares it with what is expected of them."""
        since = time.monotonic()
        before = {host: (len(self.starts(host)), self.stops(host))
                  for host in expected}
        stopped, again = {}, {}

        def is_over(host):
            starts, stops = before[host]
            if self.stops(host) > stops:
                stopped.setdefault(host, time.monotonic() - since)
            if len(self.starts(host)) > starts:
                again.setdefault(host, time.monotonic() - since)
            return (host in again or not self.at[host].running() or
                    isinstance(expected[host], Stopped) and host in stopped)

        def all_over():
            return all([is_over(host) for host in expected])
        while not all_over() and time.monotonic() < since + self.patience:
            time.sleep(0.01)
        time.sleep(self.settling)
        all_over()
        ended = {host: self.at[host].ended_at - since for host in expected
                 if not self.at[host].running()}
        for host, outcome in expected.items():
            self.check(host, outcome, stopped, again, ended)

    def is_split(self):
        """Whether both ranks of one world are to meet at different places."""
        last = [self.starts(host)[-1] for host in self.at
                if self.at[host].running() and self.starts(host)]
        return (len(last) == 2 and last[0][0] == last[1][0] == "2" and
                last[0][2] != last[1][2])

    def check(self, host, outcome, stopped, again, ended):
        self.require(not self.is_split(), "two jobs have become of one")
        if isinstance(outcome, Ended):
            self.require(host in ended, f"host {host} goes on")
            code, after = self.at[host].process.returncode, ended[host]
            self.require(code == outcome.code, f"host {host}: code {code}")
        elif isinstance(outcome, Again):
            self.require(host in again and host not in ended,
                         f"host {host} does not run again")
            after, said = again[host], self.starts(host)[-1][:2]
            self.require(said == outcome.said, f"host {host}: {said}")
        else:
            self.require(host in stopped and host not in ended,
                         f"host {host} did not stop its rank")
            after = stopped[host]
        self.require(outcome.least <= after <= outcome.most,
                     f"host {host}: after {after} s")

    def __exit__(self, *error):
        running = [host for host in self.at if self.at[host].running()]
        if running and error[0] is None:
            self.interrupt(running[0], running)
        super().__exit__(*error)
