"""The published traces hold as many rows as their authors say, in every format that reads them."""

from pathlib import Path

import pytest

from headway.formats import toml
from headway.jobs.model.job import Job
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import guess, load, load_requests
from headway.runs.play import run
from headway.units import MINUTE, SECOND

COUNTS = {
    "philly/philly.csv.gz": ("philly-csv", 82_247),
    "helios/helios_venus_gpu_jobs.csv.gz": ("helios-csv", 125_303),
    "swf/hpc2n.swf.gz": ("swf", 3_170),
}
REQUESTS = {
    "azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz": ("azure-llm", 19_366, 58),
    "mooncake/conversation_trace.jsonl.gz": ("mooncake", 12_031, 58),
    "mooncake/synthetic_trace.jsonl.gz": ("mooncake", 3_993, 17),
}
TIRESIAS = "name=job_id,submit=submit_time,work=duration,gpus=num_gpu,model=model_name"


@pytest.mark.parametrize("path", COUNTS)
def test_jobs_are_recognised_and_all_of_them_load(real_traces: Path, path: str) -> None:
    format, rows = COUNTS[path]
    assert guess(real_traces / path) == format
    trace = load(real_traces / path)
    assert trace.rows == len(trace.jobs) == rows
    assert trace.dropped == ()


@pytest.mark.parametrize("path", REQUESTS)
def test_requests_are_recognised_and_all_of_them_load(real_traces: Path, path: str) -> None:
    format, rows, minutes = REQUESTS[path]
    trace = load_requests(real_traces / path, strict=True)
    assert (trace.format, trace.rows, len(trace)) == (format, rows, rows)
    assert trace.dropped == ()
    assert int(trace.arrival[-1]) // MINUTE == minutes
    assert min(trace.input_tokens.min(), trace.output_tokens.min()) > 0
    if format == "mooncake":
        assert [len(ids) for ids in trace.hash_ids] == [-(-tokens // 512) for tokens in trace.input_tokens.tolist()]


@pytest.mark.parametrize("name", ["single", "multi"])
def test_the_benchmarks_are_recognised(real_traces: Path, name: str) -> None:
    path = real_traces.parent / "benchmarks" / f"synergy_{name}.csv"
    assert guess(path) == "synergy"
    assert len(load(path).jobs) == 1000


def test_the_log_of_a_machine_without_gpus_runs(real_traces: Path) -> None:
    path = real_traces / "swf/hpc2n.swf.gz"
    trace = load(path)
    assert trace.jobs[0] == Job(
        0, 0, 31_405 * SECOND, gpus=0, cpu_milli=30_000, estimate=37_980 * SECOND, name="1", user="u1", tenant="g1",
        partition="p1",
    )  # fmt: skip
    assert "25 jobs without a run time: the CPU time of a processor is taken" in trace.notes
    document = {
        "trace": {"path": str(path)},
        "cluster": {"node_groups": [{"nodes": 1, "gpus": 0, "cpus": 240}]},
        "policy": {"name": "fifo+easy"},
    }
    assert run(toml.typed(document, Experiment, "test")) is not None


def test_any_table_reads_what_has_a_reader_of_its_own(real_traces: Path) -> None:
    columns = "submit=timestamp,work=duration,gpus=num_gpus,tenant=cluster"
    path = real_traces / "philly/philly.csv.gz"
    mapped, own = load(path, columns=columns), load(path)
    assert [(job.submit, job.work, job.gpus, job.tenant) for job in mapped.jobs] == [
        (job.submit, job.work, job.gpus, job.tenant) for job in own.jobs
    ]


def test_the_jobs_of_tiresias_are_a_table(real_traces: Path) -> None:
    trace = load(real_traces / "schedulers/tiresias_60_job.csv", columns=TIRESIAS, strict=True)
    assert len(trace.jobs) == trace.rows == 60
    assert trace.jobs[0] == Job(0, 0, 164 * SECOND, gpus=1, name="0", model="vgg19")
