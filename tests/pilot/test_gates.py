"""Which changes the gates try: of a repair in several places, places that failing tests run."""

from test_taskdir import new_task

from tadpole.pilot.gates import NO_OP, changes
from tadpole.pilot.verdict import DropReason
from tadpole.task import FileChange, Provenance

ONE = b"def first():\n    return 1\n"
TWO = b"def second():\n    return 2\n\n\ndef third():\n    return 3\n"
GOLD = (FileChange("a.py", ONE), FileChange("b.py", TWO, True), FileChange("notes.txt", b"..."))


def tried(gold=GOLD, functions=("first", "second", "third"), **how):
    paths = tuple(change.path for change in gold)
    task = new_task(gold=gold, provenance=Provenance("p", "revert", 3, paths, functions))
    (whole, solved, _), (nothing, unsolved, _), *others = changes(task, **how)
    assert whole == gold and solved
    assert nothing is NO_OP and not unsolved
    assert not any(resolved for _, resolved, _ in others)
    return {reason: dict((c.path, c) for c in delta) for delta, _, reason in others}


def test_the_first_where_nothing_is_known():
    found = tried()
    assert found[DropReason.PASSES_BROKEN]["a.py"].content == ONE + b"\n)\n"
    assert found[DropReason.PASSES_BROKEN]["b.py"] == GOLD[1]
    assert b"first" not in found[DropReason.PASSES_DELETED]["a.py"].content
    assert found[DropReason.PASSES_DELETED]["notes.txt"] == GOLD[2]


def test_what_failing_tests_run():
    found = tried(runs=lambda path, lines: path == "b.py" and 6 in lines)
    assert found[DropReason.PASSES_BROKEN]["a.py"] == GOLD[0]
    assert found[DropReason.PASSES_BROKEN]["b.py"] == FileChange("b.py", TWO + b"\n)\n", True)
    left = found[DropReason.PASSES_DELETED]["b.py"]
    assert b"second" in left.content and b"third" not in left.content and left.executable


def test_a_line_with_def_runs_without_its_function():
    found = tried(runs=lambda path, lines: path == "b.py" and not {2, 5}.isdisjoint(lines))
    assert b"second" not in found[DropReason.PASSES_DELETED]["b.py"].content


def test_a_repair_without_functions_or_without_python():
    assert set(tried(functions=("<module>",))) == {DropReason.PASSES_BROKEN}
    assert tried(gold=GOLD[2:]) == {}
    assert set(tried(gold=(FileChange("a.py", b"def first(:\n"),))) == {DropReason.PASSES_BROKEN}
