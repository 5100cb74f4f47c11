"""Convert what accounts and users have used, as ``sshare`` prints it, to GPU time.

``GrpTRESRaw`` (sshare -l) has minutes of GPUs. ``RawUsage`` has seconds of billing units, which are CPUs unless a
partition says otherwise: these are divided by the CPUs that go with a GPU.
"""

from collections.abc import Sequence

from headway.jobs.slurm.output.records import Share
from headway.units import MINUTE, SECOND

_GPU = "gres/gpu"


def used_before(shares: Sequence[Share], cpus_per_gpu: float) -> tuple[dict[str, dict[str, int]], str]:
    """Return the GPU time of each user of each account, in nanoseconds, and how it was found; nothing: an empty note.

    Rows of accounts repeat what is below them; where an account has no row of a user, its own is taken.
    """
    minutes = any(tres == _GPU and amount for each in shares for tres, amount in each.tres_minutes)
    found: dict[str, dict[str, int]] = {}
    for each in _own(shares):
        told = dict(each.tres_minutes).get(_GPU, 0) * MINUTE
        time = told if minutes else round(each.usage * SECOND / max(1.0, cpus_per_gpu))
        if time:
            users = found.setdefault(each.account, {})
            users[each.user] = users.get(each.user, 0) + time
    if not found:
        return {}, ""
    how = "GPU minutes (GrpTRESRaw)"
    if not minutes:
        how = f"billing units (RawUsage) as CPUs, {cpus_per_gpu:g} of which go with a GPU"
    return found, (
        f"fair-share: usage begins with that of sshare, in {how}, and decays from the beginning of the run on: sshare "
        "should have been printed then"
    )


def _own(shares: Sequence[Share]) -> list[Share]:
    """Return the rows of users, and those of accounts without any row below them."""
    above = {each.parent for each in shares if each.parent}
    with_users = {each.account for each in shares if each.user}
    return [each for each in shares if each.user or each.account not in above | with_users]
