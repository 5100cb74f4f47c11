"""Put all commands together: importing a module of commands adds them; help lists them in the order here."""

from headway.cli import commands, looks, profiles, sharing, traces  # noqa: F401 - each adds its commands
from headway.cli.app import app
from headway.cli.kernel_profiles import kernels, profile
from headway.cli.questions import GROUPS

__all__ = ["app"]

_ORDER = ("demo", "run", "report", "story", "explain", "whatif", "export", "audit", "replay", "policies")
_LOOKS = ("report", "story", "explain", "whatif", "export", "audit", "replay")
"""Commands about runs that were kept: a panel of their own in the help."""

for group in GROUPS.values():
    app.add_typer(group)
for each in app.registered_commands:
    each.name = each.name or getattr(each.callback, "__name__", "")
    each.rich_help_panel = "Runs that were kept" if each.name in _LOOKS else "Commands"
app.registered_commands.sort(key=lambda each: _ORDER.index(each.name or ""))
for added in app.registered_groups:
    added.rich_help_panel = "Commands" if added.typer_instance in GROUPS.values() else "Traces and programs"
app.registered_groups.sort(key=lambda added: added.typer_instance not in GROUPS.values())
profile.registered_commands.sort(key=lambda command: command.callback is kernels)  # the last
