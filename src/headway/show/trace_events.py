"""Write the events of Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open, one at a time.

Nothing but the standard library is needed, so that a GPU machine can write them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping


def whole_file(events: Iterable[str], title: str, unit: str = "ms") -> Iterator[str]:
    """Yield the file piece by piece: what comes before the events, each of them, and what comes after."""
    yield f'{{"displayTimeUnit":"{unit}","otherData":{{"run":{json.dumps(title)}}},"traceEvents":[\n'
    for made, event in enumerate(events):
        yield f",\n{event}" if made else event
    yield "\n]}\n"


def microseconds(time: int) -> str:
    """Return nanoseconds as a JSON number of microseconds, exactly."""
    sign, size = ("-", -time) if time < 0 else ("", time)
    whole, rest = divmod(size, 1000)
    return f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}"


def named(what: str, pid: int, tid: int, name: str) -> str:
    """Return what gives a process (``process_name``) or a thread (``thread_name``) its name."""
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"ts":0,"args":{{"name":{json.dumps(name)}}}}}'


def ordered(what: str, pid: int, tid: int = 0) -> str:
    """Return what puts a process or a thread in the order of their numbers."""
    index = tid or pid
    return f'{{"ph":"M","name":"{what}_sort_index","pid":{pid},"tid":{tid},"ts":0,"args":{{"sort_index":{index}}}}}'


def span(name: str, category: str, start: int, end: int, pid: int, tid: int, args: Mapping[str, object]) -> str:
    """Return a slice from one time to another."""
    where = f'"pid":{pid},"tid":{tid},"ts":{microseconds(start)},"dur":{microseconds(end - start)}'
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},{where},"args":{json.dumps(args)}}}'


def instant(name: str, scope: str, time: int, pid: int, tid: int) -> str:
    """Return a moment of a process (scope ``p``) or of a thread (``t``)."""
    where = f'"pid":{pid},"tid":{tid},"ts":{microseconds(time)}'
    return f'{{"ph":"i","s":"{scope}","name":{json.dumps(name)},{where}}}'


def counter(name: str, what: str, pid: int, time: int, value: float) -> str:
    """Return the value that a counter has from a time on."""
    where = f'"pid":{pid},"tid":0,"ts":{microseconds(time)}'
    return f'{{"ph":"C","name":"{name}",{where},"args":{{"{what}":{value!r}}}}}'


class Lanes:
    """Threads on which spans lie beside each other: as few as it can be done with."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        """When the last span of each lane ends."""

    def place(self, begin: int, end: int) -> int:
        """Return the lane of a span; they come in order of their beginning."""
        lane = next((number for number, until in enumerate(self.ends) if until <= begin), len(self.ends))
        self.ends[lane : lane + 1] = [end]
        return lane
