#!/usr/bin/env python3
"""Does what docs/getting-started.md tells its readers to do.

Writes the page's titled blocks into a folder and runs its commands in order,
then compares what the runs printed. Usage:
getting_started_test.py CHECKOUT [TORCH_DIR]
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

PAGE = "docs/getting-started.md"
TIMEOUT_SECONDS = 900
RUNS = ("alone", "ddprun", "by-hand", "torchrun", "mpirun")
LINE = re.compile(
    r"^(?:\[(?P<prefix>[^\]\n]*)\] ?)?rank (?P<rank>\d) of (?P<size>\d): "
    r"loss (?P<loss>\S+), sum of weights (?P<weights>\S+)$", re.M)


def blocks(markdown):
    """The titled fenced blocks as {title: (language, text)}, in order."""
    fence = re.compile(r"^```(\w+) title=(\S+)\n(.*?)^```$", re.M | re.S)
    found = {m[2]: (m[1], m[3]) for m in fence.finditer(markdown)}
    expected = {"CMakeLists.txt", "main.cpp", "env", "build", *RUNS}
    if set(found) != expected:
        sys.exit(f"the page has the blocks {sorted(found)}, "
                 f"expected {sorted(expected)}")
    return found


def free_port():
    """Below the ports that Linux gives to sockets that ask for any."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return str(port)


def script_of(found, checkout, folder, torch_dir):
    """One script of all commands; each run's output goes to TITLE.txt."""
    lines = ["set -eu"]
    for title, (language, text) in found.items():
        if language != "bash":
            continue
        lines.append(f"echo '--- {title}'")
        if title == "env":
            # The LibTorch of the build that is tested, for this block alone.
            lines += [f"cd '{checkout}'", f"export Torch_DIR='{torch_dir}'",
                      text, "unset Torch_DIR", f"cd '{folder}'"]
        elif title in RUNS:
            text = text.replace("29531", free_port())
            tool = title if title in ("torchrun", "mpirun") else "true"
            lines.append(f"if command -v {tool} >/dev/null; then\n"
                         f"rm -f model.safetensors\n{{\n{text}}} >{title}.txt\n"
                         f"cat {title}.txt\ntest -s model.safetensors\nfi")
        else:
            lines.append(text)
    return "\n".join(lines)


def run(script, folder):
    """Runs the script in a session of its own, which a time-out ends."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK",
                                   "MASTER_ADDR", "MASTER_PORT", "Torch_DIR")}
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        code = process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(f"the page's commands took over {TIMEOUT_SECONDS} s")
    if code != 0:
        sys.exit(f"the page's commands failed with exit code {code}")


def results(folder, title):
    """{rank: (loss, weights)} of one run, or None where it did not run."""
    path = os.path.join(folder, title + ".txt")
    if not os.path.exists(path):
        return None
    with open(path) as output:
        text = output.read()
    size = 1 if title == "alone" else 2
    found = {int(m["rank"]): (m["loss"], m["weights"])
             for m in LINE.finditer(text) if int(m["size"]) == size}
    if sorted(found) != list(range(size)):
        sys.exit(f"{title}: expected one line from each of {size} ranks, "
                 f"got:\n{text}")
    if len(set(found.values())) != 1:
        sys.exit(f"{title}: the ranks differ:\n{text}")
    loss, weights = map(float, found[0])
    if not (loss < 1e-4 and abs(weights - 4) < 0.1):
        sys.exit(f"{title}: expected a loss near 0 and weights that sum to 4, "
                 f"got:\n{text}")
    return found[0]


def main():
    checkout = os.path.realpath(sys.argv[1])
    torch_dir = sys.argv[2] if len(sys.argv) > 2 else ""
    with open(os.path.join(checkout, PAGE)) as page:
        found = blocks(page.read())
    folder = tempfile.mkdtemp(prefix="ddp getting started ")
    try:
        for title in ("CMakeLists.txt", "main.cpp"):
            with open(os.path.join(folder, title), "w") as file:
                file.write(found[title][1])
        run(script_of(found, checkout, folder, torch_dir), folder)
        seen = {title: results(folder, title) for title in RUNS}
    finally:
        shutil.rmtree(folder)
    launched = {title: seen[title] for title in RUNS[1:] if seen[title]}
    if len(set(launched.values())) != 1 or "by-hand" not in launched:
        sys.exit(f"the ways to launch two processes differ: {seen}")
    missing = [title for title in RUNS if not seen[title]]
    print(f"ran: {', '.join(t for t in RUNS if seen[t])}")
    if missing:
        print(f"skipped, for want of their launchers: {', '.join(missing)}")
        sys.exit(77)


main()
