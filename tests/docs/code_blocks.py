"""Checks the form of each code block of the pages; docs_blocks compiles C++.

Usage: code_blocks.py SOURCE_FOLDER COMPILED_PAGE... Words in capitals stand for
values. Without PyYAML, that of ./dev docs is used; without either, the exit code
is 77.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from any_yaml import yaml

FENCE = re.compile(r"^( *)```(\w*)(.*)\n((?:.*\n)*?) *```$", re.M)
# Commands of a project do nothing in a script.
STUBS = "".join(f"function({name})\nendfunction()\n" for name in (
    "add_executable", "find_package", "include", "project", "target_link_libraries",
    "FetchContent_Declare", "FetchContent_MakeAvailable"))


def fault_of(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else None


def fault_of_block(language, title, text, compiled):
    if language in ("", "console"):  # commands, and what they print
        language = "sh"
        text = "\n".join(re.findall(r"^\$ (.*)", text, re.M))
    if language in ("sh", "bash"):
        return fault_of(["bash", "-n"], text)
    if language == "cmake":
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as file:
            file.write(STUBS + text)
            file.flush()
            return fault_of(["cmake", "-P", file.name], "")
    if language == "cpp":
        return None if compiled or title else "C++ that no test compiles"
    if language == "diff":
        wrong = re.findall(r"^[^-+ \n].*", text, re.M)
        return f"neither +, - nor a space: {wrong[0]}" if wrong else None
    try:
        if language == "python":
            ast.parse(text)
        elif language == "json":
            json.loads(text)
        elif language == "yaml":
            list(yaml.safe_load_all(text) if yaml else ())
        elif language != "text":
            return f"no check for the language '{language}'"
    except (SyntaxError, ValueError, getattr(yaml, "YAMLError", ())) as error:
        return str(error)
    return None


def main():
    source = pathlib.Path(sys.argv[1])
    compiled = [pathlib.Path(page) for page in sys.argv[2:]]
    compiled.append(source / "docs/reference.md")  # made from what is compiled
    pages = sorted([*source.glob("*.md"), *source.glob("docs/**/*.md"),
                    *source.glob("packaging/**/*.md")])
    found, count = [], 0
    for page in pages:
        text = page.read_text()
        for match in FENCE.finditer(text):
            count += 1
            fault = fault_of_block(match[2], match[3].strip(), textwrap.dedent(match[4]),
                                   page in compiled)
            if fault:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{page.relative_to(source)}:{line}: {fault}")
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(pages)} pages, {count} blocks, {len(found)} with a fault")
    if found or count < 100:
        sys.exit(1)
    if yaml is None:
        print("skipped: YAML, since python3 has no PyYAML; ./dev docs downloads one")
        sys.exit(77)


main()
