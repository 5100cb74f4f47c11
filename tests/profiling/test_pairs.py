"""Files of pairs: the shipped one is what was measured, the store is found, and bad files are refused in one line."""

import json
import tomllib
from pathlib import Path

import pytest

from headway.errors import ProfileError
from headway.gpu.programs.store import KernelStore, folder as kernel_folder
from headway.profiling import pairs as pair_file

ROW = {
    "program": "a",
    "co_runner": "b",
    "sm_share_ppm": 500_000,
    "slowdown_ppm": 1_250_000,
    "harvest_ppm": 0,
    "measured": True,
}


@pytest.mark.parametrize("name", pair_file.shipped())
def test_a_shipped_table_can_be_read(name: str) -> None:
    assert pair_file.load(name).programs


def test_the_h200_table_holds_what_was_measured_side_by_side() -> None:
    table = pair_file.load("h200")
    measured = tomllib.loads((pair_file.FOLDER.parent / "fleet/scenarios/shipped/esg-h200.toml").read_text())[
        "measured"
    ]
    sms, share = measured["sms_by_share"], str(measured["beside_share"])
    ppm = round(sms[share] / sms["7"] * 1_000_000)
    rows = {(pair.program, pair.co_runner): pair for pair in table.pairs if pair.sm_share_ppm == ppm}
    for program, others in measured["beside"].items():
        for co_runner, slower in others.items():
            pair = rows[program, co_runner]
            assert pair.measured
            assert pair.slowdown_ppm == round(slower * 1_000_000)
            assert pair.harvest_ppm == round(1_000_000 / measured["beside"][co_runner][program])


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps([ROW]))
    assert pair_file.load(str(tmp_path / "mine.json")).slowdown_ppm("a", ["b"], 1) == 1_250_000


def test_the_store_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path))
    with pytest.raises(ProfileError, match=r"no pairs\.json in .*; headway gpu predict A B writes one"):
        pair_file.path_of("store")
    for driver in ("580.1", "580.2"):
        folder = tmp_path / "NVIDIA-H200" / driver
        folder.mkdir(parents=True)
        (folder / "pairs.json").write_text(json.dumps([ROW]))
        if driver == "580.1":
            assert pair_file.path_of("store") == folder / "pairs.json"
    with pytest.raises(ProfileError, match=r"name one of .*580\.1/pairs\.json, .*580\.2/pairs\.json$"):
        pair_file.path_of("store")


def test_what_the_store_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path))
    KernelStore("NVIDIA H200", "580.1").add_pairs([ROW, ROW | {"program": "c", "slowdown_ppm": 1_500_000}])
    assert pair_file.load("store").slowdown_ppm("c", ["b"], 500_000) == 1_500_000
    assert pair_file.folder() == kernel_folder()


def test_without_a_variable_the_store_lies_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_PROFILES", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert pair_file.folder().parts[-3:] == (".cache", "headway", "kernels")
    assert pair_file.folder() == kernel_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert pair_file.folder() == Path("/elsewhere/headway/kernels") == kernel_folder()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"unknown interference 'h20'; did you mean 'h200'.*store.*ends in \.json"):
        pair_file.load("h20")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("{}", "must be a list of pairs, not dict"),
        ("[]", "holds no pairs"),
        ('{"pairs": []}', "holds no pairs"),
        ('{"pairs": 1}', "must be a list of pairs, not int"),
        ('{"version": 7, "pairs": []}', "is of version 7, this headway reads version 1"),
        ("[1]", "row 0: is no object"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=told) as raised:
        pair_file.read(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="there is no such file"):
        pair_file.load(str(tmp_path / "none.json"))
    with pytest.raises(ProfileError, match="cannot be read"):
        pair_file.load(str(tmp_path))
