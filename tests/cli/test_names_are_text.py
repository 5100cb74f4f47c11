"""Names are text: what a trace, a file or a policy is called is printed as it is; no terminal or page obeys it."""

import ast
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from headway.cli import console, main
from headway.errors import printable
from headway.formats import toml
from headway.show.terminal import PlainColumn, PlainConsole, width_of
from tests.docs.pages import ROOT
from tests.fleet.scenarios.test_file import SMALL
from tests.show.pages import Page

BRACKETS = ("ml[x]", "[/z]", "[red]", "[link=http://x]y", ":smile:", "<script>alert(1)</script>", "a\\b")
"""What is markup to Rich or HTML, and text to us."""
CONTROLS = {
    "esc\x1b[31m": r"esc\x1b[31m",
    "new\nline": r"new\nline",
    "tab\tstop": r"tab\tstop",
    "del\x7f": r"del\x7f",
    "csi\x9b31m": r"csi\x9b31m",
    "rtl\u202egpj": r"rtl\u202egpj",
    "sep\u2028x": r"sep\u2028x",
    "bell\x07": r"bell\x07",
}
"""Names with characters that a terminal obeys, and what is shown instead."""
SHOWN = [*BRACKETS, *CONTROLS.values()]
NAMES = [*BRACKETS, *CONTROLS]
COMMANDS = ROOT / "src" / "headway" / "cli"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which ``[/z].csv`` is the name of a file."""
    (tmp_path / "[").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def safe(text: str) -> None:
    """Nothing in it is obeyed by a terminal: only lines and printable characters."""
    assert printable(text.replace("\n", "")) == text.replace("\n", "")


def flat(names: list[str]) -> list[str]:
    """The names where space is short: what breaks a line is a space."""
    return [re.sub(r"\\n|\\t|\\u2028", " ", name) for name in names]


def call(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    assert ended.value.code == status, (words, err)
    safe(out)
    safe(err)
    assert "internal error" not in err
    return out, err


# --- the helper -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shown"), [*((name, name) for name in BRACKETS), *CONTROLS.items()])
def test_a_name_is_shown_as_it_is_but_for_control_characters(
    name: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printable(name) == shown
    console.say(name)
    console.note(name)
    assert capsys.readouterr() == (f"{shown}\n", f"{shown}\n")
    table = Table(title=name, box=None)
    table.add_column(name)
    table.add_row(name)
    console.out(width_of(table)).print(table)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [shown] * 3


@pytest.mark.parametrize("text", ["", "plain", "Jürgen", "模型", "naïve\N{NO-BREAK SPACE}1", "👩\u200d🔬"])
def test_letters_of_any_script_stay_as_they_are(text: str) -> None:
    assert printable(text) == text


def test_a_lone_surrogate_of_a_file_name_can_be_printed() -> None:
    assert printable("job\udcff").encode() == rb"job\udcff"


def test_a_progress_bar_shows_names_as_they_are() -> None:
    from rich.progress import Progress

    plain = PlainConsole(width=300, force_terminal=True, color_system=None)
    for name, shown in [*((name, name) for name in BRACKETS), *CONTROLS.items()]:
        with plain.capture() as captured:
            bar = Progress(PlainColumn("{task.description}"), PlainColumn("{task.fields[at]}"), console=plain)
            bar.add_task(name, at=name)
            plain.print(bar.get_renderable())
        assert captured.get().split() == f"{shown} {shown}".split()


# --- the source -----------------------------------------------------------------------------------------------


def _calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def broken(path: Path) -> list[str]:
    """Where a module would hand a string to Rich other than through the one place that shows it as text."""
    wrong = _imported(path) & {"rich.print", "rich.console.Console", "rich.progress.TextColumn", "rich.markup.render"}
    found = [f"{path.name}: imports {name}" for name in sorted(wrong)]
    for call in _calls(path):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        strings = any(
            isinstance(each, ast.JoinedStr | ast.BinOp) or (isinstance(each, ast.Constant) and each.value != "")
            for each in call.args
        )
        if name == "from_markup" or (name == "print" and (strings or isinstance(call.func, ast.Name))):
            found.append(f"{path.name}:{call.lineno}: {name} of a string: use console.say or console.note")
        if name in ("echo", "secho", "prompt", "confirm"):
            found.append(f"{path.name}:{call.lineno}: {name}: use console.say or console.note")
        if any(key.arg == "markup" and path.name != "terminal.py" for key in call.keywords):
            found.append(f"{path.name}:{call.lineno}: markup is decided in terminal.py")
    return found


def test_strings_reach_the_terminal_through_one_place_only() -> None:
    rooms = ("show", "jobs/ask", "jobs/show", "jobs/slurm/shadow", "fleet/ask", "fleet/show")
    rooms += ("gpu/share/recorded", "gpu/show")
    folders = (COMMANDS, *(ROOT / "src" / "headway" / room for room in rooms))
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(paths) > 100
    assert [line for path in paths if path.name != "terminal.py" for line in broken(path)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from rich.console import Console\n",
        "from rich.progress import TextColumn\n",
        "import typer\ntyper.echo(name)\n",
        "console.out().print(f'job {name}')\n",
        "console.out().print('job ' + name)\n",
        "out.print(name, markup=True)\n",
        "Text.from_markup(name)\n",
        "print(name)\n",
    ],
)
def test_the_check_of_the_source_finds_what_it_is_for(tmp_path: Path, source: str) -> None:
    path = tmp_path / "command.py"
    path.write_text(source)
    assert broken(path)


# --- jobs -----------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def trace(folder: Path, name: str = "jobs[red].csv") -> str:
    """Three jobs of each tenant on a cluster that is too small for them, some named like their tenants."""
    rows = ["name,submit_s,work_s,gpus,tenant,partition"]
    for number in range(3 * len(NAMES)):
        who = NAMES[number % len(NAMES)]
        job = who if number < len(NAMES) else f"{who}{number}"
        rows.append(f"{quoted(job)},{10 * number},{600 + 60 * (number % 7)},{1 + number % 2},{quoted(who)},")
    (folder / name).write_text("\n".join(rows) + "\n", newline="")
    return name


def experiment(folder: Path, policy: str = "fifo") -> str:
    """The jobs on two nodes with such names."""
    document: dict[str, Any] = {
        "scale": "jobs",
        "trace": {"path": trace(folder), "format": "headway"},
        "cluster": {"node_groups": [{"nodes": 2, "gpus": 4, "names": ["[/n]", "n\x1b[31m"]}]},
        "policy": {"name": policy},
        "run": {"out": "runs/[red]"},
    }
    (folder / "[/z].toml").write_text(toml.write(document))
    return "[/z].toml"


def test_commands_about_jobs_print_names_as_they_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "run", experiment(here), "--by", "tenant")
    assert all(f"{shown} " in out for shown in SHOWN), out
    run = "runs/[red]"
    for name, shown in zip(NAMES, SHOWN, strict=True):
        told, _ = call(capsys, "story", run, name)
        assert shown in told.splitlines()[0]
    stories = "".join(call(capsys, "story", run, name)[0] for name in NAMES)
    assert "on [/n]" in stories
    assert r"on n\x1b[31m" in stories
    told, _ = call(capsys, "explain", run, f"[red]{2 * len(NAMES) + 2}")
    assert "[red]" in told
    told, _ = call(capsys, "whatif", run, "--at", "1m", "--add-nodes", "1")
    assert all(shown in told for shown in SHOWN), told
    told, _ = call(capsys, "audit", run)
    assert told.startswith("sound: ")
    told, _ = call(capsys, "replay", run)
    assert told.startswith("identical")
    told, _ = call(capsys, "trace", "inspect", "jobs[red].csv")
    assert told.startswith("jobs[red].csv: ")
    call(capsys, "export", run, "--perfetto", "[/z].json")
    assert json.loads((here / "[/z].json").read_text())


def test_policies_and_variants_print_as_they_are_and_the_picture_is_sound(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine[red].py").write_text(
        "from headway.jobs.policies.parts import Order\n\n\nclass Mine(Order):\n    '''Narrow first.'''\n\n"
        "    name = 'mine'\n\n    def key(self, now, js):\n        return (js.gpus, js.id)\n"
    )
    path = experiment(here)
    with (here / path).open("a") as file:
        for number, name in enumerate(NAMES):
            policy = "./mine[red].py:Mine" if number == 0 else "fifo"
            file.write(f"\n[[variants]]\nname = {json.dumps(name)}\nset = {{ policy.name = {json.dumps(policy)} }}\n")
    out, _ = call(capsys, "run", path, "--picture", "[/z].svg", "--baseline", "[/z]", "--report", "[red].html")
    assert "vs [/z]" in out.splitlines()[0]
    assert [line.partition("  ")[0] for line in out.splitlines()[1:]] == SHOWN
    picture = ElementTree.parse(here / "[/z].svg")
    labels = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    for name in flat(SHOWN):
        assert any(label.endswith(name) for label in labels), name
    page = (here / "[red].html").read_text()
    assert "<script>alert(1)" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", re.sub(r"<script.*?</script>", "", page, flags=re.S))
    text = Page(page).text
    assert all(shown in text for shown in (*BRACKETS, r"esc\x1b[31m", r"rtl\u202egpj"))


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "simulate", "no[red]\x1b.csv", "--nodes", "1", "--gpus-per-node", "1"),
        ("jobs", "simulate", "[/z].csv", "--nodes", "1", "--gpus-per-node", "1", "--policy", "[/z]\u202e"),
        ("jobs", "compare", "[/z].csv", "--nodes", "1", "--gpus-per-node", "1", "--policies", "fifo,[red]\x9b"),
        ("story", "runs/[/z]\x1b", "0"),
        ("[/z]\x1b",),
        ("jobs", "simulate", "--[/z]\x1b"),
        ("run", "[red]\x7f.toml"),
        ("audit", "[/z]\x1b[31m"),
        ("report", "[/z]\x1b[31m"),
        ("fleet", "simulate", "[/z]\x1b", "--policy", "headway"),
        ("gpu", "simulate", "[/z]\x1b", "[red]"),
    ],
)
def test_what_is_wrong_is_one_line_whatever_it_is_called(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (here / "[/z].csv").write_text("submit_s,work_s,gpus\n0,10,1\n1,10,1\n")
    _, err = call(capsys, *words, status=2)
    assert err.count("\n") == 1
    assert any(name in err for name in ("[/z]", "[red]"))


# --- fleets and kernels ---------------------------------------------------------------------------------------


def test_commands_about_a_fleet_print_names_as_they_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = {name: {"chain": ["f", "g"], "output": "1KB"} for name in NAMES}
    (here / "[red].toml").write_text(toml.write({**SMALL, "graphs": graphs}))
    flags = ("[red].toml", "--requests", "60", "--rate", "1")
    out, _ = call(capsys, "fleet", "simulate", *flags, "--policy", "jit", "--out", "runs/[/z]")
    listed = [line.partition("  ")[0].strip() for line in out.splitlines()]
    assert set(flat(SHOWN)) <= set(listed), listed
    told, _ = call(capsys, "story", "runs/[/z]", "3")
    assert told
    call(capsys, "audit", "runs/[/z]")
    call(capsys, "report", "runs/[/z]", "-o", "[red].html")
    page = (here / "[red].html").read_text()
    assert "<script>alert(1)" not in page
    assert all(shown in Page(page).text for shown in BRACKETS)


def test_names_of_kernels_and_clients_print_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from headway.gpu.show import tables as kernel_tables

    numbers = dict.fromkeys(
        (
            *("slowdown_p50", "slowdown_p99", "throughput_share", "gated_s", "held_up_s", "latency_p50_s"),
            *("latency_p99_s", "low_share", "busy_share_alone", "busy_share"),
        ),
        1.0,
    )
    for name, shown in zip(NAMES, SHOWN, strict=True):
        worst = [{"kernel": name, "delay_s": 1.0}]
        client = {"client": name, "priority": 0, "requests": 1, **numbers, "held_up_by": worst}
        table = kernel_tables.clients({"clients": [client]})
        console.out(width_of(table)).print(table, kernel_tables.comparison([{"policy": name, **numbers}]))
        out = capsys.readouterr().out
        safe(out)
        assert out.count(shown) >= 2


def test_rich_itself_would_have_swallowed_them() -> None:
    """Why all this: without it a tenant ``ml[x]`` prints as ``ml`` and ``[/z]`` ends the program."""
    from rich.errors import MarkupError

    ordinary = Console(width=80, file=sys.stdout)
    with ordinary.capture() as captured:
        ordinary.print("ml[x]")
    assert captured.get() == "ml\n"
    with pytest.raises(MarkupError):
        ordinary.print("[/z]")
