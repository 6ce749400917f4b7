"""Tasks that only a model makes: each kind passes the same gates as a mutation does."""

import random

import pytest
from authors import NOTE, server, write

from tadpole.grading.grader import PytestGrader
from tadpole.pilot.proposers.author import Author
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.task import TaskKind

FEWER = """`first` of `pond.words` splits the whole text, however few words are asked for. It shall
split no further than it has to: for `count` words, the `split` of the text makes `count + 1` parts
at most. A negative `count` still leaves that many words off the end, and all results stay.
"""
COUNTED = '''import pytest

from pond.words import first


class Text(str):
    """Counts the parts that its split makes."""

    made = 0

    def split(self, sep=None, maxsplit=-1):
        found = super().split(sep, maxsplit)
        self.made += len(found)
        return found


@pytest.mark.parametrize("count", [1, 2, 7])
def test_no_more_work_than_asked_for(count):
    text = Text("word " * 500)
    assert first(text, count) == ["word"] * count
    assert text.made <= count + 1


@pytest.mark.parametrize("count, wanted", [(0, ""), (1, "a"), (9, "abc"), (-1, "ab")])
def test_results_stay(count, wanted):
    assert first("a b c", count) == list(wanted)
'''
TAKEN_OUT = """Take a function `loud(text, mark)` out of `shout` in `pond.words`: it gives the text
in upper case with the mark behind it. `shout` uses it, and what `shout` gives stays as it is;
whoever replaces `words.loud` changes what `shout` says.
"""
STRUCTURE = """import pytest

from pond import words


@pytest.mark.parametrize("text, mark, wanted", [("a", "?", "A?"), ("Ab", "", "AB"), ("", "!", "!")])
def test_loud(text, mark, wanted):
    assert words.loud(text, mark) == wanted


def test_shout_uses_it(monkeypatch):
    monkeypatch.setattr(words, "loud", lambda text, mark: f"<{text}{mark}>")
    assert words.shout("a", "?", twice=True) == "<a?><a?>"
    assert words.shout("b") == "<b!>"


def test_shout_stays():
    assert words.shout("") == "" and words.shout("a") == "A!"
"""
MOVED = """`shout` of `pond.words` takes `times`, how often the text is said, in place of `twice`.
`times` is 1 unless given, and given by its name alone. `twice=True` still says it two times, with a
DeprecationWarning "twice is deprecated: say times=2". Nothing is said of an empty text.
"""
NEWER = """import warnings

import pytest

from pond.words import shout


@pytest.mark.parametrize("times, wanted", [(0, ""), (1, "A?"), (3, "A?A?A?")])
def test_times(times, wanted):
    assert shout("a", "?", times=times) == wanted
    assert shout("", "?", times=times) == ""


def test_the_old_name_still_works():
    with pytest.warns(DeprecationWarning, match="twice is deprecated: say times=2"):
        assert shout("a", twice=True) == "A!A!"


def test_only_the_old_name_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shout("a") == "A!"
"""
WARNED = """    if twice:
        warnings.warn("twice is deprecated: say times=2", DeprecationWarning, stacklevel=2)
        times = 2
"""
EDITS = {
    TaskKind.PERFORMANCE: [
        ("pond/words.py", 'words = text.split(" ")', 'words = text.split(" ", count)')
    ],
    TaskKind.REFACTOR: [
        ("pond/words.py", "    loud = text.upper() + mark\n", "    said = loud(text, mark)\n"),
        (
            "pond/words.py",
            "return loud + loud if twice else loud",
            "return said + said if twice else said",
        ),
        (
            "pond/words.py",
            "def shout(",
            "def loud(text, mark):\n    return text.upper() + mark\n\n\ndef shout(",
        ),
    ],
    TaskKind.MIGRATION: [
        ("pond/words.py", "*, twice=False):\n", "*, times=1, twice=False):\n" + WARNED),
        ("pond/words.py", "return loud + loud if twice else loud", "return loud * times"),
        ("pond/words.py", '"""Words."""\n', '"""Words."""\n\nimport warnings\n'),
    ],
}
ASKED = {
    TaskKind.PERFORMANCE: (FEWER, COUNTED),
    TaskKind.REFACTOR: (TAKEN_OUT, STRUCTURE),
    TaskKind.MIGRATION: (MOVED, NEWER),
}
FAILING = {
    TaskKind.PERFORMANCE: {"test_no_more_work_than_asked_for"},
    TaskKind.REFACTOR: {"test_loud", "test_shout_uses_it"},
    TaskKind.MIGRATION: {"test_times", "test_the_old_name_still_works"},
}


@pytest.mark.parametrize("kind", list(EDITS))
async def test_a_kind(desk, snapshot, store, engine, kind):
    solved = {}
    for path, old, new in EDITS[kind]:
        text = solved.get(path) or (snapshot.tree / path).read_text()
        assert text.count(old) == 1
        solved[path] = text.replace(old, new)
    statement, tests = ASKED[kind]
    served = server({**solved, f"tests/test_{kind}.py": tests, NOTE: statement})
    place = desk(served.url)
    await write(place, snapshot, (kind,))
    served.shutdown()
    (proposed,) = Author(place.directory, 1).propose(snapshot, random.Random(0))
    validator = Validator(store, engine, PytestGrader(engine, store), Rules(mutants=3))
    task = await validator.validate(snapshot, proposed, "pond-0001")
    assert task.kind is kind and task.provenance.operator == kind.value
    failing = {node_id.partition("::")[2].partition("[")[0] for node_id in task.fail_to_pass}
    assert failing == FAILING[kind]
    assert {i for i in task.pass_to_pass if i.startswith(f"tests/test_{kind}.py")}
    assert task.measured.mutants >= 3 and task.measured.kill_rate >= 0.7
