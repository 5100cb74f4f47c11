"""The page of scalers lists their options and defaults; the table of results is that of the rows beside it."""

import inspect

import pytest

from headway.fleet.policies.scalers.parts import Scaler
from headway.fleet.policies.scalers.registry import SCALERS
from headway.units import parse_duration
from tests.docs.pages import read, rows, spans, table, tables

PAGE = "docs/reference/autoscaling.md"
RESULTS = "docs/background/results/autoscaling.md"
OF_ALL = ("least", "most", "initial", "every")


def _same(text: str, default: object) -> bool:
    if isinstance(default, int) and default >= 10**9:
        return parse_duration(text, what="default") == default
    return float(text) == default


def test_options_of_every_scaler_are_on_the_page() -> None:
    head = read(PAGE).partition("## utilisation")[0]
    assert all(f"`{option}`" in head for option in OF_ALL)
    assert [*inspect.signature(Scaler).parameters] == list(OF_ALL)


@pytest.mark.parametrize("scaler", sorted(SCALERS))
def test_the_options_of_a_scaler_are_as_the_page_says(scaler: str) -> None:
    parameters = inspect.signature(SCALERS[scaler]).parameters
    _, listed = table(read(PAGE), f"## {scaler}")
    said = {next(iter(spans(row[0]))): row[1] for row in listed}
    assert set(said) == set(parameters) - set(OF_ALL)
    for option, text in said.items():
        assert _same(text, parameters[option].default), option


def test_the_table_of_results_is_that_of_its_rows() -> None:
    every = {(row["day"], row["fleet"]): row for row in rows("docs/background/results/autoscaling/twitter.csv")}
    header, shown = next(iter(tables(read(RESULTS))))
    assert header == ["day", "fleet", "in time %", "rent $", "workers", "hits for a dollar"]
    assert shown
    for day, fleet, hits, rent, workers, for_a_dollar in shown:
        row = every[day, fleet.strip("`")]
        assert f"{100 * float(row['slo_hit_rate']):.2f}" == hits
        assert f"{float(row['cost_rent_usd']):.2f}" == rent
        assert f"{float(row['workers_mean']):.1f}" == workers
        assert f"{float(row['hits_per_usd']):,.0f}" == for_a_dollar
    on_test = {row[1].strip("`"): float(row[3]) for row in shown if row[0] == "9"}
    saved = 1 - on_test["headway(goal=0.99)"] / on_test["utilisation(target=0.7)"]
    assert f"{100 * saved:.0f} % less rent on the day of the test" in read(RESULTS)
