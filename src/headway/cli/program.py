"""Put all commands together: importing a module of commands adds them; help lists them in the order here."""

from typing import Any

from headway.cli import commands, stored_runs, traces  # noqa: F401 - each adds its commands
from headway.cli.app import app
from headway.cli.fleet import calls, model_profiles, serve_status  # noqa: F401 - each adds its commands
from headway.cli.fleet.model_profiles import model
from headway.cli.gpu import sharing  # noqa: F401 - each adds its commands
from headway.cli.gpu.kernel_profiles import kernels, profile
from headway.cli.jobs import profiles, queue_jobs, shadow, tune  # noqa: F401 - each adds its commands
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
