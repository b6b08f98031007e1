"""Checks that lines of prose in README.md, CONTRIBUTING.md and docs/ end at column 120.

Usage: prose.py SOURCE_FOLDER. Tables, code, headings and images may be wider.
"""

import pathlib
import sys

MAX_COLUMNS = 120
MAY_BE_WIDE = ("|", "#", "!", "<")


def wide_lines(page):
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif (len(line) > MAX_COLUMNS and not is_code
              and not line.startswith(MAY_BE_WIDE)):
            yield f"{page}:{number}: {len(line)} columns"


def main():
    source = pathlib.Path(sys.argv[1])
    pages = [source / "README.md", source / "CONTRIBUTING.md",
             *sorted((source / "docs").glob("*.md"))]
    wide = [line for page in pages for line in wide_lines(page)]
    print(*wide, sep="\n", end="\n" if wide else "")
    print(f"{len(pages)} pages, {len(wide)} lines of prose that are too wide")
    sys.exit(bool(wide) or len(pages) < 2)


main()
