"""Who may do what: tokens from a file, TLS from certificate files, and no listening to the world without them.

Promises  a broker that listens beyond loopback has tokens, or does not start; a token is kept as a hash and compared in
          constant time; files are read again on `reload`, and a bad one changes nothing.
Never     logs a token.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import secrets
import ssl
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from dovetail.core import names
from dovetail.core.access import Access, Role
from dovetail.runtime.config import Config, address

PREFIX = "dvt_"
TOKEN_BYTES = 32
ROLES = {"read": Role.READ, "write": Role.WRITE, "admin": Role.ADMIN}


class Insecure(ValueError):
    """A set-up that would be open to anybody, or files that can't be used; the text says what to do."""


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One token as its file keeps it: 256 random bits need no slow hash."""

    name: str
    role: str
    sha256: str
    topics: tuple[str, ...] = ("#",)
    expires: str = ""
    rate: int = 0
    """HTTP requests a second; 0: any number."""


class Grant(Struct, frozen=True):
    """A token's rights, until when, and how often."""

    access: Access
    digest: bytes
    expires_s: float
    rate: int


def new_token() -> str:
    """A token nobody can guess."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_entries(path: str) -> list[Entry]:
    """The tokens in a file; raises `Insecure`."""
    try:
        return msgspec.yaml.decode(Path(path).read_bytes() or b"[]", type=list[Entry])
    except OSError as error:
        raise Insecure(f"can't read the file of tokens: {error}; `dovetail token add` makes one") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Insecure(f"{path}: not a file of tokens: {error}") from None


def write_entries(path: str, entries: list[Entry]) -> None:
    """Keep tokens in a file that only its owner can read, replaced at once; whose it was, theirs it stays."""
    beside = Path(f"{path}.tmp")
    try:
        owner = _owner(path)
        beside.unlink(missing_ok=True)
        beside.touch(mode=0o600, exist_ok=False)
        beside.write_bytes(msgspec.yaml.encode(entries))
        if owner is not None and owner != _owner(str(beside)):
            os.chown(beside, *owner)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise Insecure(f"can't write the file of tokens, nothing was changed: {error}") from None


def _owner(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def _grant(path: str, entry: Entry) -> Grant:
    if entry.role not in ROLES:
        raise Insecure(f"{path}: token {entry.name!r} has role {entry.role!r}: use {', '.join(ROLES)}")
    try:
        patterns = tuple([names.pattern(each) for each in entry.topics])
        expires_s = datetime.fromisoformat(entry.expires).astimezone(UTC).timestamp() if entry.expires else float("inf")
        digest = bytes.fromhex(entry.sha256)
    except ValueError as error:
        raise Insecure(f"{path}: token {entry.name!r}: {error}") from None
    return Grant(Access(entry.name, ROLES[entry.role], patterns), digest, expires_s, entry.rate)


class Keyring:
    """The tokens of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._grants: tuple[Grant, ...] = ()
        self.reload()

    def reload(self) -> None:
        """Read the file again; raises `Insecure` and keeps what was there."""
        self._grants = tuple([_grant(self._path, entry) for entry in read_entries(self._path)])

    def find(self, token: str) -> Grant | None:
        """Whose token it is. Every one is compared with, in constant time, so that time tells nothing."""
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for grant in self._grants:
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        return found if found is not None and time.time() < found.expires_s else None

    def good(self) -> list[Access]:
        """The rights of all whose tokens have not run out."""
        now_s = time.time()
        return [grant.access for grant in self._grants if now_s < grant.expires_s]

    def admit(self, token: str) -> Access | None:
        """The rights of a token's bearer."""
        found = self.find(token)
        return found.access if found else None


class Security:
    """What a server was started with."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.keyring = Keyring(config.tokens) if config.tokens else None
        self.tls = _tls(config)
        for where in (config.listen, config.http):
            if where and self.keyring is None and not is_loopback(address(where)[0]):
                raise Insecure(
                    f"{where} can be reached from elsewhere and there are no tokens: make one with `dovetail token add "
                    "FILE NAME --role admin` and start with `--tokens FILE`, or listen on 127.0.0.1"
                )

    def reload(self) -> list[str]:
        """Read tokens and certificates again, and say which files; raises `Insecure` and keeps what was there.

        Connections that are there keep their certificate; new ones get the new one.
        """
        if self.tls is not None:
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._config)
        if self.keyring is not None:
            self.keyring.reload()
        if self.tls is not None:
            _load(self.tls, self._config)
        files = (self._config.tokens, self._config.tls_cert, self._config.tls_key)
        return [each for each in files if each]


def _tls(config: Config) -> ssl.SSLContext | None:
    if not config.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, config)
    return context


def _load(context: ssl.SSLContext, config: Config) -> None:
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise Insecure(f"can't use tls.cert {config.tls_cert} with tls.key {config.tls_key}: {error}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether a host is named by its address, or as this machine: no name server had a say in it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


class Bucket:
    """How many requests a token has left."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._at = time.monotonic()

    def take(self) -> float:
        """Seconds to wait; 0 when the request may go on."""
        now = time.monotonic()
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0
