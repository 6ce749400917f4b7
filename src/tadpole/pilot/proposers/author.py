"""The author proposer: tasks that a model wrote, in the sandbox with the five Leaf tools.

:class:`Author` is offline and seeded like the others: it proposes what :func:`write_drafts` has
kept. An author works in a box over the pristine tree and leaves

- the tree as it shall be once the task is solved,
- new test files,
- ``.task/statement.md``, what the solver will be told, and
- for a bug that it puts in, ``.task/before/PATH``: the file as the solver finds it.

Any model will do, the policy that is raised included: its output passes the same gates as every
other candidate, and no solver is ever shown an author's solution.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tadpole.errors import ModelError, SandboxError
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.loop import run_episode
from tadpole.leaf.recovery import RecoveringSandbox
from tadpole.outcome import STOP_POLICY, StopReason
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.drafts import Draft, Drafts, Kept
from tadpole.pilot.written import Written, edited_functions, is_test
from tadpole.progress import Bar
from tadpole.protocols import ChatModel, Proposer, Sampling, SandboxEngine, TokenPolicy
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.rundir import RunDir
from tadpole.settings import LeafConfig
from tadpole.task import FileChange, TaskKind
from tadpole.together import together

NAME = "author"
NOTES = ".task"  # where an author leaves what is no part of the tree
STATEMENT = f"{NOTES}/statement.md"
BEFORE = f"{NOTES}/before/"

_BRIEF = Template("""\
Write a task for another engineer, in the repository $name that is checked out here. $what

Leave these behind:
1. The solution: change the source files so that they are as they shall be once the task is done.
2. Tests: new files named test_*.py in $tests. They pass on your solution, at least one of them \
fails without it, and those that fail run lines that you changed. Each checks behaviour, in any \
order, without network and clock.
3. $notes/statement.md: what the other engineer is told, in 60 to 250 words. It names every \
function, argument, value, text and error that your tests check and the repository does not show \
yet. It quotes no line of your solution or of your tests.
$before
The other engineer sees the repository and the statement, neither your solution nor your tests. Do \
not change tests, configuration or packaging that are there already. Run your tests and the old \
ones (python -m pytest) before you stop.""")

_BUG = Template("""\
4. Where you put the bug in yourself: leave the source file right, and write the wrong version of \
it, whole, to $notes/before/ and its path, for example $notes/before/$example.
""")

_WHAT = {
    TaskKind.BUG_FIX: "It is a bug fix: find a bug, or put in one that a person could have made "
    "and that the tests of the repository do not show.",
    TaskKind.FEATURE: "It is a feature: something small that users of this library would ask for.",
    TaskKind.REFACTOR: "It is a refactoring: the behaviour stays, and a better structure appears "
    "that tests can see, such as a function taken out of a long one or a class in place of a dict.",
    TaskKind.MIGRATION: "It is a migration: code that uses an old interface moves to a newer one, "
    "of the standard library, of a dependency or of the library itself.",
    TaskKind.PERFORMANCE: "It is about performance: something does far more work than needed. The "
    "tests count operations, calls or growth, never seconds.",
}


@dataclass(frozen=True)
class Author:
    """Implements :class:`tadpole.protocols.Proposer`: what lies in ``directory``, in order.

    ``then`` proposes once the drafts are used up.
    """

    directory: Path
    drafts: int  # of each snapshot
    then: Proposer | None = None

    @property
    def name(self) -> str:
        """With the number of drafts, because others come after them."""
        return f"{NAME}({self.drafts}){f'+{self.then.name}' if self.then else ''}"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """The drafts of a snapshot, and then what the other proposer has."""
        for draft in Drafts(self.directory, snapshot.key).all(self.drafts):
            yield candidate(snapshot, draft)
        if self.then is not None:
            yield from self.then.propose(snapshot, rng)


@dataclass
class Desk:
    """Where authors work. ``policy`` and ``dialogue`` go together, as in an episode."""

    engine: SandboxEngine
    store: Store
    policy: TokenPolicy | ChatModel
    dialogue: Dialogue | ChatDialogue
    settings: LeafConfig
    sampling: Sampling
    directory: Path  # of the drafts
    rundir: RunDir  # of the traces
    concurrency: int = 1

    async def write_drafts(
        self, snapshot: Snapshot, kinds: Sequence[TaskKind], count: int, seed: int, bar: Bar
    ) -> list[Draft]:
        """``count`` drafts of a snapshot, the kinds in turn; those that are there are kept.

        Raises ModelError where the model cannot be asked, SandboxError where boxes break.
        """
        drafts = Drafts(self.directory, snapshot.key)
        places = asyncio.Semaphore(self.concurrency)

        async def one(number: int) -> None:
            async with places:
                if drafts.load(number) is None:
                    kind = kinds[number % len(kinds)]
                    drafts.save(await self._write(snapshot, kind, number, seed))
            bar.advance(1, note=f"{snapshot.name}: draft {number + 1} of {count}")

        await together(one(number) for number in range(count))
        return drafts.all(count)

    async def _write(self, snapshot: Snapshot, kind: TaskKind, number: int, seed: int) -> Draft:
        name = f"author/{snapshot.name}-{number:04d}"
        own = random.Random(f"{seed} {snapshot.key} {number}").getrandbits(48)
        spec = self.store.box(snapshot)
        box = await RecoveringSandbox.begin(lambda: self.engine.start(spec))
        try:
            trace = await run_episode(
                task_id=f"{snapshot.key[:16]}-{number:04d}",
                statement=brief(snapshot, kind),
                sandbox=box,
                policy=self.policy,
                dialogue=self.dialogue,
                settings=self.settings,
                sampling=self.sampling,
                episode=name,
                seed=own,
                on_cancel=lambda trace: self.rundir.save_trace(trace, name),
            )
            self.rundir.save_trace(trace, name)
            if not STOP_POLICY[trace.stop].grade:  # nothing was learned about the author
                wrong = trace.error or trace.stop.value
                if trace.stop is StopReason.LLM_QUERY_ERROR:
                    raise ModelError(f"the author could not go on: {wrong}")
                raise SandboxError(f"the author's box broke: {wrong}")
            files = tuple(Kept.of(change) for change in await box.delta())
        finally:
            await box.close()
        return Draft(
            number=number, kind=kind, author=trace.policy, seed=own, stop=trace.stop, files=files
        )


def brief(snapshot: Snapshot, kind: TaskKind) -> str:
    """What an author is told."""
    places = ", ".join(f"`{place}`" for place in snapshot.recipe.test_paths) or "the tests' place"
    example = next(iter(snapshot.baseline.files), "package/module.py")
    before = _BUG.substitute(notes=NOTES, example=example) if kind is TaskKind.BUG_FIX else ""
    return _BRIEF.substitute(
        name=snapshot.name, what=_WHAT[kind], tests=places, notes=NOTES, before=before
    )


def candidate(snapshot: Snapshot, draft: Draft) -> Written:
    """What a draft proposes. Nothing of it is believed, and nothing of it is refused here."""
    left = [kept.change for kept in draft.files]
    statement = next((c.content for c in left if c.path == STATEMENT and c.content), b"")
    changes = tuple(
        FileChange(change.path.removeprefix(BEFORE), change.content, change.executable)
        for change in left
        if change.path.startswith(BEFORE) and change.content is not None
    )
    tree = [change for change in left if not change.path.startswith(f"{NOTES}/")]
    tests = tuple(c for c in tree if is_test(c.path, snapshot.recipe))
    solved = {c.path: c for c in tree if not is_test(c.path, snapshot.recipe)}
    for change in changes:  # the file that was left right is the solution
        file = snapshot.tree / change.path
        if change.path not in solved and file.is_file():
            mode = bool(file.stat().st_mode & 0o100)
            solved[change.path] = FileChange(change.path, file.read_bytes(), mode)
    start = {change.path: change.content for change in changes}
    gold = tuple(
        change for path, change in sorted(solved.items()) if start.get(path) != change.content
    )
    functions = edited_functions(
        {c.path: start.get(c.path, _pristine(snapshot, c.path)) for c in gold},
        {c.path: c.content for c in gold},
    )
    return Written(
        proposer=NAME,
        operator=draft.kind.value,
        changes=changes,
        functions=functions or ("<module>",),
        sites=(),
        seed=draft.number,
        kind=draft.kind,
        statement=statement.decode("utf-8", "replace").strip(),
        gold=gold,
        tests=tests,
        author=draft.author,
    )


def _pristine(snapshot: Snapshot, path: str) -> bytes | None:
    file = snapshot.tree / path
    return file.read_bytes() if file.is_file() else None
