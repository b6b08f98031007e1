"""Sources of the library are compiled several as one. A name of one source's
own must not hide one that a header declares in an enclosing namespace: what is
compiled after it would mean another thing by it, and a class could have two
layouts without a word. Nor may a source take all names of one of LibTorch's
namespaces: where a header before it declares one of them, that is meant."""

import pathlib
import re
import sys

NAMESPACE = re.compile(r"^(?:inline )?namespace ?([\w:]*) ?\{")
WORDS = r"^[A-Za-z_][\w:<>,*&\[\] ]*[ *&]"  # of a type
NAMES = [re.compile(pattern) for pattern in (
    r"^(?:class|struct|union|enum class|enum|using) (?:\[\[.*\]\] )?(\w+)\b",
    WORDS + r"(\w+)\(",
    WORDS + r"(\w+)(?: =|\{|;)")]
NOT_NAMES = re.compile(
    r"^(?:using namespace|return|namespace|#|template|extern|friend|typedef"
    r"|static_assert)")


def declared(path):
    """(namespace, name, line) of what a file declares in namespaces; those of
    sources' own are in their enclosing namespace."""
    open_spaces = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if space := NAMESPACE.match(line):
            open_spaces.append(space[1])
        elif line.startswith("}") and "// namespace" in line:
            open_spaces.pop()
        elif not NOT_NAMES.match(line):
            for pattern in NAMES:
                if name := pattern.match(line):
                    space = "::".join(filter(None, open_spaces))
                    yield space, name[1], number
                    break


def included(files, root):
    """The project's headers that these sources include, and what those do."""
    found = set()
    while files:
        names = {name for path in files for name in re.findall(
            r"^#include <([\w./-]+)>", path.read_text(), re.MULTILINE)}
        files = {folder / name for name in names
                 for folder in (root, *root.glob("*/include"))
                 if (folder / name).is_file()} - found
        found |= files
    return sorted(found)


def encloses(outer, inner):
    return inner.startswith(outer + "::") if outer else inner != ""


def main():
    root = pathlib.Path(sys.argv[1])
    sources = [root / name for name in sys.argv[2:]
               if name.endswith(".cpp")]
    assert sources
    headers = {}
    inclusions = included(set(sources), root)
    taken = [f"{path}: {line.strip()}" for path in (*sources, *inclusions)
             for line in path.read_text().splitlines()
             if re.match(r"\s*using namespace torch", line)]
    for path in inclusions:
        for space, name, number in declared(path):
            headers.setdefault(name, {})[space] = f"{path}:{number}"
    hidden = [
        f"{path}:{number}: {space}::{name} hides {outer}::{name} of {there}"
        for path in sources for space, name, number in declared(path)
        for outer, there in headers.get(name, {}).items()
        if encloses(outer, space) and space not in headers[name]]
    print("\n".join(hidden + taken) or f"{len(sources)} sources hide no name")
    sys.exit(1 if hidden or taken else 0)


if __name__ == "__main__":
    main()
