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
# Edit has by far the most to get right, so it comes up as often as all others together.
WEIGHTS = [4 if tool is ToolName.EDIT else 1 for tool in ToolName]
MORE, MOST = 0.2, 3  # chance of one more call; most calls
LONGEST = 60  # characters of a line of code


async def transcripts(
    dialogue: Dialogue, sandbox: Sandbox, rng: random.Random, variants: int
) -> list[Tokens]:
    """``variants`` ways to go on from one message, with the loss on what the assistant says.

    Their calls are really run, each in the same fresh files.
    """
    files = {_path(rng): _lines(rng, 4) for _ in range(rng.choice((1, 1, 2)))}
    shown = [rng.choice(next(iter(files.values()))).strip(), *_pieces(rng, 1)]
    message = _message(rng, [*files, *shown])
    made = []
    for _ in range(variants):
        await sandbox.write(
            [FileChange(path, "\n".join(lines).encode() + b"\n") for path, lines in files.items()]
        )
        made.append(await _episode(dialogue, sandbox, rng, message, list(files), shown))
    await sandbox.write([FileChange(path, None) for path in files])
    return made


async def _episode(  # noqa: PLR0917
    dialogue: Dialogue,
    sandbox: Sandbox,
    rng: random.Random,
    message: str,
    paths: Sequence[str],
    shown: Sequence[str],
) -> Tokens:
    ids = dialogue.start(message)
    mask = [0] * len(ids)
    calls, more = 0, True
    while more:
        calls += 1
        call = _call(rng, paths, shown)
        said = dialogue.write(render(call, dialogue.call_format))
        seen = await sandbox.tool(call.name, call.arguments)
        given = dialogue.observe([seen], said[-1])
        ids += [*said, *given]
        mask += [1] * len(said) + [0] * len(given)
        # An error is not the last word, unless it goes on.
        more = calls < MOST and (seen.error or rng.random() < MORE)
    said = dialogue.write("Done.")
    ids += said
    mask += [1] * len(said)
    count = len(ids)
    return Tokens(
        ids=tuple(ids), logprobs=(0.0,) * count, loss_mask=tuple(mask), versions=(-1,) * count
    )


def _call(rng: random.Random, paths: Sequence[str], shown: Sequence[str]) -> ToolCall:
    name, path = rng.choices(list(ToolName), WEIGHTS)[0], rng.choice(paths)
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
