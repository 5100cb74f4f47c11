"""The commands of ``headway share`` on a GPU as a user types them: doctor, profile, run, status, stop.

``commands`` does all of it with a ResNet-50 that serves and a ResNet-101 that works off batches, keeps what each of
them printed in ``commands.txt``, and returns a row of what was checked. A step that fails is told and stops no other.
"""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu_share_real import Ran, Real, Started, real, shown, until

MS = 1_000_000
LIBRARY = "HEADWAY_SHARE_LIBRARY"
SERVE = '''"""ResNet-50, one picture at a time, a pause of 2 ms; the log gets when each request began and ended."""

import os, signal, struct, sys, time

import torch, torchvision

stopped, most = [], int(sys.argv[2]) if len(sys.argv) > 2 else 0
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
torch.set_num_threads(1)
torch.manual_seed(1)
model = torchvision.models.resnet50(weights=None).cuda().eval()
picture = torch.randn(1, 3, 224, 224, device="cuda")
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
done = 0
with torch.no_grad():
    while not stopped and (not most or done < most):
        begin = time.monotonic_ns()
        model(picture)
        torch.cuda.synchronize()
        os.write(log, struct.pack("=qq", begin, time.monotonic_ns()))
        done += 1
        time.sleep(0.002)
'''
BATCH = '''"""ResNet-101 over batches of 64 in half precision, one after another; a log of when each began and ended."""

import os, signal, struct, sys, time

import torch, torchvision

stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
torch.set_num_threads(1)
torch.manual_seed(1)
model = torchvision.models.resnet101(weights=None).cuda().eval().half()
pictures = torch.randn(64, 3, 224, 224, device="cuda").half()
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with torch.no_grad():
    while not stopped:
        begin = time.monotonic_ns()
        model(pictures)
        torch.cuda.synchronize()
        os.write(log, struct.pack("=qq", begin, time.monotonic_ns()))
'''


@dataclass(frozen=True, slots=True)
class Programs:
    """What the commands run; LOG stands for the log of a program's requests. ``counted`` ends by itself."""

    serve: Sequence[str]
    batch: Sequence[str]
    counted: Sequence[str]
    mps: str = "auto"
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 4.0
    """How long to look at each thing."""


def programs(state: Path) -> Programs:
    """The two of torch, written to where they are run from."""
    for name, text in (("serve.py", SERVE), ("batch.py", BATCH)):
        (state / name).write_text(text)
    serve = [sys.executable, str(state / "serve.py"), "LOG"]
    return Programs(serve, [sys.executable, str(state / "batch.py"), "LOG"], [*serve, "40"])


@dataclass(slots=True)
class Session:
    """Commands one after another: what they printed goes to a file, how they ended into the row."""

    with_: Real
    text: Path
    end: float
    steps: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)

    def do(self, step: str, *words: str, seconds: float = 60.0, wanted: tuple[int, ...] = (0,)) -> Ran:
        """One command, and whether it ended as it should."""
        named = [word.replace("LOG", str(self.with_.folder / f"{step.replace(' ', '-')}.log")) for word in words]
        begun = time.monotonic()
        ran = self.with_.do(named, max(5.0, min(seconds, self.end - begun)))
        took = time.monotonic() - begun
        # Some run side by side: each is written whole.
        with self.text.open("a", encoding="utf-8") as file:
            file.write(f"$ headway {shown(named)}\n{ran.out}{ran.err}[status {ran.rc}, {took:.1f} s]\n\n")
        row = {"step": step, "rc": ran.rc, "ok": ran.rc in wanted, "wall_s": round(took, 2)}
        self.steps.append(row if row["ok"] else {**row, "said": ran.last})
        print(f"{step}: status {ran.rc}, {took:.1f} s{'' if row['ok'] else ': ' + ran.last}", flush=True)
        return ran


def commands(state: Path, budget_s: float, given: Programs | None = None) -> dict[str, Any]:
    """Every command once, and what came of it."""
    state.mkdir(parents=True, exist_ok=True)
    text = state / "commands.txt"
    text.write_text("")
    chosen = given or programs(state)
    begun = time.monotonic()
    with real(state / "commands", chosen.environment) as with_:
        session = Session(with_, text, begun + budget_s)
        for part in (_measured, _shared):
            try:
                part(session, chosen)
            except (OSError, ValueError, KeyError, TypeError) as problem:  # the other is done all the same
                session.steps.append({"step": part.__name__, "rc": None, "ok": False, "said": repr(problem)[:300]})
                print(f"{part.__name__}: {problem!r}", flush=True)
        left = with_.left()
    checks = {name: session.checks.get(name, False) for name in CHECKS} | {"nothing_left": not any(left.values())}
    row = {"ok": all(checks.values()), "checks": checks, "steps": session.steps, **session.found, **left}
    print({key: row[key] for key in ("ok", "checks")}, flush=True)
    return {**row, "wall_s": round(time.monotonic() - begun, 1)}


CHECKS = ("doctor", "coverage", "profiled", "status", "went_on", "drained", "ended")


# --- doctor and profile -----------------------------------------------------------------------------------------------


def _measured(session: Session, chosen: Programs) -> None:
    """The machine, the coverage and the profile of the program that serves."""
    if LIBRARY not in session.with_.whole:  # one that is named there is loaded, whatever is built
        session.do("build", "share", "build", seconds=120)
    with ThreadPoolExecutor(3) as pool:  # each waits for torch to be imported
        plain = pool.submit(session.do, "doctor", "share", "doctor")
        table = pool.submit(session.do, "doctor with a program", "share", "doctor", "--", *chosen.counted)
        asked = pool.submit(session.do, "doctor --json", "share", "doctor", "--json", "--", *chosen.counted)
    told = _json(asked.result())
    coverage = told.get("coverage") or {}
    profiled = session.do(
        "profile", "profile", "kernels", "--seconds", f"{chosen.seconds:g}", "--name", "resnet50", "--", *chosen.serve
    )
    kept = next((session.with_.folder / "profiles").rglob("resnet50.json"), None)
    summary = json.loads(kept.read_text())["summary"] if kept else {}
    session.checks |= {
        "doctor": all(each.result().rc == 0 for each in (plain, table, asked)) and told.get("ok") is True,
        "coverage": 0 < coverage.get("seen", 0) == coverage.get("counted", -1),
        "profiled": profiled.rc == 0 and bool(summary),
    }
    session.found |= {
        "coverage": coverage,
        "doctor": {each["name"]: each["found"] for each in told.get("checks", ())},
        "profile": {**summary, "printed": profiled.out.splitlines()[:3]},
    }


def _json(ran: Ran) -> dict[str, Any]:
    try:
        found = json.loads(ran.out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# --- run, status, stop ------------------------------------------------------------------------------------------------


def _shared(session: Session, chosen: Programs) -> None:
    """The two side by side, looked at, drained, ended."""
    with_ = session.with_
    flags = ("--program", "resnet50", "--mps", chosen.mps)
    api = with_.run("api", 0, chosen.serve, *flags)
    until(lambda: with_.look() or api.process.poll() is not None, 30)  # who starts the broker is known
    time.sleep(chosen.seconds / 2)
    batch = with_.run("batch", 5, chosen.batch, "--mps", chosen.mps)
    pair = (api, batch)
    until(
        lambda: (with_.client("batch") and with_.client("api")) or any(one.ended(0) for one in pair),
        min(60.0, session.end - time.monotonic()),
    )
    both = bool(with_.client("batch") and with_.client("api"))
    joined = time.monotonic_ns()
    alone = [span for span in api.spans() if span[1] < joined - round(chosen.seconds / 4 * 1e9)]
    time.sleep(chosen.seconds)
    looked = time.monotonic_ns()
    session.do("status", "share", "status")
    now = _json(session.do("status --json", "share", "status", "--json"))
    rows = {each["name"]: each for each in now.get("clients", ())}
    # Under an MPS of its own the broker stays until the programs have ended, and says so with another status.
    wanted = (2,) if now.get("mode") == "mps" else (0,)
    session.do("stop", "share", "stop", "--wait", "2s", wanted=wanted)
    stopped = time.monotonic_ns()
    went = {one.name: _answers(one, stopped) for one in pair}
    time.sleep(chosen.seconds / 4)
    if with_.look():
        session.do("status while it drains", "share", "status")
    after = {one.name: len(one.spans(stopped)) for one in pair}
    open_s = (time.monotonic_ns() - stopped) / 1e9
    ended = _ended(session, pair, now.get("mode") == "mps")
    session.checks |= {
        "status": both and all(rows.get(name, {}).get("launches", 0) > 0 for name in ("api", "batch")),
        "went_on": went["api"],
        "drained": all(went.values()),
        "ended": ended,
    }
    before = api.spans(looked - round(chosen.seconds * 1e9))
    session.found |= {
        "mode": now.get("mode_line", ""),
        "clients": [{key: each.get(key) for key in SHOWN} for each in rows.values()],
        "known": _known(now.get("log", "")),
        "api_alone": _times(alone[len(alone) // 4 :]),
        "api_beside": _times([span for span in before if span[1] < looked]),
        "batch_per_s": len([span for span in batch.spans(joined) if span[1] < looked]) / ((looked - joined) / 1e9),
        "after_stop": {name: round(count / open_s, 2) for name, count in after.items()},
        "said": {one.name: one.words()[-600:] for one in pair},
    }
    for one in pair:
        with session.text.open("a", encoding="utf-8") as file:
            file.write(f"# what {one.name} and its headway share run wrote\n{one.words()}\n")


SHOWN = ("name", "priority", "launches", "waits", "waited_ms", "harvested_ms", "delay_ms", "slowdown", "gated", "open")


def _ended(session: Session, both: tuple[Started, ...], under_mps: bool) -> bool:
    """``stop --kill``: under MPS through it; where the broker has gone already, programs end as users end them."""
    session.do("stop --kill", "share", "stop", "--kill", seconds=100)
    if not under_mps:
        for one in both:
            one.process.terminate()
    return all(one.ended(15) for one in both)


def _answers(one: Started, since_ns: int) -> bool:
    """Whether a program does requests after that."""
    until(lambda: len(one.spans(since_ns)) > 3 or one.ended(0), 20)
    return len(one.spans(since_ns)) > 3


def _known(log: str) -> list[str]:
    """What the broker said of programs that it knew from before."""
    path = Path(log)
    lines = path.read_text(errors="replace").splitlines() if log and path.is_file() else []
    return [line for line in lines if " are known" in line][-2:]


def _times(found: list[tuple[int, int]]) -> dict[str, float]:
    """Requests, and how long they took."""
    took = sorted((end - begin) / MS for begin, end in found)
    if not took:
        return {"requests": 0}
    return {
        "requests": len(took),
        "p50_ms": round(statistics.median(took), 4),
        "p99_ms": round(took[int(0.99 * (len(took) - 1))], 4),
        "worst_ms": round(took[-1], 4),
    }
