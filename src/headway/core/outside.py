"""Checks of policies from outside the package, at any scale: their methods, and where in their file an error is."""

import inspect
from traceback import walk_tb
from typing import Any

from headway.errors import ExperimentError


def is_outside(policy: type) -> bool:
    """Return whether a class does not come with the package."""
    return policy.__module__.partition(".")[0] != "headway"


def check_method(policy: Any, name: str, arguments: tuple[str, ...]) -> None:
    """Raise, before the first run, where a method cannot be called with these arguments."""
    method = getattr(policy, name)
    rule = f"define it as {name}({', '.join(('self', *arguments))}){place_of(policy, name)}"
    if not callable(method):
        raise ExperimentError(f"policy {policy.name}: {name} = {method!r} is not a method: {rule}")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise ExperimentError(f"policy {policy.name}: {name} is async, but must not be: {rule}")
    raw = inspect.getattr_static(policy, name)
    bind = None if isinstance(raw, staticmethod | classmethod) else getattr(method, "__get__", None)
    bound = bind(object()) if bind else method
    try:
        inspect.signature(bound).bind(*arguments)
    except (TypeError, ValueError):
        signature = inspect.signature(method)
        raise ExperimentError(f"policy {policy.name}: {name}{signature} has the wrong arguments: {rule}") from None


def place_of(policy: type, method: str = "__init__") -> str:
    """Return where an outside class defines a method, as `` (class Mine in mine.py, line 12)``; else empty."""
    code = getattr(getattr(policy, method, None), "__code__", None)
    if not is_outside(policy):
        return ""
    where = f" in {file_name(code.co_filename)}, line {code.co_firstlineno}" if code is not None else ""
    return f" (class {policy.__name__}{where})"


def line_of(actions: object) -> str:
    """Return where a policy yielded, as `` (mine.py, line 12)``; empty if it is not a generator."""
    if not inspect.isgenerator(actions) or actions.gi_frame is None:
        return ""
    return f" ({file_name(actions.gi_code.co_filename)}, line {actions.gi_frame.f_lineno})"


def own_end(problem: BaseException, decide: Any) -> str:
    """Return how and where ``decide`` ended by ``exit()``, ``StopIteration`` or endless recursion; empty otherwise.

    ``decide`` is the method: a generator that delegates to itself is in no frame when the recursion is too deep.
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
