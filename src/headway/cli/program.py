"""Put all commands together: importing a module of commands adds them; help lists them in the order here."""

from headway.cli import (
    backtests,
    commands,
    explains,
    exports,
    kernel_profiles,
    looks,
    models,
    plans,
    predicts,
    profiles,
    reports,
    scales,
    sharing,
    traces,
    whatifs,
)
from headway.cli.app import app

__all__ = ["app"]

_ORDER = ("demo", "run", "report", "story", "explain", "whatif", "export", "audit", "replay", "policies")
_MODULES = (commands, reports, looks, explains, whatifs, exports, models)

_LOOKS = ("report", "story", "explain", "whatif", "export", "audit", "replay")
"""Commands about runs that were kept: a panel of their own in the help."""

groups = scales.groups()
backtests.add(groups["jobs"])
plans.add(groups["fleet"])
predicts.add(groups["gpu"])
for each in app.registered_commands:
    each.name = each.name or getattr(each.callback, "__name__", "")
    each.rich_help_panel = "Runs that were kept" if each.name in _LOOKS else "Commands"
app.registered_commands.sort(key=lambda each: _ORDER.index(each.name or ""))
for group in app.registered_groups:
    group.rich_help_panel = "Commands" if group.typer_instance in groups.values() else "Traces and programs"
app.registered_groups.sort(key=lambda group: group.typer_instance not in groups.values())
profiles.profile.registered_commands.sort(key=lambda command: command.callback is kernel_profiles.kernels)  # the last
assert traces.trace.registered_commands, "the group of commands for traces is part of the program"
assert sharing.share.registered_commands, "and that for sharing a GPU"
assert _MODULES
