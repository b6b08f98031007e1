"""What becomes of a job of two hosts when something goes wrong."""

import functools
import signal
import time

from nodes import workers_on
from pair import A, B, Again, Ended, Pair, Stopped, rank_for


def on_pair(nodes, restarts=0):
    """A case of a job with those --nnodes."""
    def decorate(case):
        @functools.wraps(case)
        def run(program):
            with Pair(program, nodes, restarts) as pair:
                case(pair)
        return run
    return decorate


@on_pair(2, restarts=3)
def node_lost(pair):
    """B loses its power, `--max-restarts 3`; later it is started again"""
    pair.begin()
    pair.crash(B)
    pair.watch({A: Stopped(1, pair.node_timeout + 3)})
    pair.hosts.mend(B)
    pair.start(B)
    pair.watch({A: Again(2, most=6), B: Again(2, most=6)})


@on_pair("1:2", restarts=3)
def elastic_node_lost(pair):
    """The same with `--nnodes 1:2`"""
    pair.begin()
    pair.crash(B)
    pair.watch({A: Again(1, 0, 1, pair.node_timeout + 5)})


@on_pair("1:2")
def joined_as_first(pair):
    """`--nnodes 1:2`, A runs alone after the last call, and B joins, whose
    name sorts before A's"""
    pair.hosts.command(B, "hostname", "b")
    with open("/etc/hosts", "a") as file:
        print(pair.hosts.address(B), "b", file=file)
    pair.start(A)
    start = time.monotonic()
    pair.wait(lambda: pair.starts(A), "A does not run", 60)
    pair.check(A, Again(1, 0, 2, 6), {}, {A: time.monotonic() - start}, {})
    pair.start(B)
    pair.watch({A: Again(2, most=6), B: Again(2, most=6)})


@on_pair("1:2", restarts=3)
def launcher_on_a_killed(pair):
    """`--nnodes 1:2`, and `kill -9` of A's launcher, which serves the
    rendezvous"""
    pair.begin()
    pair.crashed += 1
    pair.send(A, signal.SIGKILL)
    pair.watch({B: Ended(75, 0, 20)})


@on_pair(2)
def finished_later(pair):
    """A's ranks finish, and B's later"""
    pair.begin(rank_for(2), rank_for(2 + pair.later))
    both = Ended(0, pair.later + 1, pair.later + 5)
    pair.watch({A: both, B: both})


@on_pair(2)
def killed_after_others_finished(pair):
    """A's ranks finish, and then a rank on B is killed"""
    pair.begin(rank_for(1))
    pair.wait(lambda: not workers_on(pair.hosts, A), "A goes on")
    time.sleep(pair.later)  # what A's launcher has to say is said
    pair.kill_rank(B)
    pair.watch({A: Ended(137), B: Ended(137)})
