"""Efficiency against the number of GPUs, as SVG."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 430
LEFT, TOP, RIGHT, BOTTOM = 60, 40, 250, 50
LOWEST = 70  # percent
COLORS = ("#2a6f97", "#c1121f", "#588157", "#7b2cbf")


@dataclass(frozen=True)
class Curve:
    label: str
    note: str  # what validation says of it
    efficiencies: dict[int, float]  # by the number of GPUs
    published: dict[int, float]


def text(x, y, words, **attributes):
    extra = "".join(f' {name.replace("_", "-")}="{value}"'
                    for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(words)}</text>'


def line(x1, y1, x2, y2, color):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{color}"/>')


class Scale:
    def __init__(self, curves):
        counts = [count for curve in curves for count in curve.efficiencies]
        self.low, self.high = math.log2(min(counts)), math.log2(max(counts))

    def x(self, count):
        share = (math.log2(count) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    @staticmethod
    def y(efficiency):
        share = (100 - 100 * efficiency) / (100 - LOWEST)
        return TOP + share * (HEIGHT - TOP - BOTTOM)


def axes(scale):
    parts = []
    for percent in range(LOWEST, 101, 5):
        y = scale.y(percent / 100)
        parts += [line(LEFT, y, WIDTH - RIGHT, y, "#ddd"),
                  text(LEFT - 8, y + 4, f"{percent} %", text_anchor="end")]
    for power in range(round(scale.low), round(scale.high) + 1):
        x = scale.x(1 << power)
        parts += [line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4, "#888"),
                  text(x, HEIGHT - BOTTOM + 18, f"{1 << power}",
                       text_anchor="middle")]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return parts + [text(middle, HEIGHT - 10, "GPUs", text_anchor="middle")]


def draw(curve, color, scale, place):
    points = " ".join(f"{scale.x(count):.1f},{scale.y(value):.1f}"
                      for count, value in curve.efficiencies.items())
    parts = [f'<polyline points="{points}" fill="none" stroke="{color}" '
             'stroke-width="2"/>']
    for count, value in curve.published.items():
        parts.append(f'<circle cx="{scale.x(count):.1f}" '
                     f'cy="{scale.y(value):.1f}" r="4" fill="white" '
                     f'stroke="{color}" stroke-width="2"/>')
    x, y = WIDTH - RIGHT + 15, TOP + 20 + 62 * place
    return parts + [text(x, y, curve.label, fill=color, font_weight="bold"),
                    *(text(x, y + 15 * (i + 1), words, fill="#444")
                      for i, words in enumerate(curve.note.split("\n")))]


def svg(title, curves):
    scale = Scale(curves)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
             f'height="{HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(LEFT, 22, title, font_size="13"), *axes(scale)]
    for place, (curve, color) in enumerate(zip(curves, COLORS)):
        parts += draw(curve, color, scale, place)
    return "\n".join([*parts, "</svg>", ""])
