"""The keys of an order from outside the package, looked at when they are computed: nan and mixed types are refused.

Nothing sorts by nan, and text cannot be compared with a number. A job must be the same after its key was computed.
The orders that come with the package have numbers or tuples of numbers for keys, and run without this.
"""

from functools import cache
from operator import attrgetter
from typing import Any

from headway.core.outside import is_outside
from headway.errors import ChangedInputError, ExperimentError
from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key

_SLOTS = JobState.__slots__
_slots = attrgetter(*_SLOTS)


def with_checked_keys(order: type[Order]) -> type[Order]:
    """The same class, its keys checked; one that comes with the package as it is."""
    return _checked(order) if is_outside(order) else order


@cache
def _checked(order: Any) -> Any:
    return type(order)(order.__name__, (_CheckedKeys, order), {"__module__": order.__module__})


class _CheckedKeys(Order):
    """In front of an order."""

    def key(self, now: int, js: JobState) -> Key:
        """Return what the order behind it says, if keys can be sorted by it and the job is as it was."""
        before = _slots(js)
        key = super().key(now, js)  # type: ignore[safe-super]
        if before != (after := _slots(js)):
            what, was, became = next(each for each in zip(_SLOTS, before, after, strict=True) if each[1] != each[2])
            raise ChangedInputError(
                f"policy {self.name}: key changed what it is shown: job {before[_SLOTS.index('id')]}, {what}: {was!r} "
                f"became {became!r}; a policy may read a job, never change it"
            )
        if _has_nan(key):
            raise ExperimentError(f"policy {self.name}: the key of job {js.id} is {key!r}: nothing sorts by nan")
        seen: dict[object, tuple[Key, int]] = self.__dict__.setdefault("_kinds_of_keys", {})
        kind = _kind(key)
        if kind not in seen:
            seen[kind] = (key, js.id)
            for other, job in seen.values():
                _compare(self.name, key, js.id, other, job)
        return key


def _kind(key: Key) -> object:
    """The type of a key; of a tuple the types of its items."""
    return tuple(map(_kind, key)) if isinstance(key, tuple) else type(key)


def _has_nan(key: Key) -> bool:
    return any(map(_has_nan, key)) if isinstance(key, tuple) else bool(isinstance(key, float) and key != key)


def _compare(policy: str, key: Key, job: int, other: Key, other_job: int) -> None:
    try:
        sorted((key, other))
    except TypeError:
        told = f"the key of job {job} is {key!r}"
        beside = "" if job == other_job else f" and that of job {other_job} is {other!r}"
        raise ExperimentError(
            f"policy {policy}: {told}{beside}, which cannot be compared: give every job a number, or a tuple of numbers"
        ) from None
