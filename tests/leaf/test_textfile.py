import pytest
from hypothesis import given
from hypothesis import strategies as st

from tadpole.textfile import TextFile


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_any_bytes_come_back(data):
    assert TextFile.decode(data).encode() == data


@pytest.mark.parametrize(
    ("data", "encoding", "bom", "newline"),
    [
        (b"a\nb\n", "utf-8", False, "\n"),
        (b"a\r\nb\r\nc\n", "utf-8", False, "\r\n"),
        (b"\xef\xbb\xbfa\r\n", "utf-8", True, "\r\n"),
        (b"# coding: latin-1\nx = '\xe9'\n", "iso-8859-1", False, "\n"),
        (b"# coding: nonsense\nx\n", "utf-8", False, "\n"),
        (b"caf\xe9", "utf-8", False, "\n"),
    ],
)
def test_what_is_known_of_a_file(data, encoding, bom, newline):
    file = TextFile.decode(data)
    assert (file.encoding, file.bom, file.newline) == (encoding, bom, newline)
    assert file.encode() == data and not file.text.startswith("\ufeff")


def test_an_edit_moves_nothing_else():
    file = TextFile.decode(b"\xef\xbb\xbfx = 1\r\ny = 2\n# \xff")
    assert (
        file.with_text(file.text.replace("1", "3")).encode()
        == b"\xef\xbb\xbfx = 3\r\ny = 2\n# \xff"
    )
