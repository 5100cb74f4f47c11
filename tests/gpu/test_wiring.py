"""From the command line to a table, and what two programs would do to each other."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.cli import main
from headway.errors import ExperimentError
from headway.gpu import predict as predicting
from headway.gpu.experiment import in_memory as wiring
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.profile import mix
from headway.gpu.programs.sources import program_of
from headway.gpu.programs.store import KernelStore
from headway.gpu.programs.trace import KernelTrace
from headway.gpu.show import tables as kernel_tables
from headway.units import MILLISECOND

RUN = ["vgg16", "resnet101-b64", "--seconds", "0.01"]
KEYS = ["policy", "slowdown_p50", "slowdown_p99", "latency_p50_s", "latency_p99_s", "low_share", "busy_share_alone"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """A command: its status, what it wrote, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    written = capsys.readouterr()
    return int(ended.value.code or 0), written.out, written.err


def test_one_run_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "gpu", "simulate", *RUN, "--policy", "headway", "--slo", "1.1", "--floor", "5%")
    assert status == 0
    assert "headway(slo=1.1,floor=0.05)" in out
    assert "resnet101-b64" in out
    status, out, _ = call(capsys, "gpu", "simulate", *RUN, "--policy", "mps", "--json", "--seed", "3")
    row = json.loads(out)
    assert status == 0
    assert list(row)[: len(KEYS)] == KEYS
    assert [client["client"] for client in row["clients"]] == ["vgg16", "resnet101-b64"]
    again = json.loads(call(capsys, "gpu", "simulate", *RUN, "--policy", "mps", "--json", "--seed", "3")[1])
    took = ("wall_s", "peak_rss_bytes")
    assert {**again, **dict.fromkeys(took)} == {**row, **dict.fromkeys(took)}
    other = json.loads(call(capsys, "gpu", "simulate", *RUN, "--policy", "mps", "--json", "--seed", "4")[1])
    assert other["digest"] != row["digest"]


def test_several_policies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    programs = ["vgg16", "resnet101-b64", "graph@3"]
    words = [*programs, *RUN[2:], "--think", "1ms", "--policies", "exclusive,mps,headway(slo=1.2)"]
    status, out, _ = call(capsys, "gpu", "compare", *words, "--json")
    rows = json.loads(out)
    assert status == 0
    assert [row["policy"] for row in rows] == ["exclusive", "mps", "headway(slo=1.2)"]
    assert rows[0]["slowdown_p50"] == 1.0
    assert rows[0]["clients"][2]["priority"] == 3
    assert "low share" in call(capsys, "gpu", "compare", *words)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs a program above"),
        (["resnt50", *RUN[1:]], "did you mean 'resnet50'?"),
        ([*RUN, "--policy", "fast"], "unknown kernel policy 'fast'"),
        ([*RUN, "--workers", "3"], "No such option: --workers"),
        ([*RUN, "--set", "gpu.foo=3"], "unknown key of [gpu] 'foo'"),
        ([*RUN, "--slo", "soon"], "--slo 'soon' is not a slow-down"),
        ([*RUN, "--floor", "200%"], "floor=2.0 is not a share"),
        ([*RUN, "--think", "long"], "gpu think 'long' is not understood"),
        ([*RUN, "--seconds", "0"], "--seconds 0 must be above 0"),
        (["vgg16", "graph@x"], "priority 'x' is not a number"),
        (["vgg16", "graph@77"], "priority 77 is not between 0 and 9"),
        (["vgg16", "none.parquet"], "there is no such file"),
        ([*RUN, "--high", "vgg16"], "No such option: --high"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    status, out, err = call(capsys, "gpu", "simulate", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def recorded(path: Path, name: str, duration: int, gpu: str = "H200") -> str:
    """A trace of a program with twenty requests of five launches."""
    count, period = 100, 400_000
    launch = np.array([at // 5 * period + at % 5 * 20_000 for at in range(count)], dtype=np.int64)
    start = launch + 6_000
    wait = np.where(np.arange(count) % 5 == 4, start + duration + 8_000, 0)
    kernels = KernelTrace(
        *(launch, start, start + duration, np.array(["k"] * count)),
        *(np.full(count, 64, np.int32), np.ones(count, np.int32), np.ones(count, np.int8), wait),
        metadata={"program": name, "gpu": gpu, "driver": "580", "sms": 132},
    )
    kernel_trace.write(path, kernels)
    return str(path)


def test_a_prediction_says_what_each_way_to_share_does_and_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "store"))
    high, low = recorded(tmp_path / "api.parquet", "api", 4_000), recorded(tmp_path / "train.parquet", "train", 15_000)
    found = predicting.predict(high, low, seconds=0.01)
    assert list(found["modes"]) == ["gate", "mps", "mps_priority", "time_slicing"]
    assert found["modes"]["time_slicing"]["slowdown_p50"] > found["modes"]["gate"]["slowdown_p50"] >= 1
    assert 0 < found["modes"]["gate"]["low_share"] <= found["modes"]["mps"]["low_share"] + 0.01
    (pair,) = KernelStore("H200", "580").pairs()
    assert pair == found["pair"]
    assert (pair["program"], pair["co_runner"], pair["measured"]) == ("api", "train", False)
    assert found["stored"] is not None


def test_a_prediction_without_a_known_gpu_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "store"))
    assert predicting.predict("vgg16", ["graph"], seconds=0.01)["stored"] is None
    other = recorded(tmp_path / "b.parquet", "b", 4_000, gpu="A100")
    assert predicting.predict(recorded(tmp_path / "a.parquet", "a", 4_000), other, seconds=0.01)["stored"] is None
    assert not (tmp_path / "store").exists()


def test_a_program_from_the_profile_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path))
    with pytest.raises(ExperimentError, match="unknown program 'mine'"):
        program_of("mine")
    kernel = {"id": "a1", "name": "k", "work_ns": 100, "samples": 9, "blocks": 4, "per_sm": 1, "kind": 1}
    key = f"{mix(0xA1, 0xA1):016x}"
    step = {"key": key, "gap_ns": 10, "think_ns": 7, "alone_ns": 0, "slack_ns": 0, "samples": 9, "waits": 1}
    KernelStore("H200", "580").save("mine", [kernel], [step])
    assert program_of("mine").launches[0].duration == 100


WITHOUT = "import sys; sys.modules.update({name: None for name in ('polars', 'msgspec', 'plotly')})"


def test_predictions_need_neither_polars_nor_msgspec(tmp_path: Path) -> None:
    words = ["gpu", "predict", "vgg16", "matmul", "--seconds", "0.01", "--json"]
    code = f"{WITHOUT}; from headway.cli import main; main({words})"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modes = json.loads(ran.stdout)["modes"]
    assert list(modes) == ["gate", "mps", "mps_priority", "time_slicing"]
    told = f"{WITHOUT}; from headway.cli import main; main(['gpu', 'predict', '--help'])"
    helped = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True).stdout
    assert "--alone" in helped


def test_a_prediction_in_a_process_that_has_all_commands_leaves_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "gpu", "simulate", *RUN, "--policy", "mps", "--json")[0] == 0
    assert call(capsys, "gpu", "predict", *RUN, "--json")[0] == 0
    assert call(capsys, "gpu", "simulate", *RUN, "--policy", "mps", "--json")[0] == 0


def test_what_runs_beside_a_gpu_needs_neither_polars_nor_msgspec() -> None:
    modules = "gpu.sim.clients", "gpu.metrics", "gpu.programs.load", "gpu.programs.profile", "gpu.replay"
    lines = [
        WITHOUT,
        *(f"import headway.{name}" for name in modules),
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


# --- what is said beside the numbers --------------------------------------------------------------------------------


def test_a_program_above_that_never_waits_has_no_slow_down_and_a_note_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["graph-b64", "--seconds", "0.01"]
    status, out, err = call(capsys, "gpu", "simulate", "matmul", *words, "--policy", "mps", "--json")
    assert (status, json.loads(out)["slowdown_p50"]) == (0, None)
    assert err == "note: matmul never waits for the GPU, so it has no request: no latency and no slow-down\n"
    assert call(capsys, "gpu", "compare", "vgg16", *words, "--policies", "mps")[2] == ""
    assert "note: matmul never waits" in call(capsys, "gpu", "predict", "matmul", "graph-b64", "--seconds", "0.01")[2]


def test_a_run_tells_how_far_it_is() -> None:
    told: list[tuple[str, float]] = []
    each = wiring.Setting(("vgg16",), ("resnet101-b64",), seconds=0.05)
    wiring.compare(
        each, ["mps", "headway(slo=1.2)"], wiring.clients_of(each), tell=lambda what, share: told.append((what, share))
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], told[0][0]) == (0.0, "mps")
    assert shares[-1] <= 1
    assert any(0 < share < 0.5 for share in shares)
    assert ("headway(slo=1.2)", 0.5) in told
    assert told[-1][0].endswith(" of 0.05 s")


def test_what_the_gate_does_before_its_dial_has_settled_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "SETTLE", 50 * MILLISECOND)
    played: list[tuple[str, int, float]] = []
    whole = wiring.begun

    def begun(setting: wiring.Setting, *rest: Any) -> Any:
        played.append((setting.policy, setting.horizon, setting.seconds))
        return whole(setting, *rest)

    monkeypatch.setattr(wiring, "begun", begun)
    found = predicting.predict("alexnet", "bert-b32", seconds=0.1)
    assert played[0] == ("headway", 150 * MILLISECOND, 0.1)
    assert {horizon for _, horizon, _ in played[1:]} == {100 * MILLISECOND}
    assert 0 < found["modes"]["gate"]["low_share"] <= 1


def test_a_prediction_is_shown_by_the_names_of_policies_and_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpu", "predict", "vgg16", "graph-b64", "--seconds", "0.01")
    status, out, _ = call(capsys, *words)
    assert status == 0
    rows = [line.split()[0] for line in out.splitlines() if "×" in line and "%" in line and "aimed" not in line]
    assert rows == ["headway", "mps", "mps-priority", "time-slicing"]
    assert out.endswith(f"{predicting.OFF}\n")
    assert list(json.loads(call(capsys, *words, "--json")[1])["modes"]) == list(predicting.MODES)


def test_the_error_of_predictions_is_that_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "gpu-simulation.md").read_text()
    (test,) = [line for line in page.splitlines() if line.startswith("**A blind test**")]
    shown = " ".join(call(capsys, "gpu", "predict", "--help")[1].replace("│", " ").split())
    for words in ("within 15 % in all", "the rate below in 19", "half of all within 12 %"):
        assert words in test
        assert words in predicting.OFF
        assert words in shown
    assert "the rate below in 22 (half of all within 10 %)" in predicting.OFF_ALONE
    assert "(`--alone`), it has 22 of 32, half of all within 10 %" in test


def test_the_kernel_that_held_up_the_most_is_named_for_people() -> None:
    each = {"client": "a", "priority": 0, "requests": 1, "slowdown_p50": None, "slowdown_p99": None}
    by = [{"client": "b", "kernel": "_ZN2at6native10batch_normEv", "delay_s": 0.002}]
    row = {"clients": [{**each, "throughput_share": 1.0, "gated_s": 0.0, "held_up_s": 0.002, "held_up_by": by}]}
    column = kernel_tables.clients(row).columns[-1]
    assert list(column.cells) == ["at::native::batch_norm (2.00 ms)"]
