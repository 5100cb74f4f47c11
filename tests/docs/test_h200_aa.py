"""The page about whole steps, held and beside, says what its data say."""

import pytest

from tests.docs.pages import read, rows, tables

FOLDER = "docs/background/results/h200-aa"
PAGE = read(f"{FOLDER}.md")
NOISE, PAIRS, RAMP, CLOCKS = (rows(f"{FOLDER}/{name}.csv") for name in ("noise", "pairs", "ramp", "clocks"))
CLOSE, NEAR = "like and close, median", "like and near, median"
PROGRAMS = sorted({row["program"] for row in NOISE})
DRAWN = {"convnet-poisson", "embedding-poisson"}
UNEVEN = {"convnet", "unet", *DRAWN}


def noise(
    program: str, over_s: str = "20", way: str = CLOSE, hold: str = "", share: str = "0.05", alike: str = "kind"
) -> dict[str, str] | None:
    """Return the row; without a hold, that of the drain and four steps."""
    for row in NOISE:
        length = row["hold_ms"] if row["four_steps"] == "0" else ""
        found = tuple(row[name] for name in ("program", "over_s", "way", "held_share", "alike_by"))
        if (*found, length) == (program, over_s, way, share, alike, hold):
            return row
    return None


def width(program: str, **which: str) -> float:
    row = noise(program, **which)
    assert row
    return float(row["half_width_95"])


def pair(above: str, below: str, way: str = CLOSE, drain: str = "5") -> dict[str, str]:
    wanted = (above, below, way, drain)
    return next(row for row in PAIRS if (row["above"], row["below"], row["way"], row["drain_ms"]) == wanted)


def test_the_table_of_noise_is_that_of_the_data() -> None:
    (_, body), _ = tables(PAGE)
    assert [row[0].strip("`") for row in body] == PROGRAMS
    for program, row in zip(PROGRAMS, body, strict=True):
        first = noise(program)
        assert first
        columns = [noise(program, over_s=over) for over in ("3", "10", "20")]
        columns += [noise(program, way=way) for way in ("median of neighbours", NEAR, "medians of like steps")]
        columns.append(noise(program, hold="200.0"))
        assert row[1:] == [first["step_ms"], first["hold_ms"], *(c["half_width_95"] if c else "–" for c in columns)]
    assert f"all {len(NOISE)} rows" in PAGE


def test_the_table_of_pairs_is_that_of_the_data() -> None:
    _, (_, body) = tables(PAGE)
    assert len(body) == len({(row["above"], row["below"]) for row in PAIRS}) == 5
    for cells in body:
        row = pair(cells[0].strip("`"), cells[1].strip("`"))
        own, holds, mean = (float(row[name]) for name in ("own_clock", "ratio", "dial_mean"))
        wanted = [f"{own:.3f} ± {float(row['own_noise']):.3f}", f"{holds:.3f} ± {float(row['half']):.3f}"]
        wanted += [f"{mean:.3f}", f"{float(row['dial_last']):.3f}"]
        wanted += [f"{each - own:+.3f}".replace("-", "−") for each in (holds, mean)]
        assert cells[2:] == wanted


def test_the_answer_is_that_of_the_data() -> None:
    largest = max(width(program) for program in PROGRAMS)
    assert f"at most {largest:.3f} for all eleven programs" in PAGE
    assert sum(width(program, over_s="10") < 0.03 for program in PROGRAMS) == 9
    short = [width(program, over_s="3") for program in PROGRAMS if noise(program, over_s="3")]
    assert (sum(each < 0.03 for each in short), len(short)) == (7, 10)
    told = [
        row for row in (pair(a, b) for a, b in {(r["above"], r["below"]) for r in PAIRS}) if "prefill" in row["above"]
    ]
    assert len(told) == 3
    assert all(abs(float(row["ratio"]) - float(row["own_clock"])) < 0.03 for row in told)


def test_what_is_said_of_the_ways_and_lengths_is_so() -> None:
    assert (width("short-and-long", way="median of neighbours"), width("short-and-long")) == (0.2387, 0.0043)
    assert width("short-and-long", alike="launches") == 0.0043
    assert (width("embedding-poisson", alike="launches"), width("embedding-poisson")) == (0.0243, 0.0268)
    assert max(width(program, way="like and close, mean") for program in PROGRAMS) == 0.0455
    long = {program: width(program, hold="200.0") for program in PROGRAMS}
    assert {program for program in PROGRAMS if long[program] > 0.02} == UNEVEN
    assert {program for program in PROGRAMS if long[program] > 0.1} == DRAWN
    assert max(long[program] for program in PROGRAMS if program not in UNEVEN) == 0.0125
    outside = {hold: {p: width(p, hold=hold, share="0.5") for p in PROGRAMS} for hold in ("200.0", "1500.0")}
    assert max(outside["200.0"].values()) == 0.0179
    assert max(outside["1500.0"].values()) == 0.2071
    uneven = [outside["1500.0"][program] for program in UNEVEN]
    assert f"{min(uneven):.3f} to {max(uneven):.3f} for the four programs" in PAGE


def test_what_is_said_of_interval_and_bias_is_so() -> None:
    for over, least in (("20", 0.9), ("10", 0.815)):
        found = [noise(program, over_s=over) for program in PROGRAMS]
        assert min(float(row["covered"]) for row in found if row) == least
    middles = {program: float((noise(program) or {})["middle"]) for program in PROGRAMS}
    assert {program for program in PROGRAMS if abs(middles[program] - 1) > 0.001} == DRAWN
    assert (middles["convnet-poisson"], middles["embedding-poisson"]) == (0.9927, 0.9918)


def test_what_is_said_of_the_pairs_is_so() -> None:
    found = [pair(a, b) for a, b in {(row["above"], row["below"]) for row in PAIRS}]
    halves = [float(row["half"]) for row in found]
    assert f"± {min(halves):.3f} to {max(halves):.3f} after 24 holds or fewer" in PAGE
    assert max(int(row["holds"]) for row in found) == 24
    assert [row["below"] for row in found if float(row["own_noise"]) < 0.03] == ["unet-b16"]
    drifted = pair("convnet", "training")
    assert (drifted["own_edges"], drifted["own_edges_noise"]) == ("0.9819", "0.1537")
    paused = pair("prefill-1024-10ms", "unet-b16")
    assert float(paused["dial_last"]) - float(paused["own_clock"]) == pytest.approx(0.016, abs=0.0005)
    launched = [pair(above, "training") for above in ("convnet", "convnet-poisson")]
    over = [round(float(row["dial_mean"]) - float(row["ratio"]), 3) for row in launched]
    assert over == [0.032, 0.012]
    moved = []
    for row in found:
        ratios = [float(pair(row["above"], row["below"], drain=drain)["ratio"]) for drain in ("2", "5", "10")]
        moved.append(max(ratios) - min(ratios))
        late = pair(row["above"], row["below"], drain="40")
        assert late["holds"] == "9"
        assert float(late["half"]) > 0.02
    assert max(moved) == pytest.approx(0.0075, abs=1e-9)
    cycle = pair("prefill-1024", "unet-b16", "like, whole cycle, mean")
    assert (cycle["ratio"], cycle["half"]) == ("1.0304", "0.0101")
    assert pair("convnet-poisson", "training")["own_clock_from_due"] == "0.5998"


def test_what_is_said_of_ramp_and_clocks_is_so() -> None:
    ramp = {
        tuple(row[k] for k in ("above", "below", "since_hold", "from_ms")): float(row["against_alone"]) for row in RAMP
    }
    mine = [ramp["prefill-1024", "unet-b16", "begin", each] for each in ("5", "20", "40")]
    assert [round(each, 3) for each in mine] == [1.018, 1.011, 1.003]
    mine = [ramp["prefill-1024", "unet-b16", "end", each] for each in ("10", "80")]
    assert [round(each, 3) for each in mine] == [1.024, 1.044]
    mixed = [value for key, value in ramp.items() if key[:3] == ("prefill-1024", "mixed", "begin")]
    assert (round(min(mixed), 3), round(max(mixed), 3)) == (0.986, 1.003)
    clocks = {row["recording"]: row for row in CLOCKS}
    assert (clocks["prefill-1024"]["power_w_middle"], clocks["prefill-1024"]["sm_mhz_middle"]) == ("691", "1642")
    paused = clocks["prefill-1024-10ms"]
    assert (paused["power_w_middle"], paused["sm_mhz_middle"]) == ("382", "1980")
    for program, least, most in (
        ("convnet", 0.803, 1.371),
        ("embedding-poisson", 2.521, 4.627),
        ("unet", 4.939, 7.879),
        ("prefill-1024", 5.58, 5.68),
    ):
        row = clocks[program]
        assert (float(row["step_ms_least"]), float(row["step_ms_most"])) == (least, most)
