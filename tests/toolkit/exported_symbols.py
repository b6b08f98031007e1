"""The library exports what its public headers mark with DDP_API, and nothing
else: exported_symbols.py <root> <nm> <libddp.so>. And it has all that programs
want of it: exported_symbols.py <root> <nm> <libddp.so> <object of one>...
"""

import pathlib
import re
import subprocess
import sys

FORWARD = re.compile(
    r"^namespace [\w:]+ \{\n(?:(?:template <.*>\n)?(?:class|struct) \w+;\n)+\}.*\n",
    re.MULTILINE)
NAMESPACE = re.compile(r"^(?:inline )?namespace ([\w:]+) \{")
TYPE = re.compile(r"^(?:class|struct) DDP_API (\w+)")
FUNCTION = re.compile(r"^(?:\[\[\w+\]\] )?DDP_API [^(;]*?(\w+)\(", re.DOTALL)
OF_A_TYPE = re.compile(
    r"^(?:vtable|VTT|typeinfo(?: name)?|guard variable|construction vtable"
    r"|(?:non-virtual |virtual )?thunk) (?:for|to) ")


def without_arguments(text):
    """Without the arguments of templates."""
    while (plain := re.sub(r"<[^<>]*>", "", text)) != text:
        text = plain
    return text


def marked(text):
    """The qualified names that a header marks: (types, functions)."""
    spaces, types, functions = [], set(), set()
    lines = FORWARD.sub("", text).splitlines()
    for number, line in enumerate(lines):
        if space := NAMESPACE.match(line):
            spaces.append(space[1])
        elif line.startswith("}") and "// namespace" in line:
            spaces.pop()
        elif name := TYPE.match(line):
            types.add("::".join([*spaces, name[1]]))
        elif "DDP_API " in line and not line.startswith(("#", "//")):
            declaration = "\n".join(lines[number:number + 4])
            name = FUNCTION.match(without_arguments(declaration))
            assert name, line
            functions.add("::".join([*spaces, name[1]]))
    return types, functions


def name_of(symbol):
    """What a symbol belongs to: without template arguments, parameters and the
    type that a template's instance returns."""
    symbol = OF_A_TYPE.sub("", symbol)
    symbol = without_arguments(re.sub(r"\[abi:\w+\]", "", symbol))
    return symbol.split("(")[0].split(" ")[-1]


def faults(types, functions, symbols):
    """What is exported and not marked, or marked and not exported."""
    used = set()
    for kind, symbol in symbols:
        name = name_of(symbol)
        if not name.startswith("ddp::"):
            # Other headers' templates: every library that uses them has them.
            if kind not in "WVu":
                yield f"exported, and not ddp's: {symbol}"
            continue
        owners = {name} & (types | functions) | {
            owner for owner in types if name.startswith(owner + "::")}
        used |= owners
        if not owners:
            yield f"exported, and not marked with DDP_API: {symbol}"
    for name in sorted((types | functions) - used):
        yield f"marked with DDP_API, and no symbol of the library: {name}"


def lines_of(*command):
    return subprocess.run(
        command, check=True, capture_output=True, text=True).stdout.splitlines()


def exported(nm, library):
    lines = lines_of(nm, "-DC", "--defined-only", library)
    return [tuple(line.split(" ", 2)[1:]) for line in lines]


def missing(nm, library, objects):
    """What programs want of ddp and the library does not have."""
    here = {symbol for _, symbol in exported(nm, library)}
    symbols = [line.strip().split(" ", 1)[1]
               for line in lines_of(nm, "-uC", *objects) if line.startswith(" ")]
    wanted = {symbol for symbol in symbols if name_of(symbol).startswith("ddp::")}
    assert wanted
    return sorted(wanted - here)


def main():
    root, nm, library, *objects = sys.argv[1:]
    if objects:
        sys.exit("\n".join(missing(nm, library, objects)) or 0)
    root = pathlib.Path(root)
    types, functions = set(), set()
    for header in sorted(root.glob("*/include/**/*.h")):
        for found, all_of in zip(marked(header.read_text()), (types, functions)):
            all_of |= found
    found = sorted(set(faults(types, functions, exported(nm, library))))
    assert types and functions
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
