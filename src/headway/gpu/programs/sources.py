"""A program of kernels by its name: one that comes with headway, a trace, a recipe, or one of the profile store."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.gpu.model.program import Program
from headway.gpu.programs import load as kernel_programs, trace as kernel_trace
from headway.gpu.programs.profile import from_profile
from headway.gpu.programs.store import KernelStore, stores

TRACE = ".parquet"


@dataclass(frozen=True)
class Source:
    """A program, and what is known of its recording."""

    program: Program
    about: Mapping[str, Any] = field(default_factory=dict)
    """What its trace says of itself: gpu, driver, sms. Empty where it was not recorded."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


def program_of(name: str) -> Program:
    """Return a program by name: a kernel trace, a recipe or a shipped one, else one from the profile store."""
    return source_of(name).program


def source_of(name: str) -> Source:
    """Return a program by name, with what is known of its recording."""
    if name.endswith(TRACE):
        trace = kernel_trace.read(name)
        return Source(kernel_programs.from_trace(trace, Path(name).stem), trace.metadata)
    if name.endswith(kernel_programs.SUFFIXES) or name in kernel_programs.shipped():
        return Source(kernel_programs.load(name))
    known = stores()
    having = [store for store in known if store.path(name).is_file()]
    if not having:
        if Path(name).is_file():
            raise ExperimentError(
                f"{name} is neither a kernel trace (.parquet, by headway profile kernels) nor a recipe (.toml)"
            )
        names = {*kernel_programs.shipped(), *(program for store in known for program in store.programs())}
        raise ExperimentError(f"{unknown_name('program', name, names)}, or a kernel trace: FILE.parquet")
    source = _stored(having[0], name)
    if len(having) == 1:
        return source
    which = f"note: {name} is known of {len(having)} GPUs or drivers: that of {having[0].folder} is taken"
    return replace(source, notes=(which, *source.notes))


def files_of(name: str) -> list[Path]:
    """Return the files that a program is read from; none of one that comes with headway, or that is not known."""
    if name.endswith(kernel_programs.SUFFIXES):
        return [Path(name)]
    having = [] if name in kernel_programs.shipped() else [s.path(name) for s in stores() if s.path(name).is_file()]
    return [path for first in having[:1] for path in (first, first.with_suffix(TRACE)) if path.is_file()]


def _stored(store: KernelStore, name: str) -> Source:
    """Return a program of the store: from the trace beside its profile, else from the means of the profile."""
    path = store.path(name).with_suffix(TRACE)
    why = f"{path} is not there (headway profile kernels --name {name} records it)"
    if path.exists():
        try:
            trace = kernel_trace.read(path)
            if trace.program in ("", name):
                return Source(kernel_programs.from_trace(trace, name), trace.metadata)
            why = f"{path} is a trace of {trace.program}"
        except TraceError as problem:
            why = str(problem)
    if (tables := store.load(name)) is None:  # it went meanwhile
        raise ExperimentError(f"the profile {store.path(name)} is gone")
    return Source(from_profile(name, *tables), notes=(f"note: {name} is played from the means of its profile: {why}",))
