#!/usr/bin/env python3
"""Trains programs of others with ddp, and checks the results.

    "$DDP_PYTHON" check.py --prefix PREFIX examples=FOLDER pytorch-cpp=FOLDER ...

Each argument names a repository of programs.py and the folder of a checkout;
programs without a checkout are skipped. A program is copied, and changed by
our patch of at most 12 added lines. The script builds the copy with the ddp
that is installed in PREFIX, trains with 1, 2 and 3 processes at an equal global
batch, and checks that the losses agree, that all ranks have equal parameters,
that a run of 3 processes that was killed by signal 9 and resumed ends with the
same bits, and that Python reads the weights.

Needs Debian's dataset-fashion-mnist, libeigen3-dev and libopenmpi-dev, and no
network. With --form alone, checks the patches themselves.
"""

import argparse
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from programs import PROGRAMS, provide

HERE = pathlib.Path(__file__).resolve().parent
MAX_ADDED = 12
# Sums are rounded differently; after more steps, one activation at the kink of a
# ReLU or a max-pool makes larger differences.
STEPS_COMPARED = 50
LOSS_TOLERANCE = 1e-5  # relative
TIMEOUT_SECONDS = 600
RANKS = (1, 2, 3)
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Failure(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


def patch_of(program):
    return HERE / f"{program.name}.patch"


def originals(program):
    """{file: hash of its blob} of the version that the patch changes."""
    text = patch_of(program).read_text()
    return {name: blob for blob, name in re.findall(
        r"^index ([0-9a-f]{40})\.\.[0-9a-f]{40} \d+\n--- a/(.*)$", text, re.M)}


def added_lines(program):
    """Counts the patch's added lines, and checks its form."""
    left = [0, 0]  # lines of the hunk that are still to come, old and new
    added = 0
    text = patch_of(program).read_text()
    for line in text.splitlines():
        hunk = HUNK.match(line)
        if any(left):
            expect(line[:1] in " +-", f"{program.name}.patch: {line}")
            left = [left[0] - (line[0] in " -"), left[1] - (line[0] in " +")]
            added += line[0] == "+"
        elif hunk:
            left = [int(count or 1) for count in hunk.groups()]
    expect(left == [0, 0] and len(originals(program)) == text.count("\ndiff "),
           f"{program.name}.patch is incomplete")
    expect(f"{program.repository} at {program.commit}" in text,
           f"{program.name}.patch does not name its version")
    expect(added <= MAX_ADDED, f"{program.name}.patch adds {added} lines")
    return added


def call(command, folder, **options):
    log = folder / "commands.log"
    with open(log, "a") as output:
        print("$", *command, file=output, flush=True)
        code = subprocess.run(
            [str(part) for part in command], cwd=folder, stdout=output,
            stderr=output, stdin=subprocess.DEVNULL, **options).returncode
    expect(code == 0, f"{command[0]} failed with {code}, see {log}")


def build(program, checkout, work, prefix):
    """Copies, patches and builds the program; returns the executable."""
    source = work / "source"
    expect((checkout / program.folder).is_dir(),
           f"{checkout} has no folder {program.folder}")
    shutil.copytree(checkout / program.folder, source, symlinks=True,
                    ignore=shutil.ignore_patterns(".git", "build"))
    for name, blob in originals(program).items():
        text = (source / name).read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        expect(found == blob, f"{name} is not that of {program.commit}")
    call(["git", "apply", patch_of(program)], source,
         env={**os.environ, "GIT_CEILING_DIRECTORIES": str(work)})
    for name, old, new in program.settings:
        text = (source / name).read_text()
        expect(old in text, f"{name} does not contain {old!r}")
        (source / name).write_text(text.replace(old, new))
    call(["cmake", "-S", source, "-B", work / "build",
          f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release",
          *program.configure], work)
    call(["cmake", "--build", work / "build", "--target", program.executable],
         work)
    return work / "build" / program.executable


def launch(program, executable, ranks, folder, prefix):
    """Starts the program on `ranks` ranks."""
    command = [prefix / "bin" / "ddprun", "--nproc-per-node", ranks, "-r", 3,
               "--log-dir", "logs", executable]
    if program.launcher == "mpirun":
        command = ["mpirun", "--oversubscribe", "-n", ranks, executable]
    environment = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **os.environ}
    with open(folder / "launcher.log", "a") as output:
        return subprocess.Popen(
            [str(part) for part in command], cwd=folder, env=environment,
            stdout=output, stderr=output, stdin=subprocess.DEVNULL)


def train(program, executable, ranks, folder, prefix):
    folder.mkdir(exist_ok=True)
    provide(program.data, folder)
    code = launch(program, executable, ranks, folder, prefix).wait(
        TIMEOUT_SECONDS)
    expect(code == 0, f"{ranks} processes failed with {code}, see {folder}")


def processes_of(executable):
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "exe").resolve() == executable.resolve():
                yield int(entry.name)
        except OSError:
            pass  # it has ended


def kill_and_resume(program, executable, folder, prefix):
    folder.mkdir()
    provide(program.data, folder)
    launcher = launch(program, executable, max(RANKS), folder, prefix)
    while not (folder / "run" / "latest").exists():
        try:
            launcher.wait(0.01)
            raise Failure(f"no checkpoint, see {folder}")
        except subprocess.TimeoutExpired:
            pass
    for process in processes_of(executable):
        os.kill(process, signal.SIGKILL)
    expect(launcher.wait(TIMEOUT_SECONDS) != 0, "the run ended before the kill")
    shutil.rmtree(folder / "logs", ignore_errors=True)
    train(program, executable, max(RANKS), folder, prefix)


def parameters(folder, rank=0):
    import torch
    path = folder / f"rank-{rank}.pt"
    module = torch.jit.load(path)
    return [tensor for _, tensor in sorted(
        ((int(name), tensor) for name, tensor in module.named_parameters()))]


def same_bits(some, others):
    return len(some) == len(others) > 0 and all(
        a.dtype == b.dtype and a.equal(b) for a, b in zip(some, others))


def loss_difference(program, runs):
    """The largest relative difference from the losses with one process."""
    means = {}
    for ranks, folder in runs.items():
        each = [program.losses(folder, rank) for rank in range(ranks)]
        expect(len(set(map(len, each))) == 1 and each[0],
               f"ranks printed {[len(x) for x in each]} losses, see {folder}")
        means[ranks] = [sum(step) / ranks for step in zip(*each)][:STEPS_COMPARED]
    alone = means[1]
    expect(len(set(map(len, means.values()))) == 1 and alone[0] != alone[-1],
           f"the numbers of losses differ: {means}")
    return len(alone), max(
        abs(a - b) / abs(a) for others in means.values()
        for a, b in zip(alone, others))


def check(program, checkout, work, prefix):
    """Returns the columns of the program's line."""
    import torch
    executable = build(program, checkout, work, prefix)
    runs = {ranks: work / f"ranks-{ranks}" for ranks in RANKS}
    for ranks, folder in runs.items():
        train(program, executable, ranks, folder, prefix)
    losses = program.losses
    if callable(losses):
        count, difference = loss_difference(program, runs)
        expect(difference < LOSS_TOLERANCE, f"losses differ by {difference:.1e}")
        losses = f"{count} losses agree ({difference:.0e})"
    for ranks, folder in runs.items():
        expect(all(same_bits(parameters(folder), parameters(folder, rank))
                   for rank in range(1, ranks)), f"ranks differ, see {folder}")
    kill_and_resume(program, executable, work / "resumed", prefix)
    expect(same_bits(parameters(runs[max(RANKS)]), parameters(work / "resumed")),
           "the resumed run differs")
    for folder in (*runs.values(), work / "resumed"):
        net = torch.load(folder / "run" / "latest", weights_only=True)["net"]
        expect(same_bits(list(net.values()), parameters(folder)),
               f"Python reads other weights, see {folder}")
    return losses, "equal", "equal", "reads the weights"


def main():
    parser = argparse.ArgumentParser(
        usage=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(
            f"git clone https://github.com/{program.repository} && "
            f"git -C {program.checkout} checkout {program.commit}"
            for program in PROGRAMS))
    parser.add_argument("--form", action="store_true")
    parser.add_argument("--prefix", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("checkouts", nargs="*")
    arguments = parser.parse_args()
    checkouts = dict(text.split("=", 1) for text in arguments.checkouts)
    known = [program.checkout for program in PROGRAMS]
    for name in set(checkouts) - set(known):
        parser.error(f"unknown repository {name!r}: {', '.join(known)}")
    if checkouts and importlib.util.find_spec("torch") is None:
        parser.error(f"{sys.executable} has no torch: use $DDP_PYTHON")
    if checkouts and not arguments.prefix:
        parser.error("--prefix PREFIX, where ddp is installed, is missing")
    work = arguments.work
    if checkouts and not arguments.form and not work:
        work = pathlib.Path(tempfile.mkdtemp(prefix="ddp-others-"))
    failed = False
    print("program, lines added | losses of 1, 2, 3 processes | parameters of "
          "all ranks | killed and resumed | Python")
    for program in PROGRAMS:
        try:
            columns = "",
            title = f"{program.repository}: {program.name}"
            title += f", {added_lines(program)}"
            if arguments.form:
                columns = "the patch is well-formed",
            elif program.checkout not in checkouts:
                columns = "skipped",
            else:
                folder = work / program.name
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                columns = check(
                    program, pathlib.Path(checkouts[program.checkout]).resolve(),
                    folder, arguments.prefix.resolve())
        except Failure as failure:
            failed = True
            columns = f"FAILED: {failure}",
        print(" | ".join((title, *columns)), flush=True)
    sys.exit(failed)


main()
