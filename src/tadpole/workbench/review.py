"""A person looks at a proposal and decides: in the terminal here, or on the page.

Guards against: an approval that no person gave (the terminal must be one, and no flag or file
answers for it), and a decision on other bytes than those that were shown: what is signed is the
passport that was read, with the hashes of the change.
"""

import os
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tadpole.errors import UsageError
from tadpole.visible import visible, whole
from tadpole.workbench.finding import Finding
from tadpole.workbench.gate import Verdict
from tadpole.workbench.job import now
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import Decision, Ruling
from tadpole.workbench.proposal import Proposal, load, save_passport
from tadpole.workbench.show import View, view

_COLOUR = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.BLOCK: "red"}
_HELP = "a approve, r reject, c ask again with a comment, q leave it undecided"


def decide(proposal: Proposal, key: SigningKey, ruling: Ruling, reviewer: str, reason: str) -> None:
    """Sign a decision into the passport.

    Raises UsageError for an approval of what is blocked, a missing reason or comment, and where
    the passport is no longer the one that was shown.
    """
    reason = whole(reason).strip()[:4000]
    if ruling is Ruling.APPROVED and proposal.passport.gate.verdict is Verdict.BLOCK:
        raise UsageError(f"{proposal.id} is blocked and cannot be approved: reject it or ask again")
    if ruling is not Ruling.APPROVED and not reason:
        raise UsageError("say why: a rejection needs a reason, asking again a comment")
    if load(proposal.directory, key).passport != proposal.passport:
        raise UsageError(f"{proposal.id} was decided in the meantime: look at it again")
    decision = Decision(ruling=ruling, reviewer=reviewer, at=now(), reason=reason)
    passport = proposal.passport.model_copy(update={"decision": decision})
    save_passport(proposal.directory, passport.signed(key))


def reviewer_name() -> str:
    """Who decides: the user of this process."""
    return visible(os.environ.get("USER") or f"uid {os.getuid()}")


def show(console: Console, proposal: Proposal) -> None:
    """Print everything about a proposal, evidence first."""
    seen = view(proposal)
    title = f"proposal {seen.id}: {seen.verdict.value}"
    console.print(Text(title, f"bold {_COLOUR[seen.verdict]}"))
    _rows(console, "what", seen.facts)
    _rows(console, "tests", seen.tests)
    _rows(console, "scanners", [("", line) for line in seen.scanners])
    _findings(console, "blocks", seen.blocks, "red")
    _findings(console, "warnings", seen.warnings, "yellow")
    _rows(console, "commands that ran", [("$", line) for line in seen.commands])
    _rows(console, "issue", [("", line) for line in seen.issue.splitlines()])
    for file in seen.files:
        heading = Text(f"\n{file.path}", "bold")
        heading.append(f"  {file.what} +{file.added} -{file.removed}", "dim")
        body = Syntax("\n".join(file.lines), "diff", word_wrap=True, background_color="default")
        console.print(Group(heading, *([body] if file.lines else []), Text(file.note, "dim")))
    if seen.decision:
        console.print(Text(f"decided: {seen.decision}", "bold"))


def ask(
    console: Console, proposal: Proposal, read: Callable[[str], str]
) -> tuple[Ruling, str] | None:
    """Ask for a decision until there is one; None where it is left open. ``read`` prompts."""
    while True:
        try:
            return _asked(console, proposal.passport.gate.verdict is Verdict.BLOCK, read)
        except EOFError:  # Ctrl-D
            return None
        except UnicodeDecodeError:
            console.print("that is no text of this terminal: type it again")


def _asked(
    console: Console, blocked: bool, read: Callable[[str], str]
) -> tuple[Ruling, str] | None:
    while True:
        answer = read(f"{_HELP}: ").strip().lower()
        if answer in ("a", "approve"):
            if not blocked:
                return Ruling.APPROVED, ""
            console.print("it is blocked and cannot be approved: r, c or q")
        elif answer in ("r", "reject", "c", "comment"):
            what = "reason: " if answer.startswith("r") else "comment for the next attempt: "
            if reason := read(what).strip():
                return (Ruling.REJECTED if answer.startswith("r") else Ruling.ASK_AGAIN), reason
            console.print("say why, in a line")
        elif answer in ("q", "quit"):
            return None


def _rows(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        return
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, "dim"), Text(value))
    console.print(Text(f"\n{title}", "bold"), table, sep="\n")


def _findings(console: Console, title: str, found: Sequence[Finding], colour: str) -> None:
    if not found:
        return
    table = Table.grid(padding=(0, 2))
    for finding in found:
        tool = f"{finding.tool} {finding.rule}".strip()
        row = (finding.check.value, finding.severity.value, finding.place, tool, finding.message)
        table.add_row(*map(Text, row))
    console.print(Text(f"\n{title} ({len(found)})", f"bold {colour}"), table, sep="\n")


def summary(seen: View) -> str:
    """One line about a proposal."""
    size = dict(seen.facts)["change"]
    return f"{seen.id}  {seen.verdict.value}  {size}"
