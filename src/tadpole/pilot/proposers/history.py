"""The history proposer: what people changed in the past is taken back in today's tree.

Every commit whose change of the library reverses cleanly is a candidate: a change that a person
made, asked for in that person's words, with the tests that were written for it. At the commit
itself its change always reverses: that is the historical pair (``pairs``).
Only a clone on this machine has a history.
"""

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code
from tadpole.pilot.commits import Clone, Commit
from tadpole.pilot.commitwords import cleaned, kind_of
from tadpole.pilot.sources import Sources, is_library, sources_of
from tadpole.repos.snapshot import Snapshot

OPERATOR = "revert"
OPENING = "This change is wanted:\n\n"  # of a request; what follows are a person's words
MODULE = "<module>"  # stands for the function where an edit is in none
_BLOCK = 40  # commits shuffled together: the newest reverse most often


@dataclass(frozen=True)
class History:
    """Implements :class:`tadpole.protocols.Proposer`."""

    most_commits: int = 2000  # looked at
    most_files: int = 5  # of the library, in one commit
    most_lines: int = 200  # changed, in one commit
    name: str = "history"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """Newer commits first, in blocks. Raises SourceError where git cannot read the clone."""
        place = Path(snapshot.source.location)
        if snapshot.source.kind != "git" or not place.is_dir():
            return
        clone, sources = Clone(place), sources_of(snapshot)
        found = list(clone.commits(snapshot.source.version, self.most_commits))
        for start in range(0, len(found), _BLOCK):
            block = found[start : start + _BLOCK]
            rng.shuffle(block)
            for commit in block:
                candidate = self._candidate(sources, clone, commit, rng.getrandbits(32))
                if candidate is not None:
                    yield candidate

    def _candidate(
        self, sources: Sources, clone: Clone, commit: Commit, seed: int
    ) -> Candidate | None:
        recipe = sources.snapshot.recipe
        mine = [edit for edit in commit.edits if is_library(edit.path, recipe)]
        alien = any(is_library(path, recipe) for path in commit.others)
        if not mine or alien or len(mine) > self.most_files:
            return None
        sites: list[Site] = []
        other_imports = False
        for edit in mine:
            code = sources.code(edit.path)
            buggy = None if code is None else _text(clone.reverted(edit, code.encode(code.text)))
            if code is None or buggy is None:
                return None
            if ast.dump(buggy.tree) != code.dump:
                sites += _differences(sources, code, buggy.text)
                other_imports |= _imports(code) != _imports(buggy)
        lines = sum(site.old.count("\n") + site.new.count("\n") for site in sites)
        if lines > self.most_lines or not any(site.lines for site in sites):
            return None
        changes = sources.changes(sites)
        if changes is None:
            return None
        return Candidate(
            proposer=self.name,
            operator=OPERATOR,
            changes=changes,
            functions=_functions(sources, sites),
            sites=tuple(sites),
            seed=seed,
            kind=kind_of(commit.words, other_imports),
            request=_request(commit.words),
            origin=commit.id,
        )


def _text(content: bytes | None) -> Code | None:
    try:
        return None if content is None else Code.decode("", content)
    except ValueError:
        return None


def _differences(sources: Sources, code: Code, buggy: str) -> Iterator[Site]:
    """One site for each group of lines that differ."""
    old, new = code.text.splitlines(keepends=True), buggy.splitlines(keepends=True)
    ends = [0]
    for line in old:
        ends.append(ends[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            text = "".join(new[start:end])
            top = code.line_of(ends[first])
            bottom = code.line_of(max(ends[first], ends[last] - 1))
            if first == last:  # lines that the change took away stood between these two
                top, bottom = max(1, top - 1), top
            yield sources.site(code, ends[first], ends[last], text, touched(code, top, bottom))


def touched(code: Code, first: int, last: int) -> set[int]:
    """Lines that run where lines ``first`` to ``last`` do: their innermost statements.

    Of a compound statement only the header counts.
    """
    found: set[int] = set()
    statements = [node for node in ast.walk(code.tree) if isinstance(node, ast.stmt)]
    for line in range(first, last + 1):
        around = [n for n in statements if n.lineno <= line <= (n.end_lineno or n.lineno)]
        best = max(around, key=lambda node: node.lineno, default=None)
        if best is not None:
            body = getattr(best, "body", None)
            end = best.end_lineno or best.lineno
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                end = max(best.lineno, body[0].lineno - 1)
            found.update(range(best.lineno, end + 1))
    return found


def _functions(sources: Sources, sites: list[Site]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for site in sites:
        code = sources.code(site.path)
        last = site.line + max(0, site.old.count("\n") - 1)
        for function in code.functions if code else ():
            node = function.node
            if node.lineno <= last and site.line <= (node.end_lineno or node.lineno):
                found[function.name] = None
    return tuple(found) or (MODULE,)


def _imports(code: Code) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _request(words: str) -> str:
    """The author's words as a wish; empty where too few are left."""
    text = cleaned(words)
    return OPENING + text if text else ""
