"""What becomes of a job of two hosts when something goes wrong. Each case is
a row of failure_table.py, which also shows torchrun's way."""

import functools
import signal
import time

from network_cases import shift_clock
from nodes import workers_on
from pair import A, B, Again, Ended, Pair, Stopped, rank_for

ROWS = []


def row(nodes, restarts=0):
    """A case of a job with those --nnodes; what is seen of it is told."""
    def decorate(case):
        @functools.wraps(case)
        def run(program, pair_of=Pair):
            with pair_of(program, nodes, restarts) as pair:
                case(pair)
                return pair.seen
        ROWS.append(run)
        return run
    return decorate


@row(2)
def rank_on_b_dies(pair):
    """A rank on B is killed"""
    pair.begin()
    pair.kill_rank(B)
    pair.watch({A: Ended(137), B: Ended(137)})


@row(2)
def rank_on_a_dies(pair):
    """A rank on A is killed"""
    pair.begin()
    pair.kill_rank(A)
    pair.watch({A: Ended(137), B: Ended(137)})


@row(2, restarts=3)
def third_restart(pair):
    """A rank on B is killed three times, `--max-restarts 3`: the third time"""
    pair.begin()
    for restart in (1, 2, 3):
        pair.kill_rank(B)
        pair.watch({A: Again(2, restart), B: Again(2, restart)})


@row(2, restarts=3)
def node_lost(pair):
    """B loses its power, `--max-restarts 3`; later it is started again"""
    pair.begin()
    pair.crash(B)
    pair.watch({A: Stopped(1, pair.node_timeout + 3)})
    lost = pair.seen
    pair.hosts.mend(B)
    pair.start(B)
    pair.watch({A: Again(2, most=6), B: Again(2, most=6)})
    pair.seen = f"{lost}. Started again: {pair.seen}"


@row("1:2", restarts=3)
def elastic_node_lost(pair):
    """The same with `--nnodes 1:2`"""
    pair.begin()
    pair.crash(B)
    pair.watch({A: Again(1, 0, 1, pair.node_timeout + 5)})


@row("1:2")
def alone(pair):
    """`--nnodes 1:2`, and only A is started"""
    pair.start(A)
    start = time.monotonic()
    pair.wait(lambda: pair.starts(A), "A does not run", 60)
    seconds = time.monotonic() - start
    pair.seen = f"A's rank runs after {seconds:.1f} s"
    pair.check(A, Again(1, 0, 2, 6), {}, {A: seconds}, {})


def join(pair, name_of_b):
    pair.hosts.command(B, "hostname", name_of_b)
    with open("/etc/hosts", "a") as file:
        print(pair.hosts.address(B), name_of_b, file=file)
    pair.start(A)
    pair.wait(lambda: pair.starts(A), "A does not run", 60)
    pair.start(B)
    pair.watch({A: Again(2, most=6), B: Again(2, most=6)})


@row("1:2")
def joined(pair):
    """`--nnodes 1:2`, A runs alone, and B joins"""
    join(pair, "n1")


@row("1:2")
def joined_as_first(pair):
    """The same, where B's name sorts before A's"""
    join(pair, "b")


@row("1:2", restarts=3)
def left(pair):
    """`--nnodes 1:2`, and SIGTERM to B's launcher"""
    pair.begin()
    pair.send(B, signal.SIGTERM)
    pair.watch({A: Again(1, most=6), B: Ended(143)})


@row("1:2", restarts=3)
def launcher_on_a_killed(pair):
    """`--nnodes 1:2`, and `kill -9` of A's launcher, which serves the
    rendezvous"""
    pair.begin()
    pair.crashed += 1
    pair.send(A, signal.SIGKILL)
    pair.watch({B: Ended(75, 0, 20)})


@row("1:2", restarts=3)
def cut(pair):
    """`--nnodes 1:2`, and the network between A and B is cut"""
    pair.begin()
    pair.hosts.cut(B)
    pair.watch({A: Again(1, 0, 1, pair.node_timeout + 5),
                B: Ended(75, 1, 2 * pair.node_timeout + 15)})


@row(2)
def finished_later(pair):
    """A's ranks finish, and B's 8 s later"""
    pair.begin(rank_for(2), rank_for(2 + pair.later))
    both = Ended(0, pair.later + 1, pair.later + 5)
    pair.watch({A: both, B: both})


@row(2)
def killed_after_others_finished(pair):
    """A's ranks finish, and then a rank on B is killed"""
    pair.begin(rank_for(1))
    pair.wait(lambda: not workers_on(pair.hosts, A), "A goes on")
    time.sleep(pair.later)  # what A's launcher has to say is said
    pair.kill_rank(B)
    pair.watch({A: Ended(137), B: Ended(137)})


@row(2, restarts=3)
def clocks_apart(pair):
    """B's clock is a minute ahead, `--max-restarts 3`, a rank on B is
    killed"""
    pair.begin(**shift_clock(60))
    pair.kill_rank(B)
    pair.watch({A: Again(2, 1), B: Again(2, 1)})
