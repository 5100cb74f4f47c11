"""Name the new place of a module that a user's own file or package imports by the path of an earlier version."""

import re
from traceback import extract_tb

MODULES = {
    "headway.training.policies.parts": "headway.jobs",
    "headway.training.policies.placements.best_fit": "headway.jobs",
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
    "headway.scenarios": "headway.fleet.scenarios",
    "headway.metrics": "metrics of headway.jobs, headway.fleet or headway.gpu",
    "headway.sim": "sim of headway.jobs, headway.fleet or headway.gpu",
    "headway.live": "headway.jobs.live, headway.fleet.live or headway.gpu.share",
    "headway.report": "headway.show, or show of headway.jobs, headway.fleet or headway.gpu",
    "headway.experiment": "headway.runs, or experiment of headway.jobs, headway.fleet or headway.gpu",
}
"""What users import, and where it is now; of the rest of a package the last row that begins like it speaks."""
_IMPORT = re.compile(r"from (headway[\w.]*) import \(?\s*(\w*)|import (headway[\w.]+)")


def new_place(problem: BaseException) -> str:
    """Return where the module that could not be imported is now, as the end of a line; nothing if it never was."""
    if not isinstance(problem, ImportError) or not (problem.name or "").startswith("headway"):
        return ""
    lines = [call.line or "" for call in extract_tb(problem.__traceback__) if not call.filename.startswith("<")]
    found = _IMPORT.search(lines[-1]) if lines else None
    asked = (found[3] or f"{found[1]}.{found[2]}") if found else problem.name or ""
    parts = asked.split(".")
    for count in range(len(parts), 1, -1):
        if there := MODULES.get(old := ".".join(parts[:count])):
            return f": {old} is {there} now"
    return ""
