"""What is asked of every policy from outside the package, at any scale: its methods, and where in its file it erred."""

import inspect
from traceback import walk_tb
from typing import Any

from headway.errors import ExperimentError


def is_outside(policy: type) -> bool:
    """Return whether a class does not come with the package."""
    return policy.__module__.partition(".")[0] != "headway"


def check_method(policy: Any, name: str, arguments: tuple[str, ...]) -> None:
    """Refuse a method that cannot be called with these arguments, before the first run."""
    method = getattr(policy, name)
    rule = f"define it as {name}({', '.join(('self', *arguments))}){place_of(policy, name)}"
    if not callable(method):
        raise ExperimentError(f"policy {policy.name}: {name} = {method!r} is no method: {rule}")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise ExperimentError(f"policy {policy.name}: {name} is async, and nobody awaits it: {rule}")
    own = inspect.getattr_static(policy, name)
    bind = None if isinstance(own, staticmethod | classmethod) else getattr(method, "__get__", None)
    bound = bind(object()) if bind else method
    try:
        inspect.signature(bound).bind(*arguments)
    except (TypeError, ValueError):
        has = inspect.signature(method)
        raise ExperimentError(f"policy {policy.name}: {name}{has} has the wrong arguments: {rule}") from None


def place_of(policy: type, method: str = "__init__") -> str:
    """Where a class from outside the package defines a method, `` (class Mine in mine.py, line 12)``; else empty."""
    code = getattr(getattr(policy, method, None), "__code__", None)
    if not is_outside(policy):
        return ""
    where = f" in {file_name(code.co_filename)}, line {code.co_firstlineno}" if code is not None else ""
    return f" (class {policy.__name__}{where})"


def line_of(actions: object) -> str:
    """Return where a policy yielded, `` (mine.py, line 12)``; empty if it is no generator."""
    if not inspect.isgenerator(actions) or actions.gi_frame is None:
        return ""
    return f" ({file_name(actions.gi_code.co_filename)}, line {actions.gi_frame.f_lineno})"


def own_end(problem: BaseException, decide: Any) -> str:
    """What a policy did that ended itself by ``exit()``, ``StopIteration`` or calls without end, and where; else empty.

    ``decide`` is its method: a generator that hands on to itself is in no frame of its own when the calls are too many.
    """
    if isinstance(problem, RecursionError):
        code = decide.__code__
        if any(frame.f_code is code for frame, _ in walk_tb(problem.__traceback__)):
            return ""  # the traceback says where
        return f"decide calls itself without end ({file_name(code.co_filename)}, line {code.co_firstlineno})"
    if not isinstance(problem, SystemExit) and not isinstance(problem.__cause__, StopIteration):
        return ""
    raised = problem if isinstance(problem, SystemExit) else problem.__cause__ or problem
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(raised.__traceback__)]
    file, line = [place for place in places if not place[0].startswith("<")][-1]  # quit() is in none
    return f"{type(raised).__name__} in {file_name(file)}, line {line}; decide ends by itself or by return"


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.replace("\\", "/").rpartition("/")[2]
