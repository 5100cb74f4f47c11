"""Name the new place of a module that a user's own file or package imports by the path of an earlier version."""

import re
from collections.abc import Iterator
from traceback import extract_tb

MODULES = {
    "headway.training.policies.parts": "headway.jobs",
    "headway.training.actions": "headway.jobs",
    "headway.training.jobstate": "headway.jobs",
    "headway.training.job": "headway.jobs.model.job",
    "headway.training.cluster": "headway.jobs.model.cluster",
    "headway.training.state": "headway.jobs.state.state",
    "headway.training.policies": "headway.jobs.policies",
    "headway.training": "headway.jobs",
    "headway.serving.policies.parts": "headway.fleet",
    "headway.serving.policies.local": "headway.fleet",
    "headway.serving.actions": "headway.fleet",
    "headway.serving.scalers": "headway.fleet.policies.scalers",
    "headway.serving": "headway.fleet",
    "headway.kernels.policies.parts": "headway.gpu",
    "headway.kernels.actions": "headway.gpu",
    "headway.kernels.reflex": "headway.gpu",
    "headway.kernels.state": "headway.gpu",
    "headway.kernels": "headway.gpu",
    "headway.traces.slurm": "headway.jobs.slurm",
    "headway.traces": "headway.jobs.traces",
    "headway.profiling.job": "headway.jobs.profiling",
    "headway.profiling.model": "headway.fleet.profiling",
    "headway.profiling.model_session": "headway.fleet.profiling",
    "headway.profiling.model_colocation": "headway.fleet.profiling.colocation",
    "headway.scenarios": "headway.fleet.scenarios",
    "headway.metrics": "metrics of headway.jobs, headway.fleet or headway.gpu",
    "headway.sim": "sim of headway.jobs, headway.fleet or headway.gpu",
    "headway.live": "headway.jobs.live, headway.fleet.live or headway.gpu.share",
    "headway.report": "headway.show, or show of headway.jobs, headway.fleet or headway.gpu",
    "headway.experiment": "headway.runs, or experiment of headway.jobs, headway.fleet or headway.gpu",
}
"""What users import, and where it is now; of other modules the longest row that they begin with speaks."""
_FROM = re.compile(r"from (headway[\w.]*) import ([\w, ]*)")
_IMPORT = re.compile(r"(headway(?:\.\w+)+)")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'|module '(headway)' has no attribute '(\w+)'")


def new_place(problem: BaseException) -> str:
    """Return where a module that is not there any more is now, as the end of a line; nothing if it never was."""
    if not isinstance(problem, ImportError | AttributeError):
        return ""
    asked = list(_asked(problem))
    rows = [(old, module) for old in MODULES for module in asked if f"{module}.".startswith(f"{old}.")]
    if not rows:
        return ""
    old, module = max(rows, key=lambda row: (len(row[0]), -len(row[1])))
    return f": {old} is {MODULES[old]} now" if old == module else f": {old}.… is in {MODULES[old]} now"


def _asked(problem: ImportError | AttributeError) -> Iterator[str]:
    """Return the modules that were asked for: by the line of the file, and by what the error says."""
    lines = [call.line or "" for call in extract_tb(problem.__traceback__) if not call.filename.startswith("<")]
    for line in lines[-2:]:  # the last one may be where the package says that it has no such name
        for module, names in _FROM.findall(line):
            yield from (module, *(f"{module}.{name.split()[0]}" for name in names.split(",") if name.strip()))
        yield from _IMPORT.findall(line)
    if named := _NAME.search(str(problem)):
        yield f"{named[2] or named[3]}.{named[1] or named[4]}"
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        yield problem.name
