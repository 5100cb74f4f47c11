"""Define ``headway serve``: answer requests to pipelines of one's own, on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli import console
from headway.cli.app import app
from headway.errors import ServeError, unknown_name
from headway.fleet.live.doors.control import MOST_BYTES
from headway.fleet.live.doors.place import place_of, storage_of
from headway.fleet.live.doors.serve import Doors, check
from headway.fleet.live.doors.tokens import VARIABLE, token_of
from headway.fleet.live.options import CUDA_CONTEXT_BYTES, LOCAL, RAY, Options
from headway.fleet.live.workers.devices import AUTO, devices_of
from headway.fleet.live.workers.shares import check_no_mig
from headway.runs.sweep.ray_pool import library
from headway.units import parse_size

serve = typer.Typer(
    name="serve",
    help="Serve pipelines of your own on this machine.\n\nStart with: headway serve start app.py",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(serve)

ENGINES = (LOCAL, RAY)
ServerFlag = Annotated[
    str,
    typer.Option(
        "--server", help="Its address, folder or name; else the one that runs here.", metavar="URL|FOLDER|NAME"
    ),
]
TokenFlag = Annotated[str, typer.Option("--token-file", help=f"Holds the token; or set {VARIABLE}.", metavar="FILE")]


@serve.command()
def start(
    app_file: Annotated[str, typer.Argument(help="Models, tasks and graphs in Python.", metavar="APP.py")],
    workers: Annotated[int | None, typer.Option(help="Worker processes: 2 if left out.", min=1, max=256)] = None,
    policy: Annotated[str, typer.Option(help="headway, compass, esg, jit, hash, heft, …")] = "headway",
    slices: Annotated[
        str, typer.Option(help="Share of a GPU of each worker, in sevenths: 1,2,4.", metavar="SHARES")
    ] = "",
    gpu_memory: Annotated[
        str, typer.Option(help="Memory for models and activations, a worker: 14GB.", metavar="SIZE")
    ] = "",
    devices: Annotated[
        str, typer.Option(help="Of the workers in turn: cpu, or cuda:0,cuda:1; auto looks for GPUs.")
    ] = "auto",
    warm: Annotated[
        bool | None, typer.Option(help="Run all tasks on their examples first; on GPUs if left out.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: replicas of Ray Serve.")] = LOCAL,
    address: Annotated[str, typer.Option(help="Of a Ray cluster: auto, or host:port. Else one is started here.")] = "",
    worker_options: Annotated[
        list[str] | None,
        typer.Option(
            "--worker-option", help="Of Ray, a worker: num_gpus=1, label_selector.zone=a.", metavar="KEY=VALUE"
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(help="Have Ray Serve choose the number of workers: min_replicas=1.", metavar="KEY=VALUE"),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="Of headway profile model; else APP.profile.toml beside the file.", metavar="FILE")
    ] = "",
    port: Annotated[int, typer.Option(help="Of HTTP; 0: any that is free.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="Address of HTTP; any but loopback needs a token.")] = "127.0.0.1",
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve programs of this user alone.")] = False,
    token_file: TokenFlag = "",
    body: Annotated[str, typer.Option("--most-body", help="Largest body of a request.", metavar="SIZE")] = "64MiB",
    folder: Annotated[
        str, typer.Option(help="Of its socket and its keys; a name, or a path. Else the name of the file.")
    ] = "",
    out: Annotated[
        str, typer.Option("--out", "-o", help="Keep the run, to report, replay, audit.", metavar="RUN")
    ] = "",
    set_keys: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of a fleet experiment.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Serve the graphs of an application, in the foreground; Ctrl-C answers what was accepted, then stops.

    headway serve start app.py

    headway serve start app.py --workers 4 --policy headway --gpu-memory 14GB --out runs/live

    headway serve start app.py --engine ray --address auto --workers 8 --worker-option num_gpus=1
    """
    from headway import api
    from headway.fleet.live.application import app_path, serve_app, serve_app_on_ray
    from headway.runs.settings.files import copied, typed

    ray_options, scaling = _ray_options(engine, address, {"--worker-option": worker_options, "--scale": scale})
    path = app_path(app_file)
    where = folder or path.stem
    doors = Doors(place_of(where), host, None if no_http else port, token_of(token_file), _body_bytes(body))
    check(doors)
    sizes = {"slices": slices or None, "gpu_memory": gpu_memory or None, "profile": profile or None}
    settings = {"policy": policy, "workers": workers, **sizes, "set": set_keys or ()}
    work = api.work("fleet", scenario=str(path), **settings)
    kept, experiment = Path(out) if out else None, typed(copied(work.document), "settings")
    if engine == LOCAL:
        options = _options(path, where, devices, warm)
        kept = serve_app(experiment, options, doors, kept, console.note)
    else:
        library("ray.serve")
        from headway.fleet.ray.deploy import Cluster

        on = ("cuda:0" if ray_options.get("num_gpus") else "cpu") if devices == AUTO else devices
        options = _options(path, where, on, warm)
        cluster = Cluster(address, worker_options=ray_options, scaling=scaling)
        serve_app_on_ray(experiment, options, doors, cluster, kept, console.note)
    if kept is not None:
        console.note(f"kept in {kept}: headway report {kept}")


def _body_bytes(text: str) -> int:
    size = parse_size(text, what="--most-body")
    if not 1 <= size <= MOST_BYTES:
        raise ServeError(f"--most-body {text}: from 1 byte to 1 GiB")
    return size


def _options(path: Path, folder: str, devices: str, warm: bool | None) -> Options:
    """Return how workers are run on some devices: processes on a GPU take some of its memory for themselves."""
    chosen = devices_of(devices)
    if chosen != ("cpu",):
        check_no_mig()
    on_gpu = any(device.startswith("cuda") for device in chosen)
    context_bytes = CUDA_CONTEXT_BYTES if on_gpu else 0
    warmed = on_gpu if warm is None else warm
    return Options(app=path, folder=storage_of(folder), devices=chosen, warm=warmed, context_bytes=context_bytes)


def _ray_options(engine: str, address: str, given: dict[str, list[str] | None]) -> list[dict[str, Any]]:
    """Return what each flag of Ray gives, checked."""
    if engine not in ENGINES:
        raise ServeError(unknown_name("--engine", engine, ENGINES))
    flags = [f"--address {address}"] * bool(address) + [flag for flag, texts in given.items() if texts]
    if engine == LOCAL and flags:
        raise ServeError(f"{flags[0]}: needs --engine ray")
    return [_pairs(flag, texts or []) for flag, texts in given.items()]


def _pairs(flag: str, given: list[str]) -> dict[str, Any]:
    """Return options by key; a dot makes a table, and numbers are numbers."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        head, dot, rest = key.strip().partition(".")
        if not equals or not head or (dot and not rest):
            raise ServeError(f"{flag} {text}: write KEY=VALUE, as num_gpus=1 or label_selector.zone=a")
        where, name = (found.setdefault(head, {}), rest) if dot else (found, head)
        try:
            where[name] = float(value) if "." in value else int(value)
        except ValueError:
            where[name] = value
    return found
