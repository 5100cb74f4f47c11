"""The scenarios once more with sanitizers in the shim and the client: no bad address, no overflow, no race."""

import random
from pathlib import Path

import pytest

from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker
from tests.native.test_fail_open import run_while_values_flip, spoil

SCENARIOS = {
    "every": ("--verb", "every", "--launch", "5"),
    "threads": ("--threads", "4", "--launch", "400", "--kernel", "a:5", "--kernel", "b:40", "--sync-every", "20"),
    "threads through ex": ("--threads", "3", "--launch", "200", "--ex", "--handles", "--reach", "proc2"),
    "capture": ("--verb", "capture", "--launch", "40", "--threads", "2"),
    "fork": ("--verb", "fork", "--launch", "60"),
    "graph": ("--verb", "graph", "--launch", "60"),
    "reload": ("--verb", "reload"),
    "beside captures": ("--verb", "beside-captures", "--launch", "20", "--kernel", "busy:300"),
    "contexts": ("--verb", "contexts", "--launch", "40", "--kernel", "some:50"),
    "across contexts": ("--verb", "across", "--launch", "20", "--kernel", "some:50"),
    "beside resets": ("--verb", "beside-resets", "--launch", "20", "--kernel", "some:50"),
    "retained": ("--verb", "retained", "--launch", "20", "--kernel", "some:50"),
    "shapes": ("--verb", "shapes", "--launch", "900", "--kernel", "many:1", "--kernel", "long:500"),
    "two streams": ("--verb", "two-streams", "--launch", "50", "--kernel", "half:100"),
}
BAD = ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:")


@pytest.mark.parametrize("raised", [0, 2])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_clean(sanitized: Built, share: Path, tmp_path: Path, scenario: str, raised: int) -> None:
    rules = {"raised": raised, "sample_every": 4}
    with MiniBroker(share, {0: rules, 5: rules}) as broker:
        runs = [
            sanitized.start(tmp_path, share, *SCENARIOS[scenario], priority=priority, name=f"p{priority}")
            for priority in (0, 5)
        ]
        for client in runs:
            run = client.end()
            assert not any(word in run.said for word in BAD), run.said[:6000]
            assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said
        assert all(seen.ledger["kernels"] + seen.ledger["graphs"] > 0 for seen in broker.wait(2))


@pytest.mark.parametrize("where", ["anywhere", "slots", "first"])
def test_random_bytes_in_the_block_are_clean(sanitized: Built, share: Path, tmp_path: Path, where: str) -> None:
    noise = random.Random(where)
    with MiniBroker(share) as broker:
        flags = ("--launch", "1000", "--threads", "2", "--kernel", "a:5", "--kernel", "b:20", "--sync-every", "20")
        clients = [sanitized.start(tmp_path, share, *flags, priority=5 * n, name=f"c{n}") for n in range(2)]
        broker.until(lambda slot: slot.ledger.kernels > 20, "c0")
        broker.frozen = True
        while any(client.process.poll() is None for client in clients):
            for _ in range(50):
                spoil(broker.block, where, noise)
        for client in clients:
            run = client.end()
            assert not any(word in run.said for word in BAD), run.said[:6000]
            assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said


@pytest.mark.parametrize("seed", [1, 2])
def test_values_that_another_process_flips_are_clean(sanitized: Built, share: Path, tmp_path: Path, seed: int) -> None:
    for run in run_while_values_flip(sanitized, share, tmp_path, seed):
        assert not any(word in run.said for word in BAD), run.said[:6000]
        assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said
