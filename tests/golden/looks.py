"""What people and programs are told of fixed runs: the numbers of a comparison, stories, explanations, pages, exports.

Numbers are kept as they are, rounded to nine digits, so that a change names the number. Everything else is a digest.
Wall times, memory of the process, the library of the figures and the version are cut out.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import adapter
from tests.golden.allocations import divided
from tests.golden.kernels import shared
from tests.golden.serving import served
from tests.golden.training import drawn

Value = str | list[dict[str, Any]]
Case = Callable[[], Value]
OF_THE_MACHINE = {
    *("wall_s", "jobs_per_s", "tasks_per_s", "peak_rss_bytes"),
    *("decide_p50_us", "decide_p99_us", "decide_p99_ms"),
}
DIGITS = 9
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
_PAYLOAD = re.compile(r'(<script type="text/plain" id="payload-\d+">)([^<]*)(</script>)')
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_VERSION = re.compile(r"headway \d+\.\d+\S*")

JOBS = drawn("srtf+easy", costs={"preemption": "2m"}, failures={"mtbf": "2d", "repair": "1h"})
FLEET = served("compass", "headway", failures={"every": "20s", "repair": "5s"})


def training() -> Iterator[tuple[str, Case]]:
    """Looks at runs of jobs."""
    yield "numbers/policies", partial(numbers, JOBS, ["fifo", "fifo+easy", "srtf+migrate", "las"])
    yield "numbers/seeds", partial(numbers, {**JOBS, "measure": {"seeds": 3, "warmup": "10%"}}, ["fifo+easy", "srtf"])
    yield "numbers/no intervals", partial(numbers, {**JOBS, "measure": {"confidence": 0}}, ["drf", "multifactor"])
    walls = {**JOBS, "cluster": {"nodes": 16, "gpus_per_node": 8, "tenancy": "borrow"}}
    yield "numbers/tenants", partial(numbers, walls, ["drf+easy"])
    given = divided("fifo+fit", "tune")
    yield "numbers/allocation", partial(numbers, given, ["fifo+fit", "srtf"])
    for number in ("3", "40", "90"):
        yield f"story/{number}", partial(looked, JOBS, partial(_story, number))
        yield f"explain/{number}", partial(looked, JOBS, partial(_explain, number))
    yield "page/one", partial(looked, JOBS, _page)
    yield "page/several", partial(several, JOBS, ["fifo+easy", "las"])
    yield "export", partial(looked, JOBS, _exported)
    yield "table", partial(table, JOBS, ["fifo", "srtf"])


def serving() -> Iterator[tuple[str, Case]]:
    """Looks at runs of requests."""
    yield "numbers/placing", partial(numbers, FLEET, ["hash", "compass", "headway"])
    heavy = served("esg", "esg", serving={"setting": "relaxed-heavy"})
    yield "numbers/configuring", partial(numbers, heavy, ["stagewise", "esg", "headway"])
    yield "numbers/seeds", partial(numbers, {**FLEET, "measure": {"seeds": 3}}, ["compass"])
    for number in ("0", "17", "100"):
        yield f"story/{number}", partial(looked, FLEET, partial(_story, number))
    yield "page/one", partial(looked, FLEET, _page)
    yield "page/several", partial(several, heavy, ["esg", "headway"])
    yield "export", partial(looked, FLEET, _exported)
    yield "table", partial(table, FLEET, ["hash", "headway"])


def kernels() -> Iterator[tuple[str, Case]]:
    """Looks at runs of kernels."""
    policies = ["time-slicing", "mps", "fikit", "headway"]
    for pair in ("resnet50+resnet101-b64", "two above one"):
        yield f"numbers/{pair}", partial(numbers, shared(pair, "mps"), policies)


# --- one value each -------------------------------------------------------------------------------------------


def numbers(document: Mapping[str, Any], policies: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a comparison."""
    with TemporaryDirectory() as place:
        return [_rounded(row) for row in adapter.numbers(document, policies, Path(place))]


def table(document: Mapping[str, Any], policies: Sequence[str]) -> str:
    """The headings of the table that a comparison prints; what is below them is among the numbers."""
    with TemporaryDirectory() as place:
        return digest(adapter.compare_text(document, policies, Path(place)).splitlines()[0])


def looked(document: Mapping[str, Any], look: Callable[[Path], str]) -> str:
    """The digest of what is seen of a run in its folder."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        adapter.run(document, folder)
        return digest(look(folder))


def several(document: Mapping[str, Any], policies: Sequence[str]) -> str:
    """The digest of a page of several runs."""
    with TemporaryDirectory() as place:
        folders = [Path(place) / f"run-{number}" for number, _ in enumerate(policies)]
        for folder, policy in zip(folders, policies, strict=True):
            adapter.run({**document, "policy": {**document["policy"], "name": policy}}, folder)
        return digest(told(adapter.report(folders, Path(place) / "page.html")))


def _story(number: str, folder: Path) -> str:
    return adapter.story(folder, number)


def _explain(number: str, folder: Path) -> str:
    return adapter.explain(folder, number, 10)


def _page(folder: Path) -> str:
    return told(adapter.report([folder], folder.with_name("page.html")))


def _exported(folder: Path) -> str:
    """What the files say that are text; the tables as Parquet hold what those as CSV do."""
    target = folder.with_name("out")
    target.mkdir()
    adapter.export(folder, target)
    files = sorted(path for path in target.rglob("*") if path.suffix in (".json", ".csv"))
    return "\n".join(f"{path.relative_to(target)}\n{_short(path.read_text())}" for path in files)


# --- only what does not depend on the machine -----------------------------------------------------------------


def told(page: str) -> str:
    """A page without its scripts and versions, what is packed in it unpacked."""
    bare = _VERSION.sub("headway", _POLICY.sub("", _SCRIPT.sub("", page)))
    return _short(_PAYLOAD.sub(lambda found: found[1] + _unpacked(found[2]) + found[3], bare))


def _unpacked(text: str) -> str:
    return hashlib.sha256(zlib.decompress(base64.b64decode(text))).hexdigest()


def _short(text: str) -> str:
    """A text with all fractions at nine digits: the last bits of a sum differ between processors."""
    return _FRACTION.sub(lambda found: f"{float(found[0]):.{DIGITS}g}", text)


def _rounded(value: Any) -> Any:
    """A value of JSON, fractions at nine digits, without what the machine has to do with."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items() if key not in OF_THE_MACHINE}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def digest(text: str) -> str:
    """Of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def differing(before: Value | None, now: Value | None) -> str:
    """What is different between two values of a case, in a few words; empty where nothing is."""
    if before == now:
        return ""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        names = [
            f"{old.get('policy', row)}: {key} {_brief(old.get(key))} -> {_brief(new.get(key))}"
            for row, (old, new) in enumerate(zip(before, now, strict=True))
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
        return "; ".join(names[:8]) + (f"; and {len(names) - 8} more" if len(names) > 8 else "")
    return f"{_brief(before)} -> {_brief(now)}"


def _brief(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 24 else f"{text[:12]}…"
