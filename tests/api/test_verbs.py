"""Every verb of the Python API and every question to what it returns."""

import gc
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from plotly.graph_objects import Figure

import headway as hw
from headway import plugins
from headway.jobs.policies import registry
from headway.jobs.policies.parts import Order
from headway.runs.answer import Answer

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "samples"
SLURM = ROOT / "examples" / "slurm"


class Smallest(Order):
    """The fewest GPUs first, or the most."""

    name = "smallest"

    def __init__(self, turned: bool = False) -> None:
        self.turned = turned

    def key(self, now: int, js: Any) -> int:
        """Count GPUs."""
        return -js.job.gpus if self.turned else js.job.gpus


class Tabular:
    """A frame as pandas has it: it writes itself as Parquet by a method of another name."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def to_parquet(self, path: Path) -> None:
        """Write it."""
        self.frame.write_parquet(path)


Tabular.__module__ = "pandas.core.frame"


# --- what is scheduled ---


def test_jobs_come_from_a_file_a_frame_a_lazy_one_or_one_of_pandas(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_csv(tmp_path / "jobs.csv")
    given = ["jobs.csv", tmp_path / "jobs.csv", frame, frame.lazy(), Tabular(frame)]
    digests = {hw.simulate(hw.Jobs(each, nodes=2, gpus_per_node=2)).row["digest"] for each in given}
    assert len(digests) == 1


def test_a_frame_with_other_columns_is_mapped(frame: pl.DataFrame, work: Any) -> None:
    other = frame.rename({"gpus": "devices", "submit_s": "came", "work_s": "took"})
    mapped = hw.Jobs(other, nodes=2, gpus_per_node=2, map="gpus=devices,submit=came,work=took,tenant=tenant,name=name")
    assert hw.simulate(mapped).row["digest"] == hw.simulate(work).row["digest"]


def test_jobs_are_drawn_like_those_of_philly_or_of_synergy() -> None:
    philly = hw.Jobs(hw.synthetic(15, load=0.8, longest="1d"), nodes=2, gpus_per_node=8)
    assert hw.simulate(philly).row["jobs"] == 15
    synergy = hw.Jobs(hw.synthetic(15, kind="synergy", rate="9/h"), nodes=2, gpus_per_node=8)
    assert hw.simulate(synergy).row["jobs"] == 15
    assert hw.simulate(philly, seed=1).row["digest"] != hw.simulate(philly).row["digest"]


def test_a_setting_is_any_kind_of_number_path_or_span(frame: pl.DataFrame) -> None:
    plain = hw.Jobs(frame, nodes=2, gpus_per_node=2, preemption_cost="30s", load="1.5")
    numpy = hw.Jobs(
        frame,
        nodes=np.int64(2),
        gpus_per_node=frame["gpus"][0],
        preemption_cost=timedelta(seconds=30),
        load=np.float32(1.5),
    )
    assert hw.simulate(numpy, "srtf").row["digest"] == hw.simulate(plain, "srtf").row["digest"]
    strict = hw.Jobs(frame, strict=np.bool_(True), set={"cluster.nodes": np.int32(2), "cluster.gpus_per_node": 2})
    assert hw.simulate(strict).row["jobs"] == 7
    many = plain.with_settings(cluster=SAMPLES / "scontrol-nodes.txt", profiles="folder")
    assert many.document["cluster"]["file"] == [str(SAMPLES / "scontrol-nodes.txt")]
    assert many.document["speed"]["profiles"] == ["folder"]


def test_settings_are_added_and_the_work_stays_as_it_was(work: Any) -> None:
    more = work.with_settings(nodes=5, set=["policy.name=srtf", "costs.migration=1s"])
    assert more.document["cluster"]["nodes"] == 5
    assert more.document["policy"]["name"] == "srtf"
    assert work.document["cluster"]["nodes"] == 2
    assert "cluster.nodes=5" in repr(more)
    assert repr(hw.work("jobs")) == "hw.Jobs: no settings"


# --- one run ---


def test_a_run_answers_every_question(work: Any, tmp_path: Path) -> None:
    run = hw.simulate(work, "srtf+easy", preemption_cost="10s")
    assert run.row["policy"] == "srtf+easy"
    groups = ["tenants", "partitions", "qos", "users", "gpu_types"]
    assert run.tables() == ["jobs", "holds", "tape", "timeline", *groups, "nodes"]
    assert run.jobs()["jct_s"].mean() == pytest.approx(run.row["jct_mean_s"])
    assert run.tenants()["tenant"].to_list() == ["x", "y"]
    assert run.timeline()["time_s"][0] == 0
    assert run.table("nodes").height == 2
    assert run.audit() == []
    assert run.replay() is None
    told = run.story("c")
    assert isinstance(told, Answer)
    assert told.lines()[0] in repr(told)
    assert told.record()["job"] == run.story(2).record()["job"]
    assert "lines" not in run.explain("c", at="10s", draws=5).record()
    assert isinstance(run.figure("jct"), Figure)
    assert run.report("page.html", title="Mine") == Path("page.html")
    assert "Mine" in (tmp_path / "page.html").read_text()
    written = run.export(parquet="tables", perfetto=Path("trace.json"))
    assert sorted(file.path.name for file in written) == sorted(["trace.json", *(f"{t}.parquet" for t in run.tables())])
    assert all(file.path.stat().st_size == file.size_bytes for file in written)
    assert "srtf+easy" in repr(run)
    assert run._repr_html_().startswith("<pre>policy")


def test_what_if_continues_a_run_under_changes(work: Any) -> None:
    run = hw.simulate(work)
    answer = run.whatif("5s", add_nodes=2, folder="more")
    assert answer.record()["changes"]
    assert answer.record()["better"] > 0
    assert "From 5s on" in repr(answer)
    assert (Path("more") / "whatif.json").is_file()
    other = run.whatif("5s", policy=Smallest(turned=True), set={"costs.preemption": "5s"})
    assert "smallest(turned=True)" in other.record()["policy_after"]


def test_a_run_is_saved_and_opened_again(work: Any) -> None:
    run = hw.simulate(work, "srtf")
    kept = run.save("kept")
    assert kept.folder == Path("kept")
    again = hw.open(Path("kept"))
    assert dict(again.row) == dict(run.row)
    assert again.jobs().equals(run.jobs())
    assert again.replay() is None
    with pytest.raises(hw.HeadwayError, match="already holds a run"):
        run.save("kept")


def test_a_run_without_a_folder_of_ones_own_goes_with_the_object(work: Any) -> None:
    run = hw.simulate(work)
    folder = run.folder
    assert folder.is_dir()
    del run
    gc.collect()
    assert not folder.exists()
    assert hw.simulate(work, out="mine").folder == Path("mine")
    gc.collect()
    assert Path("mine").is_dir()


def test_the_numbers_of_several_seeds_are_over_all_of_them() -> None:
    drawn = hw.Jobs(hw.synthetic(20, load=0.9), nodes=2, gpus_per_node=8)
    run = hw.simulate(drawn, "srtf", seeds=3)
    assert run.row["seeds"] == 3
    assert len(run.row["runs"]) == 3
    assert run.row["jct_mean_low_s"] <= run.row["jct_mean_s"] <= run.row["jct_mean_high_s"]
    assert run.jobs()["jct_s"].mean() == pytest.approx(run.row["runs"][0]["jct_mean_s"])
    run.report("seeds.html")
    assert "3 seeds" in Path("seeds.html").read_text()


# --- trust ---


def test_an_untrusted_folder_runs_no_file_whatever_is_asked_of_it(work: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from pathlib import Path\nfrom headway.jobs.policies.parts import Order\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class Own(Order):\n    name = 'own'\n    def key(self, now, js):\n        return js.id\n"
    )
    hw.simulate(work, "./own.py:Own", out="run")
    (tmp_path / "ran").unlink()
    plugins._module.cache_clear()
    del registry.ORDERS["own"]
    run = hw.open("run")
    assert run.jobs().height == 7
    run.report("page.html")
    run.figure("jct")
    copy = run.save("copy")
    for each in (run, copy):
        with pytest.raises(hw.HeadwayError, match="is not run unless you trust it"):
            each.replay()
    assert not (tmp_path / "ran").exists()
    assert hw.open("run", trust=True).replay() is None
    assert (tmp_path / "ran").exists()


# --- several runs ---


def test_policies_are_text_classes_objects_and_the_settings_of_a_site() -> None:
    work = hw.Jobs(SLURM / "sacct.txt", cluster=[SLURM / "nodes.txt", SLURM / "partitions.txt"])
    site = f"slurm:{SLURM / 'slurm.conf'}"
    found = hw.compare(work, ["fifo+easy", site, Smallest, Smallest(turned=True)], baseline=site)
    assert len(found) == 4
    assert [row["policy"] for row in found.rows[2:]] == ["smallest", "smallest(turned=True)"]
    assert found.rows[0]["baseline"] == "slurm:slurm.conf"
    assert found[site].row["policy"].startswith("multifactor(")
    assert found[site] is found[1]
    assert found["smallest(turned=True)"] is found[3] is found[-1]
    assert found[found.rows[1]["policy"]] is found[1]
    assert [run.row["policy"] for run in found] == [row["policy"] for row in found.rows]


def test_a_class_that_is_defined_anew_takes_the_place_of_the_one_before(work: Any) -> None:
    first = hw.simulate(work, Smallest).row["digest"]

    class Smallest2(Order):
        """As notebooks define a class again."""

        name = "smallest"

        def key(self, now: int, js: Any) -> int:
            """Turn it round."""
            return -int(js.job.gpus)

    assert hw.simulate(work, Smallest2).row["digest"] != first
    assert hw.simulate(work, Smallest(turned=True)).row["digest"] == hw.simulate(work, Smallest2()).row["digest"]


def test_a_comparison_answers_every_question(work: Any, tmp_path: Path) -> None:
    found = hw.compare(work, ["fifo", "srtf"], failures="mtbf=1d,repair=1h", preemption_cost="5s")
    assert found.names == ["fifo", "srtf"]
    assert found.frame()["policy"].to_list() == ["fifo", "srtf"]
    assert found.rows[1]["jct_change"] == pytest.approx(found.rows[1]["jct_mean_s"] / found.rows[0]["jct_mean_s"] - 1)
    both = found.jobs()
    assert both.columns[0] == "policy"
    assert both.height == 14
    means = both.group_by("policy", maintain_order=True).agg(pl.col("jct_s").mean())["jct_s"].to_list()
    assert means == pytest.approx([row["jct_mean_s"] for row in found.rows])
    assert found.tenants().height == 4
    assert set(found.timeline()["policy"]) == {"fifo", "srtf"}
    assert found.table("holds").height >= 14
    assert len(found.figure("jct").data) == 2
    found.report("both.html")
    assert "srtf" in (tmp_path / "both.html").read_text()
    assert "vs first" in repr(found)
    assert found.notes() == []
    assert "plotly" in found._repr_html_()
    assert len(found._repr_html_()) < 2_500_000, "plotly.js is packed"
    assert len(found) == 2


def test_notes_stand_below_the_table() -> None:
    frame = pl.DataFrame({"submit_s": [0, 10, 20], "work_s": [100, 50, 30], "gpus": [1, 2, 1]})
    found = hw.compare(hw.Jobs(frame, nodes=1, gpus_per_node=2), ["fifo", "srtf"])
    note = "srtf: preemptions cost nothing here: --preemption-cost 60s charges them"
    assert found.notes() == [note]
    assert repr(found).endswith(f"note: {note}")
    assert note.removeprefix("srtf: ") in repr(found["srtf"])


def test_a_note_that_differs_from_seed_to_seed_is_told_once() -> None:
    drawn = hw.Jobs(hw.synthetic(150, load=1.1, longest="1d"), nodes=4, gpus_per_node=8)
    found = hw.compare(drawn, "fifo,las", seeds=3)
    assert [note for note in found.notes() if "overload" in note] == [
        "overload: arrivals ask for 1.10 of the cluster's GPU time"
    ]


def test_seeds_and_a_baseline(work: Any) -> None:
    drawn = hw.Jobs(hw.synthetic(20, load=0.9), nodes=2, gpus_per_node=8)
    found = hw.compare(drawn, "fifo,srtf,las", seeds=2, baseline="srtf")
    assert found.baseline == 1
    assert [row["seeds"] for row in found.rows] == [2, 2, 2]
    assert found.rows[1]["jct_change"] is None
    assert [run["seed"] for run in found.rows[0]["runs"]] == [0, 1]
    assert found.jobs().height == 60
    assert found["las"].row["seeds"] == 2
    found.report("seeds.html")
    assert found.figure("waits").data


def test_runs_in_processes_of_their_own_are_the_same(work: Any) -> None:
    alone, beside = (hw.compare(work, ["fifo", "srtf"], processes=count) for count in (1, 2))
    assert [row["digest"] for row in alone.rows] == [row["digest"] for row in beside.rows]
    assert beside["srtf"].jobs().equals(alone["srtf"].jobs())
    own = hw.compare(work, ["fifo", Smallest], processes=2)
    assert own.rows[0]["digest"] == alone.rows[0]["digest"]


def test_an_experiment_file_is_run(tmp_path: Path, frame: pl.DataFrame) -> None:
    frame.write_csv(tmp_path / "jobs.csv")
    (tmp_path / "two.toml").write_text(
        'scale = "jobs"\n[trace]\npath = "jobs.csv"\n[cluster]\nnodes = 2\ngpus_per_node = 2\n'
        '[[variants]]\nname = "as it is"\n[[variants]]\nname = "more"\nset = { cluster.nodes = 4 }\n'
    )
    found = hw.run("two.toml")
    assert found.names == ["as it is", "more"]
    assert found["more"].row["jct_mean_s"] < found["as it is"].row["jct_mean_s"]
    again = hw.run(tmp_path / "two.toml", set={"policy.name": "srtf"}, out="kept", baseline="more")
    assert again.baseline == 1
    assert {row["policy"] for row in again.rows} == {"srtf"}
    assert hw.open("kept/more").row["variant"] == "more"
    lines = hw.run("two.toml", set=["policy.name=srtf"])
    assert [row["digest"] for row in lines.rows] == [row["digest"] for row in again.rows]


# --- sweeps ---


def test_a_sweep_goes_on_where_it_stopped(work: Any, capsys: pytest.CaptureFixture[str]) -> None:
    vary = {"policy.name": ("fifo", "srtf"), "cluster.nodes": np.array([2, 3])}
    found = hw.sweep(work, "grid", vary)
    assert len(found.rows) == 4
    assert found.failed == []
    assert found.frame()["cluster.nodes"].to_list() == [2, 3, 2, 3]
    assert "mean JCT" in repr(found)
    assert found._repr_html_().startswith("<pre>mean JCT")
    written = {path: path.stat().st_mtime_ns for path in Path("grid/cells").glob("*.json")}
    again = hw.sweep(work, "grid", {**vary, "cluster.nodes": [2, 3, 1]}, retry=True)
    assert len(again.rows) == 4
    assert [cell.name for cell, _ in again.failed] == ["fifo, nodes=1, seed 0", "srtf, nodes=1, seed 0"]
    assert "2 of 6 cells failed: " in repr(again)
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())
    assert capsys.readouterr().out == ""


def test_a_sweep_wants_policies_whose_files_it_can_read(work: Any) -> None:
    for own in (Smallest, Smallest(), "python:smallest"):
        with pytest.raises(hw.HeadwayError, match="a sweep keeps results by the contents of files"):
            hw.sweep(work, "grid", {"policy.name": ["fifo", own]})


# --- the other scales ---


def test_a_fleet(tmp_path: Path) -> None:
    work = hw.Fleet("compass", requests=40, rate=2.0)
    found = hw.compare(work, ["compass", "hash"], workers=3)
    assert found.requests().height == 80
    run = found["compass"]
    assert run.requests().height == 40
    assert run.audit() == []
    assert run.replay() is None
    assert "request 3" in repr(run.story(3))
    assert isinstance(run.figure("latency"), Figure)
    assert run.report("fleet.html").is_file()
    assert run.explain(3).record()["request"] == 3
    assert run.explain().record()["requests"] == 36
    assert run.whatif().record()["digest"] == run.stored.tape.digest
    assert run.whatif(add_workers=1, folder="more").record()["after"]["workers"] == 4
    assert hw.open("more").audit() == []
    with pytest.raises(hw.HeadwayError, match="played again from its beginning"):
        run.whatif("1s")
    with pytest.raises(hw.HeadwayError, match="--add-nodes changes runs of jobs; this is one of fleet"):
        run.whatif(add_nodes=1)
    assert "compass" in found._repr_html_()


def test_programs_on_one_gpu() -> None:
    work = hw.Gpu("resnet50", "matmul", seconds=0.05)
    assert work.document["gpu"]["low"] == ["matmul"]
    assert hw.Gpu("a,b").document["gpu"]["high"] == hw.Gpu(["a", "b"]).document["gpu"]["high"] == ["a", "b"]
    assert hw.Gpu(Path("x.parquet")).document["gpu"]["high"] == ["x.parquet"]
    found = hw.compare(work, ["mps", "headway(slo=1.1)"])
    assert found.requests()["client"][0] == "resnet50"
    run = found["headway(slo=1.1)"]
    assert run.audit() == []
    assert run.replay() is None
    assert "resnet50, priority 0" in repr(run.story("resnet50"))
    assert isinstance(found.figure("latency"), Figure)
    assert found.report("gpu.html").is_file()
    assert hw.simulate(work, "mps", seeds=2).row["seeds"] == 2
