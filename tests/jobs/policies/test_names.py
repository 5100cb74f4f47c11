"""A policy's name builds the same policy again, whatever its options; and what no name can be is refused."""

import inspect
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError, InputError
from headway.jobs.policies import registry
from headway.jobs.policies.registry import build, options_of
from headway.units import MINUTE, SECOND, Duration

TABLES: tuple[dict[str, Any], ...] = (registry.ORDERS, registry.BACKFILLS, registry.PLACEMENTS, registry.MIGRATIONS)
OWN = [[part for part in table.values() if part.__module__.startswith("headway.")] for table in TABLES]
"""The parts that come with headway; other tests may have registered more."""
TEXTS = {
    "up_to": ("node", "rack"),
    "qos": ("normal:1", "high:3"),
    "tres": ("gpu:5000", "cpu:100"),
    "typical": ("1:3", "8:1:4", "0.5:2"),
}
NUMBERS = st.integers(1, 10**13)
SHARES = st.floats(0, 1, exclude_min=True, allow_subnormal=False) | st.sampled_from([1e-9, 0.1])


def _values(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if get_origin(kind) is tuple:
        return st.lists(_values(name, get_args(kind)[0]), min_size=1, max_size=3, unique=True).map(_grows)
    if kind is bool:
        return st.booleans()
    if kind is float:
        return SHARES
    return st.sampled_from(TEXTS[name]) if kind is str else NUMBERS


def _grows(values: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values))


@st.composite
def terms(draw: st.DrawFn, parts: list[Any]) -> str:
    """One of these parts with some of its options, as a person may write them."""
    part = draw(st.sampled_from(parts))
    hints = get_type_hints(part.__init__)
    options = [name for name in inspect.signature(part).parameters if name in hints]
    chosen = draw(st.lists(st.sampled_from(options), unique=True)) if options else []
    given_options = [f"{name}={_text(draw(_values(name, hints[name])), hints[name])}" for name in chosen]
    return f"{part.name}({','.join(given_options)})" if given_options else str(part.name)


def _text(value: Any, kind: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(_text(item, get_args(kind)[0]) for item in value)
    return f"{value}ns" if kind is Duration else str(value)


@st.composite
def whole(draw: st.DrawFn) -> str:
    """A policy of parts with options."""
    order, *others = OWN
    found = [draw(terms(table)) for table in others if draw(st.booleans())]
    found += draw(st.sampled_from([[], ["preempt"], ["no-preempt"]]))
    found += [f"{name}({draw(NUMBERS)}ns)" for name in registry.SPANS if draw(st.booleans())]
    return "+".join([draw(terms(order)), *draw(st.permutations(found))])


def _meant(spec: str) -> tuple[Any, ...]:
    policy = build(spec)
    parts = (policy.order, policy.backfill, policy.placement, policy.migration)
    told = [(type(part), options_of(part)) for part in parts if part is not None]
    return policy.name, told, policy.preempts, policy.quantum, policy.round_length


@given(spec=whole())
def test_a_name_builds_the_same_policy(spec: str) -> None:
    assert _meant(build(spec).name) == _meant(spec)


@pytest.mark.parametrize("part", [part for parts in OWN for part in parts], ids=lambda part: part.name)
@settings(max_examples=20)
@given(data=st.data())
def test_every_part_is_read_back_with_its_options(part: Any, data: st.DataObject) -> None:
    term = data.draw(terms([part]))
    spec = term if part in OWN[0] else f"fifo+{term}"
    assert _meant(build(spec).name) == _meant(spec)


@given(quantum=NUMBERS, length=st.just(0) | NUMBERS, order=st.sampled_from(["fifo", "srtf", "las", "drf", "ftf"]))
def test_what_is_given_beside_the_name_is_in_the_name(quantum: int, length: int, order: str) -> None:
    policy = build(order, quantum=quantum, round_length=length)
    again = build(policy.name)
    assert (again.name, again.quantum, again.round_length) == (policy.name, quantum, length)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("srtf", "srtf"),
        ("fifo+none+best-fit", "fifo"),
        ("fifo+easy", "fifo+easy"),
        ("srtf+preempt", "srtf"),
        ("las(quantum=5m)+easy", build("las+easy+quantum(300s)").name),
        ("multifactor(fairshare_weight=1000000)", "multifactor(fairshare_weight=1000000)"),
        ("multifactor(favor_small=True, half_life=14d)", "multifactor(half_life=14d, favor_small=true)"),
        ("las(quantum=500us)", "las(quantum=500us)"),
        ("tiresias(thresholds=60m/90m)", "tiresias(thresholds=1h/1h30m)"),
        ("fifo+migrate(margin=1e16)+fit", "fifo+fit+migrate(margin=1e+16)"),
        ("srtf+round(300s)+quantum(90)", "srtf+quantum(1m30s)+round(5m)"),
        ("srtf+quantum(0s)+round(0s)", "srtf"),
    ],
)
def test_a_name_is_as_plain_as_it_can_be(spec: str, name: str) -> None:
    assert build(spec).name == name


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("fifo+quantum", r"write it like quantum\(5m\)"),
        ("fifo+opt(gap=-1)", r"opt\(gap=-1.0\): must lie between 0 and 1"),
        ("fifo+opt(gap=nan)", r"opt\(gap=nan\): must lie between 0 and 1"),
        ("fifo+opt(branches=-3)", r"opt\(branches=-3\): must be a number from 0 on"),
        ("fifo+opt(margin=inf)", r"opt\(margin=inf\): must be a number from 0 on"),
        ("fifo+headway(moves=-1)", r"headway\(moves=-1\): must be a number from 0 on"),
        ("fifo+headway(margin=nan)", r"headway\(margin=nan\): must be a number from 0 on"),
        ("fifo+headway(slowdown=nan)", r"headway\(slowdown=nan\): must lie between 0 and 1"),
        ("fifo+headway(rest=-1h)", "rest=.* must not be negative"),
        ("ftf(margin=inf)", r"ftf\(margin=inf\): must be a number from 0 on"),
        ("fifo+round()", r"write it like round\(5m\)"),
        ("fifo+quantum(soon)", "quantum 'soon' is not understood"),
        ("fifo+round(-5m)", "round '-5m' must not be negative"),
        ("fifo+quantum(1m)+quantum(2m)", "two parts of the kind quantum"),
        ("fifo+preempt(now=true)", "preempt has no options"),
        ("fifo+preempt+no-preempt", "two parts of the kind preemption"),
        ("las(quantum=1m,quantum=2m)", "option quantum of las is given twice"),
    ],
)
def test_what_is_no_name_is_refused(spec: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        build(spec)


def test_an_order_of_one_s_own_names_its_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("Own", (registry.ORDERS["fifo"],), {"name": "own", "backfill": "easy"})
    monkeypatch.setitem(registry.ORDERS, "own", own)
    assert [build(spec).backfill.name for spec in ("own", "own+none", "own+fit")] == ["easy", "none", "fit"]
    assert [build(spec).name for spec in ("own+easy", "own+none")] == ["own", "own+none"]
    monkeypatch.setattr(own, "backfill", "esay")
    with pytest.raises(ExperimentError, match="unknown backfill of order own 'esay'; did you mean 'easy'"):
        build("own")


def test_what_is_given_beside_the_name_may_repeat_it_but_not_contradict_it() -> None:
    assert build("fifo+fit", backfill="fit").name == "fifo+fit"
    assert build("fifo+migrate", migration="migrate").name == "fifo+migrate"
    assert build("fifo", migration="off").migration is None
    assert build("srtf", preempts=False).name == "srtf+no-preempt"
    assert build("las(quantum=1m)", quantum=90 * SECOND).name == "las(quantum=1m30s)"
    assert build("srtf+round(1m)", round_length=MINUTE).round_length == MINUTE
    for wrong in ({"backfill": "none"}, {"placement": "spread"}, {"migration": "off"}, {"preempts": False}):
        with pytest.raises(ExperimentError, match=r"already names the .* contradicts it"):
            build("fifo+fit+fgd+migrate+preempt", **wrong)  # type: ignore[arg-type]
