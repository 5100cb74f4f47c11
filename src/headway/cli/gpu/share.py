"""Define ``headway share``: run programs of different priority on one GPU.

It is imported without the other commands where only it is asked for, because it runs on GPU machines, before every
program that shares, and must need neither polars nor much time.
"""

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli import console
from headway.cli.app import app
from headway.cli.gpu.share_wiring import library, part, program_key
from headway.device import locks as places, nvidia as gpus
from headway.device.mps import MODES, Mps
from headway.device.nvidia import Gpu
from headway.errors import HeadwayError, ShareError
from headway.gpu.programs.store import KernelStore
from headway.gpu.share.broker import serve, sms_limits
from headway.gpu.share.broker.serve import PLAIN, Settings
from headway.gpu.share.shim import launch
from headway.gpu.share.shim.launch import Program
from headway.gpu.share.tape import folders as tape_folders
from headway.units import format_duration, parse_duration, parse_size

MILLION = 1_000_000

share = typer.Typer(
    name="share",
    help="Let programs share one GPU by priority: the highest runs almost as if alone, the others in its gaps.\n\n"
    "Start with: headway share run --priority 0 -- python serve.py",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(share)

GpuFlag = Annotated[
    int | None,
    typer.Option("--gpu", help="Its number, as nvidia-smi -L lists it.", show_default="0", callback=gpus.numbered),
]
SloFlag = Annotated[
    str,
    typer.Option(
        "--slo",
        help="Slow-down of the highest priority aimed at: 1.05, or p50=1.05,p99=1.15.",
        show_default=f"{PLAIN.slo_ppm / 1e6:g}",
    ),
]
FloorFlag = Annotated[
    str,
    typer.Option(
        "--floor", help="Share of the GPU's time that each other keeps: 5%.", show_default=f"{PLAIN.floor_ppm / 1e4:g}%"
    ),
]
MpsFlag = Annotated[str, typer.Option("--mps", help="Use NVIDIA MPS: auto, on or off.", metavar="auto|on|off")]
OutFlag = Annotated[
    str,
    typer.Option(
        "--out",
        help="New folder of the broker's tape, for headway report; none: no tape.",
        metavar="FOLDER|none",
        show_default="~/.local/state/headway/share/…",
    ),
]
SmsFlag = Annotated[
    str,
    typer.Option(
        "--sms",
        help="Share of the GPU's SMs it may use (needs MPS); auto: by what was learnt, never at priority 0.",
        metavar="30%|all|auto",
        show_default="auto",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@share.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments.", metavar="-- COMMAND", show_default=False),
    ] = None,
    priority: Annotated[int, typer.Option(help="0 (highest) to 9 (lowest).")] = 5,
    name: Annotated[str, typer.Option(help="Its name in the table; without it the script's.")] = "",
    gpu: GpuFlag = None,
    slo: SloFlag = "",
    floor: FloorFlag = "",
    memory: Annotated[str, typer.Option(help="Memory of the GPU it may take: 20GB (needs MPS).", metavar="SIZE")] = "",
    sms: SmsFlag = "",
    mps: MpsFlag = "auto",
    linger: Annotated[
        str, typer.Option(help="The broker stays so long after the last program.", show_default="10s")
    ] = "",
    program: Annotated[str, typer.Option(help="What is learnt of it is kept under this name.", metavar="KEY")] = "",
    timeline: Annotated[str, typer.Option(help="Write its launches for Perfetto.", metavar="FILE.json")] = "",
    out: OutFlag = "",
) -> None:
    """Run a CUDA program with a priority on a GPU that others share.

    headway share run --priority 0 --name api -- python serve.py

    headway share run --priority 9 --memory 20GB -- python train.py
    """
    asked = launch.checked(
        Program(
            command=command or [],
            priority=priority,
            name=name,
            key=program or program_key(command or []),
            memory_bytes=_memory(memory),
            extra=_timelines().environment(Path(timeline)) if timeline else {},
        )
    )
    sms_limits.sms_ppm(sms)
    stays = parse_duration(linger or "10s", what="--linger")
    settings = Settings(*slo_ppm(slo), floor_ppm(floor), _wish(mps), stays, _tape(out))
    device, shim = gpus.usable(gpus.chosen(gpu)), library()
    place = places.checked(places.place_of(device.index))
    with places.using(place):
        given = {name for name, text in (("slo", slo), ("floor", floor), ("linger", linger)) if text}
        joined = _join(place, settings, given)
        asked = _limited(asked, memory, sms, place, device, joined)
        begun = time.monotonic_ns()
        status = launch.run(asked.command, launch.environment(asked, place, device, shim, joined))
        if status < 128 and launch.launched(place, asked.shown_name, begun) is False:
            console.note(
                f"headway: {asked.shown_name} never launched a kernel: is it a CUDA program? "
                "(one that is linked statically or set-uid cannot be seen; headway share doctor checks the rest)"
            )
    if timeline:
        try:
            console.note(f"timeline: {_timelines().write(Path(timeline))}")
        except HeadwayError as problem:  # the program has ended, and its status is what counts
            console.note(f"headway: {problem}")
    sys.exit(status)


def _limited(asked: Program, memory: str, sms: str, place: places.Place, device: Gpu, mps: Mps | None) -> Program:
    """Return the program with its limits, which are those of MPS, and say what was chosen."""
    if asked.memory_bytes and mps is None:
        raise ShareError(f"--memory {memory}: the cap is one of MPS, and the broker runs without: see --mps")
    limit, line = sms_limits.limit(sms, asked, place, KernelStore(device.name, device.driver), mps is not None)
    if line:
        console.note(f"headway: {line}")
    return replace(asked, sms_ppm=limit)


def _join(place: places.Place, settings: Settings, given: set[str]) -> Mps | None:
    """Find or start the broker, tell it what is wished of it, and say under which MPS programs run."""
    tail = f",p99={settings.slo99_ppm / MILLION}" if settings.slo99_ppm else ""
    wishes = [f"--slo=p50={settings.slo_ppm / MILLION}{tail}", f"--floor={settings.floor_ppm / MILLION}"]
    linger = f"--linger={settings.linger_ns}ns"
    command = [sys.executable, "-m", "headway", "share", "broker", f"--gpu={place.gpu}", f"--mps={settings.mps}"]
    out = [f"--out={settings.out}"] if settings.out else []
    state, started = launch.ensure_broker(place, [*command, *wishes, linger, *out], console.note)
    mode = state["mode"]
    if {"on": "coarse", "off": "mps"}.get(settings.mps) == mode:
        raise ShareError(
            f"--mps {settings.mps}: the broker of GPU {place.gpu} runs {'with' if mode == 'mps' else 'without'} MPS: "
            "headway share stop, then start again"
        )
    if not started and given:
        _tell(place, state, settings, given)
    if not started and settings.out and settings.out != (there := state.get("tape") or serve.NO_TAPE):
        console.note(f"headway: the broker of GPU {place.gpu} has its tape at {there}: --out changes nothing")
    mps_state = state.get("mps")
    return Mps(Path(mps_state["pipe"]), Path(mps_state["log"]), owned=False) if mps_state else None


def _tell(place: places.Place, state: Mapping[str, Any], settings: Settings, given: set[str]) -> None:
    """Pass on what was given to the broker that runs, and say what it changes there: it holds for everyone."""
    if "linger" in given and state.get("linger_ns", 0) is None:
        console.note(f"headway: the broker of GPU {place.gpu} stays until it is stopped: --linger changes nothing")
        given = given - {"linger"}
    keys = {"slo": "slo_ppm", "slo of p99": "slo99_ppm", "floor": "floor_ppm", "linger": "linger_ns"}
    wished = {key: getattr(settings, key) for name, key in keys.items() if name.partition(" ")[0] in given}
    before = {"slo99_ppm": 0, **state, **places.read_json(place.asked)}  # it says only now and then what it has heard
    places.ask(place, **wished)
    told = [
        f"{name} {_shown(key, wished[key])}" + (f" (it was {_shown(key, before[key])})" if key in before else "")
        for name, key in keys.items()
        if key in wished and wished[key] != before.get(key)
    ]
    if told:
        console.note(f"headway: told the broker of GPU {place.gpu}: {', '.join(told)}")


def _shown(key: str, value: int) -> str:
    if key == "slo99_ppm" and not value:
        return "none"
    return format_duration(value) if key.endswith("_ns") else f"{value / MILLION:g}"


@share.command()
def broker(
    gpu: GpuFlag = None,
    slo: SloFlag = "",
    floor: FloorFlag = "",
    mps: MpsFlag = "auto",
    linger: Annotated[str, typer.Option(help="End when nobody was there for so long.", show_default="never")] = "",
    out: OutFlag = "",
) -> None:
    """Be the broker of a GPU, in the foreground: for a service or a container; run starts one by itself.

    headway share broker --slo 1.05
    """
    device = gpus.usable(gpus.chosen(gpu))
    stays = parse_duration(linger, what="--linger") if linger else None
    settings = Settings(*slo_ppm(slo), floor_ppm(floor), _wish(mps), stays, _tape(out))
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda which, frame: told.append(which))
    serve.serve(
        places.place_of(device.index),
        device,
        settings,
        store=KernelStore(device.name, device.driver),
        say=lambda line: console.note(f"{time.strftime('%H:%M:%S')} {line}"),
        stopped=lambda: bool(told),
    )


@share.command()
def stop(
    gpu: GpuFlag = None,
    kill: Annotated[bool, typer.Option("--kill", help="End the programs too, through MPS first.")] = False,
    wait: Annotated[str, typer.Option(help="How long to wait for programs to end.")] = "30s",
) -> None:
    """End sharing: every program goes on ungated, the broker and its MPS end, nothing of them is left.

    headway share stop

    headway share stop --kill
    """
    place = place_named(gpu)
    seconds = parse_duration(wait, what="--wait") / 1e9
    if not serve.stop(place, kill=kill, say=lambda line: console.note(f"headway: {line}"), seconds=seconds):
        raise ShareError(
            f"the broker of GPU {place.gpu} still waits for its programs, which run under its MPS: "
            "it ends with them, or headway share stop --kill ends them"
        )


@share.command()
def build() -> None:
    """Build the library that is loaded into programs; needs a C++ compiler, and no CUDA.

    headway share build
    """
    console.note(f"built {library(again=True)}")


def place_named(gpu: int | None) -> places.Place:
    """Return where that GPU's files are; no GPU is asked for them, so that they can be cleared without a driver."""
    if gpu is not None:
        return places.place_of(gpu)
    known = places.places()
    if len(known) > 1:
        numbers = ", ".join(str(place.gpu) for place in known)
        raise ShareError(f"brokers of several GPUs are here ({numbers}): say which by --gpu")
    return known[0] if known else places.place_of(0)


# --- what flags mean ------------------------------------------------------------------------------------------------


def slo_ppm(text: str) -> tuple[int, int]:
    """Return ``1.05`` or ``p50=1.05,p99=1.15`` in parts per million: for the p50, and for the p99, 0 without one."""
    parts = [part.partition("=") for part in text.split(",")] if "=" in text else [("p50", "=", text)]
    names = [name.strip() for name, _, _ in parts]
    if set(names) - {"p50", "p99"} or len(set(names)) < len(names):
        raise ShareError(f"--slo {text}: a number, or p50 and p99 once each: p50=1.05,p99=1.15")
    aims = {name: _aim(value.strip(), text) for name, (_, _, value) in zip(names, parts, strict=True)}
    p50, p99 = aims.get("p50", PLAIN.slo_ppm), aims.get("p99", 0)
    if 0 < p99 < p50:
        raise ShareError(
            f"--slo {text}: the aim for p99 ({p99 / MILLION:g}) is below that for p50 ({p50 / MILLION:g}): raise it"
        )
    return p50, p99


def _aim(value: str, text: str) -> int:
    try:
        aim = float(value or ("nan" if text else PLAIN.slo_ppm / MILLION))
    except ValueError:
        aim = 0.0
    if not 1 <= aim <= 100:
        raise ShareError(
            f"--slo {text}: a slow-down of 1 or more, up to 100: 1.05 allows the highest priority to lose 5 %"
        )
    return round(aim * MILLION)


def floor_ppm(text: str) -> int:
    """Return ``5%`` or ``0.05`` in parts per million."""
    given = text.strip() or str(PLAIN.floor_ppm / MILLION)
    try:
        value = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.5:
        hint = f"; did you mean {given}%?" if 0.5 < value <= 50 and not given.endswith("%") else ""
        raise ShareError(f"--floor {text}: a share of the GPU's time between 0% and 50%{hint}")
    return round(value * MILLION)


def _wish(text: str) -> str:
    if text not in MODES:
        raise ShareError(f"--mps {text}: auto, on or off")
    return text


def _tape(text: str) -> str:
    """Return where the tape goes, as the broker is told: a folder that is new, or that there is none."""
    return text if text in ("", serve.NO_TAPE) else str(tape_folders.checked(Path(text)))


def _memory(text: str) -> int:
    size = parse_size(text, what="--memory") if text else 0
    if text and size < 1 << 20:
        raise ShareError(f"--memory {text}: at least 1MB")
    return size


def _timelines() -> Any:
    return part("gpu.show.timeline", "--timeline")
