"""Runs of the grader that share a box: for changes of our own making, never for an agent's.

The program that runs the tests, what it is told and how its report is weighed are those of
:mod:`tadpole.grading.run`. Only the box is not a fresh one: gradings of tasks of one repository
state run one after the other over its pristine tree, each with its files put in and taken out
again and in a process forked before any code of the repository was loaded. Where one of them ends
all of that (it fills the box's memory), each that has no answer yet runs in a box of its own.

Guards against what :mod:`~tadpole.grading.bootstrap` and :mod:`~tadpole.grading.report` do, as far
as one process goes. Does not guard against: a change that leaves something outside of its files for
the gradings after it.
"""

import asyncio
import base64
import contextlib
import dataclasses
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tadpole.grading.report import Job, command
from tadpole.grading.run import WALL, NoLayout, Ran, Runner, seeded
from tadpole.protocols import ExecReason, ExecResult, Sandbox, SandboxEngine, SandboxSpec
from tadpole.repos.testrun import PROGRAMS, with_reporter
from tadpole.task import FileChange, Task

_CODE = "/tmp/gradings-code"  # in the box


@dataclasses.dataclass(frozen=True)
class _Asked:
    job: Job
    files: tuple[FileChange, ...]
    seconds: float  # of the task
    answer: "asyncio.Future[Ran | None]"

    def told(self) -> dict[str, Any]:
        """As the program in the box reads it."""
        files = [
            (
                change.path,
                None if change.content is None else base64.b64encode(change.content).decode(),
                change.executable,
            )
            for change in self.files
        ]
        later = [change.path for change in self.job.later]
        job = self.job.text().decode()
        return {"job": job, "report": self.job.report, "files": files, "later": later}


@dataclasses.dataclass(frozen=True)
class SharedRunner(Runner):
    """Runs tests in boxes that stay up while there is work, and alone what one of these left over.

    ``idle``: seconds that a box waits for the next grading.
    """

    idle: float = 3.0
    # A box belongs to one event loop.
    _benches: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Bench]]" = dataclasses.field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    async def _ran(
        self,
        task: Task,
        spec: SandboxSpec,
        job: Job,
        now: Sequence[FileChange],
        tests: Sequence[FileChange],
    ) -> Ran:
        files = {change.path: change for change in (*task.start, *now, *tests)}
        pristine = await self.store.pristine(task)
        benches = self._benches.setdefault(asyncio.get_running_loop(), {})
        key = f"{pristine.tree} {sorted(pristine.mounts.items())} {sorted(pristine.env.items())}"
        bench = benches.get(key)
        if bench is None:
            program = command(self.store.python(task), pristine.workdir)
            bench = benches[key] = _Bench(self.engine, pristine, program, self.idle)
            bench.serving = asyncio.create_task(bench.serve(lambda: benches.pop(key)))
        ran = await bench.ask(job, tuple(files.values()), task.test_seconds)
        return ran or await super()._ran(task, spec, job, now, tests)


class _Bench:
    """One box, and who waits for it."""

    def __init__(
        self, engine: SandboxEngine, spec: SandboxSpec, program: Sequence[str], idle: float
    ) -> None:
        self._idle = idle
        self._spec = with_reporter(seeded(spec))
        self._engine = engine
        at = program.index("-c")
        self._python, self._program = [*program[:at]], [*program[at + 1 :]]
        self._asked: list[_Asked] = []
        self._more = asyncio.Event()
        self.serving: asyncio.Task[None] | None = None

    async def ask(self, job: Job, files: tuple[FileChange, ...], seconds: float) -> Ran | None:
        """What came of one grading; None: the box broke off. Raises SandboxError, NoLayout."""
        answer: asyncio.Future[Ran | None] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(job, files, seconds, answer))
        self._more.set()
        return await answer

    async def serve(self, leave: Callable[[], object]) -> None:
        """Until nobody has asked for a while; ``leave`` is called once it takes no more."""
        box: Sandbox | None = None
        taken: list[_Asked] = []
        try:
            while await self._waited():
                taken, self._asked = self._asked, []
                self._more.clear()
                box = box or await self._engine.start(self._spec)
                answers = await self._ran(box, taken)
                if None in answers:  # files of one of them still stand in its tree
                    await box.close()
                    box = None
                for one, answer in zip(taken, answers, strict=True):
                    if one.answer.done():
                        continue
                    if isinstance(answer, NoLayout):
                        one.answer.set_exception(answer)
                    else:
                        one.answer.set_result(answer)
                taken = []
        except Exception as error:
            for one in (*taken, *self._asked):
                if not one.answer.done():
                    one.answer.set_exception(error)
        finally:
            leave()  # first: while the box ends, somebody may ask
            for one in (*taken, *self._asked):
                one.answer.cancel()
            if box is not None:
                await box.close()

    async def _waited(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._idle):
                await self._more.wait()
        return bool(self._asked)

    async def _ran(self, box: Sandbox, asked: Sequence[_Asked]) -> list[Ran | NoLayout | None]:
        out = f"/tmp/gradings-{secrets.token_hex(8)}.jsonl"
        request = {
            "program": self._program,
            "code": _CODE,
            "out": out,
            "gradings": [one.told() for one in asked],
        }
        result = await box.exec(
            [*self._python, f"{PROGRAMS}/gradings.py"],
            timeout=60 + sum(WALL * 2 * one.seconds + 30 for one in asked),
            stdin=json.dumps(request).encode(),
        )
        try:
            lines = (await box.read(out)).split(b"\n")[:-1]  # the last one is empty, or torn
        except OSError:
            lines = []
        found = [_answer(result, json.loads(line)) for line in lines]
        return [*found, *[None] * (len(asked) - len(found))]


def _answer(whole: ExecResult, fact: dict[str, Any]) -> Ran | NoLayout:
    if "no_layout" in fact:
        return NoLayout(fact["no_layout"])
    said = {"code": fact["code"], "stdout": fact["stdout"], "stderr": fact["stderr"]}
    reason = ExecReason.TIMEOUT if fact["late"] else ExecReason.EXITED
    report = fact["report"]
    ran = dataclasses.replace(whole, reason=reason, **said)
    return ran, None if report is None else base64.b64decode(report)
