"""``headway share`` from end to end: real shim, real broker, real programs, a stub of the driver."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headway.gpu.programs.store import KernelStore
from headway.gpu.share.broker.serve import PLAIN
from tests.cli.conftest import Shared

STARVED = {
    "rate_mhz": 7_000,
    "launch_ns": 1_400_000,
    "waited_ppm": 980_000,
    "slowdown_ppm": 1_000_000,
    "slo_ppm": 1_050_000,
    "holds": 90,
    "seen_s": 1,
}
LONG = ("--for-ms", "600000", "--kernel", "a:50", "--gap-us", "200")
"""Longer than any test: who starts it ends it."""
PATIENCE_S = 120.0
"""Only in a broken run something is waited for that long."""
Seen = TypeVar("Seen")


def awaited(look: Callable[[], Seen], wanted: Callable[[Seen], bool]) -> Seen:
    """Look again and again; return what is seen once all of it is as wanted, in one and the same look."""
    until = time.monotonic() + PATIENCE_S
    while not wanted(seen := look()):
        assert time.monotonic() < until, seen
        time.sleep(0.05)
    return seen


def state(shared: Shared) -> dict[str, Any]:
    """Return what status tells, its clients by name; where it fails nothing but that there are none."""
    code, out, _ = shared.do("status", "--json")
    told = json.loads(out) if code == 0 else {}
    return {**told, "clients": {row["name"]: row for row in told.get("clients", ())}}


def clients(shared: Shared, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, dict[str, Any]]:
    """Return the clients by name, once all is as wanted."""
    told = awaited(lambda: state(shared), lambda told: "broker" in told and wanted(told["clients"]))
    found: dict[str, dict[str, Any]] = told["clients"]
    return found


def shown(shared: Shared, *wanted: str) -> str:
    """Return what status prints, once it has some texts; it does not fail meanwhile."""

    def table() -> str:
        code, out, err = shared.do("status")
        assert code == 0, err
        return out

    return awaited(table, lambda out: all(text in out for text in wanted))


@contextmanager
def running(shared: Shared, *words: str, command: str = "run") -> Iterator[subprocess.Popen[str]]:
    """Run a program under ``headway share run``, or another command of sharing, until the block ends."""
    program = shared.start(command, *words)
    try:
        yield program
    finally:
        program.terminate()
        print(program.communicate(timeout=60))  # shown where the test fails


def test_a_high_and_a_low_program_share_and_nothing_is_left(shared: Shared) -> None:
    with (
        running(shared, "--priority", "0", "--name", "api", "--", shared.client, *LONG) as api,
        running(shared, "--priority", "9", "--name", "batch", "--slo", "1.2", "--", shared.client, *LONG),
    ):
        found = clients(  # gates are set at a turn of the broker, and one that is late is not trusted for a moment
            shared,
            lambda rows: (
                {"api", "batch"} <= set(rows)
                and all(row["launches"] > 100 for row in rows.values())
                and (rows["api"]["gated"], rows["batch"]["gated"]) == (False, True)
                and not rows["api"]["open"]
            ),
        )
        assert (found["api"]["priority"], found["batch"]["priority"]) == (0, 9)
        assert found["api"]["program"] == found["batch"]["program"]
        measured = clients(shared, lambda rows: rows["api"]["slowdown"] is not None)["api"]
        assert measured["slowdown_low"] <= measured["slowdown"] <= measured["slowdown_high"]
        assert measured["slowdown_steps"] >= measured["slowdown_holds"] >= 1
        # While the dial moves there is no value for a moment; of a new aim the broker hears at its next turn.
        shown(shared, " steps)", "api", "batch", "slow-down aimed at 1.2×")
        assert shared.do("stop")[0] == 0
        assert shared.left() == []
        assert api.poll() is None  # it goes on, ungated
        api.send_signal(signal.SIGINT)
        assert api.wait(timeout=60) == 128 + signal.SIGINT
    assert shared.do("status")[0] == 2


def test_a_second_start_knows_the_program(shared: Shared) -> None:
    enough, log = shared.kept / "enough", shared.kept / "headway" / "share-0.log"

    def told(is_enough: Callable[[], bool]) -> str:
        command = ("--linger", "10m", "--", shared.client, "--until", str(enough), "--kernel", "a:50")
        with running(shared, *command) as program:
            awaited(is_enough, bool)
            enough.touch()
            _, err = program.communicate(timeout=PATIENCE_S)
        enough.unlink()
        assert program.returncode == 0, err
        return err

    err = told(lambda: any(row["samples"] for row in state(shared)["clients"].values()))
    assert "broker of GPU 0 started" in err
    assert told(lambda: "kernels of client-linked" in log.read_text()) == ""
    assert shared.do("stop") == (0, "", "headway: the broker of GPU 0 has ended (nobody shared it)\n")
    assert shared.left() == []


def test_what_a_second_start_changes_of_the_broker_is_said(shared: Shared) -> None:
    def told(*flags: str) -> str:
        status, _, err = shared.do("run", *flags, "--", shared.client, "--launch", "50")
        assert status == 0, err
        return err

    assert "broker of GPU 0 started" in told("--linger", "60s", "--slo", "1.1")
    assert told("--linger", "60s", "--slo", "1.1") == ""
    assert told("--linger", "90s") == "headway: told the broker of GPU 0: linger 1m 30s (it was 1m 00s)\n"
    assert told("--linger", "2m", "--slo", "1.2", "--floor", "5%") == (
        "headway: told the broker of GPU 0: slo 1.2 (it was 1.1), "
        f"floor 0.05 (it was {PLAIN.floor_ppm / 1e6:g}), "
        "linger 2m 00s (it was 1m 30s)\n"
    )
    assert told() == ""
    status, _, err = shared.do("run", "--mps", "on", "--slo", "1.3", "--", shared.client)
    assert (status, err.count("\n")) == (2, 1)  # refused as a whole
    assert json.loads((shared.folder / "headway-share-0.asked.json").read_text())["slo_ppm"] == 1_200_000
    assert shared.do("stop")[0] == 0


def test_a_limit_on_sms_is_chosen_by_what_is_stored_told_and_shown(shared: Shared, mps_control: str) -> None:
    key = "batch-key"
    rows = [
        {"program": "api-key", "below": key, "boldness_ppm": 4_000_000, "sms_ppm": 1_000_000, **STARVED},
        {"program": "api-key", "below": f"{key}.sms-30", "sms_ppm": 300_000, **STARVED, "rate_mhz": 90_000},
    ]
    shared.environment["PATH"] = f"{mps_control}:{shared.environment['PATH']}"
    with running(
        shared, *("--priority", "0", "--name", "api", "--program", "api-key", "--mps", "on", "--", shared.client, *LONG)
    ):
        about = awaited(lambda: state(shared), lambda told: "api" in told["clients"])
        store = KernelStore(about["gpu_name"], about["driver"], Path(shared.environment["HEADWAY_PROFILES"]))
        store.save_learnt({(row.pop("program"), row.pop("below")): row for row in rows})
        batch = ("--priority", "9", "--name", "batch", "--program", key)
        with running(shared, *batch, "--", shared.client, *LONG) as program:
            row = clients(shared, lambda rows: "batch" in rows)["batch"]
            assert row["sms"] == 0.3
            shown(shared, "with 30 % of the SMs")  # not while it is held, to see the one above alone
            program.send_signal(signal.SIGINT)
            assert program.stderr is not None
            assert program.stderr.readline() == (
                "headway: batch gets 30 % of the SMs: with all of them it had 1.0 % of the GPU's time beside api, "
                "with 30 % 13 %\n"
            )
            program.wait(timeout=60)
        clients(shared, lambda rows: set(rows) == {"api"})  # its slot is cleared at a turn of the broker
        with running(shared, *batch, "--sms", "all", "--", shared.client, *LONG):
            assert clients(shared, lambda rows: "batch" in rows)["batch"]["sms"] == 1
        assert shared.do("stop", "--kill")[0] == 0
    assert shared.left() == []


def test_a_limit_on_sms_that_cannot_be_is_one_line(shared: Shared) -> None:
    for text, why in (
        ("0.5%", "between 1% and 100%"),
        ("101%", "between 1% and 100%"),
        ("30", "did you mean 30%?"),
        ("few", "auto, all, or a share"),
    ):
        status, _, err = shared.do("run", "--sms", text, "--", shared.client, "--launch", "50")
        assert (status, err.count("\n")) == (2, 1)
        assert f"--sms {text}: " in err
        assert why in err
    status, _, err = shared.do("run", "--sms", "30%", "--", shared.client, "--launch", "50")
    assert status == 2
    assert "--sms 30%: the limit is one of MPS, and the broker runs without: see --mps" in err
    assert shared.do("run", "--sms", "all", "--", shared.client, "--launch", "50")[0] == 0
    assert shared.do("stop")[0] == 0


def test_a_broker_that_stays_says_that_no_linger_is_heard(shared: Shared) -> None:
    with running(shared, command="broker") as broker:
        clients(shared, lambda rows: not rows)
        command = ("run", "--linger", "0s", "--slo", "1.2", "--", shared.client, "--launch", "50")
        assert shared.do(*command)[2] == (
            "headway: the broker of GPU 0 stays until it is stopped: --linger changes nothing\n"
            f"headway: told the broker of GPU 0: slo 1.2 (it was {PLAIN.slo_ppm / 1e6:g})\n"
        )
        assert broker.poll() is None
        broker.terminate()
        assert broker.wait(timeout=60) == 0
    assert shared.left() == []


def test_the_broker_goes_by_itself_when_nobody_is_left(shared: Shared) -> None:
    assert shared.do("run", "--linger", "0s", "--", shared.client, "--launch", "50")[0] == 0
    awaited(shared.left, lambda left: left == [])


def test_a_program_that_is_not_cuda_is_told_so_and_keeps_its_status(shared: Shared) -> None:
    status, out, err = shared.do("run", "--name", "mine", "--", "sh", "-c", "echo out; exit 3")
    assert (status, out) == (3, "out\n")
    assert "headway: mine never launched a kernel: is it a CUDA program?" in err


def kill_broker(shared: Shared, pid: int) -> None:
    """Kill the broker; return once status tells that it ended so: its locks are free then."""
    line = "ended without cleaning up: headway share stop clears what it left"
    os.kill(pid, signal.SIGKILL)
    awaited(lambda: shared.do("status"), lambda told: told[0] == 2 and line in told[2])


def test_killed_programs_are_reaped_and_killed_brokers_succeeded(shared: Shared) -> None:
    with running(shared, "--name", "a", "--linger", "10m", "--", shared.client, *LONG):
        told = awaited(lambda: state(shared), lambda told: "a" in told["clients"])
        os.kill(told["clients"]["a"]["pid"], signal.SIGKILL)
        clients(shared, lambda rows: not rows)
        kill_broker(shared, told["broker"])
    status, _, err = shared.do("run", "--linger", "10m", "--", shared.client, "--launch", "50")
    assert status == 0, err
    assert "ended without cleaning up: removed headway-share-0" in (shared.kept / "headway" / "share-0.log").read_text()
    assert shared.do("stop")[0] == 0
    assert shared.left() == []


def test_a_program_joins_the_broker_that_follows_one_that_was_killed(shared: Shared) -> None:
    with running(shared, "--name", "a", "--priority", "2", "--", shared.client, *LONG):
        before = awaited(lambda: state(shared), lambda told: "a" in told["clients"])
        kill_broker(shared, before["broker"])
        with running(shared, command="broker") as broker:
            told = awaited(
                lambda: state(shared),
                lambda told: (
                    told.get("broker") == broker.pid
                    and any(row["launches"] > 100 and not row["open"] for row in told["clients"].values())
                ),
            )
            row = told["clients"]["a"]
            assert (row["pid"], row["priority"], row["open"]) == (before["clients"]["a"]["pid"], 2, False)
    assert shared.left() == []


def test_stop_with_kill_ends_programs(shared: Shared) -> None:
    with running(shared, "--name", "a", "--", shared.client, *LONG) as program:
        clients(shared, lambda rows: "a" in rows)
        assert shared.do("stop", "--kill")[0] == 0
        assert program.wait(timeout=60) == 128 + signal.SIGTERM
    assert shared.left() == []


def test_a_broker_in_the_foreground_ends_by_a_signal_and_there_is_only_one(shared: Shared) -> None:
    with running(shared, "--slo", "1.1", command="broker") as broker:
        clients(shared, lambda rows: not rows)
        status, _, err = shared.do("broker")
        assert status == 2
        assert f"a broker of GPU 0 runs already (process {broker.pid}): headway share status shows it" in err
        broker.terminate()
        assert broker.wait(timeout=60) == 0
    assert shared.left() == []
