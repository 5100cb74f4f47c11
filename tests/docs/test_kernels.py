"""docs/guides/gpu-simulation.md: the commands about a kept run work in turn, and print what the page shows."""

import shlex
from pathlib import Path

import pytest

import headway
from headway.cli import main
from tests.docs.pages import blocks, read, spans

PAGE = read("docs/guides/gpu-simulation.md").partition("\n## Keeping a run\n")[2].partition("\n## ")[0]


def test_a_run_of_one_gpu_is_kept_and_asked_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands, shown = (block.text.splitlines() for block in blocks(PAGE))
    said = []
    for line in commands:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line, comments=True)[1:])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, (line, err)
        said.append(out)
    assert shown[-1] == "…"
    assert said[1].splitlines()[: len(shown) - 1] == shown[:-1]
    assert "request 3 at " in said[2]
    assert said[3].startswith("sound: ")
    assert said[4].startswith("identical")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "pair.html", "kernels.json", "tables"}
    run = headway.open(tmp_path / "runs" / "pair")
    for name in run.tables():
        assert name in spans(PAGE)
        assert set(run.table(name).columns) <= set(spans(PAGE))


def test_every_number_of_a_run_of_one_gpu_is_defined() -> None:
    text = read("docs/reference/gpu-metrics.md").partition("\n## Predictions\n")[0]
    work = headway.Gpu("resnet50", "resnet101-b64", seconds=0.02, seeds=2)
    for row in headway.compare(work, ["mps", "headway"], keep=False).rows:
        assert set(row) - set(spans(text)) == set()
