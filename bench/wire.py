"""Measures all-reduces and steps between hosts over a slow network.

wire.py PROGRAM HOSTS MBIT [LAST]: HOSTS network namespaces with two ranks each,
whose network carries MBIT million bits per second to each host. Prints lines of
JSON (bench/wire.cpp), up to the size LAST. The hosts are those of the tests.
"""

import pathlib
import sys

sys.path.insert(
    0, str(pathlib.Path(__file__).parents[1] / "tests" / "multi_node")
)

from hosts import Hosts, enter_namespaces  # noqa: E402
from job import Job, mpirun  # noqa: E402

BURST_KB = 256  # that a host gets at once; with 64, tc splits packets itself
SECONDS = 600


def main():
    program, count, megabits, *last = sys.argv[1:]
    enter_namespaces()
    hosts = Hosts(int(count))
    for host in range(int(count)):
        hosts.slow_down(host, int(megabits), burst=BURST_KB)
    words = [program, "wire", megabits, *(last or ["all"])]
    with Job([mpirun(hosts, 2, words, OMP_NUM_THREADS="1")]) as job:
        [(text, code)] = job.finish(SECONDS)
    print(text, end="")
    return code


sys.exit(main())
