"""What runs are called where space is short."""

import re
from collections.abc import Sequence

LONGEST = 40
_OPTIONS = re.compile(r"\([^()]*\)")


def shortened(names: Sequence[str]) -> list[str]:
    """Policies by their parts alone where their options would make the name too long and are not what tells them apart.

    ``multifactor(fairshare_weight=4000, …)+easy`` becomes ``multifactor(…)+easy``.
    """
    short = [name if len(name) <= LONGEST else _OPTIONS.sub("(…)", name) for name in names]
    return [each if short.count(each) == 1 else name for name, each in zip(names, short, strict=True)]
