"""Where a broker listens, as people write it.

Promises  "dovetail://host:port", "host:port" and "host" mean the same place; port 7400 where none is given;
          "dovetails://" means TLS.
Never     looks a name up.
"""

from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

SCHEME: Final = "dovetail"
SECURE: Final = "dovetails"
"""The scheme of a broker that speaks TLS."""
PORT: Final = 7400


class Address(Struct, frozen=True):
    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SECURE if self.tls else SCHEME}://{host}:{self.port}"


def parse(url: str) -> Address:
    """The address in `url`; raises ValueError with what is wrong and what it should look like."""
    wanted = f"write {SCHEME}://host:port or host:port, {SECURE}://host:port where the broker speaks TLS"
    parts = urlsplit(url if "://" in url else f"{SCHEME}://{url}")
    if parts.scheme not in (SCHEME, SECURE):
        raise ValueError(f"{url!r} has the scheme {parts.scheme!r}: {wanted}")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{url!r} says more than where the broker is: {wanted}; a token is an option of its own")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"{url!r} has no port that can be used: {wanted}, the port 1 to 65535") from None
    if not parts.hostname or port == 0:
        raise ValueError(f"{url!r} does not name a host and a port: {wanted}")
    return Address(parts.hostname, PORT if port is None else port, parts.scheme == SECURE)
