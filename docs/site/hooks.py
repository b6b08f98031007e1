"""What mkdocs does besides: pages from outside of docs/, and GitHub's Markdown.

Links between files of the repository become links between pages; one that has no
page stays, and `mkdocs build --strict` reports it.
"""

import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
API = ROOT / "build/doxygen/api"  # by Doxygen, before
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?:\[([\w/-]+\.md)\]|\])\(([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)
# Code beside code: a table for GitHub, on the site two columns or, on a phone, one.
BESIDE = {
    "<table><tr><td>": '<div class="beside" markdown><div markdown>',
    "</td><td>": "</div><div markdown>",
    "</td></tr><tr><td>": '</div></div><div class="beside" markdown><div markdown>',
    "</td></tr></table>": "</div></div>",
}
CODE = re.compile(r"(`+[^`]+`+)")
OPTION = re.compile(r"(?<![\w/-])(--[a-z][a-z-]*)")


def example_pages():
    """{file of the repository: page} of the examples' sources."""
    sources = sorted((ROOT / "examples").rglob("*.cpp"))
    headers = sorted((ROOT / "examples").rglob("*.h"))
    names = [path.relative_to(ROOT).as_posix() for path in sources + headers]
    return {name: f"examples/sources/{os.path.basename(name)}.md"
            for name in names}


def summary_of(source):
    """The first paragraph of the comment at a program's start."""
    words = []
    for line in source.splitlines():
        if not line.startswith("// "):
            break
        words.append(line[3:])
    return " ".join(words).split(" Run: ")[0].replace("|", "\\|")


def title_of(path):
    if not path.exists():
        return path.name
    return path.read_text().split("\n", 1)[0].removeprefix("# ")


def list_of_examples(pages):
    rows = ["# Examples", "", "Complete programs, in the order of their names.", "",
            "| program | |", "|---|---|"]
    for name in pages:
        text = (ROOT / name).read_text()
        if "int main(" in text:
            rows.append(f"| [{os.path.basename(name)}]({name}) | {summary_of(text)} |")
    return "\n".join(rows) + "\n"


def on_config(config):
    config.copyright = f"ddp {os.environ['DDP_VERSION']}"


def on_files(files, config):
    pages = example_pages()
    texts = {page: (ROOT / name).read_text() for name, page in PAGES.items()}
    for name, page in pages.items():
        code = (ROOT / name).read_text()
        texts[page] = (f"# {os.path.basename(name)}\n\n"
                       f'````cpp title="{name}"\n{code}````\n')
    texts["examples/index.md"] = list_of_examples(pages)
    texts["style.css"] = (ROOT / "docs/site/style.css").read_text()
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    for path in sorted(API.rglob("*.*")):
        files.append(File(path.relative_to(API.parent).as_posix(), str(API.parent),
                          config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown, page, config, files):
    of_file = {**PAGES, **example_pages()}
    of_page = {uri: name for name, uri in of_file.items()}
    uri = page.file.src_uri
    if uri.startswith("examples/sources/"):
        return markdown
    here = os.path.dirname(of_page.get(uri, f"docs/{uri}"))
    if uri == "examples/index.md":
        here = ""

    def link(match):
        target, hash_, anchor = match[2].partition("#")
        if not target or re.match(r"\w+:", target):
            return match[0]
        name = os.path.normpath(os.path.join(here, target))
        to = of_file.get(name)
        if to is None and name.startswith("examples"):
            folder = [page for file, page in of_file.items()
                      if file == f"{name}/{os.path.basename(name)}.cpp"]
            to = folder[0] if folder else "examples/index.md"
        if to is None:
            to = name.removeprefix("docs/")
        to = os.path.relpath(to, os.path.dirname(uri) or ".")
        # A page by its title, not by its file's name.
        text = f"[{title_of(ROOT / name)}]" if match[1] else "]"
        return f"{text}({to}{hash_}{anchor})"

    parts = FENCE.split(markdown)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = re.sub(r"\A(`+\w+) title=([^\s\"]+)$", r'\1 title="\2"',
                                  part, flags=re.M)
        else:
            # A comment of its own, as for GitHub, not HTML that goes on.
            part = re.sub(r"^(<!--.*-->)$", r"\n\1\n", part, flags=re.M)
            part = re.sub(r"^(?:</?t\w+>)+$", lambda m: BESIDE[m[0]], part, flags=re.M)
            pieces = CODE.split(part)
            # An option stays whole, and GitHub alone needs the backslash.
            pieces[::2] = [OPTION.sub(r'<span class="option">\1</span>',
                                      LINK.sub(link, piece)) for piece in pieces[::2]]
            pieces[1::2] = [piece.replace(r"\|", "|") for piece in pieces[1::2]]
            parts[index] = "".join(pieces)
    return "".join(parts)
