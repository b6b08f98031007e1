"""Checks that the changelog has a heading for the version, and that pages and
recipes name it.

Usage: hosting_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

# ddp 0.1, libddp0.1, libddp.so.0.1, ddp@0.1.0, 0.1.0+torch2.11
REPEATED = re.compile(r"ddp(?:\.so\.|[@ ])?(\d+\.\d+(?:\.\d+)?)|(\d+\.\d+\.\d+)\+torch")


def versions(source):
    """The version in CMakeLists.txt has to be a heading of the changelog, or to
    come."""
    version = re.search(r"project\(ddp VERSION (\d+\.\d+\.\d+)",
                        (source / "CMakeLists.txt").read_text())[1]
    headings = re.findall(r"^## (.*)$", (source / "CHANGELOG.md").read_text(), re.M)
    if not headings:
        return ["CHANGELOG.md has no headings"]
    found = [f"CHANGELOG.md: no heading '{heading}': 'Unreleased', or '0.2.0 - 2026-12-01'"
             for heading in headings
             if heading != "Unreleased"
             and not re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading)]
    if headings[0] != "Unreleased" and not headings[0].startswith(f"{version} - "):
        found.append(f"CHANGELOG.md begins with '{headings[0]}', but the version is "
                     f"{version} and nothing is unreleased")
    return found + other_versions(source, version)


def other_versions(source, version):
    """Where pages and recipes name another version."""
    known = (version, version.rpartition(".")[0])
    found, count = [], 0
    paths = [source / "README.md", *source.glob("docs/*.md"),
             *source.glob("packaging/**/*"), *source.glob(".github/**/*")]
    for path in filter(pathlib.Path.is_file, paths):
        for match in REPEATED.finditer(path.read_text()):
            count += 1
            if (match[1] or match[2]) not in known:
                found.append(f"{path.relative_to(source)}: '{match[0]}', but the version "
                             f"is {version}")
    return found + (["too few places name the version"] if count < 3 else [])


def main():
    found = versions(pathlib.Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
