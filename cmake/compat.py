"""The table of ./dev compat: which versions of LibTorch and which compilers the
library was built and tested with.

compat.py list ENTRIES [NAME...]: prints the entries of that file (compat.ini),
all or those with these names, whose compiler is here: NAME, version, targets,
pip's and CMake's arguments.

compat.py table ENTRIES BUILD [--write PAGE] [NAME...]: prints the table, with
what ./dev left in BUILD/compat-NAME for each of these: `stage` (the step that
it ended in) and tests.xml. PAGE gets these rows between its markers, and keeps
the others. Exits with 1 if a supported entry failed.
"""

import configparser
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree

HEADINGS = ("LibTorch", "C++", "compiler", "builds", "tests passed", "note")
NAMES = {"g++": "GCC", "g++-14": "newer GCC", "clang++": "Clang",
         "aarch64-linux-gnu-g++": "GCC for aarch64"}
BEGIN, END = "<!-- compat -->", "<!-- end of compat -->"


def read_entries(path, names):
    """All entries of the file, and the names of those that are wanted."""
    entries = configparser.ConfigParser(interpolation=None)
    entries.read_string(pathlib.Path(path).read_text())
    for name in names:
        if name not in entries:
            sys.exit(f"dev: unknown version '{name}': it is one of "
                     f"{', '.join(entries.sections())}")
    return entries, names or entries.sections()


def compiler_version(folder):
    for path in folder.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        return re.search(r'CMAKE_CXX_COMPILER_VERSION "([\d.]+)"',
                         path.read_text())[1]
    return ""


def standard_of(folder, default):
    """The standard that the library's sources were compiled as; CMake names
    none where it is the compiler's own."""
    path = folder / "compile_commands.json"
    found = path.exists() and re.search(r"-std=\w+\+\+(\d+)[^\n]*/ddp\.dir/",
                                        path.read_text())
    return found[1] if found else default


def tests_of(path):
    """How many passed, how many ran, how many were skipped, which failed."""
    if not path.exists():
        return 0, 0, 0, ["ctest"]
    cases = xml.etree.ElementTree.parse(path).getroot().findall("testcase")
    failed = [case.get("name") for case in cases if case.get("status") == "fail"]
    passed = sum(case.get("status") == "run" for case in cases)
    return passed, passed + len(failed), len(cases) - passed - len(failed), failed


def first_cells(entry, version=""):
    compiler = NAMES.get(entry["compiler"], entry["compiler"])
    return [entry["torch"], entry["standard"], f"{compiler} {version}".strip()]


def row_of(entry, folder):
    """The cells of an entry that was tried, and whether it passed."""
    stage = folder / "stage"
    ended_in = stage.read_text().strip() if stage.exists() else "download"
    cells = first_cells(entry, compiler_version(folder))
    notes = [entry["note"]] if entry["note"] else []
    if not shutil.which(entry["compiler"]):
        return cells + ["not run", "", f"{entry['compiler']} was not found"], True
    if ended_in == "download":
        return cells + ["not run", "", "; ".join([*notes, "not downloaded"])], False
    cells[1] = standard_of(folder, entry["standard"])
    if ended_in == "built":
        return cells + ["yes", "not run", "; ".join(notes)], True
    if ended_in != "tests":
        return cells + ["no", "", "; ".join([*notes, f"{ended_in} failed"])], False
    passed, ran, skipped, failed = tests_of(folder / "tests.xml")
    if skipped:
        notes.append(f"{skipped} skipped")
    if failed:
        notes.append("failed: " + ", ".join(failed))
    return cells + ["yes", f"{passed}/{ran}", "; ".join(notes)], not failed and ran > 0


def key_of(cells):
    """What an entry is told by: its compiler without a version."""
    return cells[0], cells[1], re.sub(r" [\d.]+$", "", cells[2])


def rows_in(text):
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines()[2:]]
    return {key_of(row): row for row in rows}


def as_text(rows):
    lines = [HEADINGS, ["---"] * len(HEADINGS), *rows]
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"
                   for cells in lines)


def print_table(entries, names, build, page):
    table, passed = {}, True
    for name in entries.sections():
        cells = first_cells(entries[name])
        table[key_of(cells)] = cells + ["not run", "", entries[name]["note"]]
    for name in names:
        row, good = row_of(entries[name], build / f"compat-{name}")
        table[key_of(first_cells(entries[name]))] = row
        passed &= good or not entries[name].getboolean("supported")
    print(as_text(table.values()), end="")
    if page:
        before, rest = page.read_text().split(BEGIN + "\n")
        old, after = rest.split(END)
        old = rows_in(old)
        rows = [old.get(key, row) if row[3] == "not run" else row
                for key, row in table.items()]
        page.write_text(f"{before}{BEGIN}\n{as_text(rows)}{END}{after}")
    return passed


def main():
    what, path, *rest = sys.argv[1:]
    if what == "list":
        entries, names = read_entries(path, rest)
        for name in filter(lambda name: shutil.which(entries[name]["compiler"]), names):
            print(name, *(" ".join(entries[name][key].split())
                          for key in ("torch", "targets", "pip", "cmake")), sep="\t")
        return
    build, page = pathlib.Path(rest.pop(0)), None
    if rest[:1] == ["--write"]:
        page, rest = pathlib.Path(rest[1]), rest[2:]
    entries, names = read_entries(path, rest)
    sys.exit(not print_table(entries, names, build, page))


if __name__ == "__main__":
    main()
