"""The page of models that come and go agrees with its rows."""

import csv
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs/background/results"


def _values() -> dict[tuple[str, str, str], str]:
    with (FOLDER / "h200-residency.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {(row["part"], row["bytes_or_processes"], row["quantity"]): row["value"] for row in rows}


def test_the_table_of_mapping_is_that_of_the_rows() -> None:
    page, values = (FOLDER / "h200-residency.md").read_text(), _values()
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    rate = float(values["copy", str(2 << 30), "registered_gb_s"])
    rows = re.findall(r"^\| (\d+) (MiB|GiB) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) == 5
    for number, unit, mapped, unmapped, copied in rows:
        size = int(number) * units[unit]
        assert abs(float(values["map", str(size), "map_ms"]) - float(mapped)) < 0.01
        assert abs(float(values["map", str(size), "unmap_ms"]) / float(unmapped) - 1) < 0.05
        assert abs(size / rate / 1e6 / float(copied) - 1) < 0.03


def test_the_sentences_name_values_of_the_rows() -> None:
    page, values = (FOLDER / "h200-residency.md").read_text(), _values()
    gib = str(1 << 30)
    assert (values["graph", gib, "same"], values["graph", gib, "of"]) == ("10", "10")
    for key in (("copy", "pageable_gb_s"), ("copy", "pinned_gb_s"), ("copy", "registered_gb_s")):
        assert f"{float(values[key[0], str(2 << 30), key[1]]):.1f}" in page
    for processes in ("1", "2", "4"):
        assert f"{float(values['link', processes, 'all_gb_s']):.1f}" in page
    for quantity in ("compute_ms", "copy_ms", "both_ms"):
        assert f"{float(values['overlap', '', quantity]):.1f} ms" in page
