"""The page of a what-if: times in one unit, and how sure the change is."""

import json
import re
from pathlib import Path

import pytest

from headway.cli import main
from headway.show.formatting import change
from tests.show.made import BUSY, leave

ROW = re.compile(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>')
TIME = re.compile(r"<td>[\d.,]+ (\w+)</td>")


def test_times_are_in_one_unit_and_the_change_has_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = leave(tmp_path / "run", BUSY), tmp_path / "page.html"
    with pytest.raises(SystemExit):
        main(["whatif", str(run), "--at", "10%", "--add-nodes", "4", "--json", "--report", str(page)])
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["jct_p99_s"] > 48 * 3600, "days, if shown by itself"
    rows = dict(ROW.findall(page.read_text()))
    for line in ("mean time to completion", "median", "99th percentile", "mean wait", "99th percentile of waits"):
        assert TIME.findall(rows[line]) == ["h", "h"]
    low, high = (change(found[f"jct_change_{end}"]) for end in ("low", "high"))
    assert f"interval: {low} to {high}" in rows["mean time to completion"]
    assert {unit for each in found["gain"] for unit in TIME.findall(rows[str(each["job"])])} == {"h"}
