"""What executors need to run seeds, as one archive: Dovetail and the libraries under it.

Promises  a cluster's machines need only what PySpark's own Arrow functions need (Python of this version, pyspark,
          pyarrow); everything else comes with the job.
Never     takes a library from elsewhere than this process's own installation.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib import metadata
from importlib.resources import as_file, files
from pathlib import Path

from dovetail.reports.errors import ReportError

LIBRARIES = ("crc32c", "immutables", "lz4", "msgspec", "pyyaml", "simpy", "zstandard")
"""What running a seed imports."""
FOLDERS = ("core", "runtime", "sim", "spec", "reports")


def pack(path: Path) -> None:
    """Write the archive (zip)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, file in (*_dovetail(), *_libraries()):
            archive.write(file, name)
        # Dovetail asks its own metadata which version it is.
        version = metadata.version("dovetail")
        about = f"Metadata-Version: 2.1\nName: dovetail\nVersion: {version}\n"
        archive.writestr(f"dovetail-{version}.dist-info/METADATA", about)


def _dovetail() -> Iterator[tuple[str, Path]]:
    with as_file(files("dovetail")) as top:
        yield "dovetail/__init__.py", top / "__init__.py"
        for folder in FOLDERS:
            # The folders may be links, and links to folders are not walked into.
            yield from _below((top / folder).resolve(), f"dovetail/{folder}")


def _below(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield f"{name}/{path.relative_to(folder)}", path


def _libraries() -> Iterator[tuple[str, Path]]:
    for library in LIBRARIES:
        try:
            found = metadata.files(library)
        except metadata.PackageNotFoundError:
            raise ReportError(f"{library} is missing: install `dovetail[spark]` where the campaign starts") from None
        for each in found or ():
            path = Path(str(each.locate()))
            # What lies outside of site-packages (scripts) has no business on an executor.
            if ".." not in each.parts and each.suffix != ".pyc" and path.is_file():
                yield str(each), path
