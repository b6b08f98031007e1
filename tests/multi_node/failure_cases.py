"""What becomes of a job of two hosts when something goes wrong. Each case is
a row of failure_table.py, which also shows torchrun's way."""

import os
import shutil
import sys
import time

from nodes import crash, workers_on
from pair import A, B, Again, Ended, Pair, Stopped, rank_for


def rank_on_b_dies(program, pair_of=Pair):
    """A rank on B is killed"""
    with pair_of(program, 2) as pair:
        pair.begin()
        pair.kill_rank(B)
        pair.watch({A: Ended(137), B: Ended(137)})
        pair.end()
        return pair.seen


def rank_on_a_dies(program, pair_of=Pair):
    """A rank on A is killed"""
    with pair_of(program, 2) as pair:
        pair.begin()
        pair.kill_rank(A)
        pair.watch({A: Ended(137), B: Ended(137)})
        pair.end()
        return pair.seen


def third_restart(program, pair_of=Pair):
    """A rank on B is killed three times, `--max-restarts 3`: the third time"""
    with pair_of(program, 2, restarts=3) as pair:
        pair.begin()
        for restart in (1, 2, 3):
            pair.kill_rank(B)
            pair.watch({A: Again(2, restart), B: Again(2, restart)})
        pair.end()
        return pair.seen


def node_lost(program, pair_of=Pair):
    """B loses its power, `--max-restarts 3`; later it is started again"""
    with pair_of(program, 2, restarts=3) as pair:
        pair.begin()
        crash(pair.hosts, B)
        pair.crashed.add(B)
        pair.watch({A: Stopped(1, pair.node_timeout + 3)})
        lost = pair.seen
        pair.hosts.mend(B)
        pair.start(B)
        pair.watch({A: Again(2, most=6), B: Again(2, most=6)})
        pair.end()
        return f"{lost}. Started again: {pair.seen}"


def elastic_node_lost(program, pair_of=Pair):
    """The same with `--nnodes 1:2`"""
    with pair_of(program, "1:2", restarts=3) as pair:
        pair.begin()
        crash(pair.hosts, B)
        pair.crashed.add(B)
        pair.watch({A: Again(1, 0, 1, pair.node_timeout + 5)})
        pair.end()
        return pair.seen


def alone(program, pair_of=Pair):
    """`--nnodes 1:2`, and only A is started"""
    with pair_of(program, "1:2") as pair:
        pair.start(A)
        start = time.monotonic()
        pair.wait(lambda: pair.starts(A), "A does not run", 60)
        seconds = time.monotonic() - start
        pair.seen = f"A's rank runs after {seconds:.1f} s"
        pair.check(A, Again(1, 0, 2, 6), {}, {A: seconds}, {})
        pair.end()
        return pair.seen


def joined(program, pair_of=Pair, name_of_b="n1"):
    """`--nnodes 1:2`, A runs alone, and B joins"""
    with pair_of(program, "1:2") as pair:
        pair.hosts.command(B, "hostname", name_of_b)
        with open("/etc/hosts", "a") as file:
            print(pair.hosts.address(B), name_of_b, file=file)
        pair.start(A)
        pair.wait(lambda: pair.starts(A), "A does not run", 60)
        pair.start(B)
        pair.watch({A: Again(2, most=6), B: Again(2, most=6)})
        pair.end()
        return pair.seen


def joined_as_first(program, pair_of=Pair):
    """The same, where B's name sorts before A's"""
    return joined(program, pair_of, "b")


def left(program, pair_of=Pair):
    """`--nnodes 1:2`, and SIGTERM to B's launcher"""
    with pair_of(program, "1:2", restarts=3) as pair:
        pair.begin()
        pair.at[B].process.terminate()
        pair.watch({A: Again(1, most=6), B: Ended(143)})
        pair.end()
        return pair.seen


def launcher_on_a_killed(program, pair_of=Pair):
    """`--nnodes 1:2`, and `kill -9` of A's launcher, which serves the
    rendezvous"""
    with pair_of(program, "1:2", restarts=3) as pair:
        pair.begin()
        pair.at[A].process.kill()
        pair.crashed.add(A)
        pair.watch({B: Ended(75, 0, 20)})
        pair.end()
        return pair.seen


def cut(program, pair_of=Pair):
    """`--nnodes 1:2`, and the network between A and B is cut"""
    with pair_of(program, "1:2", restarts=3) as pair:
        pair.begin()
        pair.hosts.cut(B)
        pair.watch({A: Again(1, 0, 1, pair.node_timeout + 5),
                    B: Ended(75, 1, 2 * pair.node_timeout + 15)})
        pair.end()
        return pair.seen


def finished_later(program, pair_of=Pair):
    """A's ranks finish, and B's 8 s later"""
    with pair_of(program, 2) as pair:
        pair.begin(rank_for(2), rank_for(2 + pair.later))
        both = Ended(0, pair.later + 1, pair.later + 5)
        pair.watch({A: both, B: both})
        pair.end()
        return pair.seen


def killed_after_others_finished(program, pair_of=Pair):
    """A's ranks finish, and then a rank on B is killed"""
    with pair_of(program, 2) as pair:
        pair.begin(rank_for(1))
        pair.wait(lambda: not workers_on(pair.hosts, A), "A goes on")
        time.sleep(pair.later)  # what A's launcher has to say is said
        pair.kill_rank(B)
        pair.watch({A: Ended(137), B: Ended(137)})
        pair.end()
        return pair.seen


def clocks_apart(program, pair_of=Pair, shift=60):
    """B's clock is a minute ahead, `--max-restarts 3`, a rank on B is
    killed"""
    library = "/dev/shm/libclock_shift.so"  # a path without spaces
    with pair_of(program, 2, restarts=3) as pair:
        shutil.copy(f"{os.path.dirname(sys.argv[2])}/libclock_shift.so",
                    library)
        pair.begin(LD_PRELOAD=library, CLOCK_SHIFT=str(shift))
        pair.kill_rank(B)
        pair.watch({A: Again(2, 1), B: Again(2, 1)})
        pair.end()
        return pair.seen


ROWS = (rank_on_b_dies, rank_on_a_dies, third_restart, node_lost,
        elastic_node_lost, alone, joined, joined_as_first, left,
        launcher_on_a_killed, cut, finished_later,
        killed_after_others_finished, clocks_apart)
