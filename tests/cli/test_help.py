"""Help fits on a screen and lists what belongs there; what a command line of before says now."""

import re

import pytest
import typer

from headway.cli import main, moved
from headway.cli.program import app
from tests.architecture.test_public_names import COMMANDS

MOST_LINES = 66
SCALES = ("jobs", "fleet", "gpu")
VERBS = ("simulate", "compare", "sweep")
THE_TEN = [
    *("--policies", "--cluster", "--nodes", "--gpus-per-node", "--load", "--preemption-cost", "--failures"),
    *("--seeds", "--out", "--report"),
]


def helped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """The lines of a help text on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


def flags(lines: list[str]) -> list[str]:
    """The flags that a help text explains, in its order."""
    rows = [line for line in lines if re.match(r"│ [* ]*--", line)]
    return [word for row in rows for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", row.partition("   <")[0][:60])]


def panel(lines: list[str], title: str) -> list[str]:
    """The lines of one panel."""
    (first,) = (number for number, line in enumerate(lines) if line.startswith(f"╭─ {title} ─"))
    last = next(number for number, line in enumerate(lines) if number > first and line.startswith("╰"))
    return lines[first + 1 : last]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_the_help_of_what_runs_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scale: str, verb: str
) -> None:
    lines = helped(capsys, monkeypatch, scale, verb)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100
    assert "…" not in "".join(line for line in lines if "--map" in line), "nothing is cut"


def test_the_ten_flags_that_matter_come_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = helped(capsys, monkeypatch, "jobs", "compare")
    assert flags(panel(lines, "Options")) == [*THE_TEN, "--help", "-h"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_group_lists_its_own_flags_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scale: str, verb: str
) -> None:
    lines = helped(capsys, monkeypatch, scale, verb)
    own = [word for word in COMMANDS[f"{scale} {verb}"] if word.startswith("-")]
    assert sorted(flags(lines)) == sorted([*own, "--help", "-h"])


def test_the_groups_share_no_flag_by_accident() -> None:
    """What all scales have is about runs; what is about jobs, fleets or GPUs is in one group, or means the same."""
    each = {scale: {word for word in COMMANDS[f"{scale} compare"] if word.startswith("-")} for scale in SCALES}
    run = {
        *("--policies", "--seeds", "--out", "--report", "--baseline", "--confidence", "--seed", "--json", "--set"),
        *("--processes", "--label"),
    }
    assert each["jobs"] & each["fleet"] & each["gpu"] == run
    skipping = {"--skip-bad-rows", "--no-skip-bad-rows"}
    assert (each["jobs"] & each["fleet"]) - run == {"--failures", "--warmup", "--load", *skipping}
    assert (each["fleet"] & each["gpu"]) - run == {"--slo"}
    assert (each["jobs"] & each["gpu"]) - run == set()


def test_help_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich takes [sweep] for markup and shows nothing; no help text has such a word."""
    found = []
    for name, command in _commands(typer.main.get_command(app)):
        found += [
            f"{name}: {each.help}" for each in command.params if re.search(r"\[[a-z]", getattr(each, "help", "") or "")
        ]
    assert found == []


def _commands(group: object, prefix: str = "") -> list[tuple[str, object]]:
    inner = getattr(group, "commands", None)
    if inner is None:
        return [(prefix, group)]
    return [each for name, command in inner.items() for each in _commands(command, f"{prefix} {name}".strip())]


# --- what was before ------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("simulate", "--trace", "jobs.csv"),
            "No such command 'simulate': it is headway jobs simulate, fleet simulate or gpu simulate now",
        ),
        (("compare", "--help"), "it is headway jobs compare, fleet compare or gpu compare now"),
        (("sweep", "grid.toml"), "it is headway jobs sweep, fleet sweep or gpu sweep now"),
        (("plan", "translation"), "No such command 'plan': it is headway fleet plan now"),
        (("queue", "explain", "1"), "No such command 'explain': it is headway explain FOLDER JOB, with the folder of"),
        (("queue", "story"), "No such command 'story': it is headway story FOLDER JOB, with the folder of the queue"),
        (("backtest",), "No such command 'backtest': it is headway jobs backtest now"),
        (("share", "predict", "a", "b"), "No such command 'predict': it is headway gpu predict now"),
        (("jobs", "simulate", "--trace", "jobs.csv"), "No such option: --trace: the trace is an argument"),
        (("fleet", "compare", "--scenario", "esg"), "No such option: --scenario: the scenario is an argument"),
        (("gpu", "simulate", "--high", "a"), "No such option: --high: programs are arguments"),
        (("jobs", "simulate", "--backfill", "easy"), "write --policy fifo+easy, or --set policy.backfill=easy"),
        (("jobs", "simulate", "--no-intervals"), "No such option: --no-intervals: write --confidence 0"),
        (("run", "a.toml", "--warmup", "10%"), "No such option: --warmup: write --set measure.warmup=10%"),
        (("jobs", "simulate", "--lenient"), "No such option: --lenient: write --no-strict"),
        (("simulte",), "No such command 'simulte'"),
        (("jobs", "simulate", "--nods", "3"), "No such option: --nods"),
    ],
)
def test_a_spelling_of_before_is_refused_in_a_line_that_says_the_new_one(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert refused(capsys, *words).startswith("headway: No such ")
    assert line in refused(capsys, *words)


def test_the_new_spellings_exist() -> None:
    for told in moved.COMMANDS.values():
        for each in re.split(", | or ", told.removeprefix("headway ")):
            assert each in COMMANDS, each
    every = {flag for words in COMMANDS.values() for flag in words}
    for told in moved.FLAGS.values():
        assert set(re.findall(r"--[a-z-]+", told)) <= every, told
    simulate = {word for name in SCALES for word in COMMANDS[f"{name} simulate"]}
    assert not moved.FLAGS.keys() & simulate


@pytest.mark.parametrize("scale", SCALES)
def test_a_flag_of_another_scale_is_refused(capsys: pytest.CaptureFixture[str], scale: str) -> None:
    other = {"jobs": "--workers", "fleet": "--gpus-per-node", "gpu": "--nodes"}[scale]
    assert f"No such option: {other}" in refused(capsys, scale, "simulate", other, "3")


@pytest.mark.parametrize(("scale", "usual"), [("jobs", "fifo"), ("fleet", "headway"), ("gpu", "headway")])
def test_the_help_says_which_policy_is_taken(
    scale: str, usual: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = " ".join(" ".join(helped(capsys, monkeypatch, scale, "simulate")).replace("│", " ").split())
    assert f"./mine.py:MyPolicy. Else {usual}." in shown
