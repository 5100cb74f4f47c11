"""Check that a policy from outside the package changed nothing in the state that it was shown.

Headway's own policies are held to it by tests. Others are watched. What a run is given (jobs, graphs, programs) is
written down before the run and looked at again afterwards, so that a policy that makes its jobs shorter has no result.
What it is shown, the state, is checked by an audit of the tape.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headway.core.audit import Finding
from headway.errors import ChangedInputError, InfeasibleActionError, StalledRunError
from headway.plugins import is_own
from headway.runs.blame import MORE, blamed

_SCALARS = (int, str, float, bool, type(None))
_MOST_SHOWN = 60
_ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a state raises that somebody else has written to."""


def is_watched(parts: Sequence[object]) -> bool:
    """Return whether a policy is made of anything that is not headway's own."""
    return not all(is_own(type(part)) for part in parts if part is not None)


@contextmanager
def unchanged(policy: str, given: Mapping[str, Sequence[Any]], *, watched: bool) -> Iterator[None]:
    """Raise, when a run is over, if something of ``given`` is not what it was before; by what it is, in order.

    So it does where the run itself breaks down, though not in the policy's own code. Nothing is looked at unless the
    policy is watched.
    """
    if not watched:
        yield
        return
    before = {what: [_plain(each) for each in things] for what, things in given.items()}
    try:
        yield
    except (InfeasibleActionError, StalledRunError):  # which may come of the change
        _look(policy, before, given)
        raise
    except _ODD as problem:
        if blamed(problem) is not None:
            raise
        raise ChangedInputError(
            f"policy {policy}: the run broke down after it had decided ({type(problem).__name__}: {problem}; {MORE}); "
            "most likely it changed the state: a policy may read what it is shown, never change it"
        ) from problem
    _look(policy, before, given)


def _look(policy: str, before: Mapping[str, Sequence[Any]], given: Mapping[str, Sequence[Any]]) -> None:
    """Raise if something is not what it was."""
    for what, things in given.items():
        for number, (was, thing) in enumerate(zip(before[what], things, strict=True)):
            if _plain(thing) != was:
                name = getattr(thing, "name", "") or number
                raise ChangedInputError(
                    f"policy {policy} changed what it was given: {what} {name}{_difference(was, thing)}; "
                    "a policy may read the workload, never change it"
                )


def refuse_findings(policy: str, findings: Sequence[Finding]) -> None:
    """Raise if the audit of a watched policy's tape found anything."""
    if findings:
        more = f" (and {len(findings) - 1:,} more findings)" if len(findings) > 1 else ""
        raise ChangedInputError(
            f"policy {policy}: its run does not pass the audit: {findings[0]}{more}; "
            "a policy may read what it is shown, never change it"
        )


def _plain(value: Any) -> Any:
    """Return a value as nested tuples, which nobody else can change."""
    if type(value) in _SCALARS:
        return value
    if names := _names(type(value)):
        return tuple([_plain(getattr(value, name, None)) for name in names])
    if isinstance(value, Mapping):
        return tuple((key, _plain(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return type(value), *map(_plain, value)
    return value


def _names(kind: type) -> Collection[str]:
    """Return the fields of a dataclass or a named tuple, in order; none for anything else."""
    fields: Collection[str] = getattr(kind, "__dataclass_fields__", ())
    return fields or getattr(kind, "_fields", ())


def _difference(was: Any, thing: Any) -> str:
    """Return where a thing is not what it was: ``, work: 3600 became 1``."""
    for name, value in zip(_names(type(thing)), was, strict=False):
        now = getattr(thing, name, None)
        if _plain(now) != value:
            deeper = _difference(value, now) if _names(type(now)) else ""
            return f", {name}{deeper or f': {_shown(value)} became {_shown(_plain(now))}'}"
    return ""


def _shown(value: Any) -> str:
    text = repr(list(value[1:]) if isinstance(value, tuple) else value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
