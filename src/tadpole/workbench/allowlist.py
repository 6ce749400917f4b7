"""Which hosts a box may reach: names and ports that a person typed, and what they come to.

Guards against: a name on the list that leads somewhere else than meant. This machine itself and
its neighbours on the link are reached only where they were named as such (``localhost``, an
address), private addresses only by a name or address that was given whole, never by a ``*``.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tadpole.errors import UsageError

_WEB = (80, 443)
_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Allowed:
    """One entry. ``port`` 0: those of the web, 80 and 443."""

    host: str  # lower case; "*.NAME": all below NAME, but not NAME itself
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """``HOST``, ``*.HOST``, ``HOST:PORT`` or ``[V6]:PORT``. Raises UsageError."""
        host, port = split(text.strip())
        if not (_NAME.fullmatch(host) or _address(host)) or host.isdigit() or port is None:
            raise UsageError(
                f"{text!r} is no host: --allow pypi.org, --allow '*.example.org' or "
                "--allow localhost:8080"
            )
        return cls(host, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    def covers(self, host: str, port: int) -> bool:
        """Whether a request for ``host`` (lower case) and ``port`` may go out."""
        if port != self.port and (self.port or port not in _WEB):
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host

    def may_be_at(self, address: Address) -> bool:
        """Whether this entry may lead to ``address``."""
        address = getattr(address, "ipv4_mapped", None) or address
        if _address(self.host) is not None:
            return True
        if address.is_loopback:
            return self.host == "localhost"
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            return False
        return address.is_global or not self.host.startswith("*.")


def split(text: str) -> tuple[str, int | None]:
    """(host in lower case, port): port 0 where there is none, None where it cannot be one."""
    text = text.lower()
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and (text.endswith("]") or host.endswith("]")):
        host = host if host.endswith("]") else text
        port = port if colon and host != text else ""
        host = host.strip("[]")
    elif not colon or ":" in host:  # a bare IPv6 address has many
        host, port = text, ""
    elif not port:
        return host, None
    host = host.removesuffix(".")
    if not port:
        return host, 0
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    return host, number if 0 < number < 65536 else None


def entry_for(entries: Iterable[Allowed], host: str, port: int) -> Allowed | None:
    """The entry by which a request may go out; the most narrow one. None: it may not."""
    found = [entry for entry in entries if entry.covers(host, port)]
    return min(found, key=lambda entry: (entry.host.startswith("*"), not entry.port), default=None)


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
