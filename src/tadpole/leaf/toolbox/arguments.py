"""What each tool takes, and the arguments of a call in their proper types."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BASH_SECONDS = 120.0
MILLISECONDS_FROM = 10000  # a `timeout` this large was meant in milliseconds

_UNTOLD = ("timeout_ms", "max_chars")  # accepted, but not offered
# What each tool takes: (name, type, required), in the order in which it is told to the model.
PARAMETERS: "dict[str, tuple[tuple[str, type, bool], ...]]" = {
    "Read": (
        ("file_path", str, True),
        ("offset", int, False),
        ("limit", int, False),
        ("max_chars", int, False),
    ),
    "Write": (("file_path", str, True), ("content", str, True)),
    "Edit": (
        ("file_path", str, True),
        ("old_string", str, True),
        ("new_string", str, True),
        ("replace_all", bool, False),
    ),
    "Glob": (("pattern", str, True), ("path", str, False), ("max_chars", int, False)),
    "Bash": (
        ("command", str, True),
        ("description", str, False),
        ("timeout", float, False),
        ("timeout_ms", float, False),
        ("max_chars", int, False),
    ),
}
_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def coerced(name: str, arguments: "Any") -> "dict[str, Any]":
    """The arguments of a call in their proper types. Raises ValueError or TypeError."""
    if name not in PARAMETERS:
        raise ValueError("unknown tool {}; use one of {}".format(name, ", ".join(PARAMETERS)))
    if not isinstance(arguments, dict):
        raise TypeError(f"the arguments of {name} must be a JSON object")
    types = {key: kind for key, kind, _ in PARAMETERS[name]}
    takes = "{} takes {}".format(name, ", ".join(key for key in types if key not in _UNTOLD))
    given = {}
    for key, value in arguments.items():
        known = "file_path" if key == "path" and "file_path" in types else key
        if known not in types:
            raise TypeError(f"there is no parameter {key}; {takes}")
        if value is not None:
            given[known] = _typed(known, value, types[known])
    for key, _, required in PARAMETERS[name]:
        if required and key not in given:
            raise TypeError(f"{key} is missing; {takes}")
    for key in ("file_path", "pattern", "command"):
        if given.get(key) == "":
            raise ValueError(f"{key} is empty; {takes}")
    return given


def seconds(timeout: "float | None" = None, timeout_ms: "float | None" = None) -> float:
    """The seconds that a Bash call's ``timeout`` (or ``timeout_ms``) asks for."""
    if timeout_ms is not None:
        value = timeout_ms / 1000.0
    elif timeout is None:
        value = BASH_SECONDS
    else:
        value = timeout / 1000.0 if timeout >= MILLISECONDS_FROM else timeout
    if not 0 < value < float("inf"):
        raise ValueError("timeout must be a number of seconds above 0")
    return value


def room(most: int, max_chars: int) -> int:
    """Characters of a result: a small window may ask for fewer than the tool's own limit."""
    return min(most, max(200, max_chars)) if max_chars > 0 else most


def _typed(key: str, value: "Any", kind: type) -> "Any":
    plain = not isinstance(value, bool)
    if kind is str:
        if isinstance(value, int) and plain:
            value = str(value)
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"{key} holds half a surrogate pair, not text") from None
            return value
    elif kind is bool:
        word = value.strip().lower() if isinstance(value, str) else value
        if word in ("true", "false") or isinstance(word, bool) or word in (0, 1):
            return word in ("true", True)
    else:
        try:
            number = float(value.strip() if isinstance(value, str) else value) if plain else None
            if number is not None and (kind is float or number == int(number)):
                return kind(number)
        except (ValueError, TypeError, OverflowError):
            pass
    shown = repr(value) if len(repr(value)) < 40 else repr(value)[:40] + "..."
    raise TypeError(f"{key} must be {_WORDS[kind]}, not {shown}")
