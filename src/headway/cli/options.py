"""Make commands out of settings: each ``Flag`` becomes an option, and a command is called with what was given."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from headway.runs.settings import common_flags
from headway.runs.settings.flags import Flag

Given = Mapping[str, Any]
Body = Callable[[Given], None]
_KINDS: dict[Any, Any] = {
    str: str | None,
    int: int | None,
    float: float | None,
    bool: bool | None,
    list: list[str] | None,
}


def argument(name: str, kind: Any, help: str, metavar: str, default: Any = Parameter.empty) -> Parameter:
    """Return an argument that stands without a flag."""
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, typer.Argument(help=help, metavar=metavar)],
    )


def option(
    name: str, kind: Any, help: str, *spelled: str, default: Any = None, panel: str = "", **more: Any
) -> Parameter:
    """Return an option that is no setting of an experiment."""
    shown = typer.Option(
        *(spelled or (f"--{name.replace('_', '-')}",)), help=help, rich_help_panel=panel or None, **more
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


JSON = option("as_json", bool, "Print JSON, times in seconds.", "--json", default=False, panel=common_flags.RUN)


def setting(flag: Flag) -> Parameter:
    """Return the option of a setting."""
    spelled = [flag.option if flag.kind is not bool else f"{flag.option}/--no-{flag.name.replace('_', '-')}"]
    bounds = {name: value for name, value in (("min", flag.least), ("max", flag.most)) if value is not None}
    more = {"metavar": flag.metavar} if flag.metavar else {}
    return option(flag.name, _KINDS[flag.kind], flag.help, *spelled, panel=flag.panel, **bounds, **more)


def command(app: typer.Typer, name: str, parameters: Sequence[Parameter], help: str) -> Callable[[Body], Body]:
    """Register a function as a command: it is called with one mapping of everything that was given."""

    def registered(body: Body) -> Body:
        def called(**given: Any) -> None:
            body(given)

        called.__signature__ = Signature(list(parameters))  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name, help=help)(called)
        return body

    return registered
