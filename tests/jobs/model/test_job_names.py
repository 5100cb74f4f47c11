"""A job is found by its id in the trace; a number of the run is not taken for an id, nor an id for it."""

from collections.abc import Sequence

import pytest

from headway.errors import TapeError
from headway.jobs.model.job import Job
from headway.jobs.model.job_names import job_number, reads_as_number


def jobs(names: Sequence[str]) -> list[Job]:
    return [Job(number, number, 1, 10, name=name) for number, name in enumerate(names)]


SLURM = ["4", "3_10", "3_1", "3_2", "3_9", "0", "8_1", "8_2"]


@pytest.mark.parametrize(
    ("names", "wanted", "number"),
    [
        (SLURM, "4", 0),
        (SLURM, "0", 5),
        (SLURM, "3_1", 2),
        (SLURM, "#4", 4),
        (SLURM, "#0", 0),
        (["", "", ""], "2", 2),
        (["", "", ""], "#2", 2),
        (["a", "b", "c"], "2", 2),
        (["job-0", "0", "job-2"], "0", 1),
        (["job-0", "0", "job-2"], "2", 2),
        (["north:1", "south:1"], "south:1", 1),
    ],
)
def test_a_job_is_found_by_its_name_then_by_its_number(names: list[str], wanted: str, number: int) -> None:
    assert job_number(jobs(names), wanted) == number


@pytest.mark.parametrize(
    ("names", "wanted", "line"),
    [
        (SLURM, "3", "3 is an array: say 3_1 … 3_10"),
        (SLURM, "8", "8 is an array: say 8_1 or 8_2"),
        (
            SLURM,
            "7",
            "job '7' is not in this run: none of its 8 jobs is called so; '#7' is the one with that number in the run",
        ),
        (SLURM, "9", "job '9' is not in this run: none of its 8 jobs is called so"),
        (SLURM, "#9", "job '#9' is not in this run: none of its 8 jobs is called so"),
        (SLURM, "#", "job '#' is not in this run: none of its 8 jobs is called so"),
        (SLURM, "9" * 400, f"job '{'9' * 400}' is not in this run: none of its 8 jobs is called so"),
        (["", ""], "2", "job '2' is not in this run: its 2 jobs go from 0 to 1"),
        (["a"], "1", "job '1' is not in this run: its only job is called a"),
        (["north:1", "south:1"], "1", "job '1' is of which cluster? Say north:1 or south:1"),
        (["north:5_0", "south:5_0"], "north:5", "north:5 is an array: say north:5_0"),
        (SLURM, " ", "the job is empty: name it by its id in the trace, or by its number"),
    ],
)
def test_what_is_no_job_is_one_line_that_says_what_to_say(names: list[str], wanted: str, line: str) -> None:
    with pytest.raises(TapeError) as refused:
        job_number(jobs(names), wanted)
    assert str(refused.value) == line


@pytest.mark.parametrize("name", ["7", "1953_16", "1953+1", "north:1953", "north:1953_2"])
def test_ids_of_slurm_read_as_numbers(name: str) -> None:
    assert reads_as_number(name)


@pytest.mark.parametrize("name", ["", "job-7", "7b", "application_1_2", "north:", "1_"])
def test_other_names_do_not_read_as_numbers(name: str) -> None:
    assert not reads_as_number(name)
