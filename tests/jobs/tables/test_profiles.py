"""Profile files: the shipped ones are the published table; what is wrong with one is a line that says what to do."""

import tomllib
from pathlib import Path

import pytest

from headway.cli import main
from headway.errors import ProfileError
from headway.formats import toml
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Profile
from headway.jobs.tables import profiles as profile_file
from headway.jobs.tables.profiles import SHIPPED, ProfileTable, load, shipped
from headway.jobs.traces.workloads.synergy_like import CLASSES
from headway.units import parse_size
from tests.docs.pages import blocks, read, tables

CPUS = (1, 2, 3, 4, 5, 6, 9, 12, 24)
MEMORY = ("20.83GB", "62.5GB", "125GB", "187.5GB", "250GB")
ROWS = {  # throughput at 62.5 GB, by CPUs
    "alexnet": (0.3, 0.66, 1, 1.25, 1.53, 1.75, 2, 2, 2),
    "shufflenet": (0.3, 0.66, 1, 1.25, 1.53, 1.75, 2, 2, 2),
    "res18": (0.37, 0.72, 1, 1.3, 1.53, 1.75, 2.4, 2.4, 2.4),
    "mobilenet": (0.37, 0.72, 1, 1.3, 1.49, 1.55, 1.55, 1.55, 1.55),
    "res50": (0.4, 0.74, 1, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15),
    "m5": (0.3, 0.66, 1, 1.2, 1.4, 1.5, 1.5, 1.5, 1.5),
    "deepspeech": (0.3, 0.66, 1, 1, 1, 1, 1, 1, 1),
    "gnmt": (1,) * 9,
    "transformer": (1,) * 9,
    "lstm": (1,) * 9,
}
MORE = {  # from so many CPUs on, at 125, 187.5 and 250 GB
    "alexnet": (12, (2.94, 2.94, 2.94)),
    "shufflenet": (12, (2.89, 2.89, 2.89)),
    "m5": (6, (2, 2.5, 2.5)),
}
SATURATING = {  # CPUs, memory, speed-up
    "alexnet": (12, "125GB", 2.94),
    "shufflenet": (12, "125GB", 2.89),
    "res18": (9, "62.5GB", 2.4),
    "mobilenet": (6, "62.5GB", 1.55),
    "res50": (4, "62.5GB", 1.15),
    "m5": (6, "187.5GB", 2.5),
    "deepspeech": (3, "62.5GB", 1),
    "gnmt": (1, "20.83GB", 1),
    "transformer": (1, "20.83GB", 1),
    "lstm": (1, "20.83GB", 1),
}
ITERATIONS = {  # seconds, batch
    "alexnet": (0.60, 512), "shufflenet": (0.615, 512), "res18": (0.64, 512), "mobilenet": (0.71, 512),
    "res50": (0.78, 512), "m5": (0.60, 512), "deepspeech": (0.757, 20), "gnmt": (0.12, 128), "transformer": (0.67, 128),
    "lstm": (0.011, 20),
}  # fmt: skip
SAMPLES = {"image": 115_000, "language": 1000, "m5": 32_000, "deepspeech": 320_000}
"""Bytes of a sample: assumed, not published."""

GOOD = """model = "mine"
cpus = [0.5, 2]
memory = ["1GB", "2GB"]
throughput = [[0.5, 0.6], [0.7, 1.0]]
"""


def _published(model: str, row: int, column: int) -> float:
    if column == 0:
        return 1 if model in CLASSES["language"] else 0.1
    least, more = MORE.get(model, (99, ()))
    return more[column - 2] if column > 1 and CPUS[row] >= least else ROWS[model][row]


@pytest.mark.parametrize("model", ROWS)
def test_a_shipped_profile_is_the_published_matrix(model: str) -> None:
    profile = shipped()[model]
    assert profile.cpu_milli == tuple(cpus * 1000 for cpus in CPUS)
    assert profile.memory_bytes == tuple(map(parse_size, MEMORY))
    assert profile.kind == next(kind for kind, models in CLASSES.items() if model in models)
    for row, cells in enumerate(profile.ppm):
        assert cells == tuple(round(_published(model, row, column) * 1_000_000) for column in range(len(MEMORY)))
    cpus, memory, speedup = SATURATING[model]
    assert profile.demand[:2] == (cpus * 1000, parse_size(memory))
    assert profile.most_ppm == round(speedup * 1_000_000)


def test_the_ten_models_are_shipped_and_no_others() -> None:
    assert set(shipped()) == set(ROWS) == {model for models in CLASSES.values() for model in models}
    assert {path.stem for path in SHIPPED.glob("*.toml")} == set(ROWS)


@pytest.mark.parametrize("model", ROWS)
def test_what_a_shipped_profile_reads_is_its_batches_and_a_server_of_the_paper_can_feed_it(model: str) -> None:
    profile = shipped()[model]
    seconds, batch = ITERATIONS[model]
    assert profile.read_bytes_per_second == round(SAMPLES.get(model, SAMPLES.get(profile.kind, 0)) * batch / seconds)
    assert f"iteration {seconds:g} s, batch {batch}" in (SHIPPED / f"{model}.toml").read_text()
    due = Grant(24_000 // 8, 500 * 10**9 // 8, 500 * 10**6 // 8)
    assert profile.speed(*due) == 1_000_000, "the reference is what a GPU's share of 500 MB/s allows"


def test_every_key_of_a_shipped_profile_is_read_and_says_where_it_is_from() -> None:
    for path in SHIPPED.glob("*.toml"):
        table = toml.typed(tomllib.loads(path.read_text()), ProfileTable, path.name)
        assert "Synergy" in table.source
        assert table.reference == {"cpus": 3, "memory": "62.5GB"}
        assert "Not of the paper, but assumed" in path.read_text()


def test_all_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'{GOOD}kind = "image"\nsource = "here"\nreference = {{ cpus = 2, memory = "2GB" }}\nerror = 0.05\n'
        'reads_per_second = "90MB/s"\ndataset = "10GB"\nworking_memory = 1000\n[measured]\nseconds = 12\n'
    )
    assert load([path])["mine"] == Profile(
        "mine",
        (500, 2000),
        (10**9, 2 * 10**9),
        ((500_000, 600_000), (700_000, 1_000_000)),
        kind="image",
        read_bytes_per_second=90_000_000,
        dataset_bytes=10**10,
        working_bytes=1000,
        error_ppm=50_000,
    )


def test_folders_are_read_whole_and_what_comes_later_wins(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.toml").write_text(GOOD)
    (tmp_path / "folder" / "b.toml").write_text(GOOD.replace("mine", "other"))
    (tmp_path / "folder" / "notes.txt").write_text("not a profile")
    (tmp_path / "late.toml").write_text(GOOD.replace("1.0", "3.0"))
    found = load([tmp_path / "folder", str(tmp_path / "late.toml")])
    assert {model: profile.most_ppm for model, profile in found.items()} == {"mine": 3_000_000, "other": 1_000_000}
    assert load([tmp_path / "late.toml", tmp_path / "folder"])["mine"].most_ppm == 1_000_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD.replace('model = "mine"\n', ""), "key 'model' is missing"),
        (GOOD.replace('"mine"', '""'), "has no model"),
        (GOOD.replace('"mine"', "3"), "model is 3: expected text"),
        (GOOD + 'colour = "red"\n', "unknown table or key 'colour'"),
        (GOOD + "dateset = 3\n", "did you mean 'dataset'?"),
        (GOOD.replace("[0.5, 2]", "[]").replace("[[0.5, 0.6], [0.7, 1.0]]", "[]"), "has no CPUs: measure at least one"),
        (GOOD.replace("[0.5, 2]", "2"), "cpus is 2: expected a list"),
        (GOOD.replace("[0.5, 2]", "[2, 0.5]"), "its CPUs must be above 0 and ascending"),
        (GOOD.replace("[0.5, 2]", "[0, 2]"), "its CPUs must be above 0 and ascending"),
        (GOOD.replace("[0.5, 2]", "[1, inf]"), "cpus[1] is inf: must be a finite number"),
        (GOOD.replace('"1GB"', '"3GB"'), "its memory sizes must be above 0 and ascending"),
        (GOOD.replace('"1GB"', '"lots"'), "memory 'lots' is not understood: write a number with"),
        (GOOD.replace('"1GB"', "1.5"), "memory[0] is 1.5: expected"),
        (GOOD.replace('"2GB"', '"9e30GB"'), "memory 9e30GB must not be over"),
        (GOOD.replace("[0.5, 0.6], ", ""), "the matrix has holes: measure them, for 2 rows (CPUs) of 2 cells (memory)"),
        (GOOD.replace("0.5, 0.6", "0.5"), "the matrix has holes"),
        (GOOD.replace("0.6", '""'), "throughput[0][1] is '': expected a number"),
        (GOOD.replace("0.6", "nan"), "throughput[0][1] is nan: must be a finite number"),
        (GOOD.replace("[[0.5", "[[0"), "a cell at 0.5 CPUs is 0 or less: measure it again, or leave these CPUs out"),
        (GOOD.replace("[[0.5", "[[-0.5"), "a cell at 0.5 CPUs is 0 or less"),
        (GOOD.replace("0.6", "0.4"), "throughput falls with more memory at 0.5 CPUs: measure these cells again"),
        (GOOD.replace("0.7", "0.4"), "throughput falls with more CPUs at 2 CPUs: measure these cells again"),
        (GOOD + "error = 2\n", "error 2.0 must be a number up to 1"),
        (GOOD + "error = -0.1\n", "must not be negative"),
        (GOOD + 'dataset = "-4GB"\n', "dataset '-4GB' is not understood"),
        (GOOD + "reads_per_second = true\n", "reads_per_second is True"),
        ("", "key 'model' is missing"),
        ("model = ", "cannot be read (Invalid value"),
        (GOOD + GOOD, "cannot be read (Cannot overwrite a value"),
    ],
)
def test_a_bad_profile_is_one_line_that_names_the_file(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load([path])
    assert line in str(caught.value)
    assert str(caught.value).startswith(f"profile {path}: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_hold_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml: there is no such file or folder; headway profile job makes"):
        load([tmp_path / "none.toml"])
    with pytest.raises(ProfileError, match=r"no \.toml file is in that folder; headway profile job makes one"):
        load([tmp_path])
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="is not UTF-8 text"):
        load([tmp_path])
    (tmp_path / "b.toml").unlink()
    (tmp_path / "b.toml").mkdir()
    with pytest.raises(ProfileError, match="cannot be read"):
        load([tmp_path])


def test_a_profile_on_the_command_line_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text(GOOD.replace("0.6", "0.4"))
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus,model\n0,60,1,mine\n")
    size = ("--nodes", "1", "--gpus-per-node", "8", "--cpus-per-node", "24", "--memory-per-node", "500GB")
    given = (str(tmp_path / "jobs.csv"), "--profiles", str(tmp_path / "mine.toml"))
    for more in ([], ["--allocation", "tune"]):
        with pytest.raises(SystemExit) as ended:
            main(["jobs", "simulate", *given, *size, *more])
        out, err = capsys.readouterr()
        assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
        assert "throughput falls with more memory" in err


def test_the_table_of_keys_is_that_of_the_page() -> None:
    (rows,) = (rows for header, rows in tables(read("docs/guides/sensitivity.md")) if header[0] == "key of a profile")
    listed = [row[0].strip("`") for row in rows]
    assert sorted(listed) == sorted(ProfileTable.__struct_fields__)


def test_the_profile_on_the_page_is_read_and_has_every_key(tmp_path: Path) -> None:
    (block,) = blocks(read("docs/guides/sensitivity.md"), "toml")
    (tmp_path / "mine.toml").write_text(block.text)
    profile = profile_file.read(tmp_path / "mine.toml")
    assert profile.speed(2000, parse_size("62.5GB")) == 1_000_000, "its reference"
    assert set(tomllib.loads(block.text)) == set(ProfileTable.__struct_fields__)


def test_profiles_that_are_listed_are_those_that_are_loaded() -> None:
    assert [profile_file.read(path).model for path in profile_file.listed([SHIPPED])] == sorted(ROWS)
