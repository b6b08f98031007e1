"""Makes docs/reference.md from the public headers, those of <ddp/ddp.h>: every
constructor, option field and free function, with what the header says of it.
Compares it with the page that is there, or writes it:
reference_page.py ROOT [--write]
"""

import pathlib
import re
import sys
import textwrap

HEAD = """# Constructors, options, functions

What `#include <ddp/ddp.h>` brings: each class with its constructors, each option with its default, and, at the end,
each free function, as the headers document them. An option is set by its name,
`ddp::ReducerOptions().bucket_cap_mb(10)`, and read by `options.bucket_cap_mb()`. This page is made from the headers:
`python3 tests/docs/reference_page.py . --write`.
"""

SCOPE = re.compile(r"(?:class|struct)\s+(?:C10_\w+\s+)?(\w+)(?:\s+final)?"
                   r"\s*(?::[^;{]*)?\{$")
FUNCTION = re.compile(r"[\w>&] ([a-z]\w*)\(.*\)[^()]*[;{]$")
OPTION = re.compile(r"TORCH_ARG\((.*),\s*(\w+)\)\s*(?:=\s*(.*))?;$")


INCLUDE_FOLDERS = ("ddp/include", "samplers/include", "checkpoint/include")


def find(root, header):
    """The file that an #include of it means, or None."""
    paths = (root / folder / header for folder in INCLUDE_FOLDERS)
    return next((path for path in paths if path.exists()), None)


def public_headers(root):
    """ddp.h's, and those they include themselves."""
    found, left = [], ["ddp/ddp.h"]
    while left:
        header = left.pop(0)
        if header in found or "/internal/" in header or "-inl" in header:
            continue
        found.append(header)
        text = find(root, header).read_text()
        left += [name for name in re.findall(r"#include <(ddp/.*)>", text)
                 if find(root, name)]
    return sorted(found[1:])


def statements(text):
    """Yields (doc, code) for each declaration, "x {" and "}" of a header."""
    doc, code = [], ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("///"):
            doc.append(line[4:].rstrip())
        elif line.startswith(("//", "#")):
            continue
        elif not line:
            if not code:
                doc = []
        else:
            line = re.sub(r"\s*//(?:/<)? .*", "", line).replace("DDP_API ", "")
            code = (code + " " + line).strip()
            if code in ("public:", "private:", "protected:"):
                yield [], code
                code = ""
            elif code.endswith((";", "{", "}")):
                yield doc, code
                doc, code = [], ""


def paragraphs(doc):
    """Lines joined, but for those of code."""
    text, in_code = "", False
    for line in doc:
        fence = line.startswith("```")
        apart = in_code or fence or not line or line.startswith("    ")
        between = "\n" if apart or text[-1:] == "\n" else " "
        text += between + line + ("\n" if not line else "")
        in_code ^= fence
        if fence and not in_code:
            text += "\n"
    return re.sub(r"\n{3,}", "\n\n", text.strip())


def entries(text):
    """(class, its doc, its options, its constructors) of a header, and its
    functions (declaration, doc)."""
    result, functions, scopes, access = [], [], [], []
    for doc, code in statements(text):
        code = re.sub(r"^template <[^{]*?>\s+(?=class|struct)", "", code)
        scope = SCOPE.search(code)
        if scopes == ["ddp"] and FUNCTION.search(code):
            if signature(code) not in dict(functions):  # declared before
                functions.append((signature(code), doc))
        if code.startswith("}") and code.endswith("{"):
            continue  # "} else {"
        if code.endswith("{"):
            own = None
            visible = all(way == "public" for way in access)
            if scope and visible and "detail" not in scopes:
                own = (scope[1], doc, [], [])
                result.append(own)
            elif not scope and scopes and isinstance(scopes[-1], tuple):
                note_constructor(scopes[-1], doc, code, access)
            name = re.match(r"namespace (?:ddp::)?(\w+)", code)
            scopes.append(own or (name[1] if name else None))
            access.append("private" if code.startswith("class") else "public")
        elif code.startswith("}"):
            scopes.pop()
            access.pop()
        elif code in ("public:", "private:", "protected:"):
            access[-1] = code[:-1]
        elif scopes and isinstance(scopes[-1], tuple):
            option = OPTION.match(code)
            if option:
                scopes[-1][2].append((option[2], option[1], option[3], doc))
            else:
                note_constructor(scopes[-1], doc, code, access)
            if code.count("{") < code.count("}"):
                scopes.pop()
                access.pop()
    return result, functions


def signature(code):
    """A function's declaration, without its body."""
    code = re.sub(r"\[\[nodiscard.*?\]\] ", "", code)
    return re.sub(r"\s*[;{]$", "", re.sub(r"(?<=[(<]) ", "", code))


def note_constructor(scope, doc, code, access):
    code = re.sub(r"\[\[nodiscard.*?\]\] |\bexplicit ", "", code)
    inherited = re.fullmatch(r"using [\w:]*\b(\w+)::\1;", code)
    if access[-1] == "public" and inherited:
        scope[3].append((code, doc))
    if (access[-1] == "public" and re.search(rf"(^|> ){scope[0]}\(", code)
            and "delete" not in code and f"{scope[0]}&&)" not in code
            and f"const {scope[0]}&)" not in code):
        code = re.split(r"\)\s*(?:noexcept)?\s*(?::\s|\{|;|= default)", code)[0]
        scope[3].append((code.replace("( ", "(") + ")", doc))


def prose(doc):
    """Paragraphs in lines of 120 columns."""
    parts = paragraphs(doc).split("\n\n")
    return "\n\n".join(
        part if part.startswith(("```", "    ")) else textwrap.fill(
            part, 120, break_long_words=False, break_on_hyphens=False)
        for part in parts) + "\n"


def cell(text):
    return text.replace("\n\n", "<br>").replace("|", "\\|")


def page(root):
    lines, last = [HEAD], ["## Functions\n"]
    for header in public_headers(root):
        classes, functions = entries(find(root, header).read_text())
        for code, doc in functions:
            last.append(f"```cpp\n#include <{header}>\n{code}\n```\n")
            if doc:
                last.append(prose(doc))
        for name, doc, options, constructors in classes:
            if not options and not constructors and not doc:
                continue
            lines.append(f"## {name}\n\n`#include <{header}>`\n")
            if doc:
                lines.append(prose(doc))
            for code, about in constructors:
                lines.append(f"```cpp\n{code}\n```\n")
                if about:
                    lines.append(prose(about))
            if options:
                lines.append("| option | type | default | |\n|---|---|---|---|")
                lines += [
                    f"| `{option}` | `{cell(kind)}` | "
                    f"{f'`{default}`' if default else ''} | "
                    f"{cell(paragraphs(about))} |"
                    for option, kind, default, about in options]
                lines.append("")
    return "\n".join(lines + last)


def main():
    root = pathlib.Path(sys.argv[1])
    path = root / "docs/reference.md"
    made = page(root)
    if "--write" in sys.argv:
        path.write_text(made)
    elif not path.exists() or path.read_text() != made:
        sys.exit("docs/reference.md is not what the headers say: "
                 "python3 tests/docs/reference_page.py . --write")


main()
