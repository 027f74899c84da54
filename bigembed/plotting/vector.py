"""Small charts as inline SVG for a page: colours by CSS classes, titles for readers that do not see, no scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from bigembed.runtime.blocks import Array

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 26, 40
TICKS = 5
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_POINTS = 400
"""Of a series; longer ones are thinned."""


@dataclass(frozen=True)
class Series:
    """Numbers to draw over x, and how: ``"line"``, ``"dots"``, ``"both"``, ``"stems"`` or ``"bars"``."""

    name: str
    x: Array
    y: Array
    kind: str = "line"


@dataclass(frozen=True)
class Mark:
    """A vertical line at x, with a word."""

    x: float
    text: str


@dataclass(frozen=True)
class Scale:
    """From numbers to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the limits; powers of ten on a logarithmic scale."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, math.ceil((last - first) / TICKS))
            return [10.0**power for power in range(first, last + 1, step)] or [self.low, self.high]
        width = round_step((self.high - self.low) / TICKS)
        first, last = math.ceil(self.low / width - 1e-9), math.floor(self.high / width + 1e-9)
        return [count * width for count in range(first, last + 1)]

    def name(self, tick: float) -> str:
        """A tick, with the digits that distinguish it from its neighbors."""
        if self.log or abs(tick) >= 1e5 or (tick and abs(tick) < 1e-3):
            return number(tick)
        width = round_step((self.high - self.low) / TICKS)
        digits = next(count for count in range(17) if abs(width - round(width, count)) < 1e-6 * width)
        return number(tick) if digits < 4 else f"{tick:.{digits}f}".replace("-", "−")


def chart(
    name: str,
    title: str,
    description: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str = "",
    marks: Sequence[Mark] = (),
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = False,
    integers: bool = False,
) -> str:
    """An SVG of the series; ``""`` where there is nothing to draw.

    ``name`` is its id on the page; ``zero`` puts 0 on the y axis; ``integers`` asks for whole numbers on the x axis.
    Numbers that are not finite (on a logarithmic axis: not positive) are left out.
    """
    drawn = [found for found in (_drawable(one, log_x, log_y) for one in series) if len(found.x)]
    if not drawn:
        return ""
    across, up = _scales(drawn, marks, log_x, log_y, zero, integers)
    parts = [
        f'<svg class="chart" id="{escape(name)}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{escape(name)}-t {escape(name)}-d">',
        f'<title id="{escape(name)}-t">{escape(title)}</title><desc id="{escape(name)}-d">{escape(description)}</desc>',
        *_grid(across, up, integers),
        *(_mark(mark, across, order) for order, mark in enumerate(marks) if _inside(mark.x, across)),
        *(piece for number, one in enumerate(drawn) for piece in _series(one, number, across, up)),
        *_names(drawn, y_label),
        f'<text class="axis-name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}">{escape(x_label)}</text>',
        "</svg>",
    ]
    return "".join(parts)


def _drawable(one: Series, log_x: bool, log_y: bool) -> Series:
    x, y = np.asarray(one.x, np.float64).ravel(), np.asarray(one.y, np.float64).ravel()
    good = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log_x)) & ((y > 0) | (not log_y))
    x, y = x[good], y[good]
    step = max(1, -(-len(x) // MOST_POINTS))
    return Series(one.name, x[::step], y[::step], one.kind)


def _scales(
    drawn: Sequence[Series], marks: Sequence[Mark], log_x: bool, log_y: bool, zero: bool, integers: bool
) -> tuple[Scale, Scale]:
    x = np.concatenate([one.x for one in drawn])
    y = np.concatenate([one.y for one in drawn])
    left, right = _range(x, log_x, 0.0)
    low, high = _range(y, log_y, 0.06)
    if zero and not log_y:
        low, high = min(0.0, float(y.min())) and low, max(0.0, high)
    if integers:
        left, right = left - 0.6, right + 0.6
    return Scale(left, right, LEFT + 4, WIDTH - RIGHT - 4, log_x), Scale(low, high, HEIGHT - BOTTOM, TOP, log_y)


def _range(values: Array, log: bool, room: float) -> tuple[float, float]:
    """Limits with a little room; never of no width."""
    low, high = float(values.min()), float(values.max())
    if log:
        spread = max(math.log10(high / low), 0.5)
        return low / 10 ** (room * spread), high * 10 ** (room * spread)
    spread = (high - low) or abs(high) or 1.0
    if high - low <= 1e-12 * spread:
        return low - 0.5 * spread, high + 0.5 * spread
    return low - room * spread, high + room * spread


def _grid(across: Scale, up: Scale, integers: bool) -> list[str]:
    lines: list[str] = []
    for value in up.ticks():
        y = f"{up(value):.1f}"
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text class="tick end" x="{LEFT - 7}" y="{up(value) + 4:.1f}">{up.name(value)}</text>')
    for value in _integer_ticks(across) if integers else across.ticks():
        x = f"{across(value):.1f}"
        lines.append(f'<text class="tick" x="{x}" y="{HEIGHT - BOTTOM + 16}">{across.name(value)}</text>')
    base = HEIGHT - BOTTOM
    lines.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    return lines


def _integer_ticks(across: Scale) -> list[float]:
    """Whole numbers, at most ten or so."""
    first, last = math.ceil(across.low), math.floor(across.high)
    step = max(1, round(round_step((last - first + 1) / 10)))
    return [float(value) for value in range(first, last + 1) if value % step == 0 or step == 1]


def _inside(value: float, scale: Scale) -> bool:
    return math.isfinite(value) and scale.low <= value <= scale.high


def _mark(mark: Mark, across: Scale, order: int) -> str:
    x, y = across(mark.x), TOP + 11 + 15 * order
    side = ("end", -6) if x > (LEFT + WIDTH) / 2 else ("start", 6)
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="mark-name {side[0]}" x="{x + side[1]:.1f}" y="{y}">{escape(mark.text)}</text>'
    )


def _series(one: Series, order: int, across: Scale, up: Scale) -> list[str]:
    points = [(across(x), up(y)) for x, y in zip(one.x.tolist(), one.y.tolist(), strict=True)]
    said = [f"{one.name} {number(x)}: {number(y)}" for x, y in zip(one.x.tolist(), one.y.tolist(), strict=True)]
    draw: dict[str, Callable[[], list[str]]] = {
        "line": lambda: [_line(points, order)],
        "dots": lambda: _dots(points, said, order),
        "both": lambda: [_line(points, order), *_dots(points, said, order)],
        "stems": lambda: [*_stems(points, up, order), *_dots(points, said, order)],
        "bars": lambda: _bars(points, said, up, order),
    }
    return draw[one.kind]()


def _line(points: Sequence[tuple[float, float]], order: int) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line s{order % 6}" points="{path}"/>'


def _dots(points: Sequence[tuple[float, float]], said: Sequence[str], order: int) -> list[str]:
    radius = 4 if len(points) <= 40 else 2.5
    return [
        f'<circle class="dot s{order % 6}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{escape(text)}</title></circle>"
        for (x, y), text in zip(points, said, strict=True)
    ]


def _stems(points: Sequence[tuple[float, float]], up: Scale, order: int) -> list[str]:
    base = up(min(max(0.0, up.low), up.high))
    return [
        f'<line class="stem s{order % 6}" x1="{x:.1f}" x2="{x:.1f}" y1="{base:.1f}" y2="{y:.1f}"/>' for x, y in points
    ]


def _bars(points: Sequence[tuple[float, float]], said: Sequence[str], up: Scale, order: int) -> list[str]:
    base = up(min(max(0.0, up.low), up.high))
    gap = points[1][0] - points[0][0] if len(points) > 1 else 40.0
    wide = max(0.8, min(34.0, 0.78 * gap)) if len(points) < 60 else max(0.8, 0.95 * gap)
    return [
        f'<rect class="bar s{order % 6}" x="{x - wide / 2:.1f}" y="{min(y, base):.1f}" width="{wide:.1f}" '
        f'height="{abs(base - y):.1f}"><title>{escape(text)}</title></rect>'
        for (x, y), text in zip(points, said, strict=True)
    ]


def _names(drawn: Sequence[Series], y_label: str) -> list[str]:
    """Above the chart: what is on the y axis, or the names of several series in their colours."""
    if len(drawn) == 1:
        return [f'<text class="axis-name start" x="{LEFT}" y="14">{escape(y_label or drawn[0].name)}</text>']
    parts, x = [], float(LEFT)
    for order, one in enumerate(drawn[:6]):
        parts.append(f'<rect class="bar s{order}" x="{x:.0f}" y="5" width="10" height="10" rx="2"/>')
        parts.append(f'<text class="axis-name start" x="{x + 15:.0f}" y="14">{escape(one.name)}</text>')
        x += 33 + 6.4 * len(one.name)
    return parts


def round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``least``.

    >>> round_step(0.031), round_step(7)
    (0.05, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(
        float(f"{factor * power:.12g}") for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * (1 - 1e-9)
    )


def ends(low: float, high: float) -> tuple[str, str]:
    """Both ends of a range, to the digits that its width makes meaningful.

    >>> ends(0.00004, 144.48), ends(-1e-5, 2e-5)
    (('0', '144.5'), ('−10⁻⁵', '2·10⁻⁵'))
    """
    width = high - low
    digits = 3 - math.floor(math.log10(width)) if width > 0 and math.isfinite(width) else 6
    return number(round(low, digits) + 0.0), number(round(high, digits) + 0.0)


def number(value: float) -> str:
    """A number in few signs, with a real minus.

    >>> number(0.05), number(-1e-9), number(1234567.0), number(0.0)
    ('0.05', '−10⁻⁹', '1.23·10⁶', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    small = 1e-3 <= abs(value) < 1e5
    text = f"{value:.4g}" if small else f"{value:.3g}"
    if "e" in text:
        head, _, power = text.partition("e")
        raised = str(int(power)).translate(RAISED)
        text = (head.removesuffix("1") if head in ("1", "-1") else f"{head}·") + f"10{raised}"
    return text.replace("-", "−")
