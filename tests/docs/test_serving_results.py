"""The page of Compass's and ESG's figures says what its files say."""

from tests.docs.pages import read, rows, table, tables

FOLDER = "docs/background/results/serving"
PAGE = read(f"{FOLDER}.md")


def test_the_first_table_is_that_of_the_file() -> None:
    kept = {
        (row["policy"], f"{row['requests_per_s']}/s"): (row["slowdown_mean"], row["slowdown_mean_sheet"] or "–")
        for row in rows(f"{FOLDER}/compass.csv")
        if row["fleet_model"] == "the authors' simplifications"
    }
    header, body = next(tables(PAGE))
    assert len(body) * 3 == len(kept)
    for policy, *cells in body:
        assert cells == [cell for rate in header[1::2] for cell in kept[policy.strip("`"), rate]]


def test_the_table_of_workers_is_that_of_the_file() -> None:
    kept = {(row["workers"], row["policy"]): row for row in rows(f"{FOLDER}/scale.csv")}
    for workers, *cells in table(PAGE, "### 1,000 requests at 40 a second")[1]:
        found = [kept[workers, policy] for policy in ("compass", "hash", "headway")]
        both = [row[column] for row in found for column in ("slowdown_median", "slowdown_median_sheet")]
        assert [*cells, ""] == both


def test_the_table_of_esg_is_that_of_the_file() -> None:
    kept = {
        (row["policy"], row["setting"]): row
        for row in rows(f"{FOLDER}/esg.csv")
        if row["profile"] == "measured" and row["requests"] == "20000"
    }
    header, body = table(PAGE, "### ESG's applications")
    assert len(body) * 3 == len(kept)
    for policy, *cells in body:
        for setting, cell in zip(header[1:], cells, strict=True):
            row = kept[policy.strip("`"), setting]
            dropped = f", {row['dropped']} dropped" if row["dropped"] != "0" else ""
            assert cell == f"{row['in_time_pct']} %, ${row['usd_per_1000_requests']}{dropped}"
