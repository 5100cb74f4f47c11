"""Which format a file is in, told by its header: the one format whose required columns are all there."""

from pathlib import Path

from headway.errors import TraceError
from headway.traces import helios, native, philly, synergy
from headway.traces.table import contents

_MARKS = {
    synergy.NAME: [set(synergy.COLUMNS)],
    helios.NAME: [set(helios.COLUMNS)],
    philly.NAME: [set(philly.COLUMNS)],
    native.NAME: [{f"submit{unit}", f"work{other}", "gpus"} for unit in ("_s", "_ns") for other in ("_s", "_ns")],
}


def guess(path: str | Path) -> str:
    """The name of the format, or a line that asks for it."""
    data = contents(Path(path))
    if data[:4] == b"PAR1":
        return native.NAME
    first = data.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    columns = {name.strip().strip('"') for name in first.split(",")}
    found = [name for name, marks in _MARKS.items() if any(mark <= columns for mark in marks)]
    if len(found) != 1:
        raise TraceError(
            f"trace {path}: its format cannot be told from its columns; name it with --format ({', '.join(_MARKS)})"
        )
    return found[0]
