"""Pack columns of integers as variable-length numbers, for a page to unpack.

A column is a run of LEB128 numbers: seven bits a byte, the lowest first, the top bit says that more follow. What may be
negative is folded first (0, -1, 1, -2, …); what grows slowly is stored as differences. The page's ``clustermap.js``
reads the same.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from headway.statistics.series import IntArray


def varints(values: IntArray) -> bytes:
    """Pack numbers that are not negative, one after the other."""
    left = values.astype(np.uint64)
    columns = []
    more = np.ones(len(left), dtype=np.bool_)
    used = []
    while more.any():
        used.append(more)
        byte = (left & np.uint64(0x7F)).astype(np.uint8)
        left = left >> np.uint64(7)
        more = more & (left > 0)
        columns.append(byte | (more.astype(np.uint8) << np.uint8(7)))
    if not columns:
        return b""
    table, kept = np.stack(columns, axis=1), np.stack(used, axis=1)
    return table[kept].tobytes()


def folded(values: IntArray) -> IntArray:
    """Return numbers of either sign as numbers that are not negative, small ones small."""
    return (values << 1) ^ (values >> 63)


def differences(values: IntArray) -> IntArray:
    """Return each value less the one before; the first as it is."""
    return np.diff(values, prepend=np.int64(0))


def blob(head: Mapping[str, Any], columns: Mapping[str, bytes]) -> bytes:
    """Join a head, as JSON, and columns of bytes: the head's length in 4 bytes, the head, the columns."""
    lengths = {name: len(data) for name, data in columns.items()}
    text = json.dumps({**head, "columns": lengths}, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join((struct.pack("<I", len(text)), text, *columns.values()))
