"""All commands: importing a module of commands adds them to the program; help lists them in the order here."""

from headway.cli import (
    backtests,
    commands,
    explains,
    exports,
    kernel_profiles,
    looks,
    models,
    plans,
    profiles,
    reports,
    sharing,
    sweeps,
    traces,
    whatifs,
)
from headway.cli.app import app

__all__ = ["app"]

_ORDER = (
    *(commands.demo, commands.simulate, commands.compare, commands.run, sweeps.sweep, reports.report),
    *(looks.story, explains.explain, whatifs.whatif, backtests.backtest, exports.export, plans.plan),
    *(looks.audit, looks.replay, commands.policies),
)

app.registered_commands.sort(key=lambda command: _ORDER.index(command.callback))
profiles.profile.registered_commands.sort(key=lambda command: command.callback is kernel_profiles.kernels)  # the last
assert traces.trace.registered_commands, "the group of commands for traces is part of the program"
assert profiles.profile.registered_commands, "so is that for profiles"
assert sharing.share.registered_commands, "and that for sharing a GPU"
assert kernel_profiles.kernels in [command.callback for command in profiles.profile.registered_commands]
assert models.model in [command.callback for command in profiles.profile.registered_commands]
