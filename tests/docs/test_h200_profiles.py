"""The page of six networks on an H200 and its files say what the shipped profile says."""

import tomllib

from tests.docs.pages import ROOT, read, rows, table, tables

FOLDER = "docs/background/results/h200-profiles"
PAGE = read(f"{FOLDER}.md")
PROFILE = tomllib.loads(read(ROOT / "src/headway/fleet/scenarios/shipped/esg-h200.toml"))


def test_the_parts_of_the_profile_are_those_of_the_files() -> None:
    for name, key, axis, column in (
        ("network", "network_ms", "gpu_sevenths", "network_ms"),
        ("cpus", "host_ms", "cpus", "cpu_ms"),
    ):
        shipped = {
            (function, batch, of): ms
            for function, each in PROFILE["functions"].items()
            for batch, of, ms, _ in each["measured"][key]
        }
        found = {(row["function"], int(row["batch"]), int(row[axis])): float(row[column]) for row in rows(path(name))}
        assert shipped.keys() == found.keys()
        assert all(abs(shipped[cell] - found[cell]) <= 0.0501 for cell in found)


def test_the_slow_downs_of_the_profile_are_those_of_the_file() -> None:
    found = rows(path("beside"))
    assert len(found) == 36
    for row in found:
        assert abs(PROFILE["measured"]["beside"][row["slowed"]][row["by"]] - float(row["slowdown"])) <= 0.00501


def test_the_tables_of_the_page_are_those_of_the_files() -> None:
    _, body = next(tables(PAGE))
    assert [[cell.removesuffix(" %") for cell in row] for row in body] == [
        list(row.values()) for row in rows(path("law"))
    ]
    _, listed = table(PAGE, "## The files")
    for link, count, _ in listed:
        assert len(rows(path(link[1:].partition(".csv]")[0]))) == int(count)


def path(name: str) -> str:
    """Return the path of a file beside the page."""
    return f"{FOLDER}/{name}.csv"
