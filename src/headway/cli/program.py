"""Put all commands together: importing a module of commands adds them; help lists them in the order here."""

from headway.cli import commands, model_profiles, profiles, sharing, stored_runs, traces  # noqa: F401 - each adds its commands
from headway.cli.app import app
from headway.cli.kernel_profiles import kernels, profile
from headway.cli.model_profiles import model
from headway.cli.questions import GROUPS

__all__ = ["app"]

_ORDER = ("demo", "run", "report", "story", "explain", "whatif", "export", "audit", "replay", "policies")
_ABOUT_STORED_RUNS = ("report", "story", "explain", "whatif", "export", "audit", "replay")
"""A panel of their own in the help."""

for group in GROUPS.values():
    app.add_typer(group)
for command in app.registered_commands:
    command.name = command.name or getattr(command.callback, "__name__", "")
    command.rich_help_panel = "Stored runs" if command.name in _ABOUT_STORED_RUNS else "Commands"
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))
for added in app.registered_groups:
    added.rich_help_panel = "Commands" if added.typer_instance in GROUPS.values() else "Traces and programs"
app.registered_groups.sort(key=lambda added: added.typer_instance not in GROUPS.values())
profile.registered_commands.sort(key=lambda command: (command.callback is kernels, command.callback is model))  # last
