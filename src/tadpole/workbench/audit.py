"""New dependencies of a patch, looked up in a vulnerability database by pip-audit.

The one part of the gate that talks to the network, where pip-audit is installed: what leaves this
machine are names and versions of packages that the patch newly pins. ``pip_audit = false`` in
``.tadpole.toml`` turns it off.

Guards against: a pinned version that is known to be vulnerable. Nothing is installed, resolved or
built for that. What could not be looked up (no exact version, not in the database, no network) is
said to be so, and is never taken for clean: pip-audit itself says "no known vulnerabilities" then.

Does not guard against: what no database knows, and dependencies of dependencies.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from tadpole import process
from tadpole.task import FileChange
from tadpole.tomlfile import items, parse_toml, shown, table
from tadpole.workbench.change import Change
from tadpole.workbench.finding import Check, Finding, Severity

TOOL = "pip-audit"
_SECONDS = 120.0
_ANSWER = ("--format", "json", "--progress-spinner", "off", "--timeout", "15")
_LISTS = re.compile(r"(requirements|constraints)[^/]*\.(txt|in)")


@dataclass(frozen=True)
class Audit:
    """What was found, and why the rest could not be looked up (empty: all of it was)."""

    findings: tuple[Finding, ...] = ()
    unknown: str = ""


def program() -> tuple[str, ...]:
    """pip-audit beside tadpole or on the path; empty where it is not installed."""
    beside = Path(sys.prefix) / "bin" / TOOL
    found = str(beside) if beside.is_file() else shutil.which(TOOL)
    return (found,) if found else ()


def new_requirements(change: Change) -> tuple[list[tuple[str, Requirement]], list[str]]:
    """(path, requirement) that a patch adds or changes, in requirement files and pyproject.toml.

    And which of these files cannot be read, with the reason.
    """
    found, unread = [], []
    for file in change.files:
        try:
            new = {str(one): one for one in _requirements(file.side(new=True))}
        except ValueError as error:
            unread.append(f"{file.path} cannot be read ({error})")
            continue
        try:
            old = {str(one) for one in _requirements(file.side(new=False))}
        except ValueError:
            old = set()  # then all of it is new
        found += [(file.path, one) for text, one in new.items() if text not in old]
    return found, unread


async def audit(argv: Sequence[str], asked: Sequence[tuple[str, Requirement]]) -> Audit:
    """Look ``asked`` up with the pip-audit that ``argv`` starts. Raises OSError."""
    pins = {}
    loose = []
    for path, one in asked:
        exact = [s.version for s in one.specifier if s.operator in ("==", "===")]
        if len(exact) == 1 and "*" not in exact[0] and one.url is None:
            pins[one.name.lower().replace("_", "-"), exact[0]] = path
        else:
            loose.append(f"{one} names no exact version")
    if not pins:
        return Audit(unknown="; ".join(loose))
    with tempfile.TemporaryDirectory(prefix="tadpole-audit-") as scratch:
        listed = Path(scratch) / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in pins))
        words = [*argv, "--requirement", str(listed), "--no-deps", "--disable-pip", *_ANSWER]
        done = await process.arun(words, cwd=Path(scratch), timeout=_SECONDS)
    try:
        answered = {_key(item): item for item in json.loads(done.stdout)["dependencies"]}
    except (ValueError, KeyError, TypeError):
        return Audit(unknown=f"it gave no answer ({done.last_line()[:200]})")
    found = []
    for (name, version), path in pins.items():
        item = answered.get((name, version)) or answered.get((name, ""))
        if item is None or "skip_reason" in item or "vulns" not in item:
            why = (item or {}).get("skip_reason", "not answered")
            loose.append(f"{name} {version}: {str(why)[:160]}")
            continue
        found += [_finding(path, name, version, flaw) for flaw in item["vulns"]]
    return Audit(tuple(found), "; ".join(loose))


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return str(item["name"]).lower().replace("_", "-"), str(item.get("version", ""))


def _finding(path: str, name: str, version: str, flaw: dict[str, Any]) -> Finding:
    known = ", ".join(map(str, [flaw.get("id", "?"), *flaw.get("aliases", [])[:2]]))
    better = ", ".join(map(str, flaw.get("fix_versions", [])[:3])) or "none yet"
    return Finding(
        check=Check.VULNERABLE,
        severity=Severity.HIGH,
        path=path,
        tool=TOOL,
        rule=str(flaw.get("id", "")),
        message=f"{name} {version} is known to be vulnerable ({known}); fixed in: {better}",
    )


def _requirements(file: FileChange) -> Iterator[Requirement]:
    """What one file asks for. Raises ValueError where that cannot be told."""
    text = (file.content or b"").decode("utf-8", "replace")
    name = PurePosixPath(file.path).name
    lines: Sequence[str] = ()
    if _LISTS.fullmatch(name) or PurePosixPath(file.path).parts[:-1][-1:] == ("requirements",):
        joined = text.replace("\\\n", " ")
        lines = [line.partition(" #")[0].partition(" --")[0] for line in joined.splitlines()]
    elif name == "pyproject.toml":
        lines = _of_project(text)
    for line in lines:
        try:
            yield Requirement(line.strip())
        except InvalidRequirement:
            continue  # an option, a comment, a path: listed by the gate as a new line all the same
        except RecursionError:  # of a packaging that sets no bound of its own
            raise ValueError(f"{shown(line)} is nested too deeply") from None


def _of_project(text: str) -> list[str]:
    body = parse_toml(text)
    project = table(body, "project")
    groups, extras = table(body, "dependency-groups"), table(project, "optional-dependencies")
    listed = [
        *items(table(body, "build-system"), "requires"),
        *(line for name in groups for line in items(groups, name)),
        *items(project, "dependencies"),
        *(line for name in extras for line in items(extras, name)),
    ]
    for line in listed:
        if not isinstance(line, str) and not (isinstance(line, dict) and "include-group" in line):
            raise ValueError(f"{shown(line)} is listed, and is no requirement")
    return [line for line in listed if isinstance(line, str)]
