"""The cells that Slurm writes: spans, sizes, resources, states, and lists of hosts and tasks."""

import pytest
from hypothesis import given, strategies as st

from headway.errors import InputError
from headway.jobs.slurm.output import lists as slurm_lists
from headway.jobs.slurm.output.cells import FATES, Fate, Resources, fate, gres, requested_memory, size, span, tres
from headway.units import DAY, HOUR, MINUTE, SECOND

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-00:00:00", DAY),
        ("2-3", 2 * DAY + 3 * HOUR),
        ("1-02:30", DAY + 2 * HOUR + 30 * MINUTE),
        ("36:00:00", 36 * HOUR),
        ("05:30", 5 * MINUTE + 30 * SECOND),
        ("00:00:01.250", SECOND + SECOND // 4),
        ("90", 90 * MINUTE),
        ("UNLIMITED", 0),
        ("Partition_Limit", 0),
        ("INVALID", 0),
        ("", 0),
        ("soon", None),
        ("1-", None),
        ("1:2:3:4", None),
    ],
)
def test_a_span_is_read_as_slurm_documents_it(text: str, expected: int | None) -> None:
    assert span(text) == expected


@given(st.integers(0, 10**6))
def test_a_span_that_slurm_would_print_reads_back(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    text = (f"{days}-" if days else "") + f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert span(text) == seconds * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64G", 64 * GIB), ("62.50G", 62 * GIB + GIB // 2), ("4096", 4 * GIB), ("512M", GIB // 2), ("1T", 1024 * GIB)],
)
def test_sizes_count_in_powers_of_two_and_plain_numbers_in_mebibytes(text: str, expected: int) -> None:
    assert size(text) == expected


def test_requested_memory_is_for_each_cpu_for_each_node_or_for_all() -> None:
    assert requested_memory("4Gc", cpus=8, nodes=2) == 32 * GIB
    assert requested_memory("64Gn", cpus=8, nodes=2) == 128 * GIB
    assert requested_memory("64G", cpus=8, nodes=2) == 64 * GIB
    assert requested_memory("0n", cpus=8, nodes=2) == 0
    assert requested_memory("lots", cpus=1, nodes=1) is None


def test_trackable_resources_count_typed_and_untyped_gpus_once() -> None:
    found = tres("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2")
    assert found == Resources(4, ("a100",), 8, 64 * GIB, 2)
    assert tres("cpu=1,gres/gpu:a100=2,gres/gpu:v100=1") == Resources(3, ("a100", "v100"), 1)
    assert tres("gres/gpu=4,gres/gpu:a100=1") == Resources(4, ())  # the type of the other three is not tracked
    assert tres("cpu=4,node=1,fs/disk=0,license/x=1") == Resources(None, (), 4, None, 1)
    assert tres("cpu=4,gres/shard=2") == Resources(cpus=4, parts=True)
    assert tres("") == tres("(null)") == Resources()


@pytest.mark.parametrize("text", ["cpu=many", "mem=64X", "gres/gpu=", "gres/gpu:a100=-1"])
def test_resources_that_matter_and_cannot_be_read_are_told(text: str) -> None:
    assert tres(text) is None


@pytest.mark.parametrize(
    ("text", "gpus", "types"),
    [
        ("gpu:a100:4(S:0-1)", 4, ("a100",)),
        ("gpu:4", 4, ()),
        ("gpu", 1, ()),
        ("gpu:tesla", 1, ("tesla",)),
        ("gpu:3090:2", 2, ("3090",)),
        ("gpu:a100_1g.5gb:7(S:0)", 7, ("a100_1g.5gb",)),
        ("craynetwork:3,gpu:v100:2,gpu:a100:1", 3, ("a100", "v100")),
        ("gres:gpu:2", 2, ()),
        ("gres/gpu:a100:1", 1, ("a100",)),
        ("PER_NODE:gpu:2", 2, ()),
        ("(null)", None, ()),
        ("craynetwork:3", None, ()),
    ],
)
def test_generic_resources_give_gpus_and_their_types(text: str, gpus: int | None, types: tuple[str, ...]) -> None:
    found = gres(text)
    assert found is not None
    assert (found.gpus, found.gpu_types) == (gpus, types)


def test_states_are_known_in_full_in_short_and_with_who_cancelled() -> None:
    assert fate("COMPLETED") is fate("CD") is Fate.FINISHED
    assert fate("CANCELLED by 1003") is fate("CANCELLED+") is Fate.CANCELLED
    assert fate("NODE_FAIL") is fate("BOOT_FAIL") is Fate.BROKEN
    assert fate("out_of_memory") is fate("TIMEOUT") is fate("DEADLINE") is Fate.FAILED
    assert fate("PREEMPTED") is Fate.EVICTED
    assert fate("FINE") is None
    assert set(FATES.values()) == set(Fate)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n[01-03,10],m3", ["n01", "n02", "n03", "n10", "m3"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("rack[0-1]n[00-01]", ["rack0n00", "rack0n01", "rack1n00", "rack1n01"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("login", ["login"]),
        ("(null)", []),
        ("None assigned", []),
    ],
)
def test_lists_of_hosts_are_written_out(text: str, expected: list[str]) -> None:
    assert list(slurm_lists.hosts(text)) == expected


@pytest.mark.parametrize("text", ["n[1-", "n[3-1]", "n]1[", "n[a-b]", "n[[1]]", "a,,b", "n[0-99999999]", "n[]"])
def test_lists_that_are_none_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="is not understood") as caught:
        slurm_lists.hosts(text)
    assert "\n" not in str(caught.value)


def test_tasks_of_an_array_come_in_ranges_with_steps_and_a_throttle() -> None:
    assert slurm_lists.tasks("5-7,10,20-30:5%2") == (5, 6, 7, 10, 20, 25, 30)


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 9)), min_size=1, max_size=5), st.integers(3, 5))
def test_a_padded_list_of_hosts_reads_back(ranges: list[tuple[int, int]], width: int) -> None:
    inside = ",".join(f"{first:0{width}d}-{first + more:0{width}d}" for first, more in ranges)
    expected = [f"n{number:0{width}d}" for first, more in ranges for number in range(first, first + more + 1)]
    assert list(slurm_lists.hosts(f"n[{inside}]")) == expected
