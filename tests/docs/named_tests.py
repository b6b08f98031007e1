"""Checks that each test that docs/parity.md and docs/pitfalls.md name exists,
and that the latter page is whole.

Usage: named_tests.py SOURCE_FOLDER. A name stands as
file: "name", "name" in the one and as
`tests/file_test.cpp`, "name", "name" in the other.
"""

import pathlib
import re
import sys

NAMES = r'((?:"[^"]+"(?:, )?)+)'
PARTS = ("Cause", "What ddp does", "The message now", "Fix")


def missing_tests(source, references):
    """Of (file, names), and how many names there are."""
    missing = []
    count = 0
    for file, names in references:
        if file == "file":
            continue  # the sentence that explains the notation
        path = source / "tests" / f"{file}_test.cpp"
        code = path.read_text() if path.exists() else ""
        code = re.sub(r'"\s*\n\s*"', "", code)
        for name in re.findall(r'"([^"]+)"', names):
            count += 1
            title = r'\b(TEST_CASE|\w+_TEST)\(\s*' + re.escape(f'"{name}"')
            if not re.search(title, code):
                missing.append(f'there is no {file}: "{name}"')
    return missing, count


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
    for text, form, least in (
        ((source / "docs/parity.md").read_text(), r"(\w+): ", 50),
        (page, r"`tests/(\w+)_test\.cpp`, ", 40),
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
