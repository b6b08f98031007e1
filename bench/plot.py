"""Pictures of results, as SVG: a row for each case, with its quartiles."""

import math
from html import escape

ROW, LEFT, RIGHT, WIDTH, TOP, BOTTOM = 18, 330, 30, 900, 46, 30
COLORS = ("#2a6f97", "#c1121f", "#588157")
TICKS = [m * 10.0**p for p in range(-6, 7) for m in (1, 2, 5)]

# The group's title, the beginnings of its cases' names, and its figures.
PLOTS = {
    "steps": (
        "A training step over the same step of others",
        ("mlp", "big", "resnet", "accumulation", "unused", "blocks", "lstm"),
        {"ratio_python": "Python's DDP", "ratio_c10d": "c10d::Reducer"},
    ),
    "collectives": (
        "An all-reduce over the same by gloo",
        ("all_reduce_shm", "all_reduce_mpi"),
        {"ratio_gloo": "gloo"},
    ),
    "checkpoints": (
        "A checkpoint over torch.save and torch.load",
        ("save_", "load_"),
        {"ratio_python": "Python's"},
    ),
    "loader": (
        "An epoch of ddp::DataLoader over others",
        ("loader_",),
        {"ratio_libtorch": "LibTorch's", "ratio_python": "Python's"},
    ),
    "wire": (
        "An all-reduce between hosts over the network's limit",
        ("wire_",),
        {"ratio_limit": "the limit"},
    ),
    "ranks": (
        "Ranks on one host, in milliseconds",
        ("ranks_",),
        {"form_ms": "forming a group", "reducer_ms": "constructing a Reducer"},
    ),
}


def element(tag, words="", **attributes):
    text = "".join(
        f' {name.replace("_", "-")}="{value}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{text}>{escape(words)}</{tag}>"


class Plot:
    def __init__(self, title, results, figures):
        self.title, self.figures = title, figures
        self.rows = [r for r in results if any(key in r for key in figures)]
        bounds = [1.0]
        for row in self.rows:
            for key in figures.keys() & row.keys():
                bounds += [row[key], *row.get(key + "_quartiles", ())]
        self.low = max(t for t in TICKS if t < min(bounds))
        self.high = min(t for t in TICKS if t > max(bounds))
        self.height = TOP + ROW * len(self.rows) + BOTTOM

    def x(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def axis(self):
        ticks = [t for t in TICKS if self.low <= t <= self.high]
        if len(ticks) > 10:
            ticks = ticks[::3]
        bottom = self.height - BOTTOM
        for tick in ticks:
            x, color = self.x(tick), "#888" if tick == 1 else "#ddd"
            yield element(
                "line", x1=x, x2=x, y1=TOP - 4, y2=bottom, stroke=color
            )
            label = {"x": x, "y": bottom + 16, "text_anchor": "middle"}
            yield element("text", f"{tick:g}", **label)

    def legend(self):
        yield element("text", self.title, x=8, y=18, font_weight="bold")
        x = LEFT
        for color, name in zip(COLORS, self.figures.values()):
            yield element("circle", cx=x, cy=30, r=4, fill=color)
            yield element("text", name, x=x + 8, y=34)
            x += 160

    def cases(self):
        for place, row in enumerate(self.rows):
            y = TOP + ROW * place + ROW / 2
            yield element(
                "text", row["name"], x=LEFT - 8, y=y + 4, text_anchor="end"
            )
            for color, key in zip(COLORS, self.figures):
                if key not in row:
                    continue
                low, high = row.get(key + "_quartiles", [row[key]] * 2)
                ends = {"x1": self.x(low), "x2": self.x(high)}
                yield element("line", y1=y, y2=y, stroke=color, **ends)
                center = self.x(row[key])
                yield element("circle", cx=center, cy=y, r=4, fill=color)

    def svg(self):
        start = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{self.height}" font-family="sans-serif" font-size="12">'
        )
        white = element("rect", width="100%", height="100%", fill="white")
        parts = [start, white, *self.legend(), *self.axis(), *self.cases()]
        return "\n".join([*parts, "</svg>\n"])


def write(results, folder):
    """Writes GROUP.svg for each group that was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    for group, (title, names, figures) in PLOTS.items():
        cases = [
            r
            for r in results
            if r["name"].startswith(names)
            and not r["name"].endswith(("_c10d", "_python"))
        ]
        plot = Plot(title, cases, figures)
        if plot.rows:
            (folder / f"{group}.svg").write_text(plot.svg())
