"""Counts the instructions of a Reducer's hooks, per parameter and step.

hook_instructions.py BUILT [PROGRAM]: runs ddp_bench_instructions, steps of mlp200
with a Reducer, under callgrind, and counts what is executed inside the hooks
and at the end of backward, copies into buckets included: a figure that no
noise touches. What other threads do does not count. Exits with 1 where it is
more than 5 % above EXPECTED, and with 77 (skipped) without valgrind and for a
compiler and a LibTorch (BUILT) that EXPECTED lacks.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# To be lowered where the hooks become cheaper.
EXPECTED = {"GNU 12, LibTorch 2.11": 2250}
SLACK = 0.05
PARAMETERS = 400
# Where autograd calls the Reducer.
ENTRIES = (
    "*GradientHook::operator()*",
    "*EndOfBackward::arrive*",
    "*EndOfBackward::call_all*",
)


def counts(program, folder):
    """Of each step that it runs, in its main thread."""
    command = [
        *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
        *("--separate-threads=yes", f"--callgrind-out-file={folder}/out"),
        *("--collect-atstart=no", *(f"--toggle-collect={e}" for e in ENTRIES)),
        program,
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        # The same kernels on every machine, which callgrind knows.
        "ATEN_CPU_CAPABILITY": "default",
        # Freed memory stays: giving it back now and then is not the hooks'.
        "MALLOC_TRIM_THRESHOLD_": "1000000000",
        "MALLOC_MMAP_THRESHOLD_": "1000000000",
        # Nor is merging what was freed before, which a large block's end begins.
        "GLIBC_TUNABLES": "glibc.malloc.mxfast=0",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    files = sorted(
        pathlib.Path(folder).glob("out.*-01"),
        key=lambda file: int(file.suffix[1 : -len("-01")]),
    )
    texts = (file.read_text() for file in files)
    return [int(re.search(r"^totals: (\d+)", t, re.M)[1]) for t in texts]


def main():
    built = sys.argv[1]
    if built not in EXPECTED:
        print(f"skipped: no count for {built}")
        sys.exit(77)
    expected = EXPECTED[built]
    if len(sys.argv) < 3 or not shutil.which("valgrind"):
        print("skipped: valgrind was missing when this was built, or is now")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        steps = counts(sys.argv[2], folder)
    print(f"steps: {steps} instructions")
    # Waiting for another thread only adds.
    figure = min(steps) / PARAMETERS
    print(f"{figure:.0f} instructions per parameter, expected {expected}")
    if figure > expected * (1 + SLACK):
        sys.exit("the hooks have become more expensive")
    if figure < expected * (1 - SLACK):
        print("they have become cheaper: lower EXPECTED")


main()
