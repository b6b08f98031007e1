"""bench/run.py says by its exit code whether all cases ran, and draws pictures;
./dev bench knows its groups.

run_test.py SOURCE_FOLDER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# In the place of each program: fails for the case that is named.
PROGRAM = """#!/bin/sh
case " $0 $* " in
  *"FAILING"*) echo "out of order"; exit 3 ;;
  *" step "*) echo '{"name": "mlp200", "seconds": 1.0, "ratio_python": 0.5}' ;;
  *" process_step "*) echo '{"seconds": 1.0}' ;;
  */ddprun*_launch_worker*) printf '%32d' > "$DDP_BENCH_STARTED_PIPE" ;;
  *_launch_worker*) printf '%16d' > "$DDP_BENCH_STARTED_PIPE" ;;
esac
"""
PROGRAMS = ("bench/ddp_bench", "bench/bench_launch_worker", "launcher/ddprun")


def run(source, failing, *groups):
    with tempfile.TemporaryDirectory() as name:
        build = pathlib.Path(name)
        for path in PROGRAMS:
            program = build / path
            program.parent.mkdir(exist_ok=True)
            program.write_text(PROGRAM.replace("FAILING", failing))
            program.chmod(0o755)
        command = [sys.executable, "-B", source / "bench/run.py", build]
        done = subprocess.run(
            [*command, *groups],
            capture_output=True,
            text=True,
            # Without mpirun and torchrun.
            env={**os.environ, "PATH": "", "DDP_PYTHON": ""},
        )
        results = build / "bench/results.json"
        cases = json.loads(results.read_text()) if results.exists() else None
        if cases:
            steps = build / "bench/plots/steps.svg"
            expect(">mlp200<" in steps.read_text(), "no picture of steps", done)
        return done, cases


def expect(condition, what, done):
    if not condition:
        sys.exit(f"{what}\n{done.stdout}\n{done.stderr}")


def main():
    source = pathlib.Path(sys.argv[1])
    run_py = (source / "bench/run.py").read_text()
    groups = re.findall(r'^    "(\w+)": \[Bench\.', run_py, re.M)
    accepted = " | ".join(groups) + ")\n"
    if len(groups) < 8 or accepted not in (source / "dev").read_text():
        sys.exit(f"./dev bench does not accept the groups {groups}")
    done, cases = run(source, "nothing fails", "steps", "sampler")
    expect(done.returncode == 0, "no case failed: expected exit code 0", done)
    failed = cases and cases["failed"] + cases["skipped"]
    expect(failed == [], f"expected no failed case, got {failed}", done)
    done, _ = run(source, "nothing fails", "--quick", "steps")
    expect(done.returncode == 0, "expected groups after an option", done)
    done, cases = run(source, "nothing fails")
    expect(done.returncode == 1, "no MPI: expected exit code 1", done)
    expect("no mpirun" in cases["skipped"][0], "expected 'no mpirun'", done)
    expect(cases["failed"] == [], "expected no failed case", done)
    for failing, title in (
        ("ddp_bench checkpoint", "checkpoints"),
        ("bench_launch_worker", "launchers"),
        ("process_step", "a process that trains big100, local"),
        ("ddp_bench memory", "memory, shm"),
    ):
        done, cases = run(source, failing)
        expect(
            done.returncode == 1,
            f"'{title}' failed: expected exit code 1, got {done.returncode}",
            done,
        )
        expect(cases, f"'{title}' failed: expected the others' results", done)
        expect(title in cases["failed"], f"expected '{title}' as failed", done)
        told = re.search(r"^bench: failed: (.*)", done.stderr, re.M)
        expect(told and title in told[1], "expected the title", done)


main()
