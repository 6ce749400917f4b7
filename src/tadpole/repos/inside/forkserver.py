"""Runs one test suite on many variants of the tree, each in a forked process of its own.

A program of its own, started like :mod:`reporter` beside it, with a JSON request on standard
input; results go to one file, each line with the number of its variant. Three kinds of process:

- this one has loaded pytest and nothing of the repository. It puts the files of a variant into
  the tree, has it run, and puts the old ones back
- the *nursery* has collected the whole suite on the untouched tree, and ran nothing. For each
  variant it forks, and the child puts the new code into the functions that live there
  (:mod:`codeswap`) and runs the tests that were asked for
- where that is impossible, or a fresh run is asked for, this process forks a child that imports
  and collects everything as usual

What is compiled in a fresh run is kept by content, for the next one.

What the tree held is written down first: whoever kills all of this at once, as the box does where
memory runs out, can put it back.

Guards against: edits that a swap would not show (they get a fresh run), tests that hang or kill
their process (one variant ends, with what it wrote so far). Does not guard against code that
means harm: it shares the box with all other variants.
"""

# ruff: noqa: E402
import gc

gc.disable()  # as in the reporter

import json
import os
import sys
import time
from typing import Any

import pytest
import reporter
from codecache import keep_code
from forked import Ended, forked, line_of, silence
from nursery import Nursery
from treefiles import changed, keep

for _name in ("codecache", "codeswap", "forked", "nursery", "reporter", "treefiles"):
    del sys.modules[_name]  # the repository may have modules of these names

Fact = dict[str, Any]
NOBODY = (False, 0.0, 0)  # has run it


class Variants:
    """All variants of a request, in turn."""

    def __init__(self, request: Fact) -> None:
        self.request = request
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.out = os.open(request["out"], flags, 0o600)
        self.nursery: tuple[int, int, int] | None = None  # process, requests to it, answers of it

    def run(self) -> None:
        """Until all have run."""
        variants = self.request["variants"]
        keep((path for one in variants for path, *_ in one["files"]), self.request["kept"])
        if any(not variant["fresh"] for variant in variants):
            self.nursery = self._hatch()
        for number, variant in enumerate(variants):
            with changed(variant["files"]):
                self.write(number, {"begun": time.time()})
                warm, used, signal = self._ask(number) if not variant["fresh"] else NOBODY
                if not warm:
                    ended = self._fresh(number)
                    signal, used = ended.signal, used + ended.seconds
                self.write(number, {"warm": warm, "signal": signal, "cpu": round(used, 3)})
        if self.nursery is not None:
            os.close(self.nursery[1])
            os.waitpid(self.nursery[0], 0)

    def write(self, number: int, fact: Fact) -> None:
        """One fact about a variant. Begins a line of its own: the last one may be torn."""
        os.write(self.out, ("\n" + json.dumps({"variant": number, **fact})).encode())

    def _fresh(self, number: int) -> Ended:
        variant = self.request["variants"][number]

        def work() -> int:
            gc.freeze()  # not before: the nursery looks for what lives
            silence()
            request = {**self.request, **variant, "cover": [], "omit": []}
            request["options"] = [*self.request["options"], *variant["options"]]
            reporter.run(request, lambda fact: self.write(number, fact))
            return 0

        found: Ended = forked(work, variant["seconds"])
        return found

    # --- the nursery -----------------------------------------------------------------------

    def _hatch(self) -> tuple[int, int, int] | None:
        """Start it; None where it cannot collect the suite."""
        ask, asked = os.pipe()
        answers, answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(asked)
                os.close(answers)
                silence()
                sys.path[0] = os.getcwd()
                args = [*self.request["options"], *self.request["paths"]]
                sys.argv = ["pytest", *args]
                pytest.main(args, plugins=[Nursery(self.request, self.write, ask, answer)])
            finally:
                os._exit(0)
        os.close(ask)
        os.close(answer)
        if line_of(answers) == b"ready":
            return pid, asked, answers
        os.close(asked)
        os.waitpid(pid, 0)
        return None

    def _ask(self, number: int) -> tuple[bool, float, int]:
        """Whether the nursery ran a variant, the processor time that this took, and the signal
        that ended it.
        """
        if self.nursery is None:
            return NOBODY
        try:
            os.write(self.nursery[1], b"%d\n" % number)
            answer = line_of(self.nursery[2]).decode()
        except BrokenPipeError:
            answer = ""
        if not answer:  # it is gone
            os.waitpid(self.nursery[0], 0)
            os.close(self.nursery[1])
            self.nursery = None
            return NOBODY
        word, used, signal = answer.split()
        return word == "ran", float(used), int(signal)


def main() -> int:
    """Read the request and run its variants."""
    gc.enable()
    request = reporter.close_input()
    keep_code(request["code"])
    Variants(request).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
