"""Headway schedules shared GPUs: try any policy on your own trace, then run the same policy live.

``import headway as hw`` gives the verbs of the command line; ``docs/tutorials/python.md`` shows them. A name is
imported when it is first asked for: inside a training program this costs next to nothing.
"""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway import fleet as fleet, gpu as gpu, jobs as jobs
    from headway.api import (
        Fleet as Fleet,
        Gpu as Gpu,
        Jobs as Jobs,
        Work as Work,
        backtest as backtest,
        compare as compare,
        environment as environment,
        open as open,
        plan as plan,
        predict as predict,
        run as run,
        simulate as simulate,
        sweep as sweep,
        synthetic as synthetic,
        tune as tune,
        work as work,
    )
    from headway.errors import (
        HeadwayError as HeadwayError,
        NoServerError as NoServerError,
        RequestError as RequestError,
        RequestLateError as RequestLateError,
        RequestLostError as RequestLostError,
        RequestRefusedError as RequestRefusedError,
        ServeError as ServeError,
        TaskFailedError as TaskFailedError,
        UnknownGraphError as UnknownGraphError,
    )
    from headway.fleet.live.client.client import AsyncClient as AsyncClient, client as client
    from headway.program.cached import CachedDataset as CachedDataset
    from headway.program.pipeline import graph as graph, model as model, task as task
    from headway.program.requests import request as request
    from headway.program.steps import step as step, steps as steps

__version__ = "0.1.0"

_NAMES = {
    **dict.fromkeys(("fleet", "gpu", "jobs"), ""),
    **dict.fromkeys(
        (
            *("Fleet", "Gpu", "Jobs", "Work", "backtest", "compare", "environment", "open", "plan", "predict", "run"),
            *("simulate", "sweep", "synthetic", "tune", "work"),
        ),
        "api",
    ),
    **dict.fromkeys(("AsyncClient", "client"), "fleet.live.client.client"),
    **dict.fromkeys(
        (
            *("HeadwayError", "NoServerError", "RequestError", "RequestLateError", "RequestLostError"),
            *("RequestRefusedError", "ServeError", "TaskFailedError", "UnknownGraphError"),
        ),
        "errors",
    ),
    "CachedDataset": "program.cached",
    **dict.fromkeys(("graph", "model", "task"), "program.pipeline"),
    "request": "program.requests",
    **dict.fromkeys(("step", "steps"), "program.steps"),
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)
__all__.remove("open")  # after "import *" Python's own stays what it is
