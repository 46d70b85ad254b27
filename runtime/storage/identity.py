"""`broker.json`: whose data directory this is, in which format, and the salt that marks its journal frames.

Promises  a file that was damaged is known as such, and is made anew from what the journal says.
Never     changes after it was written, except to be repaired.
"""

from __future__ import annotations

import json
from hashlib import blake2b

from crc32c import crc32c
from msgspec import Struct

from dovetail.runtime.storage.disk import DiskError, Kind, Task, read_all, replace_file
from dovetail.runtime.storage.findings import Finding, Outcome, Unusable
from dovetail.runtime.storage.layout import BROKER
from dovetail.runtime.storage.scan import list_segments

FORMAT = 1


class Identity(Struct, frozen=True):
    """The directory's own: `broker_id` may be shown, `salt` not (who knows it could forge a frame)."""

    broker_id: str
    created_ms: int
    salt: int


def new_identity(salt: int, created_ms: int) -> Identity:
    """The identity that belongs to a salt."""
    broker_id = blake2b(salt.to_bytes(8, "big"), digest_size=8, person=b"dovetail id").hexdigest()
    return Identity(broker_id, created_ms, salt)


def encode(identity: Identity, version: int = FORMAT) -> bytes:
    """The file's text."""
    fields: dict[str, object] = {
        "format": version,
        "id": identity.broker_id,
        "created_ms": identity.created_ms,
        "salt": f"{identity.salt:016x}",
    }
    return json.dumps({**fields, "crc32c": _crc(fields)}, indent=2).encode() + b"\n"


def _crc(fields: dict[str, object]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"


def decode(text: bytes) -> Identity:
    """The identity in a file's text; ValueError when it was damaged."""
    try:
        fields = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(fields, dict) or fields.pop("crc32c", None) != _crc(fields):
        raise ValueError("its checksum does not hold")
    if fields["format"] != FORMAT:
        raise Unusable(
            f"the data directory has format {fields['format']}, this program reads up to {FORMAT}: "
            "use a newer version of dovetail"
        )
    return Identity(fields["id"], fields["created_ms"], int(fields["salt"], 16))


def read() -> Task[Identity | Finding | None]:
    """The directory's identity; a finding when it was damaged, None when there is none."""
    try:
        text = yield from read_all(BROKER)
    except DiskError as error:
        if error.kind is not Kind.MISSING:
            raise
        return None
    try:
        return decode(text)
    except (ValueError, KeyError, TypeError) as error:
        return Finding(Outcome.REPAIRED, BROKER, 0, f"can't be read: {error}")


def from_journal(created_ms: int) -> Task[Identity | None]:
    """The identity that the journal's segments carry; None when there are none that can be read."""
    segments, _ = yield from list_segments()
    salts = [segment.header.salt for segment in segments if segment.header]
    return new_identity(salts[-1], created_ms) if salts else None


def write(identity: Identity) -> Task[None]:
    """Put the file in place."""
    yield from replace_file(BROKER, (encode(identity),))
