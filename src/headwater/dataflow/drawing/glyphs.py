"""The shapes of a picture: sources, chains, sinks and routes, as SVG text.

Text is set in a monospaced face, whose width is known without a font, so that it fits its box everywhere. Colours are
classes with a light and a dark set; a viewer without a dark mode shows the light one on a light ground.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from headwater.dataflow.drawing.layout import Point

NAME_PX: Final = 13.0
DETAIL_PX: Final = 10.5
CHAR: Final = 0.615  # width of a character over its height: DejaVu Sans Mono has 0.602, others less
NAME_CHARS_MAX: Final = 30
DETAIL_CHARS_MAX: Final = 38
POINT: Final = 14.0  # the length of a source's tip, and of a sink's notch
CORNER: Final = 9.0

_LIGHT: Final = {
    "bg": "fill:#ffffff",
    "chain": "fill:#f3f5f8;stroke:#c9d1da",
    "operator": "fill:#ffffff;stroke:#c9d1da",
    "source": "fill:#e3f1ff;stroke:#5aa5ee",
    "sink": "fill:#e2f6e7;stroke:#57b873",
    "name": "fill:#1d2733",
    "muted": "fill:#67727e",
    "forward": "stroke:#8b97a3",
    "forward-tip": "fill:#8b97a3",
    "key": "stroke:#8250df",
    "key-tip": "fill:#8250df",
    "balance": "stroke:#0f7fa8",
    "balance-tip": "fill:#0f7fa8",
    "dead": "stroke:#d0342c",
    "dead-tip": "fill:#d0342c",
    "badge": "fill:#4a5563",
    "badge-text": "fill:#ffffff",
}
_DARK: Final = {
    "bg": "fill:#0f141a",
    "chain": "fill:#182029;stroke:#37424e",
    "operator": "fill:#0f141a;stroke:#37424e",
    "source": "fill:#10243a;stroke:#3d83c9",
    "sink": "fill:#11291a;stroke:#3c9455",
    "name": "fill:#e6ecf2",
    "muted": "fill:#93a0ad",
    "forward": "stroke:#6d7985",
    "forward-tip": "fill:#6d7985",
    "key": "stroke:#a985f5",
    "key-tip": "fill:#a985f5",
    "balance": "stroke:#38b0d8",
    "balance-tip": "fill:#38b0d8",
    "dead": "stroke:#f26d65",
    "dead-tip": "fill:#f26d65",
    "badge": "fill:#93a0ad",
    "badge-text": "fill:#0f141a",
}
_SHARED: Final = (
    "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace}"
    f".name{{font-size:{NAME_PX}px;font-weight:600}}.muted{{font-size:{DETAIL_PX}px}}"
    ".title{font-size:17px;font-weight:700}"
    f".forward-tip,.key-tip,.balance-tip,.dead-tip{{font-size:{DETAIL_PX}px}}"
    f".badge-text{{font-size:{DETAIL_PX}px;font-weight:700;text-anchor:middle}}"
    ".route{fill:none;stroke-width:1.6}.dead{stroke-dasharray:5 4}"
    ".inner{fill:none;stroke-width:1.4}"
)


def style() -> str:
    light = "".join(f".{name}{{{rule}}}" for name, rule in _LIGHT.items())
    dark = "".join(f".{name}{{{rule}}}" for name, rule in _DARK.items())
    return f"<style>{_SHARED}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def tips(kinds: Sequence[str]) -> str:
    """Return the arrowheads, one for each colour of route."""
    return "<defs>" + "".join(_tip(kind) for kind in kinds) + "</defs>"


def _tip(kind: str) -> str:
    return (
        f'<marker id="tip-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}-tip" d="M0 0.6 8 4 0 7.4Z"/></marker>'
    )


def text_width(text: str, px: float) -> float:
    """Return an upper bound of a text's width."""
    return len(text) * px * CHAR


def shortened(text: str, chars_max: int) -> str:
    """Return the text, shortened to fit a box."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def words(x: float, y: float, text: str, kind: str, *, whole: str | None = None) -> str:
    """Return a line of text; `whole` is the tooltip of a shortened one."""
    told = f"<title>{escape(whole)}</title>" if whole is not None and whole != text else ""
    return f'<text class={quoteattr(kind)} x="{x:.1f}" y="{y:.1f}">{told}{escape(text)}</text>'


def rounded(x: float, y: float, width: float, height: float, kind: str, radius: float = CORNER) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"/>'


def source_shape(x: float, y: float, width: float, height: float) -> str:
    """Return a tag that points to where its rows go."""
    right, bottom, r = x + width, y + height, CORNER
    return (
        f'<path class="source" d="M{x + r:.1f} {y:.1f}H{right - POINT:.1f}L{right:.1f} {y + height / 2:.1f}'
        f"L{right - POINT:.1f} {bottom:.1f}H{x + r:.1f}Q{x:.1f} {bottom:.1f} {x:.1f} {bottom - r:.1f}"
        f'V{y + r:.1f}Q{x:.1f} {y:.1f} {x + r:.1f} {y:.1f}Z"/>'
    )


def sink_shape(x: float, y: float, width: float, height: float) -> str:
    """Return a tag with a notch into which rows fall."""
    right, bottom, r = x + width, y + height, CORNER
    return (
        f'<path class="sink" d="M{x:.1f} {y:.1f}H{right - r:.1f}Q{right:.1f} {y:.1f} {right:.1f} {y + r:.1f}'
        f"V{bottom - r:.1f}Q{right:.1f} {bottom:.1f} {right - r:.1f} {bottom:.1f}H{x:.1f}"
        f'L{x + POINT:.1f} {y + height / 2:.1f}Z"/>'
    )


def badge(right: float, y: float, text: str) -> str:
    """Return a small mark that sits on the upper edge of a box, near its right corner."""
    width = text_width(text, DETAIL_PX) + 12
    shape = rounded(right - width - 10, y - 8, width, 16, "badge", 8)
    return shape + words(right - width / 2 - 10, y + 3.7, text, "badge-text")


def route(path: Sequence[Point], kind: str) -> str:
    """Return a curve through the points: level at each, and straight between those at equal height."""
    steps = [f"M{path[0].x:.1f} {path[0].y:.1f}"]
    for before, after in pairwise(path):
        if abs(before.y - after.y) < 0.05:
            steps.append(f"H{after.x:.1f}")
        else:
            bend = (before.x + after.x) / 2
            steps.append(f"C{bend:.1f} {before.y:.1f} {bend:.1f} {after.y:.1f} {after.x:.1f} {after.y:.1f}")
    return f'<path class="route {kind}" marker-end="url(#tip-{kind})" d="{"".join(steps)}"/>'
