"""Checks that each test that docs/parity.md, docs/peer-tests.md,
docs/pitfalls.md, docs/reliability.md and CONTRIBUTING.md name exists, that
pitfalls.md is whole, that each function that CONTRIBUTING.md names is in its
file, and that the list of environment variables has all that the sources read.

Usage: named_tests.py SOURCE_FOLDER. A name stands as
file: "name", "name" in the first two, as `folder.file`, "name", "name" in
reliability.md and as `tests/file_test.cpp`, "name", "name" in the others.
"""

import pathlib
import re
import sys

NAMES = r'((?:"[^"]+"(?:, )?)+)'
VARIABLES = "misspelt_variables.cpp"
PARTS = ("Cause", "What ddp does", "The message now", "Fix")


def missing_tests(source, references):
    """Of (file, names), and how many names there are."""
    missing = []
    count = 0
    for file, names in references:
        if file == "file":
            continue  # the sentence that explains the notation
        path = source / "tests" / f"{file.replace('.', '/')}_test.cpp"
        code = path.read_text() if path.exists() else ""
        code = re.sub(r'"\s*\n\s*"', "", code)
        for name in re.findall(r'"([^"]+)"', names):
            count += 1
            title = r'\b(TEST_CASE|\w+_TEST)\(\s*' + re.escape(f'"{name}"')
            if not re.search(title, code):
                missing.append(f'there is no {file}: "{name}"')
    return missing, count


def missing_functions(source, page):
    """Of `file.cpp`, `function`, `function`."""
    found = []
    for file, names in re.findall(r"`([\w/]+\.cpp)`((?:, `\w+`)+)", page):
        code = (source / file).read_text()
        for name in re.findall(r"\w+", names):
            if not re.search(rf"^[\w:[].*\b{name}\(", code, re.M):
                found.append(f"{file} has no function {name}")
    return found


def unlisted_variables(source):
    """Names of environment variables that the list of all of them lacks."""
    listed = set()
    read = set()
    for folder in ("ddp", "common", "samplers", "checkpoint", "launcher"):
        for file in sorted((source / folder).rglob("*.[ch]*")):
            names = re.findall(r'"(DDP_[A-Z_]+)"', file.read_text())
            (listed if file.name == VARIABLES else read).update(names)
    return [f"{VARIABLES} lacks {name}" for name in sorted(read - listed)]


def gaps_of(page, test):
    """Messages that `test` does not compare, sections without their parts."""
    found = []
    messages = dict(re.findall(r"```text title=(\S+)\n(.*?)\n```", page, re.S))
    checked = set(re.findall(r'check_message\(\s*"([^"]+)"', test))
    for title in checked ^ set(messages):
        found.append(f"the message {title} is not on the page and in the test")
    for title, text in messages.items():
        if len(text) <= 60:
            found.append(f"the message {title} is a gap alone")
    for section in page.split("\n## ")[1:]:
        for part in PARTS:
            if section.count(f"**{part}**") != 1:
                found.append(f"no part {part!r}: {section.splitlines()[0]}")
    if len(messages) <= 8:
        found.append(f"{len(messages)} messages")
    return found


def main():
    source = pathlib.Path(sys.argv[1])
    page = (source / "docs/pitfalls.md").read_text()
    found = gaps_of(page, (source / "tests/pitfalls_test.cpp").read_text())
    guide = (source / "CONTRIBUTING.md").read_text()
    found += missing_functions(source, guide) + unlisted_variables(source)
    for text, form, least in (
        ((source / "docs/parity.md").read_text(), r"(\w+): ", 50),
        ((source / "docs/peer-tests.md").read_text(), r"([\w/]+): ", 200),
        (page, r"`tests/(\w+)_test\.cpp`, ", 40),
        ((source / "docs/reliability.md").read_text(), r"`([\w.]+)`, ", 150),
        (guide, r"`tests/([\w/]+)_test\.cpp`, ", 8),
    ):
        references = re.findall(form + NAMES, " ".join(text.split()))
        missing, count = missing_tests(source, references)
        found += missing
        print(f"{count} names, {len(missing)} without a test")
        if count < least:
            found.append(f"{count} names alone")
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
