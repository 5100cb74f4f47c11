"""Draw a comparison as SVG: a bar a run, the mean time to completion split into waiting and running.

It is a file that opens anywhere without a network. Colours are from Okabe and Ito's palette, safe for colour-blind
readers, and follow the reader's light or dark setting.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.errors import printable
from headway.show.names import cut_distinct, shortened
from headway.show.time_unit import time_unit

_WIDTH, _LABEL, _ROW, _TOP = 860, 240, 30, 74
_LETTERS = 30
"""Of a name: what there is room for beside the bars."""
_STYLE = (
    "svg{font:14px system-ui,sans-serif;background:#fff}text{fill:#222}.quiet{fill:#666}"
    ".wait{fill:#d55e00}.run{fill:#0072b2}"
    "@media(prefers-color-scheme:dark){svg{background:#16191d}text{fill:#eee}.quiet{fill:#aaa}"
    ".wait{fill:#e69f00}.run{fill:#56b4e9}}"
)


def bars(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Return the picture of these runs, in the order given."""
    known = [row for row in rows if row["jct_mean_s"] is not None]
    longest = max((row["jct_mean_s"] for row in known), default=1.0)
    unit, size = time_unit(longest)
    scale = (_WIDTH - _LABEL - 110) / max(longest, 1e-9)
    height = _TOP + _ROW * len(known) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text x="20" y="30" font-size="18" font-weight="600">{escape(title)}</text>',
        f'<rect class="wait" x="{_LABEL}" y="44" width="14" height="14"/>',
        f'<text class="quiet" x="{_LABEL + 20}" y="56">waiting</text>',
        f'<rect class="run" x="{_LABEL + 90}" y="44" width="14" height="14"/>',
        f'<text class="quiet" x="{_LABEL + 110}" y="56">running: together the mean time to completion</text>',
    ]
    names = [str(row.get("variant") or row["policy"]) for row in known]
    both = zip(names, cut_distinct(shortened(names), _LETTERS), strict=True)
    for index, (row, called) in enumerate(zip(known, both, strict=True)):
        parts.extend(_bar(row, called, _TOP + _ROW * index, scale, unit, size))
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: Mapping[str, Any], names: tuple[str, str], y: int, scale: float, unit: str, size: int) -> list[str]:
    wait, whole = row["wait_mean_s"] * scale, row["jct_mean_s"] * scale
    full, shown = (escape(printable(name)) for name in names)
    name = shown if shown == full else f"<title>{full}</title>{shown}"
    return [
        f'<text x="{_LABEL - 10}" y="{y + 16}" text-anchor="end">{name}</text>',
        f'<rect class="wait" x="{_LABEL}" y="{y}" width="{wait:.1f}" height="22"/>',
        f'<rect class="run" x="{_LABEL + wait:.1f}" y="{y}" width="{whole - wait:.1f}" height="22"/>',
        f'<text x="{_LABEL + whole + 8:.1f}" y="{y + 16}">{row["jct_mean_s"] / size:,.2f} {unit}</text>',
    ]
