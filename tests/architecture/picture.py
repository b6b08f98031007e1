"""Draws the layers and which of them include which: docs/layers.svg.

picture.py SOURCE_FOLDER [--write]   compares the picture and the table in
docs/architecture.md with the tree, or brings both up to date"""

import html
import pathlib
import sys

import layers

ROW, LEFT, NAME, RIGHT = 20, 10, 190, 330
COLORS = {"common": "#8c6d1f", "ddp": "#1f5f8c", "samplers": "#2b7a3f",
          "checkpoint": "#8c2f5a", "launcher": "#5a4a8c"}


def arrows(tree):
    """Pairs of layers' numbers: who includes, and from where."""
    found = set()
    for path in tree.text:
        if layers.is_user(path):
            continue
        for include in tree.includes(path):
            pair = tree.layer(path).number, tree.layer(include).number
            if pair[0] != pair[1]:
                found.add(pair)
    return sorted(found)


def picture(tree, rows):
    height = ROW * len(rows) + 10
    width = LEFT + NAME + RIGHT + 260
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" font-family="sans-serif" font-size="12">')
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield ('<marker id="head" viewBox="0 0 6 6" refX="6" refY="3" '
           'markerWidth="6" markerHeight="6" orient="auto">'
           '<path d="M0 0 L6 3 L0 6 z" fill="#333"/></marker>')
    x = LEFT + NAME + RIGHT
    for source, target in arrows(tree):
        begin, end = (ROW * (number + 0.5) + 5 for number in (source, target))
        radius = 12 + 8 * abs(source - target)
        color = COLORS[layers.component_of(rows[source].folder)]
        yield (f'<path d="M{x} {begin} Q{x + radius} {(begin + end) / 2} '
               f'{x} {end}" fill="none" stroke="{color}" opacity="0.5" '
               'marker-end="url(#head)"/>')
    for row in rows:
        y = ROW * (row.number + 0.5) + 9
        color = COLORS[layers.component_of(row.folder)]
        yield (f'<text x="{LEFT}" y="{y}" fill="{color}" font-weight="bold">'
               f'{row.folder}</text>')
        yield (f'<text x="{LEFT + NAME}" y="{y}" fill="#333">'
               f'{html.escape(row.text)}</text>')
    yield "</svg>"


def core_table(root):
    """The files that each backward runs through, with their lines."""
    yield "| file of the core | lines |"
    yield "|---|---|"
    counts = {name: len((root / name).read_text().splitlines())
              for name in layers.CORE}
    for name, count in counts.items():
        yield f"| `{name}` | {count} |"
    yield f"| all, at most {layers.MAX_CORE_LINES} | {sum(counts.values())} |"


def with_table(text, name, lines):
    """The page, with the lines between the comments of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    return before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def main():
    root = pathlib.Path(sys.argv[1])
    rows = layers.read_layers()
    svg = "\n".join(picture(layers.Tree(root, rows), rows)) + "\n"
    page = root / "docs/architecture.md"
    text = with_table(page.read_text(), "layers", layers.table())
    text = with_table(text, "core", core_table(root))
    drawing = root / "docs/layers.svg"
    if "--write" in sys.argv:
        drawing.write_text(svg)
        page.write_text(text)
        return 0
    same = (drawing.exists() and drawing.read_text() == svg
            and page.read_text() == text)
    if not same:
        print("docs/layers.svg or a table in docs/architecture.md is older than "
              "the tree: run tests/architecture/picture.py . --write")
    return not same


if __name__ == "__main__":
    sys.exit(main())
