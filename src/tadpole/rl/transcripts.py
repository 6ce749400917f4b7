"""Self-made transcripts that show the interface and nothing else.

A tiny model has never seen a tool call. These transcripts show what one looks like, what comes
back, and that a turn without one ends the work. Nothing in them is worth imitating as work: the
message is a jumble of paths and lines of code in any order, and which tool is called and which
of the strings go into which argument is drawn at random. So a policy that has learned them
fills calls with strings that it was shown, and all that makes a call *right* (the tool, the
roles of old and new text, when to stop) is left for reinforcement learning to find. The lines
come from Python's own standard library; no repository of any task is read, and no other model
wrote a token. The observations, errors included, are what the real tools answered.
"""

import importlib.util
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tadpole.leaf.calls import render
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.tools import ToolName
from tadpole.protocols import Sandbox
from tadpole.task import FileChange
from tadpole.trace import Tokens, ToolCall

MODULES = (
    *("argparse", "calendar", "configparser", "csv", "difflib", "fractions", "gettext", "heapq"),
    *("mailbox", "optparse", "pprint", "shlex", "statistics", "string", "textwrap", "tokenize"),
)
WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty"),
    *("knoll", "lagoon", "marsh", "north", "oasis", "pond", "quay", "ridge", "shore", "tide"),
)
GLUE = ("and", "at", "from", "here", "in", "is", "near", "note", "of", "see", "then", "to", "with")
LONGEST = 60  # characters of a line of code


async def transcript(dialogue: Dialogue, sandbox: Sandbox, rng: random.Random) -> Tokens:
    """One transcript with its loss on what the assistant says; its calls are really run."""
    files = {_path(rng): _lines(rng, 4) for _ in range(rng.choice((1, 1, 2)))}
    await sandbox.write(
        [FileChange(path, "\n".join(lines).encode() + b"\n") for path, lines in files.items()]
    )
    shown = [rng.choice(next(iter(files.values()))).strip(), *_pieces(rng, 1)]
    ids = dialogue.start(_message(rng, [*files, *shown]))
    mask = [0] * len(ids)
    while True:
        call = _call(rng, list(files), shown)
        said = dialogue.write(render(call, dialogue.call_format))
        seen = await sandbox.tool(call.name, call.arguments)
        given = dialogue.observe([seen], said[-1])
        ids += [*said, *given]
        mask += [1] * len(said) + [0] * len(given)
        if rng.random() < 0.5:
            break
    said = dialogue.write("Done.")
    ids += said
    mask += [1] * len(said)
    await sandbox.write([FileChange(path, None) for path in files])
    zeros = len(ids)
    return Tokens(
        ids=tuple(ids), logprobs=(0.0,) * zeros, loss_mask=tuple(mask), versions=(-1,) * zeros
    )


def _call(rng: random.Random, paths: Sequence[str], shown: Sequence[str]) -> ToolCall:
    name, path = rng.choice(list(ToolName)), rng.choice(paths)
    old, new = rng.sample(shown, 2)
    arguments: dict[ToolName, dict[str, Any]] = {
        ToolName.READ: {"file_path": path},
        ToolName.WRITE: {"file_path": path, "content": new},
        ToolName.EDIT: {"file_path": path, "old_string": old, "new_string": new},
        ToolName.GLOB: {"pattern": rng.choice(("**/*.py", "*.py", path))},
        ToolName.BASH: {"command": rng.choice(("ls", f"cat {path}", "git status"))},
    }
    return ToolCall(name=name, arguments=arguments[name])


def _message(rng: random.Random, strings: Sequence[str]) -> str:
    parts = []
    for text in rng.sample(strings, len(strings)):
        parts += [*rng.sample(GLUE, rng.choice((0, 1, 1, 2))), f"`{text}`"]
    return " ".join(parts) + rng.choice(("", "."))


def _path(rng: random.Random) -> str:
    depth = rng.choice((1, 2, 2))
    return "/".join(rng.sample(WORDS, depth)) + ".py"


def _lines(rng: random.Random, count: int) -> list[str]:
    lines = _library()[rng.choice(MODULES)]
    start = rng.randrange(len(lines) - count)
    return list(lines[start : start + count])


def _pieces(rng: random.Random, count: int) -> list[str]:
    """Lines of code, whole or from some word on."""
    pieces = []
    for _ in range(count):
        words = _lines(rng, 1)[0].split()
        pieces.append(" ".join(words[rng.randrange(len(words)) if len(words) > 3 else 0 :]))
    return pieces


@cache
def _library() -> dict[str, tuple[str, ...]]:
    found = {}
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        lines = Path(spec.origin).read_text("utf-8").splitlines()
        found[module] = tuple(
            line for line in lines if len(line.strip()) >= 8 and len(line) <= LONGEST
        )
    return found
