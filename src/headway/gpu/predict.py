"""Predict the slow-downs of programs that would share one GPU.

Also runs on machines with a GPU that have neither polars nor msgspec.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError, InputError, unknown_name
from headway.gpu.experiment.in_memory import (
    LOW_PRIORITY,
    REAL,
    Setting,
    Tell,
    check_seconds,
    clients_of,
    compare,
    notes,
    on_real_cpus,
    options,
    prioritised,
)
from headway.gpu.model.device import Device
from headway.gpu.model.other_machine import Factors, on_other_machine
from headway.gpu.model.program import MILLION, Client
from headway.gpu.programs import load as kernel_programs
from headway.gpu.programs.sources import Source, source_of
from headway.gpu.programs.store import KernelStore
from headway.runs.answer import Answer
from headway.units import MILLISECOND, SECOND, format_duration, parse_duration

SETTLE = 2 * SECOND
"""Time that the dial has before it counts: in most pairs it has settled by then."""
SLO = 1.05
"""The slow-down aimed at unless another is given."""
EVEN = 1.1
"""Requests alone whose p95 is less than so many times their p50 show no slow phase of the processor."""
SETTINGS: dict[str, Any] = {
    "slo": None,
    "floor": None,
    "think": "0s",
    "alone": None,
    "first": None,
    "seconds": 1.0,
    "seed": 0,
}
"""Settings of a prediction and their defaults."""
MODES = {"gate": "headway", "mps": "mps", "mps_priority": "mps-priority", "time_slicing": "time-slicing"}
"""How two programs can share, and the policy that plays each out."""
OFF = (
    "how far off: of 32 settings on an H200 that were predicted before they were measured the slow-down was "
    "within 15 % in all, the rate below in 19 (half of all within 12 %)"
)
"""What is known of predictions, in one line; docs/guides/gpu-simulation.md has the tables."""
OFF_ALONE = (
    "how far off: of the same 32 settings, told what a request took alone, the slow-down was within 15 % in all, the "
    "rate below in 22 (half of all within 10 %)"
)
OF_A_FIRST_MEETING = "--first makes it one of programs that have not met before"
OF_ANOTHER_MACHINE = "--alone makes it one for another machine than that of the traces"


def answer(high: str, low: Sequence[str], settings: Mapping[str, Any]) -> Answer:
    """Return a prediction as a person asks for it: ``slo="1.05"``, ``floor="5%"``, ``think="5ms"``."""
    from headway.gpu.show import tables as kernel_tables
    from headway.show.progress import share_bar

    for name in settings:
        if name not in SETTINGS:
            raise ExperimentError(unknown_name("setting", name, SETTINGS))
    chosen = {**SETTINGS, **settings}
    asked = options(*(None if chosen[name] is None else str(chosen[name]) for name in ("slo", "floor")))
    alone = chosen["alone"]
    took, took_p95 = _alone(None if alone is None else str(alone))
    first = parse_duration(str(chosen["first"]), what="--first") if chosen["first"] is not None else 0
    if chosen["first"] is not None and first <= 0:
        raise InputError(f"--first {chosen['first']}: a first meeting takes some time; leave it out for a known pair")
    notes: list[str] = []
    with share_bar("predict") as tell:
        result = predict(
            high,
            low,
            slo_ppm=round(asked.get("slo", SLO) * MILLION),
            floor_ppm=round(asked["floor"] * MILLION) if "floor" in asked else None,
            think=parse_duration(str(chosen["think"]), what="--think"),
            alone=took,
            alone_p95=took_p95,
            first=first,
            seconds=chosen["seconds"],
            seed=chosen["seed"],
            tell=tell,
            say=notes.append,
        )
    who = f"{result['high']} above {', '.join(result['low'])}: busy {100 * result['busy_share_alone']:.0f} % alone"
    lines = [f"{who}, slow-down aimed at {result['slo']:g}×"]
    if took:
        told = f"processors are taken to need {result['cpu_factor']:.2f} times as long as in the traces"
        lines.append(f"a request alone takes {alone}: {told}; {_phases(result['cpu_slow_share'])}")
    if result["stored"]:
        notes.append(f"kept in {result['stored']}")
    table = kernel_tables.prediction({MODES[name]: row for name, row in result["modes"].items()}, len(result["low"]))
    return Answer(result, [*lines, table, OFF_ALONE if took else OFF], notes)


def predict(
    high: str,
    low: str | Sequence[str],
    *,
    slo_ppm: int = round(SLO * MILLION),
    floor_ppm: int | None = None,
    think: int = 0,
    alone: int = 0,
    alone_p95: int = 0,
    first: int = 0,
    seconds: float = 1.0,
    seed: int = 0,
    device: Device | None = None,
    modes: Sequence[str] = (),
    write: Callable[[Sequence[Mapping[str, Any]]], Path | None] | None = None,
    tell: Tell | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return slow-down and harvest of two programs, for each way to share, from their traces or profiles.

    ``alone``: the time of the median request of the program above alone, with that ``think``, on the machine where they
    will share. Times are scaled to it, and the row is not stored. ``alone_p95``: its p95, by which it is seen whether
    processors have slow phases there; 0: not known, they have. ``first``: headway meets the pair for the first time,
    begins at the floor, and is played for so long; the last ``seconds`` count. ``modes``: beside the gate only these of
    the other ways to share; none: all. ``write`` stores the row of a pair; without it the store of the traces' GPU and
    driver does. ``tell`` is called with the progress, ``say`` with notes, and with why the row was not stored.
    """
    lows, said = (low,) if isinstance(low, str) else tuple(low), say or (lambda line: None)
    _check_below(high, lows)
    sources = {name: source_of(name) for name in (prioritised(text, 0)[0] for text in (high, *lows))}
    source, given = next(iter(sources.values())), _options(slo_ppm, floor_ppm, first)
    where = device or _device_of(source)
    setting = Setting((high,), lows, "headway", think, check_seconds(seconds), seed, given, where)
    settle = _settle(setting, first)
    clients, factors = _clients(setting, sources, settle, (alone, alone_p95), said)
    for line in (*(line for each in sources.values() for line in each.notes), *notes(clients, "note: ")):
        said(line)
    asked = [name for name in MODES if not modes or name in ("gate", *modes)]
    rows = compare(setting, [MODES[name] for name in asked], clients, tell, {MODES["gate"]: settle})
    found = {name: _mode(row) for name, row in zip(asked, rows, strict=True)}
    names = [client["program"] for client in rows[0]["clients"]]
    pair = _pair(names, [*sources.values()], think, found["gate"])
    unfit = _unfit(clients, found["gate"], {} if write else sources)
    why = OF_ANOTHER_MACHINE if alone else OF_A_FIRST_MEETING if first else unfit
    stored = _stored(why, pair, source, write, said)
    return {
        "high": names[0],
        "low": names[1:],
        "think_s": think / SECOND,
        "slo": slo_ppm / MILLION,
        "cpu_factor": factors.cpu_ppm / MILLION,
        "gpu_factor": factors.gpu_ppm / MILLION,
        "cpu_slow_share": factors.slow_ppm / MILLION,
        "seconds": seconds,
        "seed": seed,
        "busy_share_alone": rows[0]["busy_share_alone"],
        "modes": found,
        "pair": pair,
        "stored": str(stored) if stored else None,
    }


def _clients(
    setting: Setting, sources: Mapping[str, Source], settle: int, alone: tuple[int, int], say: Callable[[str], None]
) -> tuple[tuple[Client, ...], Factors]:
    """Return the clients on the processors of the machine in question. ``alone``: p50 and p95 of a request there."""
    clients, factors = clients_of(setting, sources), Factors()
    if alone[0]:
        even = 0 < alone[1] < EVEN * alone[0]
        clients, factors = on_other_machine(clients, setting.device, alone[0], say, REAL.slower, even)
    horizon = setting.horizon + settle
    return on_real_cpus(clients, setting.seed, horizon, factors.slow_ppm / MILLION), factors


def _stored(
    why: str,
    pair: Mapping[str, Any],
    source: Source,
    write: Callable[[Sequence[Mapping[str, Any]]], Path | None] | None,
    say: Callable[[str], None],
) -> Path | None:
    """Store the row of a pair and return where, or say ``why`` it is not stored."""
    if why:
        say(f"not kept among pairs: {why}")
        return None
    return write([pair]) if write else _kept(source, pair, say)


def _options(slo_ppm: int, floor_ppm: int | None, first: int) -> dict[str, float]:
    """Return the options of headway."""
    given = {"slo": slo_ppm / MILLION} | ({} if floor_ppm is None else {"floor": floor_ppm / MILLION})
    return {**given, "met": False} if first else given


def _phases(slow_share: float) -> str:
    """Return in words how processors vary."""
    if not slow_share:
        return "they have no slow phases"
    return f"for {slow_share:.0%} of the time they are {REAL.slower:g} times as slow as else"


def _settle(setting: Setting, first: int) -> int:
    """Return how long the dial has before it counts: to settle, or what is left of a first meeting."""
    if not first:
        return min(SETTLE, 2 * setting.horizon)
    check_seconds(first / SECOND)
    if first < setting.horizon:
        raise InputError(
            f"--first {format_duration(first)} is shorter than --seconds {setting.seconds:g}: of a first meeting the "
            f"last {setting.seconds:g} s count; give a longer --first, or fewer --seconds"
        )
    return first - setting.horizon


def _alone(text: str | None) -> tuple[int, int]:
    """Return p50 and p95 of a request alone, as in ``6.8ms`` or ``6.8ms,8.6ms``; 0: not given."""
    if text is None:
        return 0, 0
    parts = text.split(",")
    took, p95 = (parse_duration(part, what="--alone") for part in (parts[0], parts[-1]))
    if len(parts) > 2:
        raise InputError(f"--alone {text}: give the p50 of a request, or its p50 and p95: 6.8ms,8.6ms")
    if took <= 0:
        raise InputError(f"--alone {text}: a request takes some time; leave it out to take it as recorded")
    if p95 < took:
        raise InputError(f"--alone {text}: the p95 is below the p50: p50 first, as in {parts[-1]},{parts[0]}")
    return took, p95 if len(parts) > 1 else 0


def _check_below(high: str, lows: Sequence[str]) -> None:
    """Raise unless the first program has a higher priority than the others."""
    top = prioritised(high, 0)[1]
    for low in lows:
        if (priority := prioritised(low, LOW_PRIORITY)[1]) <= top:
            raise ExperimentError(
                f"{low} has priority {priority}, and {high} {top}: the first program must be above the others, which "
                f"is a smaller number (priorities are said as {prioritised(low, 0)[0]}@{top + 1})"
            )


def _pair(names: Sequence[str], sources: Sequence[Source], think: int, gate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a pair table, like measured ones: with the names of the traces, and the think time."""
    above, below = (str(source.about.get("program", "")) for source in (sources[0], sources[-1]))
    return {
        "program": (above or names[0]) + (f"@{think / MILLISECOND:g}ms" if think else ""),
        "co_runner": (below or names[-1]) if len(names) > 1 else "",
        "sm_share_ppm": MILLION,
        "slowdown_ppm": round((gate["slowdown_p50"] or 1.0) * MILLION),
        "harvest_ppm": round((gate["low_share"] or 0.0) * MILLION),
        "measured": False,
    }


def _mode(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("slowdown_p50", "slowdown_p99", "low_share", "busy_share")
    each = {client["client"]: client["throughput_share"] for client in row["clients"]}
    return {**{key: row[key] for key in keys}, "throughput_shares": each}


def _device_of(source: Source) -> Device:
    """Return the GPU that a trace was recorded on; the default where it does not say."""
    sms = source.about.get("sms")
    return Device(sms=sms) if isinstance(sms, int) and sms > 0 else Device()


def _unfit(clients: Sequence[Client], gate: Mapping[str, Any], sources: Mapping[str, Source]) -> str:
    """Return why a prediction cannot be a row of the pair table; empty where it can."""
    if len(clients) != 2:
        return f"a pair is of two programs, these are {len(clients)}"
    if gate["slowdown_p50"] is None:
        return f"no slow-down of {clients[0].name} is known"
    places = {name: _recorded_on(source) for name, source in sources.items()}
    for name, place in places.items():
        if not all(place):
            if name in kernel_programs.shipped():
                return f"{name} comes with headway, and only traces of one's own are"
            return f"{name} is no trace that says on which GPU and driver it was recorded"
    if len(set(places.values())) > 1:
        return "; ".join(f"{name} was recorded on {gpu}, driver {driver}" for name, (gpu, driver) in places.items())
    return ""


def _recorded_on(source: Source) -> tuple[str, str]:
    return str(source.about.get("gpu", "")), str(source.about.get("driver", ""))


def _kept(source: Source, pair: Mapping[str, Any], say: Callable[[str], None]) -> Path | None:
    """Add the row of a pair to the store of the traces' GPU and driver; return its file, None where it is not added."""
    store = KernelStore(*_recorded_on(source))
    try:
        path = store.add_pairs([pair])
        if pair in store.pairs():
            return path
        say(f"not kept among pairs: {path} has that pair as it was measured, which counts for more")
    except InputError as problem:  # a store that cannot be written costs the row, not the answer
        say(f"not kept among pairs: {problem}")
    return None
