"""A campaign on disk: where its parts lie, what its manifest says, and whether it can be read.

```
CAMPAIGN/manifest.json                     what was asked for, by which code, and how far it is
CAMPAIGN/trace/run=swarm/part-*.parquet    rows of whole seeds in order; the last row of a seed is its result
```

A file holds a few seeds that follow each other, so that a question about one seed opens one file, and one about a
scenario one folder. A seed is done when its `result` row is there: a file appears in one piece or not at all.

Promises  what is wrong with a dataset is said in one line with what to do: not there, not a campaign, of other code,
          half written, of an older schema.
Never     needs Spark, or changes a trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dovetail.reports.errors import ReportError
from dovetail.sim.trace import Row

MANIFEST = "manifest.json"
TRACE = "trace"
FORMAT = 1
COLUMNS = ("run", "seed", *Row.__struct_fields__)
RESULT = "result"
"""The kind of a seed's last row: what came of it, as JSON in `detail`."""


class BadDataset(ReportError):
    """There is nothing here that a report could be made of."""


class Manifest(Struct, frozen=True):
    """What a campaign is. `hash` is over the results of all seeds, once they are there."""

    version: str
    code: str
    """A hash over the code that runs a seed: seeds of different code are not one campaign."""
    scenario: str
    seed: int
    seeds: int
    format: int = FORMAT
    columns: tuple[str, ...] = COLUMNS
    settings: dict[str, str] = {}
    done: int = 0
    hash: str = ""

    @property
    def is_finished(self) -> bool:
        return bool(self.hash)


class Dataset(Struct, frozen=True):
    """Trace files, and the manifest where they are a campaign's."""

    path: Path
    manifest: Manifest | None
    rows: int = 0

    @property
    def trace(self) -> str:
        """What Spark is told to read."""
        return str(self.path / TRACE if self.manifest is not None else self.path)

    @property
    def title(self) -> str:
        if self.manifest is None:
            return self.path.name
        first, last = self.manifest.seed, self.manifest.seed + self.manifest.seeds - 1
        return f"{self.manifest.scenario}, seeds {first} to {last}"


def open_dataset(text: str, *, partial: bool = False) -> Dataset:
    """A campaign, or a directory or file of trace rows, that a report can be made of."""
    path = local(text)
    if not path.exists():
        raise BadDataset(f"there is no {text}: `dovetail sim campaign --out {text}` makes one")
    manifest = read_manifest(path) if path.is_dir() else None
    dataset = Dataset(path, manifest)
    if manifest is not None and not manifest.is_finished and not partial:
        raise BadDataset(
            f"{text} is not finished: `dovetail sim campaign --out {text}` runs the seeds that are missing, "
            "--partial reports on those that are there"
        )
    rows = check_files(dataset, text)
    if not rows:
        raise BadDataset(
            f"{text} holds no trace: `dovetail sim campaign --out DIR` and `sim run --trace FILE` write them"
        )
    return replace(dataset, rows=rows)


def local(text: str) -> Path:
    """A directory that this machine, and every executor, sees under this name."""
    if "://" in text:
        raise BadDataset(f"{text} is an address: name a directory, on a cluster one that all its machines share")
    return Path(os.path.abspath(text))


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of a campaign; None where there is none."""
    place = path / MANIFEST
    try:
        data = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadDataset(f"can't read {place}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BadDataset(f"{place} is no manifest ({error}): restore it, or run the campaign again elsewhere") from None
    if found.format != FORMAT:
        raise BadDataset(f"{place} is of format {found.format}, this Dovetail reads {FORMAT}: use the one it is from")
    return found


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Put the manifest in place, whole, making the directory where there is none."""
    beside = path / f".{MANIFEST}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        beside.replace(path / MANIFEST)
    except OSError as error:
        raise BadDataset(f"can't write into {path}: {error.strerror}; --out names another directory") from None


def trace_files(dataset: Dataset) -> list[Path]:
    """The files that hold rows, those in `_temporary` and the like left out, as Spark leaves them out."""
    top = Path(dataset.trace)
    if top.is_file():
        return [top]
    hidden = ("_", ".")
    found = (path for path in top.rglob("*.parquet") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(hidden) for part in path.relative_to(top).parts))


def check_files(dataset: Dataset, text: str) -> int:
    """How many rows there are, if all files can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    for path in trace_files(dataset):
        try:
            with pq.ParquetFile(path) as file:
                names = file.schema_arrow.names
                rows += file.metadata.num_rows
            columns = {*names, *(part.partition("=")[0] for part in path.parts if "=" in part)}
        except (pa.ArrowInvalid, OSError) as error:
            way_out = (
                "take it away, and report on the rest"
                if dataset.manifest is None
                else f"delete it, and `dovetail sim campaign --out {text}` runs its seeds again"
            )
            raise BadDataset(f"{path} is damaged or half written ({str(error).splitlines()[0]}): {way_out}") from None
        missing = [name for name in COLUMNS if name not in columns]
        if missing:
            raise BadDataset(
                f"{path} is of an older schema, without {', '.join(missing)}: run it again with this version, "
                "or report on it with the one that wrote it"
            )
    return rows


def code_hash() -> str:
    """Which code this is, as far as a run depends on it."""
    found = blake2b(digest_size=8)
    for folder in ("core", "runtime", "sim"):
        for name, data in _sources(files("dovetail").joinpath(folder), folder):
            found.update(f"{name}\0{len(data)}\0".encode())
            found.update(data)
    return found.hexdigest()


def _sources(place: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in sorted(place.iterdir(), key=lambda found: found.name):
        if each.is_dir() and each.name != "__pycache__":
            yield from _sources(each, f"{name}/{each.name}")
        elif each.name.endswith(".py"):
            yield f"{name}/{each.name}", each.read_bytes()
