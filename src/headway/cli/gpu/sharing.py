"""Collect the commands for sharing a GPU. A GPU machine without the other dependencies runs these alone."""

from headway.cli.app import app
from headway.cli.gpu import share as first, share_status

__all__ = ["app", "share"]

share = first.share
_ORDER = (
    first.run,
    share_status.status,
    first.stop,
    share_status.doctor,
    first.build,
    first.broker,
)
share.registered_commands.sort(key=lambda command: _ORDER.index(command.callback))
