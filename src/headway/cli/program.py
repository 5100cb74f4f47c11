"""Put all commands together: importing a module of commands adds them; help lists them in the order here."""

from typing import Any

from headway.cli import (  # noqa: F401 - each adds its commands
    calls,
    commands,
    model_profiles,
    profiles,
    queue_jobs,
    serve_status,
    shadow,
    sharing,
    stored_runs,
    traces,
    tune,
)
from headway.cli.app import app
from headway.cli.kernel_profiles import kernels, profile
from headway.cli.model_profiles import model
from headway.cli.questions import GROUPS

__all__ = ["app"]

_ORDER = (
    *("demo", "run", "report", "summary", "story", "explain", "whatif", "distance", "export", "audit", "replay"),
    *("policies", "shadow", "call", "load"),
)
_PANELS = {
    **dict.fromkeys(_ORDER[2:11], "Stored runs"),
    **dict.fromkeys(("call", "load", "serve"), "Serving"),
    **dict.fromkeys(("queue", "shadow"), "Training"),
    **dict.fromkeys(("profile", "share", "trace"), "Traces and programs"),
}
"""The panel of the help that a command is in, where it is not the first."""
_GROUPS = (*GROUPS, "queue", "serve", "profile", "share", "trace")


def _group(added: Any) -> str:
    return str(added.typer_instance.info.name)


for group in GROUPS.values():
    app.add_typer(group)
for command in app.registered_commands:
    command.name = command.name or str(getattr(command.callback, "__name__", ""))
    command.rich_help_panel = _PANELS.get(command.name, "Commands")
for added in app.registered_groups:
    added.rich_help_panel = _PANELS.get(_group(added), "Commands")
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))
app.registered_groups.sort(key=lambda added: _GROUPS.index(_group(added)))
profile.registered_commands.sort(key=lambda command: (command.callback is kernels, command.callback is model))  # last
