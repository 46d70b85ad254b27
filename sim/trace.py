"""What happened in a run, one row per event: hashed as it goes, kept if wanted, written as Parquet in pieces.

Promises  the same rows give the same hash, byte for byte, on every machine (`spec/trace.md` has the columns); writing
          needs memory for one piece only.
Never     decides anything: a run is the same whether its rows are kept or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from dovetail.core.trace import Row as Row

PIECE_ROWS = 20_000


class Trace:
    """Takes rows; `hash` covers all of them, `keep` sees each."""

    def __init__(self, keep: Callable[[Row], None] | None = None) -> None:
        self.count = 0
        self._keep = keep
        self._hash = blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, time_us: int, actor: str, kind: str, **columns: Any) -> int:
        """Note that something happened; gives the row's `seq`."""
        row = Row(self.count, time_us, actor, kind, **columns)
        self.count += 1
        self._hash.update(self._encode(row))
        if self._keep is not None:
            self._keep(row)
        return row.seq

    @property
    def hash(self) -> str:
        """The run so far, in 32 hex digits."""
        return self._hash.hexdigest()


def schema() -> Any:
    """The Arrow schema of a trace file."""
    import pyarrow as pa

    kinds = {int: pa.int64(), str: pa.string(), tuple[int, ...]: pa.list_(pa.int64())}
    columns = [pa.field("run", pa.string()), pa.field("seed", pa.int64())]
    columns += [pa.field(field.name, kinds[field.type]) for field in msgspec.structs.fields(Row)]
    return pa.schema(columns)


class ParquetTrace:
    """Writes rows of one run as they come; use as a context manager."""

    def __init__(self, path: str, run: str, seed: int) -> None:
        import pyarrow.parquet as pq

        self._schema = schema()
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._run = run
        self._seed = seed
        self._rows: list[Row] = []

    def __enter__(self) -> ParquetTrace:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()

    def keep(self, row: Row) -> None:
        """Take one row."""
        self._rows.append(row)
        if len(self._rows) >= PIECE_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(to_arrow(self._rows, self._run, self._seed, self._schema))
            self._rows = []


def to_arrow(rows: Iterable[Row], run: str, seed: int, of: Any = None) -> Any:
    """Rows of one run as an Arrow record batch."""
    import pyarrow as pa

    found = list(rows)
    columns: list[Any] = [[run] * len(found), [seed] * len(found)]
    columns += [[getattr(row, name) for row in found] for name in Row.__struct_fields__]
    return pa.record_batch(columns, schema=of or schema())
