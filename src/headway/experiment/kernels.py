"""Wiring of a run of kernels: programs, a GPU and a policy become a tape and its numbers.

And what programs would do to each other before they are put together: ``predict``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError, InputError
from headway.experiment.kernel_sources import Source, program_of, source_of
from headway.experiment.unchanged import unchanged
from headway.formats import kernel_programs
from headway.formats.plugins import resolve
from headway.kernels.actions import Action
from headway.kernels.device import Device
from headway.kernels.events import Event
from headway.kernels.other_machine import on_other_machine
from headway.kernels.policies.parts import KernelsPolicy
from headway.kernels.policies.registry import build, describe
from headway.kernels.program import Client, cold
from headway.kernels.replay import fresh_state
from headway.kernels.state import KernelsState
from headway.metrics.kernels import summarise
from headway.profiling.kernel_store import KernelStore
from headway.sim.kernels import SimulatedGpu
from headway.streams import stream
from headway.units import MILLISECOND, SECOND, parse_duration

SCENARIO = "kernels"
LOW_PRIORITY = 1
MOST_SECONDS = 600
MODES = {"gate": "headway", "mps": "mps", "mps_priority": "mps-priority", "time_slicing": "time-slicing"}
"""How two programs can share, and the policy that plays each out."""
SETTLE = 600 * MILLISECOND
"""Before the gate's prediction counts, where it is played for half as long or longer: where programs contend, the dial
takes so long from where it begins to where it stays."""
OFF = (
    "how far off: of 32 settings on an H200 that were predicted before they were measured the slow-down was "
    "within 15 % in all, the rate below in 19 (half of all within 12 %)"
)
"""What is known of predictions, in one line; docs/kernels/simulation.md has the tables."""
OFF_ALONE = (
    "how far off: of the same 32 settings, told what a request took alone, the slow-down was within 15 % in all, the "
    "rate below in 22 (half of all within 10 %)"
)
OF_ANOTHER_MACHINE = "--alone makes it one for another machine than that of the traces"
MILLION = 1_000_000
Tell = Callable[[str, float], None]
"""Told what is played, and which share of all is done."""
SLEEP = MILLISECOND
COLD_PPM = 800_000
COLD_UNTIL = 1_200_000
"""After a pause of at least SLEEP the CPU is cold: so much longer takes the first so much CPU time of a request."""


@dataclass(frozen=True)
class KernelsExperiment:
    """One run: who is above, who is below, how they share, for how long."""

    high: tuple[str, ...]
    low: tuple[str, ...] = ()
    policy: str = "headway"
    think: int = 0
    """Between the requests of those above."""
    seconds: float = 2.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """``slo`` and ``floor``, for policies that have them."""
    device: Device = field(default_factory=Device)
    settle: int = 0
    """Played before that, and not counted."""

    @property
    def horizon(self) -> int:
        """When the run ends."""
        return self.settle + round(self.seconds * SECOND)


@dataclass(frozen=True)
class KernelsRun:
    """What a run left behind."""

    experiment: KernelsExperiment
    clients: tuple[Client, ...]
    policy: KernelsPolicy
    state: KernelsState
    tape: Tape

    @property
    def row(self) -> dict[str, Any]:
        """Its numbers."""
        each = self.experiment
        found = summarise(self.clients, each.device, self.tape, each.horizon, each.settle)
        return {"policy": describe(self.policy), **found, "events": len(self.tape), "digest": self.tape.digest}


def options(slo: str | None, floor: str | None) -> dict[str, float]:
    """What ``--slo 1.05`` and ``--floor 5%`` ask for."""
    found = {}
    for name, text in (("slo", slo), ("floor", floor)):
        if text is None:
            continue
        try:
            found[name] = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            wanted = "a slow-down, e.g. 1.05" if name == "slo" else "a share, e.g. 5%"
            raise ExperimentError(f"--{name} {text!r} is not {wanted}") from None
    build("headway", defaults=found)  # its rules for both, whatever policies are asked for
    return found


def check_seconds(seconds: float) -> float:
    """A run of some length, and one that ends before the day does."""
    if not 0 < seconds <= MOST_SECONDS:
        raise ExperimentError(f"--seconds {seconds:g} must be above 0 and at most {MOST_SECONDS}")
    return seconds


def think_time(text: str | None) -> int:
    """``--think 5ms``."""
    return 0 if text is None else parse_duration(text, what="--think")


# --- programs -------------------------------------------------------------------------------------------------------


def clients_of(each: KernelsExperiment, sources: Mapping[str, Source] | None = None) -> tuple[Client, ...]:
    """The clients of a run; where each begins in its program, and when, is drawn. ``sources``: those read already."""
    if not each.high:
        raise ExperimentError("a run of kernels needs a program above: --high resnet50")
    draw = stream(each.seed, "kernels")
    clients: list[Client] = []
    for text, usual in (*((text, 0) for text in each.high), *((text, LOW_PRIORITY) for text in each.low)):
        name, priority = _prioritised(text, usual)
        program = sources[name].program if sources is not None else program_of(name)
        if usual == 0 and each.think >= SLEEP:
            program = cold(program, COLD_PPM, COLD_UNTIL)
        same = sum(client.program.name == program.name for client in clients)
        clients.append(
            Client(
                program.name if not same else f"{program.name}-{same + 1}",
                program,
                priority,
                think=each.think if usual == 0 else 0,
                start=int(draw.integers(0, MILLISECOND)),
                first=int(draw.integers(0, len(program.firsts))),
            )
        )
    return tuple(clients)


def _prioritised(text: str, usual: int) -> tuple[str, int]:
    """``bert-b32@3``: of priority 3."""
    name, at, priority = text.rpartition("@")
    if not at:
        return text, usual
    if not priority.isdecimal():
        raise ExperimentError(f"program {text!r}: priority {priority!r} is not a number between 0 and 9")
    return name, int(priority)


# --- runs -----------------------------------------------------------------------------------------------------------


def notes(clients: Sequence[Client]) -> list[str]:
    """What the numbers of a run cannot say: a slow-down of a program above that never waits."""
    highest = min(client.priority for client in clients)
    return [
        f"note: {client.name} never waits for the GPU, so it has no request: no latency and no slow-down"
        for client in clients
        if client.priority == highest and not any(launch.waits for launch in client.program.launches)
    ]


def few(each: KernelsExperiment, policies: Sequence[str]) -> list[str]:
    """What is to be said of a run so short that the first moments of headway's dial are much of it."""
    if each.horizon >= 4 * SETTLE or not any(policy.startswith("headway") for policy in policies):
        return []
    return [f"note: headway's dial settles within {SETTLE / SECOND:g} s or so, and they count here: try --seconds 3"]


def play(
    each: KernelsExperiment,
    clients: Sequence[Client] | None = None,
    folder: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> KernelsRun:
    """Run it to its end. ``progress`` is told the time now and then."""
    chosen = tuple(clients) if clients is not None else clients_of(each)
    policy = policy_of(each)
    state = fresh_state(chosen, each.device, policy)
    executor = SimulatedGpu(state, policy.sharing, raised=policy.raised, horizon=each.horizon)
    writer = TapeWriter(folder)
    with unchanged(policy.name, (policy,), {"client": chosen}):
        Scheduler[Event, Action](state, policy, executor, writer).run(progress)
    return KernelsRun(each, chosen, policy, state, writer.close())


def policy_of(each: KernelsExperiment) -> KernelsPolicy:
    """The policy that a run names, one from a file too."""
    return build(resolve(each.policy), defaults=each.options)


def compare(
    each: KernelsExperiment,
    policies: Sequence[str],
    clients: Sequence[Client] | None = None,
    tell: Tell | None = None,
    settle: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """The same programs under each policy; a policy that does not exist is refused before the first run.

    ``settle``: how long a policy is played before it counts, where that is more than for the others.
    """
    chosen = tuple(clients) if clients is not None else clients_of(each)
    runs = [replace(each, policy=policy, settle=(settle or {}).get(policy, each.settle)) for policy in policies]
    names = [describe(policy_of(run)) for run in runs]
    rows = []
    for at, (name, run) in enumerate(zip(names, runs, strict=True)):
        rows.append(play(run, chosen, progress=tell and _teller(tell, name, run.horizon, at, len(runs))).row)
    return rows


def _teller(tell: Tell, name: str, horizon: int, before: int, runs: int) -> Callable[[int], None]:
    """What one of several runs is to tell the time."""
    tell(name, before / runs)

    def told(now: int) -> None:
        share = min(1.0, now / horizon)
        tell(f"{name}: {share * horizon / SECOND:.2f} of {horizon / SECOND:g} s", (before + share) / runs)

    return told


# --- prediction -----------------------------------------------------------------------------------------------------


def predict(
    high: str,
    low: str | Sequence[str],
    *,
    slo_ppm: int = 1_050_000,
    floor_ppm: int | None = None,
    think: int = 0,
    alone: int = 0,
    seconds: float = 1.0,
    seed: int = 0,
    device: Device | None = None,
    write: Callable[[Sequence[Mapping[str, Any]]], Path | None] | None = None,
    tell: Tell | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Slow-down and harvest of two programs, for each way to share, from their traces or profiles.

    ``alone``: what the median request of the program above takes alone, with that ``think``, where they are to share;
    processors are taken to be as much slower or faster there, for all, and the row is not stored. ``write`` stores
    the row of a pair; left out, it goes where the traces' own GPU and driver are kept, if they say so.
    ``tell`` hears how far it is, ``say`` what the numbers cannot say, and why the row was not stored.
    """
    lows = (low,) if isinstance(low, str) else tuple(low)
    said = say or (lambda line: None)
    _check_below(high, lows)
    sources = {name: source_of(name) for name in (_prioritised(text, 0)[0] for text in (high, *lows))}
    first = next(iter(sources.values()))
    given: dict[str, float] = {"slo": slo_ppm / MILLION}
    if floor_ppm is not None:
        given["floor"] = floor_ppm / MILLION
    each = KernelsExperiment(
        (high,), lows, "headway", think, check_seconds(seconds), seed, given, device or _device_of(first)
    )
    clients, cpu_ppm = clients_of(each, sources), MILLION
    if alone:
        clients, cpu_ppm = on_other_machine(clients, each.device, alone, said)
    for line in (*(line for source in sources.values() for line in source.notes), *notes(clients)):
        said(line)
    rows = compare(each, list(MODES.values()), clients, tell, {MODES["gate"]: min(SETTLE, 2 * each.horizon)})
    modes = {name: _mode(row) for name, row in zip(MODES, rows, strict=True)}
    names = [client["program"] for client in rows[0]["clients"]]
    pair = _pair(names, [*sources.values()], think, modes["gate"])
    why = _unfit(clients, modes["gate"], {} if write else sources) if not alone else OF_ANOTHER_MACHINE
    stored = None if why else (write or _writer(first, said))([pair])
    if why:
        said(f"not kept among pairs: {why}")
    return {
        "high": names[0],
        "low": names[1:],
        "think_s": think / SECOND,
        "slo": slo_ppm / MILLION,
        "cpu_factor": cpu_ppm / MILLION,
        "seconds": seconds,
        "seed": seed,
        "busy_share_alone": rows[0]["busy_share_alone"],
        "modes": modes,
        "pair": pair,
        "stored": str(stored) if stored else None,
    }


def _check_below(high: str, lows: Sequence[str]) -> None:
    """A prediction is of one program above others."""
    top = _prioritised(high, 0)[1]
    for low in lows:
        if (priority := _prioritised(low, LOW_PRIORITY)[1]) <= top:
            raise ExperimentError(
                f"{low} has priority {priority}, and {high} {top}: the first program must be above the others, which "
                f"is a smaller number (priorities are said as {_prioritised(low, 0)[0]}@{top + 1})"
            )


def _pair(names: Sequence[str], sources: Sequence[Source], think: int, gate: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a table, as measured rows have it: by the name that its trace has for a program, with the pause."""
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
    """The GPU that a trace was recorded on, as far as it says."""
    sms = source.about.get("sms")
    return Device(sms=sms) if isinstance(sms, int) and sms > 0 else Device()


def _unfit(clients: Sequence[Client], gate: Mapping[str, Any], sources: Mapping[str, Source]) -> str:
    """Why a prediction is no row of pairs; empty where it is one."""
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


def _writer(source: Source, say: Callable[[str], None]) -> Callable[[Sequence[Mapping[str, Any]]], Path | None]:
    """Into the store of the GPU and driver that the traces name."""
    store = KernelStore(*_recorded_on(source))

    def write(rows: Sequence[Mapping[str, Any]]) -> Path | None:
        try:
            path = store.add_pairs(rows)
            if all(row in store.pairs() for row in rows):
                return path
            say(f"not kept among pairs: {path} has that pair as it was measured, which counts for more")
        except InputError as problem:  # a store that cannot be written costs the row, not the answer
            say(f"not kept among pairs: {problem}")
        return None

    return write
