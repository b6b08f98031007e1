#!/usr/bin/env python3
"""Prints, as Markdown, what becomes of a job of two hosts when something goes
wrong, under torchrun and under ddprun: the table of docs/launching.md.

Usage: failure_table.py DDPRUN TRAINER TORCHRUN [CASE...], with functions of
failure_cases.py; TRAINER lies beside libclock_shift.so. Takes a quarter of an
hour.
"""

import os
import subprocess
import sys

from failure_cases import ROWS
from hosts import enter_namespaces
from pair import FOREVER, Pair


class DdprunPair(Pair):
    node_timeout = 10  # the default
    settling = 2
    later = 8


class TorchrunPair(Pair):
    patience = 75
    settling = 2
    later = 8

    def __init__(self, program, nodes, restarts=0):
        super().__init__(program, nodes, restarts)
        self.options = self.options[:2]  # no node timeout

    def start(self, host, rank=FOREVER, **variables):
        self.at[host] = self.beside(
            host, self.program, "--rdzv-backend=c10d",
            "--rdzv-endpoint=n0:29400", "--nproc-per-node=1", *self.options,
            "--no-python", "bash", "-c", rank, **{
                "OMP_NUM_THREADS": "1", "TMPDIR": f"{self.folder.name}/tmp",
                **variables})

    def check(self, *_):
        pass

    def end(self, running):
        pass

    def require_nothing_left(self):
        pass


def cell(case, launcher, program):
    """What one case says, in namespaces of its own."""
    run = subprocess.run(
        [sys.executable, __file__, program, sys.argv[2], launcher, "--cell",
         case], text=True, stdout=subprocess.PIPE)
    lines = run.stdout.splitlines()
    return lines[-1] if run.returncode == 0 and lines else "FAILED"


def main():
    program, _, launcher, *cases = sys.argv[1:]
    if cases[:1] == ["--cell"]:
        enter_namespaces()
        pair_of = TorchrunPair if launcher == "torchrun" else DdprunPair
        [row] = [row for row in ROWS if row.__name__ == cases[1]]
        try:
            print(row(program, pair_of))
        except AssertionError as error:
            if launcher == "ddprun":
                raise
            print(str(error).splitlines()[0])  # so it is
        return
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    print("| What happens | torchrun | ddprun |\n|---|---|---|", flush=True)
    for row in ROWS:
        if not cases or row.__name__ in cases:
            title = " ".join(row.__doc__.split())
            print(f"| {title} | {cell(row.__name__, 'torchrun', launcher)} | "
                  f"{cell(row.__name__, 'ddprun', program)} |", flush=True)


main()
