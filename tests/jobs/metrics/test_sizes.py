"""Classes of jobs by width: every width has one, and they stand in order."""

import re

from hypothesis import given, strategies as st

from headway.jobs.metrics.sizes import LARGEST, SIZE_CLASSES, size_class


@given(st.integers(1, 100_000))
def test_a_class_holds_its_members(gpus: int) -> None:
    found = size_class(gpus * 1000)
    if found == LARGEST:
        assert gpus > 64
        return
    low, high = re.fullmatch(r"(\d+)(?:-(\d+))? GPUs?", found).groups()  # type: ignore[union-attr]
    assert int(low) <= gpus <= int(high or low)


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=2))
def test_wider_jobs_never_stand_before_narrower_ones(widths: list[int]) -> None:
    narrow, wide = (SIZE_CLASSES.index(size_class(width)) for width in sorted(widths))
    assert narrow <= wide


def test_classes_read_well() -> None:
    assert list(dict.fromkeys(map(size_class, [0, 1, 999, *range(1000, 200_000, 1000)]))) == list(SIZE_CLASSES)
    assert (
        *("no GPU", "part of a GPU", "1 GPU", "2 GPUs", "3-4 GPUs", "5-8 GPUs", "9-16 GPUs", "17-32 GPUs"),
        *("33-64 GPUs", "65 GPUs or more"),
    ) == SIZE_CLASSES
