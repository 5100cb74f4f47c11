"""The share of the SMs that a program gets at its start: as wished (``--sms``), or by what is stored of its pair."""

import os

from headway.device.locks import Place
from headway.device.mps import SMS
from headway.errors import HeadwayError, ShareError
from headway.gpu.control.sms_outcomes import ALL_PPM, choose, outcomes_of
from headway.gpu.share.broker.background_store import Store
from headway.gpu.share.shim import launch
from headway.gpu.share.shim.launch import Program

AUTO, ALL = "auto", "all"
_LEAST_PPM = 10_000


def sms_ppm(text: str) -> int | None:
    """Return ``30%``, ``0.3`` or ``all`` in parts per million; None for ``auto``.

    Without a text it is what the environment says to MPS, or auto.
    """
    given = text.strip()
    if not given:
        return _inherited()
    if given in (AUTO, ALL):
        return None if given == AUTO else ALL_PPM
    try:
        value = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not _LEAST_PPM <= round(value * ALL_PPM, 6) <= ALL_PPM:
        hint = f"; did you mean {given}%?" if 1 < value <= 100 and not given.endswith("%") else ""
        raise ShareError(f"--sms {text}: auto, all, or a share of the GPU's SMs between 1% and 100%{hint}")
    return round(value * ALL_PPM)


def _inherited() -> int | None:
    """Return the limit that MPS reads in the environment; None where there is none."""
    try:
        percent = float(os.environ.get(SMS, ""))
    except ValueError:
        return None
    return round(percent * 10_000) if 1 <= percent < 100 else None


def limit(text: str, program: Program, place: Place, store: Store, mps: bool) -> tuple[int, str]:
    """Return the limit of a program, 0 where it has none, and a line about it, empty where nothing was chosen.

    Raise ShareError where a limit is wished and there is no MPS.
    """
    wished = sms_ppm(text)
    if not mps:
        if text and wished not in (None, ALL_PPM):
            raise ShareError(f"--sms {text}: the limit is one of MPS, and the broker runs without: see --mps")
        return 0, ""
    if wished is not None:
        return wished % ALL_PPM, ""
    if program.priority == launch.HIGHEST:
        return 0, ""
    running = launch.above(place, program.priority)
    name, key = running[0] if running else ("", "")
    try:
        above, outcomes = outcomes_of(store.learnt(), program.key or launch.key_of(program.command), key)
    except (OSError, HeadwayError):  # the broker says so in its log
        return 0, ""
    choice = choose(outcomes)
    if choice.is_trial and not running:  # with nobody above there is nothing to learn
        return 0, ""
    return choice.sms_ppm % ALL_PPM, choice.line(program.shown_name, name or above)
