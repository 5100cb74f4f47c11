"""Make the report of runs of a fleet: one HTML file, in the template that all reports have.

The answer in a sentence; the runs side by side; how long requests take and how far that is from their critical path;
where the time went; what each worker did over time; which pipelines and which requests suffer.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from headway.core.tape import Tape
from headway.fleet.model.catalogue import Catalogue
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.request import Request
from headway.fleet.show.history.history import PARTS
from headway.fleet.show.history.presence import FAILED
from headway.fleet.show.page import figures, groups
from headway.fleet.show.terminal.comparison import FORMATS, dropped_of_all, telling, with_texts
from headway.show import sections
from headway.show.figures import labels, latencies, line_style
from headway.show.formatting import change, count, duration, listed, percent, plain, three_digits
from headway.show.names import cut_distinct, shortened
from headway.show.page import ABOUT_ONE, assembled
from headway.show.sections import figure, for_run
from headway.units import SECOND

QUESTIONS = (
    ("table", "How do the runs compare?", "Numbers"),
    ("times", "How long do requests take?", "Times"),
    ("spent", "Where does the time go?", "Spent"),
    ("over-time", "How many requests are under way?", "Over time"),
    ("workers", "What does each worker do, and when?", "Workers"),
    ("graphs", "Which pipelines suffer?", "Pipelines"),
    ("classes", "Which classes and tenants suffer?", "Classes"),
    ("longest", "Which requests took longest?", "Longest"),
)
LONGEST = 40
"""Requests of each run that are listed."""
_LETTERS = 40
"""Of the name of a run."""
_TABLE = (
    ("slow-down, mean", "slowdown_mean"),
    ("latency, p50", "latency_p50_s"),
    ("in time, of measured", "slo_hit_rate"),
    ("first token", "ttft_mean_s"),
    ("in time", "ttft_hit_rate"),
    ("per token", "tpot_mean_s"),
    ("in time", "tpot_hit_rate"),
    ("tokens/s", "output_tokens_per_s"),
    ("kv peak", "kv_cache_peak_bytes"),
    ("prompts cached", "prompt_tokens_cached"),
    ("dropped, of all", "dropped_of_all"),
    ("no answer", "unfinished"),
    ("lost tasks", "lost_tasks"),
    ("$ for 1,000", "cost_per_request_usd"),
    ("rent", "cost_rent_usd"),
    ("workers rented", "workers_mean"),
    ("cache hits", "cache_hit_rate"),
    ("fetched", "bytes_fetched"),
    ("cold starts", "cold_starts"),
    ("GPU use", "gpu_utilisation"),
    ("workers", "workers_used"),
    ("batch", "batch_mean"),
    ("controller busy", "controller_utilisation"),
    ("decision wait", "decision_wait_mean_s"),
    ("stale actions", "stale_actions"),
    ("states", "states_evaluated"),
)
_BELOW = {
    "slowdown_mean": (("p50", "slowdown_p50"), ("p95", "slowdown_p95")),
    "latency_p50_s": (("p99", "latency_p99_s"),),
    "ttft_mean_s": (("p99", "ttft_p99_s"),),
    "tpot_mean_s": (("p99", "tpot_p99_s"),),
}
"""What stands in small letters below a number."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a page shows it."""

    row: Mapping[str, Any]
    catalogue: Catalogue
    fleet: Fleet
    requests: Sequence[Request]
    tape: Tape
    live: bool = False
    """Whether it was served for real."""

    @property
    def label(self) -> str:
        """Return what it is called."""
        return str(self.row.get("variant") or self.row["policy"])

    @property
    def skip(self) -> int:
        """Return how many of its first requests are not measured."""
        return int(self.row["requests"] - self.row.get("measured", self.row["requests"]))


def build(runs: Sequence[Shown], baseline: int = 0, title: str = "") -> str:
    """Return the whole page."""
    return _Page(runs, baseline).assembled(title)


def best_of(runs: Sequence[Shown]) -> int:
    """Return the run with most requests in time at the least cost; without deadlines, of least slow-down."""
    rows = [run.row for run in runs]
    known = ([row.get(key) for row in rows] for key in ("slowdown_mean", "cost_per_request_usd"))
    slow, costs = ([math.inf if value is None else value for value in values] for values in known)
    if all(row.get("slo_hit_rate") is not None for row in rows):
        return min(range(len(rows)), key=lambda index: (-round(rows[index]["slo_hit_rate"], 3), costs[index]))
    return slow.index(min(slow))


class _Page:
    """The parts of one page."""

    def __init__(self, runs: Sequence[Shown], baseline: int) -> None:
        self.runs, self.baseline, self.best = runs, baseline, best_of(runs)
        self.several = len(runs) > 1
        self.names = [plain(name) for name in cut_distinct(shortened([run.label for run in runs]), _LETTERS)]
        self.lines = [line_style(index, baseline, len(runs)) for index in range(len(runs))]
        self.times = [figures.Times(run.catalogue, run.fleet, run.requests, run.tape, run.skip) for run in runs]
        self.timed = all(run.row.get("slo_hit_rate") is not None for run in runs)
        """Whether all requests of all runs have deadlines, so that these say which is best."""

    def assembled(self, title: str) -> str:
        """Return the page around its sections."""
        drawn = self._figures()
        return assembled(
            title,
            self.answer(),
            self._hero(),
            QUESTIONS if self.several else [ABOUT_ONE, *QUESTIONS[1:]],
            self._bodies(drawn),
            lines=list(zip(self.names, self.lines, strict=True)),
            figures=drawn,
            picker=sections.picker(self.names, self.best),
        )

    # --- the first screen ---

    def answer(self) -> str:
        """Return the sentence at the top."""
        row, other = self.runs[self.best].row, self.runs[self.baseline].row
        name = self.names[self.best]
        if row["slowdown_mean"] is None:
            return "No request was answered" if not row["completed"] else "No request that is measured was answered"
        said = self._score(row)
        if not self.several:
            return f"{name}: {said}"
        if self.best == self.baseline:
            return f"{name}, the baseline, answers requests best: {said}"
        return f"{name} answers requests best: {said}, against {self._score(other)} with {self.names[self.baseline]}"

    def _score(self, row: Mapping[str, Any]) -> str:
        if row["slowdown_mean"] is None:
            return "none"
        if self.timed:
            dropped = f", {dropped_of_all(row)} dropped" if row["dropped"] else ""
            return f"{percent(row['slo_hit_rate'])} in time{dropped}"
        return f"{row['slowdown_mean']:.2f} times the critical path"

    def _hero(self) -> str:
        run = self.runs[0]
        row = run.row
        shown = [plain(graph.name) for graph in run.catalogue.graphs[:12]]
        if len(run.catalogue.graphs) > len(shown):
            shown.append(f"{len(run.catalogue.graphs) - len(shown)} more")
        types = Counter(worker.gpu.type or "GPU" for worker in run.fleet.workers)
        facts = (
            ("scenario", plain(str(row.get("scenario", "")).rpartition("/")[2])),
            ("requests", f"{row['requests']:,.0f}"),
            ("workers", listed([f"{number:,} × {plain(name)}" for name, number in types.items()])),
            ("pipelines", ", ".join(shown)),
            ("seed", f"{row['seed']:g}"),
        )
        lead = "Everything here is simulated: run times are those of the profiles, with their spread."
        if run.live:
            lead = "This was served for real: all times are measured. Slow-downs are against the profile."
        if run.skip:
            first = (
                "The first request of each run is"
                if run.skip == 1
                else f"The first {run.skip:,} requests of each run are"
            )
            lead += f" {first} the warm-up, which is not measured."
            lead += " Dropped requests are counted in it too." if self.timed else ""
        return sections.hero(self.answer(), lead, facts, self._warnings(), self._bars() + self._tiles())

    def _warnings(self) -> list[str]:
        """Return what a reader should know before the numbers."""
        lines = []
        if any(run.requests != self.runs[0].requests for run in self.runs[1:]):
            lines.append("The runs did not serve the same requests: they differ by more than their policies.")
        for name, run in zip(self.names, self.runs, strict=True):
            row = run.row
            if row.get("stopped"):
                lines.append(f"{name} was stopped before its end.")
            if row.get("overload"):
                lines.append(f"{name}: {row['overload']}.")
            if row.get("unfinished"):
                share = percent(row["unfinished"] / max(row["requests"], 1))
                lines.append(
                    f"{name}: {count(row['unfinished'], 'request')} ({share}) had no answer when the run ended."
                )
            if row.get("dropped"):
                share = percent(row["dropped"] / max(row["requests"], 1))
                early = row.get("dropped_warmup", 0)
                apart = f", {count(early, 'request')} of them in the warm-up, which is not measured" if early else ""
                lines.append(
                    f"{name} dropped {count(row['dropped'], 'request')} of {row['requests']:,.0f} ({share}){apart}: "
                    "these are in no latency, and count as late where they have a deadline and are measured."
                )
        return lines

    def _bars(self) -> str:
        """Return a bar a run: its mean latency, and how much of it is computing."""
        means = [run.row["latency_mean_s"] for run in self.runs]
        longest = max((mean for mean in means if mean is not None), default=0.0)
        if not longest:
            return ""
        base = means[self.baseline]
        rows = []
        for index, (mean, shown) in enumerate(zip(means, _alike(means), strict=True)):
            role = "base" if index == self.baseline else "best" if index == self.best else ""
            who = self.names[index] if self.several else "all requests"
            tag = f" <small>{'baseline' if role == 'base' else 'best'}</small>" if role and self.several else ""
            head = f'<div class="row {role if self.several else ""}"><span class="who">{who}{tag}</span>'
            if mean is None:
                rows.append(f'{head}<span class="none">no request was answered</span></div>')
                continue
            run = min(mean, self.times[index].parts["run"])
            moved = f"<small>{change(mean / base - 1)}</small>" if base and index != self.baseline else ""
            rows.append(
                f'{head}<span class="track"><i class="wait" style="width:{100 * (mean - run) / longest:.2f}%"></i>'
                f'<i class="run" style="width:{100 * run / longest:.2f}%"></i></span>'
                f'<span class="value">{shown}{moved}</span></div>'
            )
        return (
            '<figure class="bars" aria-label="Mean latency, of it computing"><figcaption><b>Mean latency</b>'
            '<span class="swatch wait">in queues, loading, on the way</span><span class="swatch run">computing</span>'
            f'</figcaption><div class="rows">{"".join(rows)}</div></figure>'
        )

    def _tiles(self) -> str:
        """Return four numbers of the best run, each beside the baseline's; two more where requests generate tokens."""
        tiles = [
            ("slow-down, mean", "slowdown_mean"),
            ("99th percentile of latency", "latency_p99_s"),
            ("for 1,000 requests", "cost_per_request_usd"),
            ("of the GPUs held", "gpu_utilisation"),
        ]
        if self.timed:
            tiles[0] = ("answered in time", "slo_hit_rate")
        elif self.runs[self.best].row.get("cache_hit_rate") is not None:
            tiles[3] = ("of tasks found their models in place", "cache_hit_rate")
        if self.runs[self.best].row.get("ttft_p99_s") is not None:
            tiles += [("99th percentile, to the first token", "ttft_p99_s"), ("for each further token", "tpot_mean_s")]
        row, other = self.runs[self.best].row, self.runs[self.baseline].row
        was = "" if self.best == self.baseline else f"<small>{self.names[self.baseline]}: "
        cells = "".join(
            f"<div><dd>{_cell(row, key)}</dd><dt>{what}</dt>{f'{was}{_cell(other, key)}</small>' if was else ''}</div>"
            for what, key in tiles
        )
        return f'<dl class="tiles"><div class="of">{self.names[self.best]}</div>{cells}</dl>'

    # --- the sections ---

    def _figures(self) -> dict[str, Any]:
        rows = [run.row for run in self.runs]
        names = labels(shortened([run.label for run in self.runs]))
        drawn = {
            "spent": figures.spent(names, self.times),
            "over-time": figures.under_way(names, self.lines, self.times),
            **{f"workers-{index}": figures.workers(times) for index, times in enumerate(self.times)},
        }
        if any(times.measured for times in self.times):
            drawn["latency"] = latencies(names, self.lines, [times.latency_s for times in self.times])
            drawn["slowdown"] = figures.slowdowns(names, self.lines, [times.slowdown for times in self.times])
        if any(len(times.tokens[0]) for times in self.times):
            drawn |= figures.tokens(names, self.lines, self.times)
        for anchor, key in (("graphs-slow", "slowdown_mean"), ("graphs-late", "slo_hit_rate")):
            if (dots := figures.by_graph(names, self.lines, rows, key)) is not None:
                drawn[anchor] = dots
        return drawn

    def _bodies(self, drawn: Mapping[str, Any]) -> dict[str, str]:
        key = sections.key(self.names, self.baseline)
        latency = figure("latency", "Share of requests by latency", "latency")
        slowdown = figure("slowdown", "Share of requests by slow-down", "slow-down against the critical path")
        tokens = "".join(
            figure(anchor, f"Share of requests by {what}", what)
            for anchor, what in (("first-token", "time to the first token"), ("per-token", "time for a further token"))
            if anchor in drawn
        )
        tokens = f'<div class="pair">{tokens}</div>' if tokens else ""
        graphs = [
            figure(anchor, f"{what} by pipeline", what if "graphs-late" in drawn else "")
            for anchor, what in (("graphs-late", "answered in time"), ("graphs-slow", "mean slow-down"))
            if anchor in drawn
        ]
        about = (
            "Of each request the chain of tasks that decided when it was answered: each waited for the one before it. "
            "The parts add up to the mean latency."
        )
        answered = "latency" in drawn
        pair = f'<div class="pair">{"".join(graphs)}</div>' if len(graphs) > 1 else "".join(graphs)
        return {
            "table": self._table(),
            "times": f'{key}<div class="pair">{latency}{slowdown}</div>{tokens}' if answered else "",
            "spent": sections.legend(drawn["spent"]) + figure("spent", about, about) if answered else "",
            "over-time": key + figure("over-time", "Requests that have arrived and not ended, over time"),
            "workers": "".join(for_run(index, self._workers(index)) for index in range(len(self.runs))),
            "graphs": f"{key}{pair}" if graphs else "",
            "classes": groups.tables(self.names, [run.row for run in self.runs]),
            "longest": "".join(for_run(index, self._longest(index)) for index in range(len(self.runs)))
            if answered
            else "",
        }

    def _workers(self, index: int) -> str:
        about = "The share of each GPU that batches held: computing, or fetching what they need."
        presence = self.times[index].history.presence
        if any(presence.of(FAILED)):
            about += " Where a worker was out of service, its row is orange."
        if presence.changes:
            about += " Where it was off, and nobody paid for it, its row is grey; where it was starting, green."
        return figure(f"workers-{index}", "Share of each worker that batches held, over time", about)

    def _table(self) -> str:
        rows = [with_texts(run.row) for run in self.runs]
        shown = [(head, key) for head, key in _TABLE if telling(rows, key)]
        tagged = list(self.names)
        tagged[self.baseline] += " <small>baseline</small>" if self.several else ""
        lines = [
            sections.row(name, [self._marked(row, key) for _, key in shown], f' title="{plain(run.label, 400)}"')
            for name, row, run in zip(tagged, rows, self.runs, strict=True)
        ]
        return sections.table(["run", *(head for head, _ in shown)], lines)

    def _marked(self, row: Mapping[str, Any], key: str) -> str:
        """Return a cell as HTML; the best of all runs is set off."""
        best = {"slowdown_mean": min, "cost_per_request_usd": min, "slo_hit_rate": max}.get(key)
        known = [run.row[key] for run in self.runs if run.row.get(key) is not None]
        is_best = self.several and best is not None and known and row.get(key) == best(known)
        below = ", ".join(
            f"{what} {_cell(row, other)}" for what, other in _BELOW.get(key, ()) if row.get(key) is not None
        )
        small = f"<small>{below}</small>" if below else ""
        return f'<b class="best">{_cell(row, key)}</b>{small}' if is_best else f"{_cell(row, key)}{small}"

    def _longest(self, index: int) -> str:
        """Return the requests of a run that took longest against their critical path, and where their time went."""
        times = self.times[index]
        ranked = sorted(range(len(times.measured)), key=lambda at: (-times.slowdown[at], times.measured[at].id))
        heads = ["request", "pipeline", "arrived", "latency", "slow-down", *(["late"] if self.timed else [""])]
        lines = []
        for at in ranked[:LONGEST]:
            request, latency = times.measured[at], float(times.latency_s[at])
            over = latency - (request.deadline - request.arrival) / SECOND if request.deadline else 0.0
            cells = (
                plain(times.catalogue.graphs[request.graph].name),
                duration(request.arrival / SECOND),
                duration(latency),
                f"{three_digits(float(times.slowdown[at]))}×",
                duration(over) if over > 0 else "",
                _parts(times.spent[at]),
            )
            lines.append(f"<tr><td>{request.id}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        note = '<p class="note"><code>headway story RUN REQUEST</code> tells the whole of one, step by step.</p>'
        return sections.table([*heads, "of it"], lines) + note


def _alike(times_s: Sequence[float | None]) -> list[str]:
    """Return times in one unit, so that they compare at a glance."""
    longest = max((time for time in times_s if time is not None), default=0.0)
    size, unit = (1.0, "s") if longest >= 1 else (1e-3, "ms")
    return ["–" if time is None else f"{three_digits(time / size)} {unit}" for time in times_s]


def _cell(row: Mapping[str, Any], key: str) -> str:
    return escape(FORMATS[key](row.get(key))) or "–"


def _parts(spent: Mapping[str, int]) -> str:
    """Return the largest parts of a request's time."""
    whole = max(1, sum(spent.values()))
    ranked = sorted(spent.items(), key=lambda each: -each[1])
    return ", ".join(f"{percent(time / whole, 0)} {PARTS[part]}" for part, time in ranked if time >= whole / 100)
