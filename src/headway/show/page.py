"""Assemble a report: one HTML file that holds everything it shows and loads nothing from a network.

The template, the style and the scripts lie beside this module; plotly.js comes from the installed package. The same
runs give the same bytes: no time of day and no absolute path is written.
"""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from plotly.offline import get_plotlyjs

from headway import __version__
from headway.show import sections

MARK = "<!-- headway report -->"
"""In the first lines of each report: what may be written over without asking."""
_DEFLATE_LEVEL = 9
Question = tuple[str, str, str]
"""The anchor of a section, what it answers, and its name in the navigation."""
ABOUT_ONE: Question = ("table", "What are the numbers?", "Numbers")
"""What the first section answers where there is one run."""


def assembled(
    title: str,
    otherwise: str,
    hero: str,
    questions: Iterable[Question],
    bodies: Mapping[str, str],
    leads: Mapping[str, str] | None = None,
    *,
    lines: Sequence[tuple[str, Mapping[str, Any]]],
    figures: Mapping[str, Any],
    maps: Mapping[str, Any] | None = None,
    picker: str = "",
    payloads: Sequence[str] = (),
) -> str:
    """Return a page: the template with style, scripts and what they need, and a section for each question with a body.

    ``otherwise`` is its name untitled, ``lines`` are the runs by label with the look of their line.
    """
    asked = [(anchor, question, short) for anchor, question, short in questions if bodies[anchor]]
    told = leads or {}
    runs = [{"label": label, "line": line} for label, line in lines]
    scripts = {
        "plotly": get_plotlyjs(),
        "map_script": template_file("clustermap.js", "headway.jobs.show.page"),
        "script": template_file("page.js"),
    }
    pieces = {
        **scripts,
        "allowed": _allowed(scripts.values()),
        "mark": MARK,
        "title": escape(title) if title else otherwise,
        "heading": f'<p class="title">{escape(title)}</p>' if title else "",
        "version": escape(__version__),
        "style": template_file("page.css"),
        "runs": picker,
        "nav": "".join(f'<a href="#{anchor}">{short}</a>' for anchor, _, short in asked),
        "body": "\n".join([hero, *(sections.section(a, text, bodies[a], told.get(a, "")) for a, text, _ in asked)]),
        "facts": _json({"runs": runs, "figures": figures, "maps": maps or {}}),
        "payloads": "\n".join(
            f'<script type="text/plain" id="payload-{index}">{text}</script>' for index, text in enumerate(payloads)
        ),
    }
    # one pass: what a trace's names bring in is never looked at for places to fill
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], template_file("page.html"))


def deflated(data: bytes) -> str:
    """Return bytes as text that ``DecompressionStream("deflate")`` unpacks once it is decoded."""
    return base64.b64encode(zlib.compress(data, _DEFLATE_LEVEL)).decode("ascii")


def template_file(name: str, package: str = "headway.show") -> str:
    """Return the text of a file that lies in a package, beside this module if none is named."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _allowed(scripts: Iterable[str]) -> str:
    """Return the content security policy of the page: only these scripts run, and nothing is loaded from a network."""
    digests = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    run = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {run}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """Return JSON that may stand in a script element: it can neither end it nor begin another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
