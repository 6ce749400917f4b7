"""A process that has collected a whole suite and ran nothing: it forks a child for each variant.

Runs inside the box: standard library and pytest only. The child puts the new code into the
functions that live there (:mod:`codeswap`) and runs the tests that were asked for.
"""

import base64
import contextlib
import gc
import os
import warnings
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

import codeswap
import pytest
import reporter
from forked import forked, line_of

DONE, REFUSED = 0, 3  # how a child ends: it ran, or it could not swap
Fact = dict[str, Any]


class Nursery:
    """The pytest plugin of the process that has collected everything."""

    def __init__(
        self, request: Fact, write: Callable[[int, Fact], None], ask: int, answer: int
    ) -> None:
        self.request, self.write, self.ask, self.answer = request, write, ask, answer
        self.pristine: dict[str, CodeType] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve instead of running tests."""
        variants = self.request["variants"]
        for variant in variants:
            for path, *_ in () if variant["fresh"] else variant["files"]:
                with contextlib.suppress(OSError, SyntaxError, ValueError):
                    if path not in self.pristine:
                        with open(path, "rb") as file:
                            self.pristine[path] = _compiled(file.read(), path)
        self.living = codeswap.Living()
        self.items: dict[str, pytest.Item] = {}
        for item in session.items:
            self.items.setdefault(item.nodeid, item)
        gc.freeze()  # a collection in a child would copy every page
        gc.set_threshold(50_000, 20, 100)  # and few are needed in so short a life
        os.write(self.answer, b"ready\n")
        while line := line_of(self.ask):
            number = int(line)
            variant = variants[number]
            if not set(variant["ids"]) <= self.items.keys():
                os.write(self.answer, b"refused 0 0\n")
                continue
            ended = forked(partial(self._child, session, number), variant["seconds"])
            word = "refused" if ended.code == REFUSED else "ran"
            os.write(self.answer, f"{word} {ended.seconds:.3f} {ended.signal}\n".encode())
        os._exit(0)

    def _child(self, session: pytest.Session, number: int) -> int:
        variant = self.request["variants"][number]
        try:
            self._swap(variant["files"])
        except codeswap.Unswappable as why:
            self.write(number, {"refused": str(why)})
            return REFUSED

        write = partial(self.write, number)
        config = session.config
        config.option.maxfail = variant["maxfail"]
        config.option.tbstyle = "line"
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            config.pluginmanager.unregister(terminal)
        session.testsfailed = 0
        plan = {**variant, "ids": None}
        config.pluginmanager.register(reporter.Reporter(plan, write))
        wanted = set(variant["ids"])
        items = [item for node_id, item in self.items.items() if node_id in wanted]
        if variant["reverse"]:
            items.reverse()
        write({"collected": len(items)})
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.shouldfail or session.shouldstop:
                break
        write({"exit": int(bool(session.testsfailed))})
        return DONE

    def _swap(self, changes: list[tuple[str, str | None, bool]]) -> None:
        for path, text, _ in changes:
            if path not in self.pristine or text is None:
                raise codeswap.Unswappable(f"{path} is new, gone, or no module")
            try:
                new = _compiled(base64.b64decode(text), path)
            except (SyntaxError, ValueError):
                raise codeswap.Unswappable(f"{path} does not compile") from None
            imported = self.request["imported"].get(path)
            if imported is None:
                raise codeswap.Unswappable(f"what of {path} runs at import is not known")
            found = codeswap.pairs(self.pristine[path], new, frozenset(imported))
            self.living.swap(os.path.realpath(path), found)


def _compiled(data: bytes, path: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(data, os.path.abspath(path), "exec", dont_inherit=True)
