"""Read a file as a table of text, with the line that each row came from: the part that all readers share.

Everything is read as text first and typed afterwards, column by column, so that one bad cell costs one row and can
be named. Whatever is wrong with the file itself (missing, truncated, not text, empty) is one line of ``TraceError``.
"""

import csv
import gzip
import io
import mmap
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TraceError

STDIN = Path("-")
SURPLUS = "\x00surplus"
"""The column that catches fields beyond the header's; no header can hold this name."""


@dataclass(frozen=True)
class Table:
    """Rows of text, or of numbers where JSON has them.

    ``place`` is what a row is counted in: lines of a CSV file, rows of a Parquet file.
    """

    path: Path
    frame: pl.DataFrame
    lines: pl.Series
    place: str = "line"
    notes: tuple[str, ...] = ()


_SHOWN = 120


def listed(columns: Iterable[str]) -> str:
    """Return names of columns in one line of bearable length."""
    line = " ".join(", ".join(columns).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


_PACKED = {b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


@cache
def _flowed(path: Path) -> bytes:
    """Return what came out of a pipe: it can be read once."""
    return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()


def is_pipe(path: Path) -> bool:
    """Return whether it is no file that can be read again: ``-`` for standard input, a pipe, a device."""
    return path == STDIN or (path.exists() and not path.is_file() and not path.is_dir())


def contents(path: Path) -> bytes:
    """Return the bytes of a file, unpacked where it is gzip."""
    try:
        data = _flowed(path) if is_pipe(path) else path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"trace {path}: there is no such file") from None
    except IsADirectoryError:
        raise TraceError(f"trace {path}: is a directory, not a file") from None
    except (OSError, ValueError) as problem:
        raise TraceError(f"trace {path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from None
    if not data:
        raise TraceError(f"trace {path}: the file is empty")
    if data[:2] != b"\x1f\x8b":
        if path.suffix == ".gz":
            raise TraceError(f"trace {path}: ends in .gz but is not gzip data")
        for magic, kind in _PACKED.items():
            if data.startswith(magic):
                raise TraceError(f"trace {path}: is packed with {kind}: unpack it first (gzip is read as it is)")
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise TraceError(f"trace {path}: the gzip data is truncated") from None
    except (OSError, zlib.error) as problem:
        raise TraceError(f"trace {path}: the gzip data is damaged ({problem})") from None


def mapped(path: Path) -> bytes | memoryview:
    """Return the bytes of a file of JSON, not copied where it is a plain one: such files are large, and read once."""
    try:
        if not path.is_file() or path.suffix == ".gz":
            return contents(path)
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return contents(path)  # which says why it cannot be read
    return data if bytes(data[:1]) in (b"{", b"[") else contents(path)


def text(path: Path) -> str:
    """Return the text of a file, without a byte order mark."""
    data = contents(path)
    if data[:4] == b"PAR1":
        raise TraceError(f"trace {path}: is a Parquet file, this format is text")
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise TraceError(f"trace {path}: line {line} is not UTF-8 text (byte {data[problem.start]:#04x})") from None
    if not decoded or decoded.isspace():
        raise TraceError(f"trace {path}: the file is empty")
    if decoded.find("\x00", 0, decoded.find("\n")) >= 0:
        raise TraceError(f"trace {path}: line 1 holds NUL bytes: it is not UTF-8 text")
    return decoded


def _header(path: Path, line: str, separator: str) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error as problem:
        raise TraceError(f"trace {path}: line 1 cannot be read as a header ({problem})") from None
    while names and not names[-1]:
        names.pop()
    for position, name in enumerate(names):
        if not name:
            raise TraceError(f"trace {path}: column {position + 1} of the header has no name")
        if name in names[:position]:
            raise TraceError(f"trace {path}: column {name[:60]!r} occurs twice in the header")
    if not names:
        raise TraceError(f"trace {path}: line 1 is blank: it must be the header")
    return names


def _parsed(names: list[str], body: str, separator: str, quote: str | None) -> pl.DataFrame:
    # The header is replaced by plain names, with one more that catches the surplus of rows that are too long.
    plain = [str(position) for position in range(len(names) + 1)]
    source = io.BytesIO(f"{separator.join(plain)}\n{body}".encode())
    frame = pl.read_csv(source, separator=separator, quote_char=quote, infer_schema=False, truncate_ragged_lines=True)
    return frame.rename(dict(zip(plain, [*names, SURPLUS], strict=True)))


def _quoted(names: list[str], body: str, separator: str, multiline: bool) -> tuple[pl.DataFrame, pl.Series] | None:
    """Return rows and the line breaks in each, with quotes understood; None where quotes cannot be trusted."""
    try:
        frame = _parsed(names, body, separator, '"')
    except pl.exceptions.PolarsError:
        return None
    if '"' not in body:
        return frame, pl.repeat(0, frame.height, dtype=pl.Int64, eager=True)
    counts = frame.select(pl.sum_horizontal(pl.all().str.count_matches("\n").fill_null(0).cast(pl.Int64)))
    breaks = counts.to_series()
    return (frame, breaks) if multiline or not breaks.sum() else None


def _unquoted(path: Path, names: list[str], body: str, separator: str) -> tuple[pl.DataFrame, pl.Series]:
    try:
        frame = _parsed(names, body, separator, None)
    except pl.exceptions.PolarsError as problem:
        raise TraceError(f"trace {path}: cannot be read as CSV ({str(problem).splitlines()[0]})") from None
    frame = frame.with_columns(pl.all().str.replace(r'^"(.*)"$', "$1"))
    return frame, pl.repeat(0, frame.height, dtype=pl.Int64, eager=True)


def csv_table(path: Path, *, separator: str = ",", multiline: bool = False) -> Table:
    """Read a text file with a header. Blank lines are skipped, fields hold line breaks only if ``multiline``."""
    first, _, body = text(path).partition("\n")
    names = _header(path, first.rstrip("\r"), separator)
    notes: list[str] = []
    rows = _quoted(names, body, separator, multiline)
    if rows is None:
        # A stray quote would swallow rows without a word: read as ordinary text, each bad row shows itself.
        rows = _unquoted(path, names, body, separator)
        notes.append("quotes do not match: read as ordinary characters")
    frame, breaks = rows
    lines = pl.Series("line", range(2, frame.height + 2), dtype=pl.Int64) + breaks.cum_sum().shift(1, fill_value=0)
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if count := int(blank.sum()):
        notes.append(f"{count} blank line{'s' if count > 1 else ''} skipped")
        frame, lines = frame.filter(~blank), lines.filter(~blank)
    return _filled(Table(path, frame, lines, notes=tuple(notes)))


def _seconds(spans: pl.Expr) -> pl.Expr:
    """Return spans as decimal seconds, exactly."""
    return spans.dt.total_nanoseconds().cast(pl.Decimal(38, 0)) * pl.lit("0.000000001").cast(pl.Decimal(38, 9))


def parquet_table(path: Path) -> Table:
    """Read a Parquet file as a table, each column turned to text (lists joined by ``;``)."""
    data = contents(path)
    try:
        stored = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
        # Text that is not UTF-8, in cells or names, would make polars panic later: find it here.
        stored.validate(full=True)
        frame = pl.from_arrow(stored.rename_columns(stored.column_names).replace_schema_metadata(None))
        assert isinstance(frame, pl.DataFrame)
        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        frame = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(";"), cs.duration().pipe(_seconds))
        frame = frame.cast(pl.String)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError) as problem:
        reason = (str(problem).splitlines() or ["no reason given"])[0][:120]
        raise TraceError(f"trace {path}: cannot be read as Parquet ({reason})") from None
    return _filled(Table(path, frame, pl.Series("line", range(1, frame.height + 1), dtype=pl.Int64), place="row"))


def _filled(table: Table) -> Table:
    if table.frame.height == 0:
        raise TraceError(f"trace {table.path}: there is a header but no row")
    return table
