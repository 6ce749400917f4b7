"""Python is read by many threads at a time, and what is none is told in one line."""

import ast
import gc
import sys
import threading
import time
from pathlib import Path

import pytest

from tadpole.syntax import expression, parse


class Cycle:
    """What only the collector takes away; its finalizer lets another thread run."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        for _ in range(50):
            pass


def test_threads_do_not_disturb_each_other():
    text, ends, broken = Path(ast.__file__).read_bytes(), time.monotonic() + 1.5, []

    def work():
        while time.monotonic() < ends and not broken:
            Cycle()
            try:
                parse(text)
            except SystemError as error:
                broken.append(error)

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(interval)
    assert not broken


@pytest.mark.parametrize(
    "source",
    ["def f(:\n", b"\xff", "x\0", "(" * 10_000 + ")" * 10_000, "-" * 100_000 + "1", "\ud800"],
    ids=["syntax", "bytes", "null", "brackets", "signs", "surrogate"],
)
def test_what_is_no_python_is_told_in_one_line(source):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        parse(source)


@pytest.mark.parametrize("source", ["", "a = 1", "1\n2", "f("])
def test_what_is_no_one_expression_is_refused(source):
    with pytest.raises(ValueError, match=r"never closed|one expression"):
        expression(source)
    assert isinstance(expression("[1,\n 2]"), ast.List)


def test_warnings_of_the_source_are_not_ours(recwarn):
    assert len(parse('a = "\\d"\n').body) == 1
    assert not recwarn.list
