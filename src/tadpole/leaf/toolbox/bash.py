"""Bash: what a command printed, and how it ended."""

from .arguments import room, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import RunBash

BASH_CHARS = 30000
_CUT_NOTE = b"\n[... %d bytes cut ...]\n"  # stands where a bounded stream was cut


def bash(
    run_bash: "RunBash",
    command: str,
    *,
    description: str = "",
    timeout: "float | None" = None,
    timeout_ms: "float | None" = None,
    max_chars: int = 0,
) -> "tuple[str, bool]":
    """``(text, is_error)``; an error is a command that did not come to its own end.

    Raises ValueError, and what ``run_bash`` raises.
    """
    limit, most = seconds(timeout, timeout_ms), room(BASH_CHARS, max_chars)
    result = run_bash(command, limit)
    out, err = result["stdout"], result["stderr"]
    sections = "STDOUT:\n{}\nSTDERR:\n{}".format(
        _clipped(out, result.get("stdout_cut", 0), max(most // 2, most - len(err))),
        _clipped(err, result.get("stderr_cut", 0), max(most // 2, most - len(out))),
    )
    endings = {
        "timeout": f"Timed out after {limit:g} s; nothing of it is still running",
        "memory": "Ended: it used more memory than there is",
        "cpu": "Ended: it used more processor time than it may",
        "output": "Ended: it printed more than may be printed",
    }
    if result["reason"] in endings:
        return endings[result["reason"]] + "\n" + sections, True
    return "Exit code: {}\n{}".format(result["code"], sections), False


def _clipped(data: bytes, cut: int, room: int) -> str:
    """Head and tail of an output: what matters in a test run stands at its end."""
    head, note, tail = data.partition(_CUT_NOTE % cut) if cut else (data, b"", b"")
    if not note:
        middle = len(data) // 2 if cut or len(data) > room else len(data)
        head, tail = data[:middle], data[middle:]
    begin, end = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
    if not cut and len(begin) + len(end) <= room:
        return data.decode("utf-8", "replace")
    first, last = begin[: room // 2], end[max(0, len(end) - room // 2) :]
    dropped = cut + len(begin) + len(end) - len(first) - len(last)
    return f"{first}\n[truncated {dropped} chars]\n{last}"
