"""Pictures of results, as SVG: a row for each case, with its quartiles."""

import math

from scaling.plot import line, text

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
    "launch": (
        "The time to a worker's main() over others",
        ("launch",),
        {
            "ratio_torchrun": "torchrun",
            "ratio_mpirun": "mpirun",
            "ratio_fork+exec": "fork and exec",
        },
    ),
    "sampler": (
        "A permutation of 10^8 samples over torch::randperm",
        ("sampler",),
        {"ratio_randperm": "torch::randperm"},
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


def circle(x, y, color):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'


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
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def axis(self):
        ticks = [t for t in TICKS if self.low <= t <= self.high]
        if len(ticks) > 10:
            ticks = ticks[::3]
        bottom = self.height - BOTTOM
        for tick in ticks:
            x, color = self.x(tick), "#888" if tick == 1 else "#ddd"
            yield line(x, TOP - 4, x, bottom, color)
            yield text(x, bottom + 16, f"{tick:g}", text_anchor="middle")

    def legend(self):
        yield text(8, 18, self.title, font_weight="bold")
        x = LEFT
        for color, name in zip(COLORS, self.figures.values()):
            yield circle(x, 30, color)
            yield text(x + 8, 34, name)
            x += 160

    def cases(self):
        for place, row in enumerate(self.rows):
            y = TOP + ROW * place + ROW / 2
            yield text(LEFT - 8, y + 4, row["name"], text_anchor="end")
            for color, key in zip(COLORS, self.figures):
                if key not in row:
                    continue
                low, high = row.get(key + "_quartiles", [row[key]] * 2)
                yield line(self.x(low), y, self.x(high), y, color)
                yield circle(self.x(row[key]), y, color)

    def svg(self):
        start = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{self.height}" font-family="sans-serif" font-size="12">'
        )
        white = '<rect width="100%" height="100%" fill="white"/>'
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
