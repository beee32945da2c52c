"""Line charts as SVG, written directly: 800 by 600, with axes, a grid and a legend."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 800
HEIGHT: Final = 600
LEFT: Final = 80  # of the plot itself: room for the numbers of the axes, the title and the legend
RIGHT: Final = 20
TOP: Final = 60
BOTTOM: Final = 70
TICKS: Final = 6  # about as many as can be read
COLOURS: Final = ("#1f6fb4", "#d95f02", "#1b9e77", "#7570b3")  # told apart also by those who see fewer colours


@dataclass(frozen=True)
class Series:
    """One line: its name and its points."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


def line_chart(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """Draw lines over one another."""
    x_axis = Axis.over([x for one in series for x in one.xs], LEFT, WIDTH - RIGHT)
    y_axis = Axis.over([y for one in series for y in one.ys], HEIGHT - BOTTOM, TOP)
    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(middle_x, 28, title, 'text-anchor="middle" font-size="17"'),
        *_grid(x_axis, y_axis),
        *(_line(one, colour, x_axis, y_axis) for one, colour in zip(series, COLOURS, strict=False)),
        *_legend(series),
        _text(middle_x, HEIGHT - 20, x_label, 'text-anchor="middle"'),
        _text(20, middle_y, y_label, f'text-anchor="middle" transform="rotate(-90 20 {middle_y:g})"'),
        "</svg>\n",
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, drawn from one pixel to another, with a tick every `step`."""

    low: float
    high: float
    step: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> "Axis":
        """Choose round numbers around these values."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if high == low:  # a level line, in the middle
            low, high = low - (abs(low) or 1.0) / 10, high + (abs(high) or 1.0) / 10
        step = _round_number((high - low) / TICKS)
        return cls(floor(low / step) * step, ceil(high / step) * step, step, begin, end)

    def place(self, value: float) -> float:
        """Return the pixel at which a value lies."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        """The values that are named."""
        return [self.low + number * self.step for number in range(round((self.high - self.low) / self.step) + 1)]


def _round_number(size: float) -> float:
    """Return the first of 1, 2, 5, 10... times a power of ten that is at least so large."""
    power = 10.0 ** floor(log10(size))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * 0.999)


def _grid(x_axis: Axis, y_axis: Axis) -> list[str]:
    parts = []
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        parts.append(f'<path d="M{x:.1f} {y_axis.begin}V{y_axis.end}" stroke="#dddddd"/>')
        parts.append(_text(x, y_axis.begin + 20, f"{tick:.6g}", 'text-anchor="middle"'))
    for tick in y_axis.ticks:
        y = y_axis.place(tick)
        parts.append(f'<path d="M{x_axis.begin} {y:.1f}H{x_axis.end}" stroke="#dddddd"/>')
        parts.append(_text(x_axis.begin - 8, y + 4, f"{tick:.6g}", 'text-anchor="end"'))
    outline = f"M{x_axis.begin} {y_axis.end}V{y_axis.begin}H{x_axis.end}"
    return [*parts, f'<path d="{outline}" fill="none" stroke="#444444"/>']


def _line(series: Series, colour: str, x_axis: Axis, y_axis: Axis) -> str:
    places = [f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in zip(series.xs, series.ys, strict=True)]
    if len(places) == 1:  # a line of one point would not be seen
        x, y = places[0].split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    return f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _legend(series: Sequence[Series]) -> list[str]:
    parts = []
    for number, (one, colour) in enumerate(zip(series, COLOURS, strict=False)):
        x = LEFT + 170 * number
        parts.append(f'<path d="M{x} 46h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 30, 50, one.name, ""))
    return parts


def _text(x: float, y: float, text: str, how: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222222" {how}>{escape(text)}</text>'
