"""The job given to :mod:`tadpole.grading.bootstrap`, and what its report proves.

Guards against: forged, reordered, cut or replayed records, a report and an exit status that
contradict each other, and runs that end early and call it success. Nothing counts as passed
that is not in a record with the right key; standard output is never read, except for the one
line that says that the environment works, which was written before any code under test ran.

Does not guard against: a process that holds the key and lies with it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tadpole.errors import GraderError
from tadpole.outcome import GradeStatus, TestStatus
from tadpole.protocols import ExecReason, ExecResult
from tadpole.task import FileChange

_HERE = Path(__file__).parent
PROGRAM = tuple(
    (_HERE / name).read_text("utf-8")
    for name in ("watch.py", "alarm.py", "guard.py", "bootstrap.py")
)
# The work tree leaves sys.path before anything is imported, and comes back when all is loaded.
_START = """
import gc, sys
gc.disable()  # until all is loaded that stays
root, sources = sys.argv[1], sys.argv[2:]
del sys.argv[1:]
sys.path[:] = [p for p in sys.path if p and not (p + "/").startswith(root + "/")]
space = {"__name__": "grading"}  # not __main__, which the tested code can import
for source in sources:
    exec(compile(source, "grading", "exec"), space)
"""


def command(python: str, workdir: str) -> list[str]:
    """The command line in the box. Not with ``-I``: that would make the hash seed random."""
    return [python, "-s", "-B", "-c", _START, workdir, *PROGRAM]


_CONTRADICTION = "contradiction"
_TESTS_FAILED = "1"  # pytest's exit code: the tests that must fail have failed
_ENDINGS = {
    ExecReason.TIMEOUT: "timed out",
    ExecReason.MEMORY: "ran out of memory",
    ExecReason.CPU: "used too much processor time",
    ExecReason.OUTPUT: "printed without end",
}


@dataclass(frozen=True)
class Job:
    """One run: what to run, and the secrets that only this run is told."""

    ids: tuple[str, ...]
    args: tuple[str, ...]  # pytest options
    seconds: int  # of processor time, for each process of the run
    paths: tuple[str, ...]  # put on sys.path, in this order
    env: Mapping[str, str]
    # Files of the change that pytest would read its configuration from: written once it has.
    later: Sequence[FileChange] = ()
    # Changed files, as absolute paths: all, those that have no business in frames, in making code,
    # and those in which nothing was or has to be comparable.
    changed: Sequence[str] = ()
    suspects: Sequence[str] = ()
    makers: Sequence[str] = ()
    equals: Sequence[str] = ()
    directory: str = field(default_factory=lambda: f"/tmp/grading-{secrets.token_hex(8)}")
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    # Above what Python and pytest use, below what shells and signals use.
    status: int = field(default_factory=lambda: 64 + secrets.randbelow(50))
    must_fail: tuple[str, ...] = ()

    def text(self) -> bytes:
        """The job as the bootstrap reads it."""
        job = {
            "ids": self.ids,
            "args": self.args,
            "seconds": self.seconds,
            "paths": self.paths,
            "env": dict(self.env),
            "later": {file.path: _encoded(file.content) for file in self.later},
            "changed": list(self.changed),
            "suspects": list(self.suspects),
            "makers": list(self.makers),
            "equals": list(self.equals),
            "directory": self.directory,
            "key": self.key.hex(),
            "status": self.status,
            "must_fail": self.must_fail,
            "seed": secrets.token_hex(16),
        }
        return json.dumps(job).encode()

    @property
    def report(self) -> str:
        """Path of the report inside the box."""
        return f"{self.directory}/report"


def _encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def must_fail_names(ids: Sequence[str], count: int = 2) -> tuple[str, ...]:
    """Names of tests that do not exist, put together from the words of those that do."""
    functions = [node.rsplit("::", 1)[-1].split("[", 1)[0] for node in ids]
    words = sorted({word for name in functions for word in name.split("_") if word} - {"test"})
    taken, names = set(functions), list[str]()
    while len(names) < count:
        picked = [secrets.choice(words or ["case"]) for _ in range(2 + secrets.randbelow(2))]
        name = "_".join(["test", *picked, *(["more"] * (len(words) < 3)), str(len(names))])
        name = name if name not in taken else f"{name}_{secrets.token_hex(2)}"
        taken.add(name)
        names.append(name)
    return tuple(names)


@dataclass(frozen=True)
class Verdict:
    """What one run proves."""

    status: GradeStatus
    failing: tuple[str, ...]  # expected ids without a proven pass
    reason: str
    timed_out: bool = False  # by the clock, which a busy machine can cause
    killed: bool = False  # by the kernel, perhaps for the memory that a neighbour took
    lines: Mapping[str, int] = field(default_factory=dict)  # where failing tests were left
    ended: bool = False  # the tests came to their end: ``failing`` is what they said


def judge(job: Job, result: ExecResult, report: bytes | None) -> Verdict:
    """Weigh a finished run. ``report`` None: the file is not there.

    Raises GraderError where the environment failed before any code under test ran.
    """
    if not result.stdout.startswith(f"tadpole {_digest(job.key, b'ready')}"):
        line = (result.stderr.strip().splitlines() or [f"exit status {result.code}"])[-1]
        raise GraderError(f"the test environment does not work: {line[:300]}")
    everything = job.ids
    if report is None:
        return Verdict(GradeStatus.TAMPERED, everything, "the report file was removed")
    facts = _read(job, report)
    failing = tuple(node for node in job.ids if facts.tests.get(node) != TestStatus.PASSED.value)
    if facts.tampered:
        return Verdict(GradeStatus.TAMPERED, everything, facts.tampered)
    if result.reason in _ENDINGS:
        reason = _ENDINGS[result.reason]
        timed_out = result.reason is ExecReason.TIMEOUT
        return Verdict(GradeStatus.GRADED, failing or everything, reason, timed_out)
    if result.code == 128 + signal.SIGXCPU:
        reason = f"timed out: {job.seconds} s of processor time"
        return Verdict(GradeStatus.GRADED, failing or everything, reason)
    if facts.end is None:
        reason = f"the tests did not run to their end: exit status {result.code}, no final record"
        killed = result.code == 128 + signal.SIGKILL
        return Verdict(GradeStatus.GRADED, everything, reason, killed=killed)
    if result.code != job.status:
        reason = f"exit status {result.code} contradicts the report"
        return Verdict(GradeStatus.TAMPERED, everything, reason)
    if facts.end != _TESTS_FAILED:
        reason = f"the tests did not run: pytest ended with {facts.end}"
        return Verdict(GradeStatus.GRADED, everything, reason)
    if failing:
        told = _told(failing, facts, len(job.ids))
        return Verdict(GradeStatus.GRADED, failing, told, lines=facts.lines, ended=True)
    if len(facts.must_fail) != len(job.must_fail):
        reason = "a test that must fail is missing from the report"
        return Verdict(GradeStatus.TAMPERED, everything, reason)
    return Verdict(GradeStatus.GRADED, (), f"all {len(job.ids)} tests passed", ended=True)


@dataclass
class _Facts:
    tests: dict[str, str] = field(default_factory=dict)
    must_fail: dict[int, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    end: str | None = None
    tampered: str = ""


def _read(job: Job, report: bytes) -> _Facts:
    facts = _Facts()
    chain = hmac.new(job.key, digestmod=hashlib.sha256)
    lines = report.split(b"\n")
    for line in lines[:-1]:  # the last one is empty, or torn because the run was killed
        digest, _, text = line.partition(b" ")
        chain.update(text + b"\n")
        if not hmac.compare_digest(digest, chain.hexdigest().encode()) or facts.end is not None:
            facts.tampered = "the report holds a record that the grader did not write"
            return facts
        try:
            _take(job, facts, text.decode("ascii"))
        except ValueError:  # well keyed: somebody else has the key
            facts.tampered = "the report holds a record that the grader never writes"
        if facts.tampered:
            return facts
    return facts


def _take(job: Job, facts: _Facts, text: str) -> None:
    """Note one record. Raises ValueError for one that the bootstrap has no words for."""
    kind, _, rest = text.partition(" ")
    if kind == "changed":
        facts.tampered = f"the tested code replaced a part of the test runner: {rest[:200]}"
    elif kind == "alarm" and rest in ("compile", "code.__new__"):
        facts.tampered = f"the change gave code the name of another file: {rest}"
    elif kind == "alarm":
        facts.tampered = f"the change looked into the process that tests it: {rest[:200]}"
    elif kind == "wrote":
        facts.tampered = f"the change wrote over files of the tests: {rest[:200]}"
    elif kind == "equal":
        facts.tampered = f"the change makes objects that are equal to anything: {rest[:200]}"
    elif kind == "at":
        number, _, line = rest.partition(" ")
        facts.lines[job.ids[_number(number, len(job.ids))]] = _number(line)
    elif kind == "end":
        facts.end = rest
    elif kind in ("test", "canary"):
        number, _, status = rest.partition(" ")
        if status != _CONTRADICTION:
            status = TestStatus(status).value
        if kind == "canary":
            facts.must_fail[_number(number, len(job.must_fail))] = status
            if status not in (TestStatus.FAILED.value, TestStatus.ERROR.value):
                told = TestStatus.PASSED.value if status == _CONTRADICTION else status
                facts.tampered = f"a test that must fail was reported as {told}"
            return
        node = job.ids[_number(number, len(job.ids))]
        if status == _CONTRADICTION:
            facts.tampered = f"{node} was reported as passed, but did not pass where it ran"
        if node in facts.tests:
            facts.tampered = f"{node} was reported twice"
        facts.tests[node] = status
    elif kind == "collected":
        _number(rest)
    elif text != "ready":
        raise ValueError(f"no record of ours: {text!r}")


def _number(text: str, below: int = 1 << 31) -> int:
    """A number as the bootstrap writes it. Raises ValueError."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= below:
        raise ValueError(f"no number below {below}: {text!r}")
    return int(text)


def _told(failing: Sequence[str], facts: _Facts, total: int) -> str:
    shown = [f"{node} {facts.tests.get(node, TestStatus.MISSING.value)}" for node in failing[:3]]
    more = f" and {len(failing) - 3} more" if len(failing) > 3 else ""
    return f"{len(failing)} of {total} tests did not pass: {', '.join(shown)}{more}"


def _digest(key: bytes, text: bytes) -> str:
    return hmac.new(key, text + b"\n", hashlib.sha256).hexdigest()
