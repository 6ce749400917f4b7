"""The one value for the text of a file on the host: what is not edited comes back byte for byte."""

import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFile:
    r"""Text with everything that is needed to write the same bytes again.

    ``text`` keeps its line endings as they are (``\n``, ``\r\n``, mixed, none at the end);
    ``newline`` is the commonest of them, for lines that are put in.
    """

    text: str
    encoding: str = "utf-8"  # as a Python coding comment says, else UTF-8
    bom: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read ``data``. Bytes that its encoding has no place for are carried as surrogates."""
        bom = data.startswith(_BOM)
        body = data[len(_BOM) :] if bom else data
        try:
            encoding = "utf-8" if bom else tokenize.detect_encoding(io.BytesIO(body).readline)[0]
            file = cls(body.decode(encoding, "surrogateescape"), encoding, bom)
            if file.encode() == data:
                return file
        except (SyntaxError, UnicodeError):
            pass
        return cls(body.decode("utf-8", "surrogateescape"), "utf-8", bom)

    def encode(self) -> bytes:
        """The bytes. Raises UnicodeEncodeError for text that the encoding has no place for."""
        return (_BOM if self.bom else b"") + self.text.encode(self.encoding, "surrogateescape")

    def with_text(self, text: str) -> Self:
        """The same file with another text, whose line endings are kept as given."""
        return replace(self, text=text)

    @property
    def newline(self) -> str:
        r"""The commonest line ending, ``\n`` where there is none."""
        found = Counter(re.findall("\r?\n", self.text)).most_common(1)
        return found[0][0] if found else "\n"
