"""The tree keeps to its layers, the page about them is up to date, and each way
to break them is noticed: in a copy of the tree with one line more.

architecture_test.py SOURCE_FOLDER"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent

# A file, what is added to it, and what is then said.
BREAKS = (
    ("ddp/failure/heartbeat.h", "#include <ddp/reducer.h>",
     "ddp/failure comes before ddp/reducer"),
    ("common/text.h", "#include <ddp/support/error_text.h>",
     "common comes before ddp/support"),
    ("launcher/job.h", "#include <ddp/ddp.h>", "launcher comes before ddp"),
    ("launcher/job.h", "#include <ATen/ATen.h>", "it shall not know LibTorch"),
    ("ddp/init/connect.cpp", "#include <ddp/backends/shm/backend.h>",
     "which is private"),
    ("samplers/batch_plan.cpp", "#include <launcher/job.h>", "which is private"),
    ("examples/gan.cpp", "#include <ddp/reducer/reducer_impl.h>",
     "which is no public header"),
    ("examples/gan.cpp", "#include <ddp/internal/text_tensor.h>",
     "which is internal"),
    ("ddp/include/ddp/random.h", "#include <ddp/support/detached_task.h>",
     "a public header, includes"),
    ("ddp/failure/heartbeat.h", '#include "../reducer/reducer_impl.h"',
     "is no <path from the root>"),
    ("ddp/failure/heartbeat.h", "#include <ddp/failure/../reducer/outcome.h>",
     "is no <path from the root>"),
    ("ddp/failure/heartbeat.h", "#define OTHER <x.h>\n#include OTHER",
     "is no <path from the root>"),
    ("ddp/failure/heartbeat.h", "#include <ddp/include/ddp/reducer.h>",
     "is not how a user writes it"),
    ("ddp/failure/heartbeat.h", "#include <tests/support/ranks.h>",
     "which is not there"),
    ("ddp/failure/heartbeat.h", "#include <bench/paired.h>", "a program's"),
    ("ddp/failure/part.hpp", "", "neither a header nor a source"),
    ("ddp/include/ddp/backend.h", "", "ddp/backend.h is in no layer"),
    ("ddp/include/ddp/gloo.h", "", "is not in the file set"),
    ("metrics/part.h", "", "layers.py does not know it"),
    ("ddp/support/detached_task.h", "#include <ddp/support/detached_task.h>",
     "a cycle: "),
    ("ddp/newcomer/part.h", "", "ddp/newcomer/part.h is in no layer"),
    ("ddp/include/ddp/newcomer.h", "", "ddp/newcomer.h is in no layer"),
    ("ddp/detail/part.h", "", "name it by what is in it"),
    ("ddp/nn/long.cpp", "\n" * 401, "ddp/nn/long.cpp has 4"),
    ("ddp/reducer/core/backward_reducer.h", "\n" * 99, "the Reducer's core has "),
    ("ddp/reducer/core/backward_reducer.h",
     "#include <ddp/reducer/observers/step_check.h>",
     "ddp/reducer/core comes before ddp/reducer/observers"),
)


def run(script, folder):
    done = subprocess.run(
        [sys.executable, "-B", HERE / script, folder],
        stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def copy(root, target):
    for folder in ("common", "ddp", "samplers", "checkpoint", "launcher",
                   "examples", "bench"):
        shutil.copytree(root / folder, target / folder,
                        ignore=shutil.ignore_patterns("*.py", "*.json"))


def main():
    root = pathlib.Path(sys.argv[1])
    for script in ("layers.py", "picture.py"):
        code, said = run(script, root)
        if code:
            sys.exit(said)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        copy(root, tree)
        for name, line, expected in BREAKS:
            path = tree / name
            before = path.read_text() if path.exists() else None
            path.parent.mkdir(exist_ok=True)
            path.write_text((before or "") + line + "\n")
            code, said = run("layers.py", tree)
            if not code or expected not in said:
                sys.exit(f"{line} in {name} was not noticed:\n{said}")
            path.unlink() if before is None else path.write_text(before)
        for number in range(26):
            (tree / f"ddp/spawn/part_{number}.cpp").touch()
        if "ddp/spawn has" not in run("layers.py", tree)[1]:
            sys.exit("a folder of too many files was not noticed")


if __name__ == "__main__":
    main()
