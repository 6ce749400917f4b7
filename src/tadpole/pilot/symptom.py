"""What a failing test shows: the raw material of statements, taken from execution alone."""

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tadpole import syntax
from tadpole.pilot import check
from tadpole.pilot.code import Code
from tadpole.pilot.hide import locate, source_of
from tadpole.repos.testrun import Failure
from tadpole.visible import whole

LONGEST_MESSAGE = 300  # characters of the first line
MOST_DETAIL = 8  # lines of expected against actual
MOST_LEAD = 4  # lines of a test's own words before pytest's comparison
LONGEST_SNIPPET = 12  # lines of what failed

CUT = "..."  # a line that stands for what is left out
_ASSERTIONS = ("", "AssertionError")
_ERROR = re.compile(
    r"([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Iteration))(?::\s*|$)"
)
_NOISE = ("Use -v to get more diff", "Use -v to get the full diff", "")
# What is another one in each process, and what stands for it.
_OWN = (
    (re.compile(r"\bat 0x[0-9a-f]{4,}"), "at 0x..."),
    (re.compile(r"/pytest-of-[^/\s]+/pytest-\d+"), "/pytest"),
)


@dataclass(frozen=True)
class Symptom:
    """The failure of one test. Empty texts where the failure does not show them."""

    exception: str  # "TypeError"; empty for a plain assertion
    message: str  # first line, without the name of the exception
    detail: str  # the lines after it: pytest's comparison of both sides
    snippet: str  # the statement of the test that failed, perhaps up to the next check

    @property
    def is_assertion(self) -> bool:
        """Whether the code ran through but gave something wrong."""
        return self.exception in _ASSERTIONS

    @property
    def tells(self) -> bool:
        """Whether a reader learns what is wanted: from the error, from what is said of the check,
        or, where nothing is, from a check that is written out."""
        if not self.is_assertion:
            return True
        said = any(line != CUT for line in f"{self.message}\n{self.detail}".split("\n") if line)
        try:
            [failed, *_] = syntax.parse(self.snippet).body
        except ValueError:  # none, or the head of a block
            return said
        return not check.only_fails(failed) and (said or check.is_written_out(failed))


def smallest(failures: Mapping[str, Failure], tree: Path) -> str:
    """The failing test with the fewest lines; ties by message length, then by id."""

    def size(node_id: str) -> tuple[int, int, str]:
        path, chain = locate(node_id)
        source = source_of(path, (tree / path).read_bytes(), chain)
        return len(source.splitlines()), len(_plain(failures[node_id].message)), node_id

    return min(failures, key=size)


def read(node_id: str, failure: Failure, tree: Path) -> Symptom:
    """Take a failure apart."""
    return replace(told(failure), snippet=_snippet(node_id, failure, tree))


def told(failure: Failure) -> Symptom:
    """The same without the statement of the test."""
    lines = _plain(failure.message).strip().splitlines() or [""]
    first, rest = lines[0].strip(), lines[1:]
    match = _ERROR.match(first)
    exception = match.group(1).rpartition(".")[2] if match else ""
    message = first[match.end() :] if match else first
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "..."
    rest = [line.rstrip() for line in rest if line.strip() not in _NOISE]
    detail = _detail(rest, compares=exception in _ASSERTIONS)
    return Symptom(exception, message, detail, "")


def _detail(lines: list[str], *, compares: bool) -> str:
    """The lines that are told; where a test's own words come first, pytest's comparison too.

    pytest indents those words.
    """
    found = [number for number, line in enumerate(lines) if line.startswith("assert ")]
    lead = lines[: found[-1]] if compares and found else []
    if not all(line.startswith(("  ", CUT)) for line in lead):
        lead = []
    words = textwrap.dedent("\n".join(lead)).splitlines()
    if len(words) > MOST_LEAD:
        words = [*words[:MOST_LEAD], CUT]
    text = textwrap.dedent("\n".join(lines[len(lead) :][:MOST_DETAIL]))
    return "\n".join([*words, text]).strip("\n")


def steady(failure: Failure, again: Failure) -> Failure:
    """A failure that two runs saw: told without the lines that were others each time."""
    one, two = _plain(failure.message), _plain(again.message)
    if one == two:
        return failure
    lines, other = one.splitlines(), two.splitlines()
    kept: list[str] = []
    if lines[:1] != other[:1]:
        error = _ERROR.match(one)
        kept = [error.group(1) if error else "AssertionError"]
        lines, other = lines[1:], other[1:]
    matcher = difflib.SequenceMatcher(None, lines, other, autojunk=False)
    for tag, start, end, _, _ in matcher.get_opcodes():
        kept += lines[start:end] if tag == "equal" else [CUT]
    return replace(failure, message="\n".join(kept))


def _plain(message: str) -> str:
    """A message without lone surrogates, addresses and the names of temporary directories."""
    text = whole(message)
    for pattern, instead in _OWN:
        text = pattern.sub(instead, text)
    return text


def _snippet(node_id: str, failure: Failure, tree: Path) -> str:
    """The innermost statement of the test file that was running, as it is written there.

    Where that is no check, what follows it comes along, up to the next check: it says what the
    test would have asked for.
    """
    path, _ = locate(node_id)
    frames = re.findall(rf"^{re.escape(path)}:(\d+):", failure.frames, re.MULTILINE)
    line = int(frames[-1]) if frames else (failure.line if failure.path == path else 0)
    if not line:
        return ""
    code = Code.decode(path, (tree / path).read_bytes())
    best: list[ast.stmt] = []
    for block in _blocks(code.tree):
        for number, node in enumerate(block):
            last = best[0].lineno if best else 0
            if last < node.lineno <= line <= (node.end_lineno or node.lineno):
                best = block[number:]
    if not best:
        return ""
    first = best[0]
    end = next(filter(check.is_check, best), first)
    if _lines(first, end) > LONGEST_SNIPPET:
        end = first
    if _lines(first, end) > LONGEST_SNIPPET:
        return ""
    text = code.text[code.starts[first.lineno - 1] : code.span(end)[1]]
    return textwrap.dedent(text.replace("\r\n", "\n")).strip("\n")


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _lines(first: ast.stmt, last: ast.stmt) -> int:
    return (last.end_lineno or last.lineno) - first.lineno + 1
