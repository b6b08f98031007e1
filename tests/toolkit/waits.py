"""A wait that could last is told about: it goes through detail::wait, whose
notice names what was called and who has not come. Each other wait without a
bound of its own is listed here with what tells of it; a new one fails.

waits.py SOURCE_FOLDER"""

import pathlib
import re
import sys

WAIT = re.compile(r"(?:->|\.)(?:wait|waitAndThrow)\(")

# Backends do not tell: who waits for their operations does.
FOLDERS = ("ddp", "samplers", "checkpoint")
BACKENDS = "ddp/backends"

TELLS_ITSELF = "ddp::Work, which tells"
KNOWN = {
    "ddp/process_group/collective_wait.cpp": "tells",
    "ddp/reducer/observers/step_check.cpp": TELLS_ITSELF,
    "ddp/optim/optimizer_shards.cpp": TELLS_ITSELF,
    "ddp/process_group/async_broadcast.cpp": TELLS_ITSELF,
    "ddp/comm_hooks/power_sgd_hook.cpp": TELLS_ITSELF,
    "ddp/reducer/buckets/bucket_rebuild.cpp": TELLS_ITSELF,
    "ddp/reducer/core/backward_reducer.cpp": "waits of the Reducer's parts, which tell",
    "ddp/rendezvous/rendezvous.cpp": "tells while ranks are missing",
    "ddp/rendezvous/reception.cpp": "two seconds at most",
    "ddp/spawn/spawn.cpp": "waits for the end of the program's own workers",
    "ddp/reducer/observers/replica_checksums.cpp": "a second at most",
    "ddp/elastic/agreed_flag.cpp": "for a time, at its end",
    "ddp/support/detached_task.cpp": "a thread that waits for work",
    "samplers/batch_workers.cpp": "for the program's own dataset",
}


def main():
    root = pathlib.Path(sys.argv[1])
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in (".h", ".cpp") and not name.startswith(BACKENDS):
                lines = [f"{name}:{number}: {line.strip()}"
                         for number, line in enumerate(
                             path.read_text().splitlines(), 1)
                         if WAIT.search(line)]
                if lines:
                    found[name] = lines
    new = [line for name, lines in found.items() if name not in KNOWN
           for line in lines]
    for line in new:
        print(f"{line}\n  waits without a word: use detail::wait, or say in "
              f"{pathlib.Path(__file__).name} what tells of it")
    for name in KNOWN.keys() - found.keys():
        print(f"{name} waits no more: take it off the list")
    return bool(new or KNOWN.keys() - found.keys())


if __name__ == "__main__":
    sys.exit(main())
