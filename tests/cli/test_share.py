"""``headway share`` from end to end: real shim, real broker, real programs, a stub of the driver."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.live.kernels.serve import PLAIN
from headway.profiling.kernel_store import KernelStore
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
LONG = ("--for-ms", "60000", "--kernel", "a:50", "--gap-us", "200")


def clients(shared: Shared, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, dict[str, Any]]:
    """The clients by name, once all is as wanted."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        status, out, _ = shared.do("status", "--json")
        if status == 0:
            found = {row["name"]: row for row in json.loads(out)["clients"]}
            if wanted(found):
                return found
        time.sleep(0.05)
    raise AssertionError(shared.do("status"))


def shown(shared: Shared, wanted: str) -> str:
    """What status prints, once it has some text."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        status, table, _ = shared.do("status")
        assert status == 0
        if wanted in table:
            return table
        time.sleep(0.05)
    raise AssertionError(table)


@contextmanager
def running(shared: Shared, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A program under ``headway share run``, ended with the block."""
    program = shared.start("run", *words)
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
        found = clients(
            shared, lambda rows: {"api", "batch"} <= set(rows) and all(row["launches"] > 100 for row in rows.values())
        )
        assert (found["api"]["priority"], found["batch"]["priority"]) == (0, 9)
        assert (found["api"]["gated"], found["batch"]["gated"]) == (False, True)
        assert not found["api"]["open"]
        assert found["api"]["program"] == found["batch"]["program"]
        measured = clients(shared, lambda rows: rows["api"]["slowdown"] is not None)["api"]
        assert measured["slowdown_low"] <= measured["slowdown"] <= measured["slowdown_high"]
        assert measured["slowdown_steps"] >= measured["slowdown_holds"] >= 1
        table = shown(shared, " steps)")  # while the dial moves there is no value for a moment
        assert "api" in table
        assert "batch" in table
        assert "slow-down aimed at 1.2×" in table
        assert shared.do("stop")[0] == 0
        assert shared.left() == []
        assert api.poll() is None  # it goes on, ungated
        api.send_signal(signal.SIGINT)
        assert api.wait(timeout=60) == 128 + signal.SIGINT
    assert shared.do("status")[0] == 2


def test_a_second_start_knows_the_program(shared: Shared) -> None:
    command = ("run", "--linger", "60s", "--", shared.client, "--for-ms", "800", "--kernel", "a:50")
    status, _, err = shared.do(*command)
    assert status == 0, err
    assert "broker of GPU 0 started" in err
    assert shared.do(*command)[2] == ""
    assert "kernels of client-linked" in (shared.kept / "headway" / "share-0.log").read_text()
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
        clients(shared, lambda rows: "api" in rows)
        about = json.loads(shared.do("status", "--json")[1])
        store = KernelStore(about["gpu_name"], about["driver"], Path(shared.environment["HEADWAY_PROFILES"]))
        store.save_learnt({(row.pop("program"), row.pop("below")): row for row in rows})
        batch = ("--priority", "9", "--name", "batch", "--program", key)
        with running(shared, *batch, "--", shared.client, *LONG) as program:
            row = clients(shared, lambda rows: "batch" in rows)["batch"]
            assert row["sms"] == 0.3
            assert "with 30 % of the SMs" in shared.do("status")[1]
            program.send_signal(signal.SIGINT)
            assert program.stderr is not None
            assert program.stderr.readline() == (
                "headway: batch gets 30 % of the SMs: with all of them it had 1.0 % of the GPU's time beside api, "
                "with 30 % 13 %\n"
            )
            program.wait(timeout=60)
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
    with shared.start("broker") as broker:
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
    until = time.monotonic() + 30
    while shared.left() and time.monotonic() < until:
        time.sleep(0.05)
    assert shared.left() == []


def test_a_program_that_is_not_cuda_is_told_so_and_keeps_its_status(shared: Shared) -> None:
    status, out, err = shared.do("run", "--name", "mine", "--", "sh", "-c", "echo out; exit 3")
    assert (status, out) == (3, "out\n")
    assert "headway: mine never launched a kernel: is it a CUDA program?" in err


def test_killed_programs_are_reaped_and_killed_brokers_succeeded(shared: Shared) -> None:
    with running(shared, "--name", "a", "--", shared.client, *LONG):
        pid = clients(shared, lambda rows: "a" in rows)["a"]["pid"]
        os.kill(pid, signal.SIGKILL)
        clients(shared, lambda rows: not rows)
        broker = json.loads(shared.do("status", "--json")[1])["broker"]
        os.kill(broker, signal.SIGKILL)
    until = time.monotonic() + 30
    while shared.do("status")[0] == 0 and time.monotonic() < until:
        time.sleep(0.02)
    status, _, err = shared.do("status")
    assert status == 2
    assert "ended without cleaning up: headway share stop clears what it left" in err
    status, _, err = shared.do("run", "--", shared.client, "--launch", "50")
    assert status == 0, err
    assert "ended without cleaning up: removed headway-share-0" in (shared.kept / "headway" / "share-0.log").read_text()
    assert shared.do("stop")[0] == 0
    assert shared.left() == []


def test_a_program_joins_the_broker_that_follows_one_that_was_killed(shared: Shared) -> None:
    with running(shared, "--name", "a", "--priority", "2", "--", shared.client, *LONG):
        pid = clients(shared, lambda rows: "a" in rows)["a"]["pid"]
        os.kill(json.loads(shared.do("status", "--json")[1])["broker"], signal.SIGKILL)
        broker = shared.start("broker")
        try:
            clients(shared, lambda _: json.loads(shared.do("status", "--json")[1] or "{}").get("broker") == broker.pid)
            row = clients(shared, lambda rows: "a" in rows and rows["a"]["launches"] > 100)["a"]
            assert (row["pid"], row["priority"], row["open"]) == (pid, 2, False)
        finally:
            broker.terminate()
            print(broker.communicate(timeout=60))
    assert shared.left() == []


def test_stop_with_kill_ends_programs(shared: Shared) -> None:
    with running(shared, "--name", "a", "--", shared.client, *LONG) as program:
        clients(shared, lambda rows: "a" in rows)
        assert shared.do("stop", "--kill")[0] == 0
        assert program.wait(timeout=60) == 128 + signal.SIGTERM
    assert shared.left() == []


def test_a_broker_in_the_foreground_ends_by_a_signal_and_there_is_only_one(shared: Shared) -> None:
    with shared.start("broker", "--slo", "1.1") as broker:
        clients(shared, lambda rows: not rows)
        status, _, err = shared.do("broker")
        assert status == 2
        assert f"a broker of GPU 0 runs already (process {broker.pid}): headway share status shows it" in err
        broker.terminate()
        assert broker.wait(timeout=60) == 0
    assert shared.left() == []
