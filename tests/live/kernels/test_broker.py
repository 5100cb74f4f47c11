"""One turn of the broker: who came, who left, who died, what is known of them, what is asked of them."""

import subprocess
import time
from pathlib import Path

from headway.errors import ProfileError
from headway.kernels.dial import Rules
from headway.live.kernels import places
from headway.live.kernels.block import CLAIMED, FREE, LIVE, Slot
from headway.live.kernels.broker import CLAIM_NS, FOREIGN_NS, SAVE_NS, write_rules
from headway.live.kernels.heart import Heart
from tests.live.kernels.shares import Memory, broker_at, join, leave

SECOND = 1_000_000_000


def test_a_client_that_joins_is_seeded_and_gets_its_rules(tmp_path: Path) -> None:
    store = Memory()
    store.save("low.py", [{"id": "a", "name": "conv", "work_ns": 1234, "samples": 9}], [{"key": "b", "samples": 1}])
    broker, block, said = broker_at(tmp_path, store=store)
    high, low = join(block, 0, name="high", priority=0), join(block, 4, name="low", priority=9)
    broker.step(time.monotonic_ns())
    assert (high.seeded, low.seeded) == (1, 1)
    assert (high.rules.gate, low.rules.gate) == (0, 1)
    assert low.kernels[10].work_ns == 1234
    assert low.rules.floor_ppm == broker.dial.floor_ppm
    assert any("1 kernels of low.py are known" in line for line in said)


def test_what_was_learnt_is_kept_when_a_client_leaves(tmp_path: Path) -> None:
    store = Memory()
    broker, block, said = broker_at(tmp_path, store=store)
    slot = join(block, 0, name="a", priority=3)
    broker.step(time.monotonic_ns())
    slot.kernels[7].id, slot.kernels[7].samples, slot.ledger.kernels = 7, 2, 1000
    leave(slot)
    broker.step(time.monotonic_ns())
    assert [row["id"] for row in store.kept["a.py"][0]] == [f"{7:016x}"]
    assert (slot.state, slot.owner, slot.kernels[7].id, slot.ledger.kernels) == (FREE, 0, 0, 0)
    assert "a (process" in said[-1]
    assert places.read_json(broker.place.state)["left"][0]["launches"] == 1000


def test_a_client_that_was_killed_is_reaped_and_its_tables_kept(tmp_path: Path) -> None:
    store = Memory()
    broker, block, said = broker_at(tmp_path, store=store)
    with subprocess.Popen(["sleep", "60"]) as child:
        slot = join(block, 1, name="a", priority=3, pid=child.pid)
        slot.kernels[7].id, slot.kernels[7].samples = 7, 2
        broker.step(time.monotonic_ns())
        assert slot.state == LIVE
        child.kill()
        child.wait()
        broker.step(time.monotonic_ns())
    assert slot.state == FREE
    assert "died after" in said[-1]
    assert store.kept["a.py"]


def test_a_client_that_cannot_be_seen_stays_as_long_as_it_is_heard_of(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    slot = join(block, 0, name="far", priority=0, pid=2**22 + 5, ticks=2**40)
    now = slot.since_ns
    broker.step(now)
    assert "cannot be seen from here" in said[0]
    slot.pulse.launch_ns = now + FOREIGN_NS
    broker.step(now + 2 * FOREIGN_NS - 1)
    assert slot.state == LIVE
    broker.step(now + 2 * FOREIGN_NS)
    assert slot.state == FREE


def test_a_slot_whose_process_died_while_it_joined_is_cleared(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path)
    slot: Slot = block.slots[2]
    slot.state = CLAIMED
    broker.step(SECOND)
    broker.step(SECOND + CLAIM_NS)
    assert slot.state == CLAIMED
    broker.step(SECOND + CLAIM_NS + 1)
    assert slot.state == FREE


def test_nonsense_in_a_slot_is_cleared_and_the_loop_goes_on(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    block.slots[0].state = 77
    slot = join(block, 1, name="\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), priority=4_000_000_000)
    slot.ledger.actual_ns, slot.ledger.alone_ns, slot.since_ns = -(2**62), 2**62, 2**62
    broker.step(time.monotonic_ns())
    assert block.slots[0].state == FREE
    assert "is none: cleared" in said[0]
    assert slot.seeded == 1


def test_a_new_client_in_the_slot_of_another_is_another(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    join(block, 0, name="a", priority=1)
    broker.step(time.monotonic_ns())
    block.clear(0)
    join(block, 0, name="b", priority=2)
    broker.step(time.monotonic_ns())
    assert [line.split()[0] for line in said] == ["a", "b"]
    assert block.slots[0].seeded == 1


def test_settings_travel_to_a_running_broker(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    places.ask(broker.place, slo_ppm=1_020_000, floor_ppm=100_000)
    broker.step(time.monotonic_ns())
    assert (broker.dial.slo_ppm, broker.dial.floor_ppm) == (1_020_000, 100_000)
    assert said == ["slo is 1.02 now", "floor is 0.1 now"]
    places.ask(broker.place, slo_ppm="nonsense", floor_ppm=-1, stop="maybe")
    broker.step(time.monotonic_ns())
    assert (broker.dial.slo_ppm, broker.dial.floor_ppm, broker.stopping) == (1_020_000, 100_000, "")
    places.ask(broker.place, stop="drain")
    broker.step(time.monotonic_ns())
    assert broker.stopping == "drain"
    assert block.header.stopping == 1


def test_tables_are_kept_all_along(tmp_path: Path) -> None:
    store = Memory()
    broker, block, _ = broker_at(tmp_path, store=store)
    slot = join(block, 0, name="a", priority=3)
    slot.kernels[7].id, slot.kernels[7].samples = 7, 2
    now = time.monotonic_ns()
    broker.step(now)
    assert not store.kept
    broker.step(now + SAVE_NS)
    assert store.kept["a.py"]


def test_a_store_that_fails_is_said_and_nothing_more(tmp_path: Path) -> None:
    class Broken(Memory):
        def load(self, program: str) -> None:
            raise ProfileError(f"{program} is broken")

        def save(self, program: str, kernels: object, steps: object) -> None:
            raise OSError("disk full")

    broker, block, said = broker_at(tmp_path, store=Broken())
    slot = join(block, 0, name="a", priority=3)
    slot.kernels[7].id, slot.kernels[7].samples = 7, 2
    broker.step(time.monotonic_ns())
    assert slot.seeded == 1
    leave(slot)
    broker.step(time.monotonic_ns())
    assert any("could not be read: a.py is broken" in line for line in said)
    assert any("could not be kept: disk full" in line for line in said)


def test_a_broker_is_idle_once_nobody_was_there_for_long_enough(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path, linger_ns=5 * SECOND)
    slot = join(block, 0, name="a", priority=3)
    now = time.monotonic_ns() + 100 * SECOND
    broker.step(now)
    assert not broker.idle(now + 4 * SECOND)
    assert broker.idle(now + 5 * SECOND)
    assert slot.state == LIVE
    forever, _, _ = broker_at(tmp_path)
    assert not forever.idle(now + 10**6 * SECOND)


def test_every_rule_of_the_dial_has_its_cell() -> None:
    slot = Slot()
    values = {name: 7 + number for number, name in enumerate(Rules.__dataclass_fields__)}
    write_rules(slot, Rules(**values))
    assert {name: getattr(slot.rules, name) for name in values} == values


def test_the_heart_beats_while_the_loop_gets_on_and_falls_silent_when_it_hangs(tmp_path: Path) -> None:
    _, block, _ = broker_at(tmp_path)
    block.header.beat_ns = 0
    heart = Heart(block, stuck_ns=60 * SECOND)
    heart.start()
    while block.header.beat_ns == 0:
        time.sleep(0.01)
    heart.stop()
    block.header.beat_ns = 0
    assert Heart(block, stuck_ns=-1).beat() is False
    assert block.header.beat_ns == 0
