"""Broker of one GPU: watches its clients and sets the rules of each, twenty times a second or more often.

It gives a client that joins the stored profile of its program, applies the dial, notices clients that died, saves what
was learnt, and ends when told to or when no client is left. It is never on the path of a launch: programs read the
block themselves, and go on ungated if the broker is gone.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from headway.device import locks as places, processes
from headway.device.locks import Place
from headway.device.mps import Mps
from headway.errors import HeadwayError
from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Seen
from headway.gpu.control.slowdown import MILLION
from headway.gpu.share.block import slot_profiles, slot_steps
from headway.gpu.share.block.block import CLAIMED, FREE, LEFT, LIVE, SLOTS, SharedBlock, Slot
from headway.gpu.share.block.slot_profiles import SlotProfile
from headway.gpu.share.block.socket import REMOVED, ProgramsWithoutSlot
from headway.gpu.share.broker.background_store import BackgroundStore, Store, outcome
from headway.gpu.share.broker.heartbeat import BEAT_NS, Heartbeat
from headway.gpu.share.broker.learnt_pairs import LearntPairs
from headway.gpu.share.tape.recorder import Recorder
from headway.units import format_duration

SECOND = 1_000_000_000
PUBLISH_NS = SECOND // 4
SAVE_NS = 60 * SECOND
TURN_NS = 8_000_000
"""Interval between two calls of the dial while clients of different priority are there."""
HELD_TURN_NS = 1_000_000
"""The same while somebody is held: a hold lasts a few steps and no longer."""
CLAIM_NS = 2 * SECOND
"""A slot that is claimed for longer belongs to a process that died while it joined."""
FOREIGN_NS = 600 * SECOND
"""A client in another container, whose process is not visible here, counts as gone after this long without a launch."""
LEFT_NS = SECOND
"""A client that left keeps its slot until its process is gone, or for this long: its threads may still launch."""
KEPT_LEFT = 64
_MOMENT_S = 0.005


@dataclass(slots=True)
class _Client:
    """What the broker remembers of the process in a slot."""

    pid: int
    """The process id here; 0: it is not visible here."""
    ticks: int
    since_ns: int
    saved_ns: int
    known: "Future[SlotProfile | None] | None" = None
    """The stored profile of its program, once it is read."""
    left_ns: int = 0
    """When it was seen to have left; 0: it has not."""
    steps: int = 0  # whole ones of it that were read


class Broker:
    """The broker's loop. ``step`` is one iteration; it needs no thread, no signal and no real time."""

    def __init__(
        self,
        place: Place,
        block: SharedBlock,
        dial: Dial,
        *,
        store: Store | None = None,
        mps: Mps | None = None,
        linger_ns: int | None = None,
        facts: dict[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
        recorder: Recorder | None = None,
    ) -> None:
        self.place, self.block, self.dial, self.mps = place, block, dial, mps
        self.recorder = recorder or Recorder()
        self.background_store = BackgroundStore(store)
        self._linger_ns, self._facts, self._say = linger_ns, facts or {}, say
        self._clients: dict[int, _Client] = {}
        self._written: dict[int, Rules] = {}
        self._claims: dict[int, int] = {}
        self._left: deque[dict[str, Any]] = deque(maxlen=KEPT_LEFT)
        self._leaving: dict[int, _Client] = {}
        self._last_request = (0, 0)
        self._silent = self._socket_problem = ""
        self._programs = ProgramsWithoutSlot()
        self._published_ns = self._saved_ns = 0
        self._idle_since_ns = time.monotonic_ns()
        self.pairs = LearntPairs(dial, self.background_store, say)
        self.stopping = ""
        """"drain" or "kill" once the broker was asked to stop."""

    # --- one turn ------------------------------------------------------------------------------------------------

    def step(self, now_ns: int) -> None:
        """Run one iteration: check every slot, set the rules, load profiles, publish the state."""
        self._read_requests()
        for index in range(SLOTS):
            self._check_slot(index, self.block.slots[index], now_ns)
        self._written.clear()
        self.apply_dial(now_ns)
        self.seed()
        for line in self.background_store.problems():
            self._say(line)
        if now_ns - self._published_ns >= PUBLISH_NS:
            self._restore_socket()
            self._publish(now_ns)
        self.recorder.turn(now_ns, self.dial, self._clients)
        self.pairs.turn(now_ns, self._slots)
        if now_ns - self._saved_ns >= SAVE_NS:
            self._saved_ns = now_ns
            self.pairs.keep()
        if self._clients:
            self._idle_since_ns = now_ns

    def apply_dial(self, now_ns: int) -> None:
        """Set the rules by the dial alone, more often than a whole step: it holds clients for short moments."""
        seen = [self._seen(index) for index in self._clients]
        self.pairs.contention.sample(now_ns, self._slots)
        for index, rules in self.dial.rules(now_ns, seen).items():
            if self._written.get(index) != rules:
                self._written[index] = rules
                write_rules(self.block.slots[index], rules)

    @property
    def _slots(self) -> dict[int, Slot]:
        return {index: self.block.slots[index] for index in self._clients}

    @property
    def has_priorities(self) -> bool:
        """Return whether clients of different priority are there."""
        return len({self.block.slots[index].priority for index in self._clients}) > 1

    def idle(self, now_ns: int) -> bool:
        """Return whether there has been no client for the time that the broker lingers."""
        return self._linger_ns is not None and now_ns - self._idle_since_ns >= self._linger_ns

    @property
    def clients(self) -> dict[int, int]:
        """Return the slots in use, each with its process id here; 0 where it is not visible."""
        return {index: client.pid for index, client in self._clients.items()}

    def _read_requests(self) -> None:
        """Read the file of requests to the broker, if it is new: settings of the dial, and to stop."""
        try:
            about = self.place.asked.lstat()
            request = about.st_mtime_ns, about.st_ino  # each is a new file; a clock alone may stand still
            if request == self._last_request:
                return
            self._last_request = request
            asked = places.read_json(self.place.asked)
        except FileNotFoundError:
            return
        except (OSError, HeadwayError) as problem:
            self._say(f"{self.place.asked}: the broker's settings cannot be read: {problem}")
            return
        for name, least in (("slo_ppm", MILLION), ("slo99_ppm", 0), ("floor_ppm", 0)):
            value = asked.get(name)
            if isinstance(value, int) and value >= least and value != getattr(self.dial, name):
                setattr(self.dial, name, value)
                self._say(f"{name.removesuffix('_ppm')} is {value / MILLION:g} now")
        linger = asked.get("linger_ns")
        if isinstance(linger, int) and linger >= 0 and self._linger_ns not in (None, linger):
            self._linger_ns = linger
            self._say(f"linger is {format_duration(linger)} now")
        if asked.get("stop") in ("drain", "kill") and self.stopping != asked["stop"]:
            self.stopping = asked["stop"]
            self.block.header.stopping = 1

    def _check_slot(self, index: int, slot: Slot, now_ns: int) -> None:
        """Check one slot: a client may have joined, left or died."""
        state = slot.state
        if state != CLAIMED:
            self._claims.pop(index, None)
        elif now_ns - self._claims.setdefault(index, now_ns) > CLAIM_NS:
            self._say(f"slot {index}: its process died while it joined")
            self.block.clear(index)
            self._claims.pop(index)
        client = self._clients.get(index)
        if state == FREE:
            if client is not None:  # nobody but the broker clears a slot
                del self._clients[index]
        elif state == LEFT:
            self._on_client_left(index, slot, now_ns)
        elif state == LIVE:
            if client is None or client.ticks != slot.start_ticks or client.since_ns != slot.since_ns:
                client = self._on_client_joined(index, slot, now_ns)
            if not self._lives(client, slot, now_ns):
                self._record_end(index, slot, "died")
                self.block.clear(index)
            elif now_ns - client.saved_ns >= SAVE_NS:
                client.saved_ns = now_ns
                self.background_store.save(slot)
        elif state != CLAIMED:
            self._say(f"slot {index}: its state {state} is invalid: cleared")
            self.block.clear(index)
            self._clients.pop(index, None)

    def _on_client_joined(self, index: int, slot: Slot, now_ns: int) -> _Client:
        pid = processes.pid_here(slot.owner, slot.start_ticks)
        client = _Client(pid, slot.start_ticks, slot.since_ns, now_ns)
        self._clients[index] = client
        self._leaving.pop(index, None)
        where = "" if pid else ", in another container"
        self._say(f"{slot_profiles.text(slot.name)} (process {slot.owner}{where}) joined with priority {slot.priority}")
        return client

    def _lives(self, client: _Client, slot: Slot, now_ns: int) -> bool:
        if client.pid:
            return processes.alive(client.pid, client.ticks)
        heard = max(slot.ledger.beat_ns, slot.pulse.launch_ns, slot.since_ns)
        return bool(now_ns - heard < FOREIGN_NS)

    def _on_client_left(self, index: int, slot: Slot, now_ns: int) -> None:
        """Free the slot of a client that has left, once its process is gone or after a second."""
        client = self._leaving.get(index)
        if client is None or (client.ticks, client.since_ns) != (slot.start_ticks, slot.since_ns):
            client = self._clients.get(index)
            if client is None or (client.ticks, client.since_ns) != (slot.start_ticks, slot.since_ns):
                pid = processes.pid_here(slot.owner, slot.start_ticks)
                client = _Client(pid, slot.start_ticks, slot.since_ns, now_ns)
            client.left_ns = now_ns
            self._leaving[index] = client
            self._record_end(index, slot, "left")
        ended = client.pid and not processes.alive(client.pid, client.ticks)
        if ended or now_ns - client.left_ns > LEFT_NS:
            del self._leaving[index]
            self.block.clear(index)

    def _record_end(self, index: int, slot: Slot, how: str) -> None:
        """Save what a client learnt, and forget the client; ``how``: "left" or "died"."""
        self.background_store.save(slot)
        self.pairs.keep()
        self.recorder.ended(index, slot, how)
        launches = slot.ledger.kernels + slot.ledger.graphs
        name = slot_profiles.text(slot.name)
        self._say(f"{name} (process {slot.owner}) {how} after {launches:,} launches")
        self._left.append(
            {"name": name, "pid": slot.owner, "since_ns": slot.since_ns, "launches": launches, "how": how}
        )
        self._clients.pop(index, None)
        self._published_ns = 0

    @property
    def _unseeded(self) -> list[int]:
        return [index for index in self._clients if not self.block.slots[index].seeded]

    def seed(self) -> None:
        """Give clients that joined the stored profiles of their programs, as soon as they are read."""
        joined = self._unseeded
        for index in joined:
            client = self._clients[index]
            if client.known is None:
                client.known = self.background_store.load(slot_profiles.key(self.block.slots[index]))
        awaited = [known for index in joined if (known := self._clients[index].known) is not None]
        if awaited:
            wait(awaited, timeout=_MOMENT_S)  # most profiles are read by then
        for index in joined:
            known = self._clients[index].known
            if known is not None and known.done():
                self._seed(self.block.slots[index], known)

    def _seed(self, slot: Slot, read: "Future[SlotProfile | None]") -> None:
        program = slot_profiles.text(slot.program)
        known, problem = outcome(read)
        if problem:
            self._say(f"the profile of {program} cannot be read: {problem}")
        if known is not None:
            count = known.into(slot)
            self._say(f"{slot_profiles.text(slot.name)}: {count} kernels of {program} are known")
        slot.seeded = 1

    def _restore_socket(self) -> None:
        """Recreate the socket of the block where it was removed; report what was put in its place, if anything."""
        listener = self.block.listener
        change = listener.closed_by_others() if listener is not None else ""
        if listener is not None and change == REMOVED:
            try:
                listener.reopen()
                self._say(f"{listener.path} {change}: it is put back; programs that share go on as before")
                change = ""
            except OSError as problem:
                change = f"{change}, and cannot be put back: {problem.strerror}"
        if change and change != self._socket_problem:
            self._say(
                f"{self.block.path} {change}: programs that share go on as before, new ones do not find the broker: "
                "remove what is there, or headway share stop"
            )
        self._socket_problem = change

    def _seen(self, index: int) -> Seen:
        slot = self.block.slots[index]
        client = self._clients[index]
        steps, client.steps = slot_steps.read(slot, client.steps)
        return Seen(
            index=index,
            priority=slot.priority,
            since_ns=slot.since_ns,
            epochs=slot.pulse.epoch,
            program=slot_profiles.key(slot),
            filled_ns=slot.want.end_ns,
            steps=steps,
        )

    def _publish(self, now_ns: int) -> None:
        """Publish the state; report once that its file cannot be written, and go on."""
        try:
            self.publish(now_ns)
        except OSError as problem:
            why = f"{self.place.state} cannot be written: {problem.strerror}; status shows an older state"
            if why != self._silent:
                self._say(why)
            self._silent = why
        else:
            self._silent = ""

    def publish(self, now_ns: int) -> None:
        """Write the broker's state file: what the block does not hold. Raises OSError."""
        self._published_ns = now_ns
        listener = self.block.listener
        outside = self._programs.pids(listener.heard, self.clients.values(), now_ns) if listener else []
        loops = {str(index): self.dial.told(index) for index in self._clients}
        places.write_json(
            self.place.state,
            {
                **self._facts,
                "slo_ppm": self.dial.slo_ppm,
                "slo99_ppm": self.dial.slo99_ppm,
                "floor_ppm": self.dial.floor_ppm,
                "linger_ns": self._linger_ns,
                "stopping": self.stopping,
                "loops": loops,
                "limits": self.pairs.told(self._slots),
                "hidden": [index for index, client in self._clients.items() if not client.pid],
                "here": [slot_profiles.text(self.block.slots[index].name) for index in self._clients],
                "left": list(self._left),
                "outside": outside,
                "looked_ns": now_ns,
            },
        )

    # --- its life ------------------------------------------------------------------------------------------------

    def run(self, stopped: Callable[[], bool], ending: Callable[["Broker"], None]) -> int | None:
        """Run until told to stop, or until no client is left; then call ``ending``.

        Return the lock of the users where it was taken: programs that want to join wait until it is released.
        """
        heartbeat = Heartbeat(self.block)
        heartbeat.start()
        users: int | None = None
        try:
            while users is None:
                begun = time.monotonic_ns()
                self.step(begun)
                heartbeat.progress()
                while (self.has_priorities or self._unseeded) and time.monotonic_ns() - begun < BEAT_NS - TURN_NS:
                    time.sleep((HELD_TURN_NS if self.dial.holds.holding else TURN_NS) / 1e9)
                    self.apply_dial(time.monotonic_ns())
                    self.seed()
                if stopped() and not self.stopping:
                    self.stopping = "drain"
                    self.block.header.stopping = 1
                if self.stopping:
                    break
                if self.idle(begun):
                    # A program may be about to join: one that holds the lock of the users has not launched yet.
                    users = places.hold(self.place.users, alone=True)
                time.sleep(max(0, BEAT_NS - (time.monotonic_ns() - begun)) / 1e9)
            if self.stopping:
                ending(self)
            return users
        finally:
            self.block.header.stopping = 1
            heartbeat.stop()
            for index in list(self._clients):
                self.background_store.save(self.block.slots[index])
            self.pairs.keep()
            self.recorder.close(time.monotonic_ns(), self.dial, self._clients)
            for line in self.background_store.close():
                self._say(line)


def write_rules(slot: Slot, rules: Rules) -> None:
    """Write the rules of one client into its slot; a field that is right already is not written."""
    fields = slot.rules
    for name in Rules.__dataclass_fields__:
        value = getattr(rules, name)
        if getattr(fields, name) != value:
            setattr(fields, name, value)
