"""Rewrites hidden tests so that nobody but the host knows which of them must fail.

Of each test function one oracle (:mod:`tadpole.grading.oracles`) is rewritten so that the test
of a right program passes or fails by a secret coin. Two variants are complements of each other:
what passes in one fails in the other, and the one of the two that compares with something else
than the real test is a secret as well.

Guards against: a process that reports what it likes, objects that are equal to anything, and
code that reads from the test what it should return. Drawn with ``os.urandom`` for each grading,
never from the task. Does not guard against: a test none of whose oracles can be rewritten, or
a program that guesses all the bits (one in two for each function whose test it does not
satisfy); checks without anything to compare with (``assert f(x)``) give away their bit to code
that reads and understands the rewritten test.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tadpole.grading.oracles import Oracle, Splice, Text, oracles_of, spliced
from tadpole.syntax import parse
from tadpole.task import FileChange, Task

PER_TEST = 2  # oracles of a function that are tried, the best first
WAYS = ((False, True), (True, False), (True, True))  # (mutated, inverted), to be tried on the gold


@dataclass(frozen=True)
class Pick:
    """What is done to one function: which of its oracles, and how."""

    oracle: int
    mutated: bool
    inverted: bool

    @property
    def passes(self) -> bool:
        """Whether a right program passes."""
        return self.mutated == self.inverted


@dataclass(frozen=True)
class Variant:
    """Rewritten test files, the ids to run, and which of these must fail."""

    files: tuple[FileChange, ...]
    ids: tuple[str, ...]
    must_fail: frozenset[str]


@dataclass(frozen=True)
class Suite:
    """The graded test functions of a task: ids and oracles by function, in suite order.

    A function is named by its node id without parameters; all its parameter sets share one fate.
    """

    files: Mapping[str, FileChange]
    ids: Mapping[str, tuple[str, ...]]
    oracles: Mapping[str, Sequence[Oracle]]
    repaired: tuple[str, ...]  # functions of fail-to-pass tests
    texts: Mapping[str, Text] = field(repr=False, default_factory=dict)

    @classmethod
    def of(cls, task: Task, read: Callable[[str], bytes | None]) -> "Suite":
        """``read`` gives the test files that the task does not bring along."""
        hidden = {change.path: change for change in task.hidden}
        ids: dict[str, list[str]] = {}
        for node in dict.fromkeys((*task.fail_to_pass, *task.pass_to_pass)):
            ids.setdefault(function_of(node), []).append(node)
        files, texts = dict[str, FileChange](), dict[str, Text]()
        for path in dict.fromkeys(name.partition("::")[0] for name in ids):
            file = hidden.get(path) or FileChange(path, read(path))
            try:
                texts[path] = Text(file.content or b"")
            except ValueError:
                continue  # no Python, or in another encoding: nothing in it is rewritten
            files[path] = file
        oracles = {}
        for name in ids:
            path, _, rest = name.partition("::")
            found = oracles_of(texts[path], tuple(rest.split("::"))) if path in texts else []
            oracles[name] = found
        return cls(
            files=files,
            ids={name: tuple(nodes) for name, nodes in ids.items()},
            oracles=oracles,
            repaired=tuple(dict.fromkeys(map(function_of, task.fail_to_pass))),
            texts=texts,
        )

    def order(self, name: str, line: int) -> list[int]:
        """The oracles of a function that are tried: that on ``line`` first, then the best.

        Without its repair the test fails there: whoever has not repaired it does not know how
        this one should end, but may well know it of the others.
        """
        numbers = range(len(self.oracles[name]))
        best = sorted(numbers, key=lambda number: line not in self.oracles[name][number].lines)
        return best[:PER_TEST]

    def variant(self, picks: Mapping[str, Pick], rng: random.Random) -> Variant:
        """The files with these picks, running the functions that are picked and no others."""
        changed: dict[str, list[Splice]] = {}
        for name, pick in picks.items():
            path = name.partition("::")[0]
            splices = self.oracles[name][pick.oracle].splices(pick.mutated, pick.inverted, rng)
            if _is_python(spliced(self.texts[path].content, splices)):
                changed.setdefault(path, []).extend(splices)
            # else it stays as it is: validation finds that it does not do what it should
        files = [
            FileChange(
                path, spliced(self.texts[path].content, splices), self.files[path].executable
            )
            for path, splices in changed.items()
        ]
        ids = [node for name in picks for node in self.ids[name]]
        failing = [
            node for name, pick in picks.items() if not pick.passes for node in self.ids[name]
        ]
        return Variant(tuple(files), tuple(ids), frozenset(failing))


def function_of(node: str) -> str:
    """A node id without its parameters."""
    path, separator, rest = node.partition("::")
    return path + separator + rest.partition("[")[0]


def pair(
    suite: Suite, usable: Mapping[str, int], names: Iterable[str], rng: random.Random
) -> tuple[Variant, Variant]:
    """Two complementary variants of these functions.

    ``usable`` says which oracle of a function was found to work. ``rng``: of the operating
    system where it is to be secret.
    """
    first, second = dict[str, Pick](), dict[str, Pick]()
    for name in names:
        oracle = usable[name]
        inverted = rng.random() < 0.5
        if suite.oracles[name][oracle].mutate is None:
            first[name] = Pick(oracle, False, inverted)
            second[name] = Pick(oracle, False, not inverted)
        else:  # mutated in exactly one of the two
            mutated = rng.random() < 0.5
            first[name] = Pick(oracle, mutated, inverted)
            second[name] = Pick(oracle, not mutated, inverted)
    return suite.variant(first, rng), suite.variant(second, rng)


def _is_python(content: bytes) -> bool:
    try:
        parse(content)
    except ValueError:
        return False
    return True
