"""Make the pieces of HTML that all reports use: sections, tables, legends and the first screen.

Figures are named here. The page draws them from what ``figures`` makes.
"""

from collections.abc import Iterable, Sequence
from html import escape

from headway.errors import printable
from headway.show.figures import Figure, parts_of


def section(anchor: str, question: str, body: str, lead: str = "") -> str:
    """Return a section: a question as its heading, and the answer."""
    intro = f'<p class="lead">{lead}</p>' if lead else ""
    head = f'<h2 id="{anchor}-h">{question}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-h">{head}{intro}{body}</section>'


def figure(anchor: str, alt: str, caption: str = "") -> str:
    """Return the placeholder that the page draws a figure into."""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return (
        f'<figure><div class="plot" data-figure="{anchor}" role="img" aria-label="{escape(alt)}"></div>{below}</figure>'
    )


def for_run(index: int, body: str) -> str:
    """Return a part that is shown while this run is selected."""
    return f'<div data-run="{index}"{" hidden" if index else ""}>{body}</div>'


def legend(drawn: Figure) -> str:
    """Return the legend of stacked bars: the name of each part by its colour."""
    marks = {"": "", "/": " hatched", "x": " crossed", ".": " dotted"}
    items = [
        f'<li><i class="part{marks[shape]}" style="background-color:var(--{colour})"></i>{name}</li>'
        for name, colour, shape in parts_of(drawn)
    ]
    return f'<ul class="key parts">{"".join(items)}</ul>'


def key(names: Sequence[str], baseline: int, attributes: Sequence[str] = ()) -> str:
    """Return the legend of runs, where there are several; the page draws the strokes. Names are HTML."""
    if len(names) == 1:
        return ""
    stroke = '<svg width="28" height="10" aria-hidden="true"><line x1="1" y1="5" x2="27" y2="5"/></svg>'
    items = [
        f'<li data-key="{index}"{more}>{stroke}{name}{" <small>baseline</small>" if index == baseline else ""}</li>'
        for index, (name, more) in enumerate(zip(names, attributes or [""] * len(names), strict=True))
    ]
    return f'<ul class="key">{"".join(items)}</ul>'


def picker(names: Sequence[str], shown: int, attributes: Sequence[str] = ()) -> str:
    """Return the menu that selects a run, where there are several. Names are HTML."""
    if len(names) == 1:
        return ""
    options = [
        f'<option value="{index}"{" selected" if index == shown else ""}{more}>{name}</option>'
        for index, (name, more) in enumerate(zip(names, attributes or [""] * len(names), strict=True))
    ]
    return f'<label class="picker">Looking at <select id="run">{"".join(options)}</select></label>'


def hero(
    answer: str,
    lead: str,
    facts: Iterable[tuple[str, str]],
    warnings: Iterable[str] = (),
    first: str = "",
    beside: str = "",
) -> str:
    """Return the first screen: the answer, what to be careful about, pictures, and what was run. All is HTML."""
    items = "".join(f"<div><dt>{what}</dt><dd>{which}</dd></div>" for what, which in facts)
    told = "".join(f"<p>{line}</p>" for line in warnings)
    careful = f'<aside class="careful" aria-label="Be careful">{told}</aside>' if told else ""
    pictures = f'<div class="first">{first}</div>' if first else ""
    return (
        f'<header class="hero" id="answer"><h1>{answer}</h1><p class="lead">{lead}</p>'
        f'{beside}{careful}{pictures}<dl class="facts">{items}</dl></header>'
    )


def row(head: str, cells: Sequence[str], attributes: str = "") -> str:
    """Return one row of a table."""
    return f'<tr><th scope="row"{attributes}>{head}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def table(heads: Sequence[str], rows: Sequence[str], caption: str = "") -> str:
    """Return a table that scrolls sideways where it does not fit."""
    told = escape(printable(caption))
    region = f' tabindex="0" role="region" aria-label="{told}"' if caption else ""
    unseen = f'<caption class="unseen">{told}</caption>' if caption else ""
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="scroll"{region}><table>{unseen}'
        f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
