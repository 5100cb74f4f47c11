"""Run Slurm's own commands: by lists of arguments, never through a shell, with a time limit.

Variables by which a user changes what these commands print (``SQUEUE_FORMAT``, ``SLURM_TIME_FORMAT``, …) are kept from
them; times are printed in UTC.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping

from headway.errors import SlurmAwayError, SlurmError

TIMEOUT_S = 10.0
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_STRIPPED = ("SLURM_", "SQUEUE_", "SINFO_", "SACCT_", "SBATCH_", "SCANCEL_", "SALLOC_", "SRUN_", "SCONTROL_")
_AWAY = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Communication connection failure",
    "Zero Bytes were transmitted",
    "Unable to establish controller machine",
    "Could not establish a configuration source",
    "Transport endpoint is not connected",
    "Protocol authentication error",
    "Unable to connect",
    "Munge",
)
"""What is said where nobody answers; anything else is an answer."""
_DENIED = ("Access/permission denied", "not permitted", "Invalid user id", "must be")


class Slurm:
    """The Slurm that this machine's configuration (``SLURM_CONF``) leads to."""

    def __init__(self, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """``environment``: that of the commands, else this process's."""
        given = os.environ if environment is None else environment
        self._environment = {
            name: value for name, value in given.items() if name in _KEPT or not name.startswith(_STRIPPED)
        }
        self._environment |= {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
        self._timeout_s = timeout_s

    def run(self, *command: str, stdin: str = "") -> str:
        """Return what a command prints; SlurmAwayError where nobody answers, SlurmError where Slurm refuses."""
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except FileNotFoundError:
            raise SlurmAwayError(
                f"{command[0]} is not there: Slurm's commands are not installed, or not on the PATH"
            ) from None
        except subprocess.TimeoutExpired:
            raise SlurmAwayError(_away(f"{command[0]} has waited for {self._timeout_s:g} s")) from None
        except OSError as problem:
            raise SlurmAwayError(f"{command[0]} cannot be run: {problem.strerror}") from None
        if done.returncode:
            raise _error(command, done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}")
        return done.stdout

    @property
    def installed(self) -> bool:
        """Return whether its commands are here."""
        return shutil.which("squeue", path=self._environment.get("PATH")) is not None


def _error(command: tuple[str, ...], said: str) -> SlurmError:
    """Return the error of a command: its last line says most."""
    line = said.splitlines()[-1].strip()
    if any(word in said for word in _AWAY):
        return SlurmAwayError(_away(line))
    return SlurmError(f"{' '.join(command[:3])}: {line}", denied=any(word in said for word in _DENIED))


def _away(why: str) -> str:
    return f"Slurm does not answer ({why}): is slurmctld running, and does SLURM_CONF name its slurm.conf?"
