"""Audit of a kernel tape: a finding for each contradiction, from records that share no code with the state.

What a program launches, in which order and after how much CPU time, is known beforehand, and the tape must agree: every
launch happens once and in order, no kernel ends before it could, a gated launch waits until it is let go, and a request
ends after its last kernel.
"""

from collections.abc import Callable, Sequence

from headway.core.audit import Finding, order_findings, row_ranks
from headway.core.tape import Tape
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind

_RANKS: dict[int, int] = {
    Kind.FINISHED: 0,
    Kind.HELD_UP: 1,
    Kind.REQUEST_ENDED: 2,
    Kind.LEFT: 3,
    Kind.LAUNCHED: 4,
    Kind.REACHED: 5,
    Kind.WOKE: 6,
}
Add = Callable[[str, str], None]
"""Called with the rule that is broken, and how."""


def audit(clients: Sequence[Client], device: Device, tape: Tape, *, complete: bool = True) -> list[Finding]:
    """Return the contradictions on the tape; empty for a sound one. ``complete``: the run went to its end."""
    findings = order_findings(tape, row_ranks(tape, _RANKS, _KNOWN - _RANKS.keys()))
    records = [_ClientRecord(client, device) for client in clients]
    asked: set[int] = set()
    for number, row in enumerate(tape.rows.tolist()):
        time = row[0]

        def add(rule: str, text: str, number: int = number, time: int = time) -> None:
            findings.append(Finding(number, time, rule, text))

        _row(row, records, asked, add)
    if complete:
        last = int(tape.column("time")[-1]) if len(tape) else 0
        for index, record in enumerate(records):
            findings += [Finding(len(tape) - 1, last, "end", f"client {index}: {text}") for text in record.left_open()]
    return findings


_KNOWN = frozenset(int(kind) for kind in Kind)


def _row(row: list[int], records: Sequence["_ClientRecord"], asked: set[int], add: Add) -> None:
    time, number, subject, lease, place, detail, value = row
    if number not in _KNOWN:
        add("kind", f"has the kind {number}, which no row of kernels has")
        return
    kind = Kind(number)
    if kind is Kind.WAKE_AT:
        asked.add(value)
        if value <= time:
            add("wake", f"asks to be woken at {value} ns, which is not later")
    elif kind is Kind.WOKE:
        if time not in asked:
            add("wake", "wakes a policy that had not asked for it")
    elif not 0 <= subject < len(records):
        add("client", f"is about client {subject}; there are {len(records)}")
    elif kind in (Kind.LAUNCHED, Kind.LET_GO):
        records[subject].launch(time, lease, place, kind is Kind.LET_GO, add)
    elif kind is Kind.REACHED:
        records[subject].reach(time, lease, place, add)
    elif kind is Kind.FINISHED:
        records[subject].finish(time, lease, place, detail, value, add)
    elif kind is Kind.REQUEST_ENDED:
        records[subject].end_request(time, lease, value, add)
    elif kind is Kind.LEFT:
        records[subject].leave(lease, add)
    elif kind is Kind.HELD_UP:
        _held_up(records, row, add)


def _held_up(records: Sequence["_ClientRecord"], row: list[int], add: Add) -> None:
    _, _, subject, lease, place, by, delay = row
    if not 0 <= by < len(records) or by == subject:
        add("held up", f"client {subject} is held up by client {by}, which is no other client")
    elif not 0 <= place < len(records[by].client.program.kernels):
        add("held up", f"client {subject} is held up by kernel {place} of client {by}, which has no such kernel")
    if delay < 0:
        add("held up", f"client {subject} is held up for {delay} ns")
    if not records[subject].finished <= lease < records[subject].launched:
        add("held up", f"launch {lease} of client {subject} is held up, and is not on its way to the GPU")


class _ClientRecord:
    """Follows the launches of one client."""

    def __init__(self, client: Client, device: Device) -> None:
        self.client = client
        self.device = device
        self.launched = 0
        self.finished = 0
        self.began = client.start
        """When the request in progress began."""
        self.reached = -1
        self.gated: bool | None = None
        """Whether its launches are gated; None: not known yet."""
        self.gone = False
        self.earliest = client.start
        """When its thread goes on to the next launch, before the CPU time of that launch."""
        self.waits_with = -1
        """The launch whose end its thread waits for."""
        self.at: dict[int, int] = {}
        """When each launch that has not ended went to the GPU."""
        self.last_end = 0
        self.waited_end = 0

    def _comes(self, time: int, number: int, kernel: int, add: Add) -> None:
        """Check that the thread can be at this launch now."""
        launch = self.client.launch(self.launched)
        if self.gone:
            add("left", f"launch {number} comes after its client left")
        if number != self.launched:
            add("order", f"launch {number} comes where launch {self.launched} is due")
        elif kernel != launch.kernel:
            add("kernel", f"launch {number} is of kernel {kernel}; the program launches {launch.kernel}")
        if self.waits_with >= 0:
            add("wait", f"launch {number} comes while its client waits for launch {self.waits_with}")
        elif time < self.earliest + launch.gap:
            add("cpu time", f"launch {number} comes {self.earliest + launch.gap - time} ns before its CPU time is over")

    def reach(self, time: int, number: int, kernel: int, add: Add) -> None:
        """Enter that its thread reaches the gate."""
        self._comes(time, number, kernel, add)
        if self.reached >= 0:
            add("gate", f"launch {number} comes to the gate, where launch {self.reached} still waits")
        if self.gated is False:
            add("gate", f"launch {number} comes to a gate that its client has not had before")
        self.gated, self.reached = True, number

    def launch(self, time: int, number: int, kernel: int, asked: bool, add: Add) -> None:
        """Enter a launch that goes to the GPU."""
        if asked:
            if self.reached != number:
                add("gate", f"launch {number} is let go, and does not wait at the gate")
            elif kernel != self.client.launch(number).kernel:
                add("kernel", f"launch {number} is let go as kernel {kernel}; it waits as another")
        else:
            self._comes(time, number, kernel, add)
            if self.gated:
                add("gate", f"launch {number} went past the gate")
            self.gated = False
        self.reached = -1
        launch = self.client.launch(self.launched)
        self.at[self.launched] = time
        if launch.waits:
            self.waits_with = self.launched
        self.earliest = time
        self.launched += 1
        if self.launched - self.finished > self.device.queue:
            add(
                "queue",
                f"{self.launched - self.finished} launches are on their way; a stream takes {self.device.queue}",
            )

    def finish(self, time: int, number: int, kernel: int, duration: int, started: int, add: Add) -> None:
        """Enter a kernel that has run to its end."""
        if number != self.finished or number >= self.launched:
            add("order", f"launch {number} ends where launch {self.finished} is due, of {self.launched} launched")
            return
        launch, came = self.client.launch(number), self.at.pop(number)
        if (kernel, duration) != (launch.kernel, launch.duration):
            add("kernel", f"launch {number} ends as kernel {kernel} of {duration} ns; the program says {launch}")
        if started < max(came, self.last_end):
            add("stream", f"launch {number} starts at {started} ns, before it could")
        if time - started < duration:
            add("work", f"launch {number} runs for {time - started} ns and needs {duration}")
        self.finished += 1
        self.last_end = time
        if self.waits_with == number:
            self.waited_end = time

    def end_request(self, time: int, request: int, began: int, add: Add) -> None:
        """Enter that the wait after a request is over."""
        number = self.waits_with
        if number < 0 or number >= self.finished:
            add("request", f"request {request} ends, and its last kernel has not")
            return
        if request != self.client.request(number):
            add("request", f"request {request} ends where request {self.client.request(number)} is due")
        if time < self.waited_end + self.device.wait:
            add("request", f"request {request} ends before its thread could know it")
        if began != self.began:
            add("request", f"request {request} began at {self.began} ns; the tape says {began}")
        self.waits_with = -1
        self.began = self.earliest = time + self.client.launch(number).think + self.client.think

    def leave(self, launched: int, add: Add) -> None:
        """Enter that it launches nothing any more."""
        if self.gone:
            add("left", "its client leaves once more")
        if launched != self.launched:
            add("left", f"its client leaves after {launched} launches; {self.launched} are on the tape")
        self.gone, self.reached = True, -1

    def left_open(self) -> list[str]:
        """Return what a complete run must not leave open."""
        problems = [] if self.gone else ["has not left"]
        if self.launched != self.finished:
            problems.append(f"launched {self.launched} kernels, of which {self.finished} ended")
        return problems
