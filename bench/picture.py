"""Horizontal bars as one SVG file that is readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 860
LEFT = 230
RIGHT = 150
PITCH = 40
TOP = 44
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #16181d; }
.soft { fill: #5d626c; font-size: 12px; } .title { font-size: 15px; font-weight: 600; }
.page { fill: #ffffff; } .grid { stroke: #dfe0db; } .dot { fill: #16181d; fill-opacity: .55; }
.c0 { fill: #2a78d6; } .c1 { fill: #eb6834; } .c2 { fill: #1baf7a; } .c3 { fill: #eda100; }
.c4 { fill: #7a5bd0; } .c5 { fill: #d6478c; } .c6 { fill: #9a9da3; }
@media (prefers-color-scheme: dark) {
  text { fill: #eceef1; } .soft { fill: #a2a7b0; } .page { fill: #1b1d21; }
  .grid { stroke: #33363d; } .dot { fill: #eceef1; }
  .c0 { fill: #4a90e2; } .c1 { fill: #e87443; } .c2 { fill: #22b07d; } .c3 { fill: #d49a1c; }
  .c4 { fill: #9a82e8; } .c5 { fill: #dc679f; } .c6 { fill: #7d828b; }
}
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One piece of a bar; the same name has the same colour in every bar."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: its parts, the single runs as dots, and a note behind its value."""

    name: str
    parts: tuple[Part, ...]
    dots: tuple[float, ...] = ()
    note: str = ""

    @property
    def value(self) -> float:
        """The bar's length."""
        return sum(part.value for part in self.parts)


def bars(rows: Sequence[Bar], *, title: str, unit: str, foot: str) -> str:
    """Draw the bars from one zero, with a legend where they have named parts."""
    names = list(dict.fromkeys(p.name for r in rows for p in r.parts if p.name))
    legend = 26 if names else 0
    height = TOP + legend + PITCH * len(rows) + 34
    most = max((max((r.value, *r.dots)) for r in rows), default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / most
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
    ]
    out += _legend(names) if names else []
    for number, row in enumerate(rows):
        y = TOP + legend + PITCH * number
        out.append(f'<text x="16" y="{y + 20}">{escape(row.name)}</text>')
        x = float(LEFT)
        for part in row.parts:
            width = part.value * scale
            colour = f"c{names.index(part.name) % 7}" if part.name else f"c{min(number, 1)}"
            label = escape(f"{part.name or row.name}: {part.value:.3g} {unit}")
            out.append(
                f'<rect class="{colour}" x="{x:.1f}" y="{y + 5}" width="{max(width - 1, 1):.1f}" '
                f'height="22" rx="2"><title>{label}</title></rect>'
            )
            x += width
        out += [
            f'<circle class="dot" cx="{LEFT + dot * scale:.1f}" cy="{y + 16}" r="2.5"/>'
            for dot in (row.dots if len(row.dots) > 1 else ())
        ]
        end = max(x, *(LEFT + dot * scale for dot in row.dots)) if row.dots else x
        out.append(f'<text x="{end + 8:.1f}" y="{y + 15}">{_number(row.value)} {unit}</text>')
        out.append(f'<text class="soft" x="{end + 8:.1f}" y="{y + 30}">{escape(row.note)}</text>')
    out.append(f'<text class="soft" x="16" y="{height - 12}">{escape(foot)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> list[str]:
    out: list[str] = []
    x = 16.0
    for number, name in enumerate(names):
        out.append(
            f'<rect class="c{number % 7}" x="{x:.1f}" y="{TOP - 6}" width="11" height="11"/>'
        )
        out.append(f'<text class="soft" x="{x + 16:.1f}" y="{TOP + 4}">{escape(name)}</text>')
        x += 34 + 7.2 * len(name)
    return out


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"
