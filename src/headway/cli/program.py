"""All commands: importing a module of commands adds them to the program, in the order in which help lists them."""

from headway.cli import backtests as _backtests
from headway.cli import commands as _commands
from headway.cli import explains as _explains
from headway.cli import exports as _exports
from headway.cli import reports as _reports
from headway.cli import sweeps as _sweeps
from headway.cli import traces as _traces
from headway.cli import whatifs as _whatifs
from headway.cli.app import app

__all__ = ["app"]

_ = _commands, _backtests, _sweeps, _reports, _traces, _explains, _exports, _whatifs
