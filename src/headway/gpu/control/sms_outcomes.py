"""Limits on SMs: what share of the GPU's SMs a program gets at its start, by how pairs of programs went before.

Under MPS a limit is fixed when a program makes its context. A kernel of a limited program takes longer and delays
programs above by less: it never takes more than its share of the SMs. Whether that gives the program more depends on
the pair. So a pair begins without a limit; where the program below was starved, a limit is tried at its next start,
and a smaller one at the one after; then the limit with the best harvest is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.gpu.control.dial import Dial
from headway.gpu.control.slowdown import MILLION, Estimate

ALL_PPM = MILLION
"""No limit."""
TRIED_PPM = 300_000, 100_000
"""The limits that a starved program tries, one at each start, until with one of them it is starved no longer."""
STARVED_PPM = 100_000
"""With less of the GPU's time than this a program is starved, if it waited at the gate most of the time."""
_WAITED_PPM = 500_000
_ABOVE_AIM_PPM = 30_000
"""A slow-down further above the aim than this does not count as within it."""
_HALF_NS = 10_000_000_000
"""What a program launched this long ago counts half: before the dial has settled it gets less."""
_LEAST_NS = 5_000_000_000
_NUMBERS = ("rate_mhz", "launch_ns", "waited_ppm", "slowdown_ppm", "slo_ppm", "holds", "seen_s")


class Outcome(NamedTuple):
    """How a program below went with one limit beside one program above, once the dial had settled."""

    rate_mhz: int
    """Launches in 1,000 seconds."""
    launch_ns: int
    """GPU time of a launch in the mean, with this limit."""
    waited_ppm: int
    """Share of the time that it waited at the gate."""
    slowdown_ppm: int
    """Of the program above."""
    slo_ppm: int
    """What was aimed at then."""
    holds: int
    """How many the slow-down rests on."""
    seen_s: int
    """When, in seconds since 1970."""

    @property
    def within_aim(self) -> bool:
        """Return whether the program above was no slower than the aim allows."""
        return self.slowdown_ppm <= self.slo_ppm + _ABOVE_AIM_PPM


class Choice(NamedTuple):
    """The limit of a program, and the harvests that it was chosen by."""

    sms_ppm: int
    harvest_ppm: Mapping[int, int]
    """By limit: the share of the GPU's time that its launches would take with all SMs."""

    @property
    def is_trial(self) -> bool:
        """Return whether nothing is known of this limit yet."""
        return self.sms_ppm not in self.harvest_ppm

    def line(self, name: str, above: str) -> str:
        """Return what was chosen and why, in a sentence; empty where there was nothing to choose."""
        if self.is_trial and self.sms_ppm == ALL_PPM:
            return ""
        (first, ppm), *others = sorted(self.harvest_ppm.items(), reverse=True)
        if not others and not self.is_trial:
            return ""
        had = [f"with {_of_them(first)} it had {_percent(ppm)} of the GPU's time beside {above}"]
        had += [f"with {_of_them(limit)} {_percent(ppm)}" for limit, ppm in others]
        what = "all SMs" if self.sms_ppm == ALL_PPM else f"{_of_them(self.sms_ppm)} of the SMs"
        return f"{name} gets {what}{', to try that' if self.is_trial else ''}: {', '.join(had)}"


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.{1 if ppm < 10_000 else 0}f} %"


def _of_them(sms_ppm: int) -> str:
    return "all of them" if sms_ppm == ALL_PPM else f"{sms_ppm / 10_000:g} %"


def keyed(program: str, sms_ppm: int) -> str:
    """Return the name under which what is learnt of a program is kept: its kernels take longer with a limit."""
    return program if sms_ppm in (0, ALL_PPM) else f"{program}.sms-{sms_ppm / 10_000:g}"


def choose(outcomes: Mapping[int, Outcome]) -> Choice:
    """Return the limit of a program at its start, from what is known of it by limit."""
    harvest = harvests(outcomes)
    unlimited = outcomes.get(ALL_PPM)
    if not harvest or unlimited is None:
        return Choice(ALL_PPM, harvest)
    most = max((harvest[limit] for limit, outcome in outcomes.items() if outcome.within_aim), default=0)
    starved = most < STARVED_PPM and unlimited.waited_ppm > _WAITED_PPM
    untried = [limit for limit in TRIED_PPM if limit not in outcomes]
    if starved and untried:
        return Choice(untried[0], harvest)
    best = max(outcomes, key=lambda limit: (outcomes[limit].within_aim, harvest[limit], limit))
    return Choice(best, harvest)


def harvests(outcomes: Mapping[int, Outcome]) -> dict[int, int]:
    """Return by limit the share of the GPU's time that a program had, as if its launches had all SMs.

    With a limit launches take longer: what counts is how many there were.
    """
    unlimited = outcomes.get(ALL_PPM)
    found = {}
    for limit, outcome in outcomes.items():
        known_ns = unlimited.launch_ns if unlimited else 0
        launch_ns = known_ns or outcome.launch_ns * limit // MILLION
        found[limit] = outcome.rate_mhz * launch_ns // MILLION
    return found


def outcome_of(row: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome in a stored row; None where there is none, or it is not one."""
    numbers = [row.get(name) for name in _NUMBERS]
    if any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in numbers):
        return None
    return Outcome(*(number for number in numbers if isinstance(number, int)))


def outcomes_of(
    rows: Mapping[tuple[str, str], Mapping[str, Any]], program: str, above: str = ""
) -> tuple[str, dict[int, Outcome]]:
    """Return the program above, and what is known by limit of ``program`` beside it.

    Without ``above`` it is the one that was last seen with it.
    """
    found: dict[str, dict[int, Outcome]] = {}
    for (other, below), row in rows.items():
        limit, outcome = row.get("sms_ppm", ALL_PPM), outcome_of(row)
        if outcome is not None and isinstance(limit, int) and 0 < limit <= ALL_PPM and below == keyed(program, limit):
            found.setdefault(other, {})[limit] = outcome
    if not above and found:
        above = max(found, key=lambda other: (max(each.seen_s for each in found[other].values()), other))
    return above, found.get(above, {})


# --- how a pair goes ---------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """Counters of one client since it joined."""

    client: int
    """Its index."""
    priority: int
    since_ns: int
    program: str
    """With its limit, as ``keyed`` returns it."""
    launches: int
    work_ns: int
    waited_ns: int


@dataclass(slots=True)
class _Pair:
    """What the program below did while these two were there."""

    who: tuple[tuple[int, int], ...]
    last: Counted
    at_ns: int
    time_ns: float = 0.0
    launches: float = 0.0
    work_ns: float = 0.0
    waited_ns: float = 0.0

    def count(self, now_ns: int, below: Counted) -> None:
        """Add what it did since the last call; what it did before counts less and less."""
        passed = now_ns - self.at_ns
        if passed <= 0:
            return
        kept = 0.5 ** (passed / _HALF_NS)
        self.time_ns = self.time_ns * kept + passed
        self.launches = self.launches * kept + below.launches - self.last.launches
        self.work_ns = self.work_ns * kept + below.work_ns - self.last.work_ns
        self.waited_ns = self.waited_ns * kept + below.waited_ns - self.last.waited_ns
        self.last, self.at_ns = below, now_ns


@dataclass(slots=True)
class Harvests:
    """Follows how the program below goes in a pair of programs that have the GPU to themselves."""

    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    """By program above and program below, with its limit: what is known of those that have settled."""
    _pair: _Pair | None = None

    def count(self, now_ns: int, now_s: int, clients: Sequence[Counted], dial: Dial) -> None:
        """Read the counters of all clients. Where others run beside a pair, nothing is said of it."""
        ordered = sorted(clients, key=lambda each: (each.priority, each.client))
        *above, below = ordered or (None,)
        if below is None or len({(each.program, each.priority) for each in above}) != 1:
            self._pair = None
            return
        who = tuple((each.client, each.since_ns) for each in ordered)
        if self._pair is None or self._pair.who != who or above[0].priority >= below.priority:
            self._pair = _Pair(who, below, now_ns)
            return
        self._pair.count(now_ns, below)
        slow = [dial.slowdown(each.client) for each in above]
        known = [each for each in slow if each is not None]
        if len(known) < len(slow) or not all(dial.settled(each.client) for each in above):
            return
        if self._pair.time_ns >= _LEAST_NS and above[0].program and below.program:
            worst = max(known)
            self.outcomes[above[0].program, below.program] = _outcome(self._pair, worst, dial.slo_ppm, now_s)


def _outcome(pair: _Pair, slowdown: Estimate, slo_ppm: int, now_s: int) -> Outcome:
    return Outcome(
        round(pair.launches * 1e12 / pair.time_ns),
        round(pair.work_ns / max(1.0, pair.launches)),
        min(MILLION, round(pair.waited_ns * MILLION / pair.time_ns)),
        slowdown.value_ppm,
        slo_ppm,
        slowdown.holds,
        now_s,
    )
