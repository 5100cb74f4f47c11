"""Snapshot of the shared block: one row for each client, and the broker's state."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from headway.device import locks as places
from headway.device.locks import Place
from headway.errors import ShareError
from headway.gpu.control.slowdown import MILLION
from headway.gpu.model.reflex import Reason
from headway.gpu.share.block import slot_contention, slot_profiles
from headway.gpu.share.block.block import LIVE, SLOTS, SharedBlock, Slot

Row = dict[str, Any]
_BEGINS_S = 5.0
"""A broker publishes its state within this time after it has made its block."""
_COUNTED = (
    "kernels",
    "graphs",
    "copies",
    "captured",
    "nccl",
    "passed",
    "waits",
    "syncs",
    "samples",
    "dropped",
    "threads",
)


def snapshot(place: Place) -> Row:
    """Return the state of the broker, the dial and every client. Shares and rates are since each client joined."""
    if not places.held(place.lock):
        raise _nobody(place)
    if not place.block.exists():
        places.check_signed(place)
    block = SharedBlock.open(place.block)
    try:
        header = block.header
        state = _published(place, header.broker)
        beat_ns = header.beat_ns  # first: a beat between the two would be one of the future
        now = time.monotonic_ns()
        silent_ns = now - beat_ns
        return {
            "gpu": place.gpu,
            "gpu_name": state.get("gpu_name", ""),
            "driver": state.get("driver", ""),
            "broker": header.broker,
            "version": state.get("version", ""),
            "up_s": round((now - header.started_ns) / 1e9, 3),
            "silent_ms": round(silent_ns / 1e6, 3),
            "healthy": bool(0 <= silent_ns < header.patience_ns),
            "mode": state.get("mode", ""),
            "mode_line": state.get("mode_line", ""),
            "mps_pipe": (state.get("mps") or {}).get("pipe", ""),
            "stopping": state.get("stopping", ""),
            "slo": state.get("slo_ppm", 0) / MILLION,
            "slo_p99": state.get("slo99_ppm", 0) / MILLION or None,
            "floor": state.get("floor_ppm", 0) / MILLION,
            "block": str(place.block),
            "log": str(place.log),
            "tape": state.get("tape", ""),
            "clients": [
                _row(index, block.slots[index], state, now)
                for index in range(SLOTS)
                if block.slots[index].state == LIVE
            ],
            "left": state.get("left", []),
            "outside": state.get("outside", []),
        }
    finally:
        block.close()


def _published(place: Place, broker: int) -> Row:
    """Return what the broker has published; one that begins has a block a moment before, and is waited for."""

    def ours() -> Row:
        state = places.read_json(place.state)
        return state if state.get("pid", broker) == broker else {}

    places.wait_until(lambda: bool(ours()) or not places.held(place.lock), _BEGINS_S)
    if not (state := ours()) and not places.held(place.lock):
        raise _nobody(place)
    return state


def _nobody(place: Place) -> ShareError:
    if places.checked(place).leftovers():
        return ShareError(
            f"the broker of GPU {place.gpu} has ended without cleaning up: headway share stop clears what it left, "
            "headway share run starts a new one"
        )
    return ShareError(f"no broker of GPU {place.gpu} runs: headway share run --priority 0 -- COMMAND starts one")


def _row(index: int, slot: Slot, state: Mapping[str, Any], now: int) -> Row:
    ledger, pulse = slot.ledger, slot.pulse
    lived_ns = max(1, now - slot.since_ns)
    worst, blamed_ns = slot_profiles.blamed(slot)
    measured, boldness, tail = state.get("loops", {}).get(str(index), (None, 0, None))
    limits = state.get("limits", {}).get(str(index), {})
    return {
        "slot": index,
        "name": slot_profiles.text(slot.name),
        "program": slot_profiles.text(slot.program),
        "pid": slot.owner,
        "hidden": index in state.get("hidden", ()),
        "priority": slot.priority,
        "up_s": round(lived_ns / 1e9, 3),
        "quiet_ms": round(max(0, now - max(pulse.launch_ns, slot.since_ns)) / 1e6, 3),  # it launches while we look
        "launches": ledger.kernels + ledger.graphs,
        **{name: getattr(ledger, name) for name in _COUNTED},
        "waited_ms": round(ledger.waited_ns / 1e6, 3),
        "work_ms": round(ledger.work_ns / 1e6, 3),
        "busy_share": round(ledger.work_ns / lived_ns, 6),
        "harvested_ms": round(ledger.harvested_ns / 1e6, 3),
        "delay_ms": round(ledger.delay_ns / 1e6, 3),
        "kernel_rows": slot_profiles.rows(slot),
        "blamed_kernel": worst,
        "blamed_ms": round(blamed_ns / 1e6, 3),
        "contention": slot_contention.charged(slot),
        **_slowdown("slowdown", measured),
        **_slowdown("slowdown_p99", tail),
        "boldness": boldness / MILLION,
        "sms": (slot.sms_ppm or MILLION) / MILLION,
        "harvest_by_sms": {str(int(limit) / MILLION): ppm / MILLION for limit, ppm in limits.items()},
        "whole_steps": ledger.spans,
        "marked": ledger.marked,
        "open": bool(ledger.open),
        "gated": bool(slot.rules.gate),
        "held": bool(slot.rules.hold),
        "watched": bool(slot.rules.watched),
        "hook_ns": round(ledger.hook_ns / ledger.hooked, 1) if ledger.hooked else None,
        "asked_ns": round(ledger.asked_ns / ledger.asked, 1) if ledger.asked else None,
        "reasons": {reason.name.lower(): ledger.reasons[reason] for reason in Reason if ledger.reasons[reason]},
    }


def _slowdown(name: str, measured: Sequence[int] | None) -> Row:
    """Return the slow-down, its interval, and the holds and steps it rests on; None and 0 where it is not known."""
    value, low, high, holds, steps = measured or (None, None, None, 0, 0)
    shares = {name: value, f"{name}_low": low, f"{name}_high": high}
    parts = {key: None if ppm is None else ppm / MILLION for key, ppm in shares.items()}
    return {**parts, f"{name}_holds": holds, f"{name}_steps": steps}


def since(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> float:
    """Return the busy share of a client between two snapshots; since it joined where there is none before."""
    if before is None or before["pid"] != row["pid"] or row["up_s"] <= before["up_s"]:
        return float(row["busy_share"])
    return float((row["work_ms"] - before["work_ms"]) / 1e3 / (row["up_s"] - before["up_s"]))
