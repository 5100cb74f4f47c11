"""``headway serve``, ``call`` and ``load``: what they print, what they refuse, and how they end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli import main
from tests.fleet.live.doors.doors import Running, running

APP = """
import headway as hw

@hw.model(memory="1MB")
def scale(): return 3

@hw.task(models=[scale], max_batch=4, example=lambda count: [2] * count)
def times(model, numbers): return [model * number for number in numbers]

@hw.task
def half(numbers):
    return [number / 2 for number in numbers]

scaled = hw.graph("scaled", times >> half, slo="10s")
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server but those of the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADWAY_TOKEN", raising=False)
    (tmp_path / "runtime").mkdir()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A fake server that commands find by themselves."""
    with running(tmp_path / "runtime" / "headway" / "serve" / "fake") as run:
        yield run


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_a_call_prints_json(server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0\xff")
    assert called(capsys, "call", "echo", '{"a": "é"}') == (0, '{"a":"é"}\n', "")
    assert called(capsys, "call", "echo", f"@{tmp_path / 'x.bin'}") == (0, '{"base64":"AP8="}\n', "")
    assert called(capsys, "call", "echo") == (0, '"an example"\n', "")
    assert called(capsys, "call", "echo", "1", "--key", "k", "--deadline", "2s")[0] == 0
    assert server.server.accepted[-1][2] == 2_000_000_000


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (("call", "echo", "text"), 2, """input 'text': not JSON"""),
        (("call", "echo", "1", "--deadline", "soon"), 2, "deadline 'soon' is not understood"),
        (("call", "nope", "1"), 2, "unknown graph 'nope' (valid: echo"),
        (("call", "held"), 2, "graph held: the application has no example of its input"),
        (("call", "fails", "1"), 1, "task caption: ValueError: no image"),
        (("call", "late", "1"), 1, "late by 3 ms"),
        (("call", "full", "1"), 1, "120 requests wait"),
        (("load", "nope", "--rate", "5"), 2, "unknown graph 'nope'"),
        (("load", "echo"), 2, "arrivals poisson: at which rate?"),
        (("load", "echo", "--rate", "5", "--duration", "0s"), 2, "--duration: longer than nothing"),
        (("load", "echo", "--rate", "5", "--input", "none.json"), 2, "--input none.json: No such file"),
        (("serve", "status", "--every", "0s"), 2, "--every 0s"),
        (("serve", "status", "--json", "--watch"), 2, "do not go together"),
        (("serve", "status", "--server", "other"), 2, "no server runs in"),
        (("serve", "status", "--server", "http://127.0.0.1:1"), 2, "no server answers at http://127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_one_line(
    server: Running, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, line: str
) -> None:
    code, out, err = called(capsys, *words)
    assert (code, out, err.count("\n")) == (status, "", 1)
    assert line in err


@pytest.mark.parametrize("words", [("serve", "status"), ("serve", "drain"), ("serve", "stop"), ("call", "echo", "1")])
def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = called(capsys, *words)
    assert (code, out) == (2, "")
    assert err == "headway: no server runs here: headway serve start app.py starts one\n"


def test_a_load_prints_a_table_and_writes_its_numbers(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "load.json"
    code, out, _ = called(
        capsys, "load", "echo", "fails", "--rate", "200", "--duration", "0.5s", "--seed", "3", "--out", str(target)
    )
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["echo", "fails", "all"]
    assert "× task caption: ValueError: no image" in out
    written = json.loads(target.read_text())
    assert written["requests"] == written["ok"] + written["failed"] == len(server.server.accepted)
    assert written["graphs"]["echo"]["slo_hit_rate"] == 1.0
    code, out, _ = called(
        capsys, "load", "--server", server.url, "echo", "--rate", "50", "--duration", "0.3s", "--json"
    )
    assert json.loads(out)["ok"] == json.loads(out)["requests"] > 0


def test_a_load_of_which_nothing_is_answered_ends_with_1(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "load", "fails", "--rate", "100", "--duration", "0.2s")
    assert code == 1
    assert "× task caption: ValueError: no image" in out
    assert re.search(r"^headway: none of \d+ requests was answered$", err, re.MULTILINE)


def test_the_status_shows_graphs_and_workers(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    called(capsys, "call", "echo", "1")
    code, out, _ = called(capsys, "serve", "status")
    assert code == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert out.startswith("fake.py at http://127.0.0.1:")
    assert rows["echo"][1] == "1"
    assert rows["w0"][1:3] == ["up,", "process"]
    assert rows["w1"][1] == "down"
    assert "3 tasks done, 2 models found in memory" in out
    assert "time of tasks over their profile: vit 1.25" in out
    found = json.loads(called(capsys, "serve", "status", "--json")[1])
    assert found["requests"]["echo"]["ok"] == 1


def test_drain_and_stop(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "serve", "drain") == (0, "", "drained: headway serve stop ends it\n")
    assert called(capsys, "call", "echo", "1")[0] == 1
    assert called(capsys, "serve", "stop") == (0, "", "stopped\n")
    assert server.server.stopped


# --- start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words", "line"),
    [
        ("import nosuch", (), "app.py: cannot be loaded (ModuleNotFoundError: No module named 'nosuch')"),
        ("x = 1", (), "app.py: has no graph"),
        (APP, ("--policy", "srtf"), "policy srtf is one of jobs, not of fleet"),
        (APP, ("--policy", "nope"), "unknown serving policy 'nope'"),
        (APP, ("--gpu-memory", "lots"), "gpu_memory 'lots' is not understood"),
        (APP, ("--gpu-memory", "1KB"), "scale"),
        (APP, ("--devices", "gpu"), "--devices gpu"),
        (APP, ("--host", "0.0.0.0"), "needs a token"),
        (APP, ("--most-body", "0"), "--most-body 0"),
        (APP, ("--folder", " "), "--folder ' '"),
    ],
)
def test_a_server_that_cannot_start_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, words: tuple[str, ...], line: str
) -> None:
    (tmp_path / "app.py").write_text(source)
    code, out, err = called(capsys, "serve", "start", str(tmp_path / "app.py"), "--port", "0", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert line in err


def test_two_servers_on_one_folder_are_refused(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    run = tmp_path / "run"
    words = ("--folder", "fake", "--port", "0", "--out", str(run))
    code, _, err = called(capsys, "serve", "start", str(tmp_path / "app.py"), *words)
    assert code == 2
    assert "a server runs there already" in err
    assert not run.exists()


def test_an_application_is_served_and_its_run_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.py").write_text(APP)
    out = tmp_path / "run"
    words = ["serve", "start", "app.py", "--workers", "1", "--devices", "cpu", "--port", "0", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "Ctrl-C" in line:
            break
    assert "serving scaled" in said
    assert called(capsys, "call", "scaled", "7") == (0, "10.5\n", "")
    assert called(capsys, "call", "scaled") == (0, "3.0\n", "")
    assert called(capsys, "call", "scaled", '"x"')[1] == ""
    code, table, _ = called(capsys, "load", "--rate", "20", "--duration", "0.5s")
    assert code == 0
    assert "100.0 %" in table
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, said + rest
    assert f"kept in {out}" in rest
    for verb, line in (("audit", "sound: "), ("replay", "identical: ")):
        ended = called(capsys, verb, str(out), "--trust")
        assert ended[1].startswith(line), ended
