"""What is predicted of programs that the profile store knows: from which file they are played, and what is kept."""

import json
from pathlib import Path

import pytest

from headway.cli import main
from headway.errors import ExperimentError, ProfileError
from headway.gpu.experiment.in_memory import Setting, few
from headway.gpu.predict import predict
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.profile import mix
from headway.gpu.programs.sources import source_of
from headway.gpu.programs.store import KernelStore
from tests.gpu.test_wiring import recorded

STORE = "H200", "580"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "store"))


def learnt(name: str, *store: str) -> Path:
    """The profile of a program of one kernel, which it waits for; where its trace would lie."""
    kernel = {"id": "a1", "name": "k", "work_ns": 100, "samples": 9, "blocks": 4, "per_sm": 1, "kind": 1}
    step = {"key": f"{mix(0xA1, 0xA1):016x}", "gap_ns": 10, "think_ns": 7, "alone_ns": 0, "slack_ns": 0}
    found = KernelStore(*(store or STORE))
    found.save(name, [kernel], [{**step, "samples": 9, "waits": 1}])
    return found.path(name).with_suffix(".parquet")


def predicted(high: str, *low: str) -> tuple[dict[str, object], list[str]]:
    """A prediction and what is said beside it."""
    said: list[str] = []
    return predict(high, low, seconds=0.01, say=said.append), said


def test_a_program_of_the_store_is_played_from_the_trace_beside_its_profile() -> None:
    recorded(learnt("api"), "api", 4_000)
    source = source_of("api")
    assert (source.program.name, len(source.program.launches), source.notes) == ("api", 100, ())
    assert sum(launch.waits for launch in source.program.launches) == 20
    assert {launch.duration for launch in source.program.launches} == {4_000}
    assert source.about["gpu"] == "H200"


def test_names_predict_what_their_traces_do_and_the_row_is_kept(tmp_path: Path) -> None:
    files = [recorded(learnt(name), name, duration) for name, duration in (("api", 4_000), ("train", 15_000))]
    by_file, _ = predicted(*files)
    Path(str(by_file["stored"])).unlink()
    by_name, said = predicted("api", "train")
    assert by_name == by_file
    assert said == []
    assert KernelStore(*STORE).pairs() == [by_name["pair"]]


def test_a_priority_changes_neither_the_trace_nor_the_gpu_that_is_found(tmp_path: Path) -> None:
    recorded(learnt("train"), "train", 15_000)
    found, said = predicted(f"{recorded(tmp_path / 'api.parquet', 'api', 4_000)}@0", "train@7")
    assert (found["high"], found["low"], said) == ("api", ["train"], [])
    assert found["stored"]


def test_without_a_trace_it_is_played_from_means_and_that_is_said_and_not_kept(tmp_path: Path) -> None:
    path = learnt("mine")
    found, said = predicted("mine", recorded(tmp_path / "low.parquet", "low", 4_000))
    missing = f"{path} is not there (headway profile kernels --name mine records it)"
    assert said == [
        f"note: mine is played from the means of its profile: {missing}",
        "not kept among pairs: mine is no trace that says on which GPU and driver it was recorded",
    ]
    assert found["stored"] is None
    assert found["high"] == "mine"


def test_a_trace_that_cannot_be_played_is_named_and_the_means_stand_in() -> None:
    path = learnt("mine")
    path.write_text("hello")
    source = source_of("mine")
    assert source.program.launches[0].duration == 100
    assert source.notes[0].startswith(
        f"note: mine is played from the means of its profile: kernel trace {path}: it is not Parquet"
    )
    path.unlink()
    path.mkdir()
    assert f"kernel trace {path}: " in source_of("mine").notes[0]
    path.rmdir()
    recorded(path, "other", 4_000)
    assert source_of("mine").notes[0].endswith(f"{path} is a trace of other")
    assert source_of("mine").about == {}


def test_a_broken_profile_does_not_matter_beside_a_trace_and_is_one_line_without() -> None:
    path = learnt("mine")
    path.with_suffix(".json").write_text("{")
    with pytest.raises(ProfileError, match="is not JSON"):
        source_of("mine")
    recorded(path, "mine", 4_000)
    assert source_of("mine").program.launches[0].duration == 4_000


def test_a_program_that_several_gpus_know_says_which_is_taken() -> None:
    recorded(learnt("api", "A100", "570"), "api", 9_000, gpu="A100")
    recorded(learnt("api"), "api", 4_000)
    source = source_of("api")
    assert source.about["gpu"] == "A100"
    (line,) = source.notes
    assert line == f"note: api is known of 2 GPUs or drivers: that of {KernelStore('A100', '570').folder} is taken"


def test_unknown_names_are_one_line_with_those_that_are_known() -> None:
    learnt("mine")
    with pytest.raises(ExperimentError, match=r"unknown program 'mime'; did you mean 'mine'\?") as refused:
        predicted("vgg16", "mime")
    assert "\n" not in str(refused.value)


def test_why_a_row_was_not_kept_is_said(tmp_path: Path) -> None:
    a, b = (recorded(tmp_path / f"{name}.parquet", name, 4_000) for name in "ab")
    elsewhere = recorded(tmp_path / "c.parquet", "c", 4_000, gpu="A100")
    mute = kernel_trace.read(a)
    mute.metadata.clear()
    kernel_trace.write(tmp_path / "mute.parquet", mute)
    for words, why in (
        ((a, b, b), "a pair is of two programs, these are 3"),
        (("matmul", a), "no slow-down of matmul is known"),
        (("vgg16", a), "vgg16 comes with headway, and only traces of one's own are"),
        ((a, str(tmp_path / "mute.parquet")), "mute.parquet is no trace that says on which GPU and driver"),
        ((a, elsewhere), f"{a} was recorded on H200, driver 580; {elsewhere} was recorded on A100, driver 580"),
    ):
        found, said = predicted(*words)
        assert found["stored"] is None
        assert said[-1].startswith("not kept among pairs: ")
        assert why in said[-1]
    assert not (tmp_path / "store").exists()


def test_a_row_that_was_measured_stays_and_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    a, b = (recorded(tmp_path / f"{name}.parquet", name, 4_000) for name in "ab")
    store = KernelStore(*STORE)
    measured = {"program": "a", "co_runner": "b", "sm_share_ppm": 1_000_000, "slowdown_ppm": 7, "harvest_ppm": 7}
    path = store.add_pairs([{**measured, "measured": True}])
    found, said = predicted(a, b)
    assert found["stored"] is None
    assert said == [f"not kept among pairs: {path} has that pair as it was measured, which counts for more"]
    assert store.pairs() == [{**measured, "measured": True}]
    path.write_text("{")
    found, said = predicted(a, b)
    assert found["stored"] is None
    assert said == [f"not kept among pairs: {path}: is not JSON; remove it and it is learnt again"]


def test_on_the_command_line_it_is_a_line_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(learnt("api"), "api", 4_000)
    learnt("mine")
    with pytest.raises(SystemExit) as ended:
        main(["gpu", "predict", "api", "mine", "--seconds", "0.01", "--json"])
    told = capsys.readouterr()
    assert ended.value.code == 0
    assert json.loads(told.out)["stored"] is None
    assert told.err.count("note: mine is played from the means") == 1
    assert told.err.splitlines()[-1].startswith("not kept among pairs: mine is no trace")
    with pytest.raises(SystemExit) as ended:
        main(["gpu", "predict", "api", "min"])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert "unknown program 'min'" in told.err


def test_a_row_has_the_name_in_the_trace_and_the_pause_in_its_name(tmp_path: Path) -> None:
    above, below = (
        recorded(tmp_path / f"{file}.parquet", name, 4_000) for file, name in (("x", "api"), ("y", "train"))
    )
    found = predict(above, below, think=5_000_000, seconds=0.05, say=None)
    assert (found["pair"]["program"], found["pair"]["co_runner"]) == ("api@5ms", "train")
    assert (found["high"], found["seconds"], found["seed"]) == ("x", 0.05, 0)


def test_a_short_run_of_headway_says_that_its_beginning_counts() -> None:
    each = Setting(("vgg16",), ("matmul",), "headway", 0, 0.5)
    assert "try --seconds 3" in few(each, ["mps", "headway(slo=1.1)"])[0]
    assert few(each, ["mps"]) == []
    assert few(Setting(("vgg16",), ("matmul",), "headway", 0, 3.0), ["headway"]) == []
