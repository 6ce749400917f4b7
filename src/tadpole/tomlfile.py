"""TOML that somebody else wrote: whatever it says, reading it ends with a value or one clear line.

Guards against: nesting and numbers that the parser itself gives up on, and values of other kinds
than the standard says, which would be errors far from where they are written.
"""

import reprlib
import tomllib
from collections.abc import Mapping
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text. Raises ValueError, one line."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # of int(), whose words are about Python
        raise ValueError("a number with too many digits to be read") from None


def table(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The table ``name``; empty where there is none. Raises ValueError for anything else."""
    found = body.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is {shown(found)}, no table")
    return found


def items(body: Mapping[str, Any], name: str) -> list[Any]:
    """The list ``name``; empty where there is none. Raises ValueError for anything else."""
    found = body.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"{name} is {shown(found)}, no list")
    return found


def texts(body: Mapping[str, Any], name: str) -> list[str]:
    """The list of texts ``name``, as :func:`items`."""
    found = items(body, name)
    for one in found:
        if not isinstance(one, str):
            raise ValueError(f"{name} holds {shown(one)}, no text")
    return found


def shown(value: Any) -> str:
    """A value for an error line: short, however large or deep it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # written in hexadecimal, it has no limit where it is read
        return "a giant number"
