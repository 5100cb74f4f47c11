"""All commands: importing a module of commands adds them to the program, in the order in which help lists them."""

from headway.cli import commands as _commands
from headway.cli.app import app

__all__ = ["app"]

_ = _commands
