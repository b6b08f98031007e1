"""The plot of a run of the benchmarks, as SVG."""

import math

COLORS = {
    "shm": "#0072b2",
    "gloo": "#56b4e9",
    "c10d": "#e69f00",
    "python": "#d55e00",
    "mpi": "#009e73",
    "in_place": "#888888",
}
STEPS = ("mlp200", "big100", "resnet18", "accumulation", "unused")
LEFT, WIDTH, ROW = 110, 420, 16


class Axis:
    """Places of values between two ends, by their logarithms."""

    def __init__(self, low, high, start, length):
        self.low, self.start = math.log(low), start
        self.scale = length / (math.log(high) - self.low)

    def __call__(self, value):
        return self.start + (math.log(value) - self.low) * self.scale


def text(x, y, words, anchor="start"):
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}>{words}</text>"


def line(x1, y1, x2, y2, color="#ddd", width=1):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{color}" stroke-width="{width}"/>'
    )


def dot(x, y, color):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'


def step_ways(results, case):
    for way in ("shm", "gloo", "c10d", "python"):
        name = case if way == "shm" else f"{case}_{way}"
        for result in results:
            if result["name"] == name:
                yield way, result


def steps(results, top):
    """A row for each way of each case: the median and the quartiles."""
    rows = [
        (case, list(step_ways(results, case)))
        for case in STEPS
        if any(step_ways(results, case))
    ]
    if not rows:
        return [], top
    height = sum(ROW * len(ways) + 8 for _, ways in rows)
    quartiles = [
        result["ratio_local_quartiles"] for _, ways in rows for _, result in ways
    ]
    lowest = min(0.95, *(low for low, _ in quartiles))
    highest = max(2, *(high for _, high in quartiles))
    axis = Axis(0.95 * lowest, 1.05 * highest, LEFT, WIDTH)
    title = "Step of two ranks over the local step: median and quartiles"
    parts = [text(10, top, title)]
    y = top + 16
    for tick in (1, 1.2, 1.5, 2, 3, 4, 6):
        if tick <= highest:
            parts.append(line(axis(tick), y, axis(tick), y + height))
            parts.append(text(axis(tick), y + height + 12, tick, "middle"))
    for case, ways in rows:
        parts.append(text(10, y + 14, case))
        for way, result in ways:
            y += ROW
            low, high = result["ratio_local_quartiles"]
            color = COLORS[way]
            parts.append(line(axis(low), y - 4, axis(high), y - 4, color, 3))
            parts.append(dot(axis(result["ratio_local"]), y - 4, color))
            parts.append(text(axis(high) + 8, y, way))
        y += 8
    return parts, y + 40


def all_reduces(results, top):
    """Time over size, both logarithmic, a line for each backend."""
    lines = {}
    for result in results:
        if result["name"].startswith("all_reduce_"):
            way = result["name"][len("all_reduce_") :].rsplit("_", 1)[0]
            place = result["bytes"], result["seconds"] * 1e6
            lines.setdefault(way, []).append(place)
    if not lines:
        return [], top
    height = 220
    times = [time for points in lines.values() for _, time in points]
    across = Axis(1 << 10, 100 << 20, LEFT, WIDTH)
    up = Axis(0.8 * min(times), 1.2 * max(times), top + 16 + height, -height)
    parts = [text(10, top, "All-reduce of two ranks: microseconds over bytes")]
    for power in range(-1, 7):
        if min(times) < 10**power < max(times):
            y = up(10**power)
            parts.append(line(LEFT, y, LEFT + WIDTH, y))
            parts.append(text(LEFT - 8, y + 4, f"{10**power:g}", "end"))
    for size, label in ((10, "1 KB"), (20, "1 MB"), (24.6, "25 MB")):
        place = text(across(2**size), top + height + 32, label, "middle")
        parts.append(place)
    for way, points in lines.items():
        color = COLORS.get(way, "#555555")
        places = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{places}" fill="none" stroke="{color}" '
            'stroke-width="2"/>'
        )
        x, y = points[-1]
        below = 14 if way == "in_place" else 4  # shm's is nearby
        parts.append(text(across(x) + 6, up(y) + below, way))
    return parts, top + height + 50


def svg(results):
    step_parts, bottom = steps(results, 24)
    reduce_parts, bottom = all_reduces(results, bottom)
    body = "\n".join(step_parts + reduce_parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {LEFT + WIDTH + 110} {bottom:.0f}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
