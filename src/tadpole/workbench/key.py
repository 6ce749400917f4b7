"""The key that signs passports, made at first use and readable by its owner alone.

Guards against: a proposal or a decision that something without the key has written or changed,
as a box has not. Does not guard against: programs that run as the same user outside of a box.
"""

import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from tadpole.errors import UsageError

_NAME = "passport.key"
_SIZE = 32  # bytes


class SigningKey:
    """Signs and verifies bytes: HMAC-SHA256."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def open(cls, directory: Path) -> "SigningKey":
        """The key of ``directory``, made where there is none. Raises UsageError.

        Refused where others may read or write it: then it proves nothing.
        """
        path = directory / _NAME
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path):
            _make(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, "rb") as stream:
            info = os.fstat(stream.fileno())
            secret = stream.read(_SIZE + 1)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise UsageError(f"{path} may be read by others: chmod 600, or remove it for a new one")
        if len(secret) != _SIZE:
            raise UsageError(f"{path} is damaged: remove it; what it signed must be made again")
        return cls(secret)

    def sign(self, body: bytes) -> str:
        """The signature, 64 hex digits."""
        return hmac.digest(self._secret, body, "sha256").hex()

    def verifies(self, body: bytes, signature: str) -> bool:
        """Whether this key made ``signature`` over ``body``."""
        return hmac.compare_digest(self.sign(body), signature)


def _make(path: Path) -> None:
    """Write beside, then link: whoever is first wins, and nobody ever sees a part of it."""
    beside = path.with_name(f".{_NAME}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(_SIZE))
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink()
