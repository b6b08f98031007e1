"""Compiles sources alone, without writing anything.

compile_alone.py FOLDER JOBS SOURCE...: as FOLDER/compile_commands.json says,
which has none of those that are not built here. Prints what the compiler says,
and exits with 1 where it refuses one.
"""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys


def main():
    folder, jobs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    wanted = {str(pathlib.Path(source).resolve()) for source in sys.argv[3:]}
    commands = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        if entry["file"] in wanted:
            commands[entry["file"]] = entry

    def compile_alone(entry):
        command = re.sub(r" -o \S+", " -fsyntax-only", entry["command"])
        return subprocess.run(
            command, shell=True, cwd=entry["directory"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(compile_alone, commands.values())
        for number, (source, result) in enumerate(zip(commands, results), 1):
            print(f"[{number}/{len(commands)}] {source}\n{result.stdout}", end="",
                  flush=True)
            failed += result.returncode != 0
    print(f"{len(commands)} compiled, {failed} failed; "
          f"{len(wanted) - len(commands)} are not built here")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
