"""Writes the C++ blocks of pages into one source, to be compiled.

Usage: compiled_blocks.py OUTPUT CONTEXT PAGE... Each block becomes the body of
a function that sees what CONTEXT declares. A line of three dots stands for code
that is left out. Blocks with a title are tested by tests/getting_started.
"""

import pathlib
import re
import sys

FENCE = re.compile(r"^```cpp\n(.*?)^```$", re.M | re.S)


def function(name, page, line, block):
    """A block as a function; includes and a main() are no part of one."""
    lines = [f'#line {line} "{page}"']
    for text in block.splitlines():
        hidden = text.startswith("#include") or text.strip() == "..."
        lines.append("" if hidden else text)
    body = "\n".join(lines)
    if "int main(" in block:
        return body.replace("int main(", f"int {name}_main(") + "\n"
    return f"void {name}() {{\n{body}\n}}\n"


def main():
    output, context, *pages = sys.argv[1:]
    parts = [f'#include "{context}"\n']
    for page in pages:
        text = pathlib.Path(page).read_text()
        stem = re.sub(r"\W", "_", pathlib.Path(page).stem)
        for count, match in enumerate(FENCE.finditer(text)):
            line = text.count("\n", 0, match.start(1)) + 1
            parts.append(function(f"{stem}_{count}", page, line, match[1]))
        if len(parts) == 1:
            sys.exit(f"{page} has no block of C++")
    pathlib.Path(output).write_text("\n".join(parts))


main()
