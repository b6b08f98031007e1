"""Checks that each test that docs/parity.md names exists.

Usage: named_tests.py SOURCE_FOLDER. A name stands as
file: "name", "name".
"""

import pathlib
import re
import sys


def main():
    source = pathlib.Path(sys.argv[1])
    text = " ".join((source / "docs/parity.md").read_text().split())
    references = re.findall(r'(\w+): ((?:"[^"]+"(?:, )?)+)', text)
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
                missing.append(f'{file}: "{name}"')
    for reference in missing:
        print("there is no", reference)
    print(f"{count} names, {len(missing)} without a test")
    sys.exit(bool(missing) or count < 50)


if __name__ == "__main__":
    main()
