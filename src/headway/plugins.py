"""Load parts of policies from outside the package: a class in the user's own file, or an installed entry point.

``./mine.py:MyOrder(weight=2)+easy`` loads the file and puts the class into the table of its kind under its own name.
Installed packages offer classes under the entry point group ``headway.policies``. ``slurm:slurm.conf`` is the policy
that the settings of a Slurm site come to, ``slurm:slurm.conf(qos=high:1000)`` the same with an option of its order.

What a run folder names is another matter: it is data, and may come from anybody. ``of_run`` disarms the files that it
names, so that nothing imports them, unless the user trusts it.
"""

import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from headway.core.named import described, in_full
from headway.core.outside import check_method, is_outside
from headway.errors import ExperimentError, InputError, TapeError, unknown_name
from headway.fleet.policies import registry as serving
from headway.fleet.policies.parts import ServingPolicy
from headway.gpu.policies import registry as kernels
from headway.gpu.policies.parts import KernelsPolicy
from headway.jobs.policies import registry
from headway.jobs.policies.parts import Allocation, Backfill, Migration, Order, PlacementRule
from headway.jobs.slurm.output.records import Unread
from headway.jobs.slurm.site import policy as slurm_site
from headway.moved import new_place

GROUP = "headway.policies"
SITE = "slurm:"
TABLES: dict[type, dict[str, Any]] = {
    Order: registry.ORDERS,
    Backfill: registry.BACKFILLS,
    PlacementRule: registry.PLACEMENTS,
    Migration: registry.MIGRATIONS,
    Allocation: registry.ALLOCATIONS,
    ServingPolicy: serving.POLICIES,
    KernelsPolicy: kernels.POLICIES,
}
"""The kinds of parts that a policy is made of, and the known parts of each by name."""
_KINDS = (
    "Order, Backfill, Placement, Migration or Allocation of headway.jobs, Policy of headway.fleet or of headway.gpu"
)
TRUST = "--trust"
GIVEN = "python:"
"""Before the name of a class or an object that was given, from a notebook say: known in that program alone."""
_OFFERED: dict[str, type] = {}
"""Such classes by name; an object is one whose instances are copies of it, and its name has brackets."""
_HELD: dict[str, Any] = {}
"""Such objects, as they were when they were given."""
_UNTRUSTED = "untrusted:"
"""Before the path of a file that is not to be imported."""
_FROM_FILE = re.compile(r"\s*(.+\.py):(\w+)\s*(\(.*\))?\s*")


def resolve(spec: str, scale: str = "") -> str:
    """Register the classes from files that a policy names, and return the policy with their names instead.

    With a scale, one that is a policy of another scale alone is refused by that name.
    """
    _installed()
    check_trusted(spec, "policy")
    if spec.startswith(SITE):
        path, options, more = _site(spec)
        policy = slurm_site.read(path).policy
        return f"{slurm_site.with_options(policy, options) if options else policy}{more}"
    if scale and not is_from_outside(spec):
        _refuse_other_scales(spec, scale)
    return "+".join(map(_term, _terms(spec)))


def _site(spec: str) -> tuple[str, str, str]:
    """Return the file of ``slurm:FILE(options)+more``, its options and the rest."""
    match = re.fullmatch(r"([^+(]+)(?:\(([^()]*)\))?(\+.*)?", spec.removeprefix(SITE))
    if match is None:
        raise ExperimentError(f"policy {spec}: is not understood: write it like slurm:slurm.conf(qos=high:1000)+easy")
    return match[1], match[2] or "", match[3] or ""


def site_unread(spec: str) -> tuple[Unread, ...]:
    """Return settings of a Slurm site that the policy which stands for it does not follow."""
    if not spec.startswith(SITE) or is_untrusted(spec):
        return ()
    return slurm_site.read(_site(spec)[0]).unread


def site_notes(spec: str) -> tuple[str, ...]:
    """Return what a policy that a Slurm site's settings come to leaves of them; nothing of any other policy."""
    if not spec.startswith(SITE) or is_untrusted(spec):
        return ()
    file, options, _ = _site(spec)
    given = re.search(r"(^|,)\s*qos\s*=", options) is not None
    return tuple(note for note in slurm_site.read(file).notes if not (given and note == slurm_site.QOS_UNKNOWN))


def site_file(spec: str) -> str:
    """Return the file of ``slurm:FILE``, whose settings a policy stands for."""
    return _site(spec)[0]


def _moved(spec: str, path: Callable[[str], object]) -> str:
    """Return the policy of a site with the path of its file put another way."""
    file, options, more = _site(spec)
    return f"{SITE}{path(file)}{f'({options})' if options else ''}{more}"


def _terms(spec: str) -> list[str]:
    """Return the parts of a policy: cut at each + that is not inside brackets."""
    return re.split(r"\+(?![^()]*\))", spec)


def _refuse_other_scales(spec: str, scale: str) -> None:
    tables: dict[str, dict[str, Any]] = {"jobs": registry.ORDERS, "fleet": serving.POLICIES, "gpu": kernels.POLICIES}
    name = re.split("[+(]", spec)[0].strip()
    other = next((each for each, table in tables.items() if name in table), scale)
    if name not in tables[scale] and other != scale:
        names = ", ".join(sorted(tables[scale]))
        raise ExperimentError(f"policy {name} is one of {other}, not of {scale} (valid: {names})")


def is_from_outside(spec: str) -> bool:
    """Return whether a policy has a part from a file, or one that was given as an object."""
    return ".py:" in spec or GIVEN in spec


def offer(part: Any) -> str:
    """Make an object of the user's own class known, or the class; return the text that means it in this program.

    A class that is defined anew, as notebooks do, takes the place of the one before. Of an object each run gets a copy.
    """
    kind = part if isinstance(part, type) else type(part)
    table, name = _kind(kind), getattr(kind, "name", None)
    if table is not None and name in _OFFERED and table.get(name) is _OFFERED[name]:
        del table[name]
    name = register(kind, f"policy {kind.__name__}")
    _OFFERED[name] = kind
    if isinstance(part, type):
        return f"{GIVEN}{name}"
    if is_own(kind):
        training = isinstance(part, Order | Backfill | PlacementRule | Migration | Allocation)
        return f"{GIVEN}{registry.describe(part) if training else described(part, name)}"
    assert table is not None
    return f"{GIVEN}{_hold(part, table)}"


def _hold(part: Any, table: dict[str, Any]) -> str:
    """Put a class into a table whose instances are copies of an object; return the word it is known by.

    The word is what tables show of the object, but for what has a meaning in the name of a policy.
    """
    kind: Any = type(part)
    meta: Any = type(kind)
    shown = in_full(part, kind.name)
    name, _, options = shown.partition("(")
    word = f"{name}({re.sub('[%()+]', lambda each: f'%{ord(each[0]):x}', options.removesuffix(')'))})"
    try:
        _HELD[word] = deepcopy(part)
    except Exception as problem:  # noqa: BLE001 - whatever the class of a value raises
        what = f"{type(problem).__name__}: {problem}"
        raise ExperimentError(f"policy {shown}: cannot be copied ({what}): each run needs a copy of its own") from None

    def made(cls: type) -> Any:
        one = deepcopy(_HELD[word])
        object.__setattr__(one, "__class__", cls)
        return one

    if table.get(word, object).__base__ is not kind:
        own = {"__module__": kind.__module__, "name": shown, "__new__": made, "__init__": lambda _self: None}
        table[word] = _OFFERED[word] = meta(kind.__name__, (kind,), own)
    return word


def anchored(spec: str) -> str:
    """Return the policy with the paths of its files made absolute, so that it can be found from anywhere."""
    if spec.startswith(SITE):
        return resolve(spec)
    return "+".join(_with_path(term, lambda path: Path(path).expanduser().resolve()) for term in _terms(spec))


def of_run(spec: str, folder: Path, *, trust: bool) -> str:
    """Return a policy that a run folder names: with the paths of its files, marked if they are not trusted.

    Headway stores absolute paths. A relative one is taken from the run folder, never from the current one.
    """
    if spec.startswith(SITE):
        return _moved(spec, lambda path: folder.resolve() / path)
    return "+".join(_of_run(term, folder, trust) for term in _terms(spec))


def marked_untrusted(path: str) -> str:
    """Mark a file that a run folder names, so that ``check_trusted`` refuses it."""
    return f"{_UNTRUSTED}{path}"


def is_untrusted(spec: str) -> bool:
    """Return whether a policy or a scenario is a file, or has one, that is not trusted."""
    return _UNTRUSTED in spec


def as_named(spec: str) -> str:
    """Return a policy or scenario as the run folder names it, to be shown."""
    return spec.replace(_UNTRUSTED, "")


def check_trusted(spec: str, what: str) -> None:
    """Refuse a Python file that a run folder names, unless the folder was opened by somebody who trusts it."""
    if is_untrusted(spec):
        why = f"a run folder is data, and the Python file that it names is not run unless you trust it: {TRUST}"
        why += ", or trust=True in Python"
        if GIVEN in spec:
            why = "was given as a Python object, and is not known in this program: give it where its class is defined"
        raise TapeError(f"{what} {as_named(spec)}: {why}")


def _of_run(term: str, folder: Path, trust: bool) -> str:
    if term.strip().startswith(GIVEN):
        return term if _is_known(term) else marked_untrusted(term.strip())
    return _with_path(term, lambda path: f"{'' if trust else _UNTRUSTED}{folder.resolve() / path}")


def _with_path(term: str, change: Callable[[str], object]) -> str:
    """Return a part that is from a file with the path changed, any other part as it is."""
    match = _FROM_FILE.fullmatch(term)
    return term if match is None else f"{change(match[1])}:{match[2]}{match[3] or ''}"


def rooted(spec: str) -> str:
    """Return a policy as it was written, with the paths of its files and of a site's settings made absolute."""
    if spec.startswith(SITE):
        return _moved(spec, lambda path: Path(path).expanduser().resolve())
    return anchored(spec)


def _is_known(term: str) -> bool:
    """Return whether a part that was given as an object is known: as it is, or its class, by name."""
    word = term.strip().removeprefix(GIVEN)
    kind = _OFFERED.get(word.partition("(")[0].strip())
    return word in _OFFERED or (kind is not None and is_own(kind))


def _term(term: str) -> str:
    if term.strip().startswith(GIVEN):
        check_trusted(term if _is_known(term) else marked_untrusted(term.strip()), "policy")
        return term.strip().removeprefix(GIVEN)
    match = _FROM_FILE.fullmatch(term)
    if match is None:
        if (alone := Path(term.partition("(")[0].strip())).suffix == ".py":
            raise ExperimentError(f"policy {term.strip()}: which class of the file? Write {alone}:CLASS")
        return term
    path, name, options = match.groups()
    classes = {key: value for key, value in vars(_module(Path(path).expanduser().resolve())).items() if _kind(value)}
    if not classes:
        raise ExperimentError(f"policy file {path}: unknown part {name!r}: no class in it derives from {_KINDS}")
    if name not in classes:
        raise ExperimentError(f"policy file {path}: {unknown_name('part', name, classes)}")
    return register(classes[name], f"policy file {path}") + (options or "")


@cache
def _module(path: Path) -> Any:
    return imported(path, "policy", f"policy file {path}")


def imported(path: Path, kind: str, where: str) -> Any:
    """Return a user's Python file as a module; ``where`` names it in errors."""
    if not path.is_file():
        raise ExperimentError(f"{where}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"headway_{kind}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module  # as every import does: dataclasses and pickled values look their module up
    try:
        with loading(where):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name)
        if before is not None:
            sys.modules[spec.name] = before
        raise
    return module


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Turn whatever a user's own file raises while it is imported or called into one line, but for Ctrl-C."""
    try:
        yield
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        reason = (str(problem).splitlines() or [""])[0]
        told = f"{type(problem).__name__}: {reason}"
        raise ExperimentError(f"{what}: cannot be loaded ({told}){_line_of(problem)}{new_place(problem)}") from problem


def _line_of(problem: BaseException) -> str:
    """Return the line of a file at which something went wrong; nothing where its own words say it."""
    ours = ("<", f"{Path(__file__).parent}{os.sep}")
    calls = [call for call in traceback.extract_tb(problem.__traceback__) if not call.filename.startswith(ours)]
    if isinstance(problem, SyntaxError) or not calls:
        return ""
    return f", line {calls[-1].lineno} of {Path(calls[-1].filename).name}"


@cache
def _installed() -> None:
    for point in entry_points(group=GROUP):
        with loading(f"entry point {point.name} of {GROUP}"):
            part = point.load()
        register(part, f"entry point {point.name} of {GROUP}")


def _kind(part: Any) -> dict[str, Any] | None:
    """Return the table that a class of the user's belongs into; None for what is no part of a policy."""
    if not isinstance(part, type):
        return None
    return next((table for kind, table in TABLES.items() if issubclass(part, kind) and part is not kind), None)


def is_own(kind: type) -> bool:
    """Return whether a class is headway's, all the way down; else it comes from a file or an installed package."""
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return roots <= {"headway", *sys.stdlib_module_names}


def register(part: Any, where: str) -> str:
    """Put a class into the table of its kind; what comes back is the name it goes by."""
    table = _kind(part)
    if table is None:
        raise ExperimentError(f"{where}: {part!r} is no {_KINDS}")
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w.-]*", name):
        raise ExperimentError(f"{where}: class {part.__name__} needs a name of letters, digits and '-', not {name!r}")
    if missing := sorted(getattr(part, "__abstractmethods__", ())):
        raise ExperimentError(f"{where}: class {part.__name__} does not define {', '.join(missing)}")
    if is_outside(part):
        _check_methods(part)
    if table.setdefault(name, part) is not part:
        raise ExperimentError(f"{where}: the name {name!r} of class {part.__name__} is taken; choose another")
    return name


def _check_methods(part: type) -> None:
    """Refuse a part of training's whose methods cannot be called as they will be; other scales look at theirs."""
    for base in (Order, Backfill, PlacementRule, Migration, Allocation):
        for name, method in vars(base).items() if issubclass(part, base) else ():
            if inspect.isfunction(method) and not name.startswith("_") and getattr(part, name) is not method:
                check_method(part, name, tuple(inspect.signature(method).parameters)[1:])
