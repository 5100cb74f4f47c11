"""Unix users that a lab needs: Slurm knows users by their uid, and starts jobs as them. Needs root."""

import pwd
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def unix_users(names: Sequence[str]) -> Iterator[None]:
    """Have users with these names; those that were not there before are removed afterwards."""
    added = [name for name in names if not _is_known(name)]
    try:
        for name in added:
            _run("useradd", "--no-create-home", "--no-user-group", "--shell", "/bin/sh", name)
        yield
    finally:
        for name in filter(_is_known, added):
            _run("userdel", name)


def _is_known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
