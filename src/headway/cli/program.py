"""All commands: importing a module of commands adds them to the program, in the order in which help lists them."""

from headway.cli import commands as _commands
from headway.cli import exports as _exports
from headway.cli import traces as _traces
from headway.cli import whatifs as _whatifs
from headway.cli.app import app

__all__ = ["app"]

_ = _commands, _traces, _exports, _whatifs
