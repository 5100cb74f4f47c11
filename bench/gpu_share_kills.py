"""Thirty deaths beside a latency-critical program, all of them under ``headway share run`` and its real broker.

Programs and brokers die in ways drawn by a seed. After each: does the program above go on, did the victim end, does the
broker notice, does anything hang; and at the end: is anything left? Every wait has a limit.
"""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu_share_real import Real, Started, real, until
from headway.device import processes

MS = 1_000_000
TINY = (sys.executable, "-m", "bench.gpu_share_tiny", "LOG")
SEED = 7
ABOVE, THINK_MS, LAUNCHES = "above", "2", "4"
JOIN_S, END_S, GO_ON_S = 25.0, 12.0, 10.0
HANG_S = 1.6
"""Longer than programs trust a broker that shows no sign of life, which is a second."""
WAYS: Mapping[str, int] = {
    "drain": 8,
    "kill": 8,
    "mps": 5,
    "broker-kill": 3,
    "broker-hang": 2,
    "broker-hang-kill": 1,
    "stop-kill": 3,
}
"""How often in thirty."""
NOTE = (
    "drain: SIGTERM to headway share run, passed on; kill: SIGKILL of the program itself; mps: terminate_client, and "
    "SIGTERM where it lives on after 2 s; broker-hang: SIGSTOP for 1.6 s, then SIGCONT, or SIGKILL; stop-kill: headway "
    "share stop --kill ends the program above too, and went_on says that one started after it serves. noticed: the "
    "broker no longer lists the victim; of a broker: the next one took the program above in again."
)


@dataclass(slots=True)
class Crowd:
    """The program above, victims that are ready to die, and what became of them."""

    with_: Real
    command: Sequence[str]
    flags: tuple[str, ...]
    drawn: random.Random
    ahead: int
    above: Started | None = None
    victims: list[Started] = field(default_factory=list)
    ways: dict[str, dict[str, Any]] = field(default_factory=dict)
    born: int = 0
    lost: bool = False
    """Nothing starts any more."""

    def begin(self) -> bool:
        """Start the program above; whether it serves."""
        self.born += 1
        # A log of its own for each start: what the one before did is not counted again.
        self.above = self.with_.run(f"{ABOVE}-{self.born}", 0, [*self.command, LAUNCHES, THINK_MS], *self.flags)
        return self.serves(0)

    def serves(self, since_ns: int) -> bool:
        """Whether the program above answers, again and again."""
        above = self._one
        return until(lambda: len(above.spans(since_ns)) > 4 or above.process.poll() is not None, JOIN_S) and (
            above.process.poll() is None
        )

    @property
    def _one(self) -> Started:
        assert self.above is not None
        return self.above

    def breed(self, wanted: int) -> None:
        """So many victims on their way: they take longer to start than to die."""
        while len(self.victims) < wanted:
            self.born += 1
            self.victims.append(self.with_.run(f"victim-{self.born}", 5, self.command, *self.flags))

    def victim(self) -> tuple[Started, dict[str, Any]]:
        """One that has joined and launched, and its row; empty where it never did."""
        self.breed(1)
        one = self.victims.pop(0)
        until(lambda: self.with_.client(one.name) or one.process.poll() is not None, JOIN_S)
        return one, self.with_.client(one.name)

    # --- one death -----------------------------------------------------------------------------------------------

    def round(self, way: str, more: bool) -> None:
        """One death, and what is seen after it. ``more``: others are to come, which can be started meanwhile."""
        found = self.ways.setdefault(
            way, {"times": 0, "ended": 0, "went_on": 0, "noticed": 0, "worst_ms": 0.0, "said": []}
        )
        found["times"] += 1
        die: Callable[[dict[str, Any], str], int] = (
            self._stop_kill if way == "stop-kill" else self._broker if way.startswith("broker") else self._victim
        )
        if more:
            self.breed(self.ahead)
        at = die(found, way)
        if way != "stop-kill":
            self._after(found, at)
        print(way, {key: value for key, value in found.items() if key != "said"}, flush=True)

    def _after(self, found: dict[str, Any], at: int) -> None:
        """Did the program above go on? If it died, another one takes its place."""
        above, over = self._one, time.monotonic_ns()  # all is over now: what it does from here on counts
        on = until(lambda: len(above.spans(over)) > 4 or above.process.poll() is not None, GO_ON_S)
        if on and above.process.poll() is None:
            found["went_on"] += 1
        took = [(end - begin) / MS for begin, end in above.spans(at)]
        found["worst_ms"] = round(max([found["worst_ms"], *took]), 3)
        if above.process.poll() is not None:
            found["said"].append(f"{above.name} ended with {above.process.returncode}: {above.words()[-300:]}")
            self._anew()
        elif not on:
            found["said"].append(f"{above.name} answers no more: {above.words()[-300:]}")
            _send(self.with_.client(above.name).get("pid", above.process.pid), signal.SIGKILL)
            self._anew()

    def _anew(self) -> None:
        """Another program above; where none can be had, everything once more from the beginning."""
        if self.begin():
            return
        self.with_.do(["share", "stop", "--kill"], 60)
        for one in self.victims:
            one.process.terminate()
        self.victims.clear()
        self.lost = not self.begin()

    def _victim(self, found: dict[str, Any], way: str) -> int:
        one, row = self.victim()
        time.sleep(self.drawn.uniform(0, 0.3))
        at = time.monotonic_ns()
        if not row:
            found["said"].append(f"{one.name} never joined ({one.process.poll()}): {one.words()[-300:]}")
            one.process.terminate()
        elif way == "drain":
            one.process.terminate()
        elif way == "kill":
            _send(row["pid"], signal.SIGKILL)
        else:
            self._through_mps(one, row, found)
        if one.ended(END_S) and not (row and processes.alive(row["pid"], 0)):
            found["ended"] += 1
        elif row:
            found["said"].append(f"{one.name} did not end: {one.words()[-200:]}")
            _send(row["pid"], signal.SIGKILL)
        gone = until(lambda: all(each["name"] != one.name for each in self.with_.look().get("clients", ())), END_S)
        found["noticed"] += int(gone)
        return at

    def _through_mps(self, one: Started, row: dict[str, Any], found: dict[str, Any]) -> None:
        mps = self.with_.mps()
        if mps is None:
            _say(found, "no MPS runs here: SIGTERM instead")
        elif not mps.terminate(row["pid"]):
            _say(found, f"MPS did not take {one.name} for a client, or did not answer: SIGTERM instead")
        if not one.ended(0.0 if mps is None else 2.0):
            one.process.terminate()

    def _broker(self, found: dict[str, Any], way: str) -> int:
        """The broker stops for a while, or dies: programs go on ungated; the next ``run`` starts another one."""
        # A program that starts while the broker hangs goes on ungated for good: those on their way come first.
        until(lambda: all(self.with_.client(one.name) or one.ended(0) for one in self.victims), JOIN_S)
        broker = self.with_.look().get("broker", 0)
        at = time.monotonic_ns()
        if not broker:
            found["said"].append("no broker was there")
            return at
        if way != "broker-kill":
            _send(broker, signal.SIGSTOP)
            time.sleep(HANG_S)
            if not until(lambda: len(self._one.spans(at + round(1.2e9))) > 4, GO_ON_S):
                found["said"].append(f"nobody answered while the broker hung: {self._one.words()[-200:]}")
        if way == "broker-hang":
            _send(broker, signal.SIGCONT)
            found["ended"] += 1
        else:
            _send(broker, signal.SIGKILL)
            found["ended"] += int(until(lambda: not processes.alive(broker, 0), END_S))
            # Those that are alive now hold the list of users: only a new run starts a broker.
            self.breed(len(self.victims) + 1)
        found["noticed"] += int(until(lambda: self._taken_in(broker, way == "broker-hang"), JOIN_S))
        # Who joins it first has to find it alive: a second death at that moment is another experiment.
        until(lambda: all(self.with_.client(one.name) or one.ended(0) for one in self.victims), JOIN_S)
        return at

    def _taken_in(self, broker: int, same: bool) -> bool:
        now = self.with_.look()
        there = any(each["name"] == self._one.name and not each["open"] for each in now.get("clients", ()))
        return bool(there and now["healthy"] and (now["broker"] == broker) == same)

    def _stop_kill(self, found: dict[str, Any], way: str) -> int:
        """All programs are ended through MPS, the broker and MPS as well; then all begins anew."""
        one, row = self.victim()
        at = time.monotonic_ns()
        both = (self._one, one, *self.victims)
        ran = self.with_.do(["share", "stop", "--kill"], 60)
        gone = [each.ended(END_S) for each in both]
        found["ended"] += int(all(gone) and bool(row))
        if ran.rc != 0 or not all(gone):
            found["said"].append(f"status {ran.rc}: {ran.last}")
        for each in both:
            if each.process.poll() is None:  # it joined too late to be known
                each.process.terminate()
                each.ended(END_S)
        self.victims.clear()
        left = self.with_.left()
        found["noticed"] += int(not any(left.values()))
        if any(left.values()):
            found["said"].append(f"left: {left}")
        again = self.begin()
        found["went_on"] += int(again)
        self.lost = not again
        if not again:
            found["said"].append(f"it did not start again: {self._one.words()[-300:]}")
        return at


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _say(found: dict[str, Any], line: str) -> None:
    if line not in found["said"]:
        found["said"].append(line)


def plan(times: int, drawn: random.Random, ways: Mapping[str, int] = WAYS) -> list[str]:
    """The ways, in a random order; those that end everybody come last."""
    chosen = list(ways)[:times]
    while len(chosen) < times:  # the one that lacks most of its share
        chosen.append(max(ways, key=lambda way: ways[way] * times / sum(ways.values()) - chosen.count(way)))
    last = [way for way in chosen if way == "stop-kill"]
    first = [way for way in chosen if way != "stop-kill"]
    drawn.shuffle(first)
    return [*first, *last]


def kills(
    state: Path,
    budget_s: float,
    times: int = 30,
    command: Sequence[str] = TINY,
    mps: str = "auto",
    environment: Mapping[str, str] | None = None,
    ahead: int = 3,
) -> dict[str, Any]:
    """So many deaths within the budget; a row of what was seen."""
    drawn = random.Random(SEED)
    begun = time.monotonic()
    row: dict[str, Any] = {"asked": times, "note": NOTE}
    with real(state / "kills", environment) as with_:
        crowd = Crowd(with_, command, ("--mps", mps), drawn, ahead)
        row["ways"] = crowd.ways
        serving = crowd.begin()
        print(f"the program above {'serves' if serving else 'does not serve'}", flush=True)
        row["mode"] = with_.look().get("mode_line", "")
        ways = plan(times, drawn) if serving else []
        for index, way in enumerate(ways):
            if crowd.lost or time.monotonic() - begun > budget_s - 15:
                row["broken_off"] = "nothing starts any more" if crowd.lost else "the time was up"
                break
            crowd.round(way, more="stop-kill" not in ways[index : index + 1 + ahead])
        row |= _finish(crowd)
    row["seconds"] = round(time.monotonic() - begun, 1)
    print({key: value for key, value in row.items() if key not in ("ways", "note")}, flush=True)
    return row


def _finish(crowd: Crowd) -> dict[str, Any]:
    """All programs end by themselves, then ``headway share stop``; what is left then."""
    with_ = crowd.with_
    with_.look()
    for one in with_.started:
        if one.process.poll() is None:
            one.process.terminate()
    hung = [one.name for one in with_.started if not one.ended(END_S)]
    ran = with_.do(["share", "stop"], 60)
    took = sorted(end - begin for one in with_.started if one.name.startswith(ABOVE) for begin, end in one.spans())
    last = {"rc": ran.rc, "said": ran.last}
    return {
        "times": sum(got["times"] for got in crowd.ways.values()),
        "requests_above": len(took),
        "above_p50_ms": round(took[len(took) // 2] / MS, 3) if took else None,
        "hung": hung,
        "stop": last,
        **with_.left(),
    }
