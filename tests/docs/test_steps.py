"""The page about the noise of steps says what its data say."""

import re

from tests.docs.pages import read, rows, tables

PAGE = read("docs/background/results/steps.md")
PAIRS, MEDIANS = "median of pairs", "ratio of medians"
ROWS = rows("docs/background/results/steps.csv")
NOISE = {
    tuple(row[key] for key in ("recording", "program", "estimator", "stretch_ms", "held_share", "over_s")): row
    for row in ROWS
}
PROGRAMS = sorted({row["program"] for row in ROWS})


def _noise(program: str, stretch_ms: int, share: str, way: str = PAIRS, recording: str = "second") -> float:
    return float(NOISE[recording, program, way, str(stretch_ms), share, "20"]["half_width_95"])


def _largest(stretch_ms: int, share: str, over_s: str) -> float:
    return max(float(NOISE["second", p, PAIRS, str(stretch_ms), share, over_s]["half_width_95"]) for p in PROGRAMS)


def test_the_table_is_that_of_the_data() -> None:
    ((header, body),) = tables(PAGE)
    columns = [re.fullmatch(r"(.+?), (\d+) ms(, 10 % held)?(, first recording)?", name) for name in header[2:]]
    assert [row[0].strip("`") for row in body] == PROGRAMS
    for program, row in zip(PROGRAMS, body, strict=True):
        wanted = []
        for found in columns:
            assert found
            recording, share = "first" if found[4] else "second", "0.1" if found[3] else "0.05"
            wanted.append(NOISE[recording, program, found[1], found[2], share, "20"]["half_width_95"])
        step = NOISE["second", program, PAIRS, "10", "0.05", "20"]["step_ms"]
        assert row[1:] == [step, *wanted]
        assert len(wanted) == 8


def test_the_rows_of_both_recordings_are_counted() -> None:
    second = sum(row["recording"] == "second" for row in ROWS)
    assert {row["recording"] for row in ROWS} == {"first", "second"}
    assert f"All {len(ROWS)} rows" in PAGE
    assert f"{second} of the second recording, which the table shows, and {len(ROWS) - second} of the first" in PAGE


def test_what_is_said_of_a_noise_of_three_hundredths_is_so() -> None:
    assert _largest(10, "0.1", "20") < 0.03 < _largest(10, "0.05", "20")
    assert f"The largest noise is then {_largest(10, '0.1', '20')}." in PAGE
    first, *others = sorted((_noise(program, 10, "0.05") for program in PROGRAMS), reverse=True)
    assert first == _noise("embedding-poisson", 10, "0.05")
    assert f"it is {first}, of `embedding-poisson`; the other nine are at {others[0]} and below" in PAGE
    assert others[0] < 0.03
    assert f"`embedding-poisson` is at {_noise('embedding-poisson', 20, '0.1')}, on the border" in PAGE
    for (recording, program, way, _, share, over_s), row in NOISE.items():
        if (recording, program, way) == ("second", "embedding-poisson", PAIRS) and share != "0.5" and over_s != "20":
            assert float(row["half_width_95"]) > 0.03
    held = {float(NOISE["second", p, PAIRS, "10", "0.1", "20"]["held_per_s"]) for p in PROGRAMS}
    assert sorted(held)[0] == 6.5
    assert sorted(held)[-2:] == [9.4, 10.0]
    assert "6.5 to 9.4 a second where the others have 10" in PAGE
    for stretch, per_second in ((10, "5.0"), (20, "2.5"), (50, "1.0")):
        assert NOISE["second", "unet", PAIRS, str(stretch), "0.05", "20"]["held_per_s"] == per_second
    assert "5 a second at 10 ms, 2.5 at 20, 1 at 50" in PAGE


def test_what_is_said_of_the_ways_to_compare_is_so() -> None:
    gains = {p: _noise(p, 10, "0.05", MEDIANS) - _noise(p, 10, "0.05") for p in PROGRAMS}
    better = {program for program, gain in gains.items() if gain < 0}
    assert better == {"convnet", "vit-l"}
    assert min(gains.values()) > -0.00051
    assert "by at most 0.0005, and as good for the graph" in PAGE
    assert gains["decoder-graph"] == 0
    ratios = {p: _noise(p, 10, "0.05", MEDIANS) / _noise(p, 10, "0.05") for p in PROGRAMS}
    assert max(ratios, key=lambda program: ratios[program]) == "prefill-512"
    assert f"up to {max(ratios.values()):.1f} times (`prefill-512`)" in PAGE


def test_what_is_said_of_the_length_of_stretches_is_so() -> None:
    falls = {p: 1 - _noise(p, 10, "0.05") / _noise(p, 50, "0.05") for p in PROGRAMS}
    small = {p for p in PROGRAMS if max(_noise(p, stretch, "0.05") for stretch in (10, 50)) < 0.005}
    assert small == {"convnet", "decoder-graph", "vit-l"}
    seven = [fall for program, fall in falls.items() if program not in small]
    assert f"falls by {100 * min(seven):.0f} to {100 * max(seven):.0f} % for seven programs" in PAGE
    for program in PROGRAMS:
        longer = [_noise(program, stretch, "0.05") for stretch in (100, 250, 500)]
        assert (min(longer) > _noise(program, 50, "0.05")) == (program != "decoder-graph")
        assert (longer[-1] > _noise(program, 50, "0.05")) == (program != "decoder-graph")
    larger = sum(_noise(program, 500, "0.5") > _noise(program, 50, "0.05") for program in PROGRAMS)
    assert larger == 6
    assert "for six of ten programs" in PAGE


def test_what_is_said_of_the_first_recording_is_so() -> None:
    first = {p: _noise(p, 50, "0.05", recording="first") for p in PROGRAMS}
    second = {p: _noise(p, 50, "0.05") for p in PROGRAMS}
    assert f"was up to {max(first.values()):.3f} (`convnet`)" in PAGE
    assert second["convnet"] / first["convnet"] < 0.1
    more = {program for program in PROGRAMS if second[program] > first[program]}
    assert more == {"embedding-poisson", "prefill-1024-10ms", "decoder-graph"}
    for program in more:
        assert f"({second[program]} against {first[program]})" in PAGE
    steps = [
        {p: float(NOISE[recording, p, PAIRS, "50", "0.05", "20"]["step_ms"]) for p in PROGRAMS}
        for recording in ("first", "second")
    ]
    changes = {p: steps[1][p] / steps[0][p] - 1 for p in PROGRAMS}
    assert f"by up to {100 * max(changes.values()):.0f} % (`short-and-long`)" in PAGE
    assert max(map(abs, changes.values())) == changes["short-and-long"]
