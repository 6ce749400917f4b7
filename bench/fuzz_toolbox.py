"""Fuzzes what a box is asked: tools, files, commands, cancellations and raw frames. Seeded.

python bench/fuzz_toolbox.py --seconds 600 [--seed N] [--engine session|flat|container]

Ends with the counts of frames by kind, of boxes, of deaths and of failures; exit code 1 where there
was a failure. A box that died is made again, and the messages go on. A failure is whatever the
contract does not allow: another exception than it names, an observation that is no text, a box
that dies of a well-formed message or outlives a broken one, an answer past its deadline, a changed
host tree, a process that is left.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from tadpole.errors import SandboxDied, SandboxError, SandboxUnavailable
from tadpole.leaf.toolbox import PARAMETERS
from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes import ladder
from tadpole.sandboxes.probe import Engine
from tadpole.sandboxes.session import GRACE, Session
from tadpole.settings import BoxKind
from tadpole.task import FileChange

LIMITS = Limits(
    call_seconds=10, memory=256 << 20, processes=32, disk=32 << 20, inodes=2000, cpu_seconds=5
)
LONGEST = LIMITS.call_seconds + 2 + GRACE  # seconds of one message; a Bash call asks for 2 at most
MESSAGES_PER_BOX = 400

_NAMES = ("a.py", "link", "pkg/b.py", "dir", "fifo", "\u00e9\U0001f438", "x" * 255, "x" * 300)
_PLACES = ("", "/", "../", "/tmp/", "/proc/self/", "/proc/1/", "/dev/", "./", "~/", "pkg/../../")
_TEXTS = (
    *("", "x", "\0", "\ud800", "\r\n", "a\r\nb\n", "\ufeff", "value = 1\n", "\x1b[2J", "\\n"),
    *("*" * 50, "**/**/**", "[" * 200, "[a]*", "\u202e", "y" * 70_000, "{}", "null", "\n" * 3000),
)
_SCRIPTS = r"""
true
exit 7
cat
kill -9 -1
kill -9 1
kill -ALRM 1; kill -INT 1
rm -rf /repo/* /tmp/*
ln -sf / link; ln -sf link link2
mkdir -p dir; mkfifo fifo dir/fifo
head -c 99999 /dev/urandom
sleep 60 & disown
setsid sleep 60 &
(:(){ :|:& };:) 2>/dev/null
seq 99999
exec 1>&- 2>&-
truncate -s 1T a.py; truncate -s 20M a.py
yes | head -c 5000000
chmod -R 000 . ; ls
mkdir -p pkg; printf 'value = 1\n' > pkg/b.py; printf 'a\r\nb\n' > a.py
printf '\xff' > $'\xff'
for i in $(seq 3000); do : > f$i; done
mv pkg dir2; ln -s /etc pkg
d=dir; for i in $(seq 700); do d=$d/d; done; mkdir -p $d; : > $d/x
for i in $(seq 60); do mkdir $(printf 'n%.0s' $(seq 250)); cd n*; done; : > x
git init -q dir/own; ln -s ../a.py dir/own/b.py; mknod dir/null c 0 0
ulimit -n 3; ls
cd /; rm -r *
""".strip().splitlines()


class Fuzzer:
    """Random messages of one seed, and what came of them."""

    def __init__(self, engine: Engine, tree: Path, seed: int) -> None:
        self.engine, self.tree, self.random = engine, tree, random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.refused = 0
        self.failures: list[str] = []
        self.boxes = self.deaths = 0

    async def run(self, seconds: float) -> None:
        """Send messages until the time is over."""
        begun = told = time.monotonic()
        until = begun + seconds
        while time.monotonic() < until:
            try:
                await self._life(until)
            except SandboxUnavailable:
                raise
            except SandboxError as error:  # one that does not start
                self.failures.append(f"box {self.boxes}: {error}")
                await asyncio.sleep(1)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                click.echo(f"{told - begun:.0f} s: {self.counts()}", err=True)

    async def _life(self, until: float) -> None:
        """One box with its messages, and one that gets a broken frame."""
        box = await self._box()
        try:
            for _ in range(MESSAGES_PER_BOX):
                if time.monotonic() >= until:
                    break
                kind = self.random.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
                if not await self._one(box, kind):
                    break
        finally:
            await box.close()
        broken = await self._box()
        try:
            await self._raw(broken)
        finally:
            await broken.close()

    def counts(self) -> str:
        """How much of what was sent, for a person."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.sent.most_common())
        return (
            f"{sum(self.sent.values()):,} frames ({kinds}; {self.refused:,} of them refused) to "
            f"{self.boxes} boxes, {self.deaths} of which died: {len(self.failures)} failures"
        )

    async def _box(self) -> Session:
        self.boxes += 1
        return await self.engine.start(SandboxSpec(self.tree, limits=LIMITS))

    async def _one(self, box: Session, kind: str) -> bool:
        """Send one message; whether the box can go on."""
        call, shown = getattr(self, f"_{kind}")(box)
        self.sent[kind] += 1
        begun = time.monotonic()
        try:
            self._judge(await asyncio.wait_for(call, LONGEST + 5), shown)
        except (ValueError, OSError) as error:
            self.refused += 1
            if isinstance(error, TimeoutError):
                self.failures.append(f"{shown}: no answer in {LONGEST + 5:g} s")
                return False
        except SandboxDied as error:
            self.deaths += 1
            self.failures.append(f"{shown}: the box died: {error}")
            return False
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self.failures.append(f"{shown}: {error!r}")
            return False
        if time.monotonic() - begun > LONGEST:
            self.failures.append(f"{shown}: answered after {time.monotonic() - begun:.1f} s")
        return True

    def _judge(self, result: Any, shown: str) -> None:
        text = getattr(result, "text", "")
        self.refused += bool(getattr(result, "error", False))
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.failures.append(f"{shown}: an observation that is no text")
        if len(text) > 100_000:
            self.failures.append(f"{shown}: an observation of {len(text)} characters")

    def _tool(self, box: Session) -> tuple[Any, str]:
        name = self.random.choice([*PARAMETERS, "Nope", ""])
        known = [key for key, _, _ in PARAMETERS.get(name, ())]
        keys = [key for key in known if self.random.random() < 0.9]
        if self.random.random() < 0.1:
            keys.append(self.random.choice(_TEXTS))
        arguments = {key: self._value(key) for key in keys}
        if name == "Bash":
            arguments["timeout"] = self.random.choice([2, 1, 0.3, "1", 2])
            arguments.pop("timeout_ms", None)
        return box.tool(name, arguments), f"{name} {arguments!r}"[:400]

    def _value(self, key: str) -> Any:
        if self.random.random() < 0.15:
            return self._junk(3)
        if key == "command":
            return self._script()
        if key in ("file_path", "path", "pattern"):
            return self._path()
        return self.random.choice([*_TEXTS, 1, -1, 10**30, True, "3", "value = 1\n"])

    def _junk(self, depth: int) -> Any:
        plain = (None, True, -1, 1 << 70, 1e308, float("nan"), float("inf"), "", "\ud800", "\0")
        if depth == 0 or self.random.random() < 0.5:
            return self.random.choice(plain)
        if self.random.random() < 0.5:
            return [self._junk(depth - 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(_TEXTS): self._junk(depth - 1) for _ in range(3)}

    def _path(self) -> str:
        return self.random.choice(_PLACES) + self.random.choice([*_NAMES, *_TEXTS])

    def _script(self) -> str:
        count = self.random.randrange(1, 4)
        return "; ".join(self.random.choice([*_SCRIPTS, *_TEXTS]) for _ in range(count))

    def _exec(self, box: Session) -> tuple[Any, str]:
        argv = ["/bin/bash", "-c", self._script()]
        if self.random.random() < 0.3:
            argv = [self._path() for _ in range(self.random.randrange(1, 4))]
        stdin = self.random.randbytes(self.random.choice([0, 10, 200_000]))
        return box.exec(argv, timeout=2, stdin=stdin), f"exec {argv!r}"[:400]

    def _read(self, box: Session) -> tuple[Any, str]:
        path = self._path()
        return box.read(path), f"read {path!r}"

    def _write(self, box: Session) -> tuple[Any, str]:
        changes = [
            FileChange(self._path(), self.random.choice([None, b"", b"x" * 5000, b"\xff\0"]), True)
            for _ in range(self.random.randrange(4))
        ]
        return box.write(changes), f"write {[change.path for change in changes]!r}"[:400]

    def _delta(self, box: Session) -> tuple[Any, str]:
        return box.delta(), "delta"

    def _cancel(self, box: Session) -> tuple[Any, str]:
        call, shown = self.random.choice([self._tool, self._exec, self._delta])(box)

        async def cut() -> Any:
            task = asyncio.ensure_future(call)
            await asyncio.wait([task], timeout=self.random.choice([0, 0.001, 0.05]))
            task.cancel()
            return await task

        return cut(), f"cancelled {shown}"

    async def _raw(self, box: Session) -> None:
        """A frame that is none: the box must end, or answer, and nothing may hang."""
        self.sent["raw"] += 1
        good = json.dumps({"op": "tool", "id": 2, "name": "Read", "arguments": {}, "blobs": []})
        frames = (
            self.random.randbytes(self.random.randrange(1, 3000)),
            len(good).to_bytes(4, "big") + good.encode()[: self.random.randrange(len(good))],
            *(
                len(text).to_bytes(4, "big") + text.encode()
                for text in (
                    "{}",
                    "[]",
                    "null",
                    '{"op": "nope", "id": 2, "blobs": []}',
                    '{"op": "_receive", "id": 2, "blobs": []}',
                    "[" * 3000,
                    '{"op": "exec", "id": 2, "blobs": [5000000000]}',
                    '{"op": "read", "id": 2, "blobs": []}',
                )
            ),
        )
        frame = self.random.choice(frames)
        assert box._writer is not None
        box._writer.write(frame)
        try:
            await asyncio.wait_for(box.exec(["/bin/true"], timeout=1), 60)
        except (SandboxDied, ValueError, OSError) as error:
            if isinstance(error, TimeoutError):
                self.failures.append(f"raw {frame[:80]!r}: hangs")
        except Exception as error:
            self.failures.append(f"raw {frame[:80]!r}: {error!r}")


_KINDS = {"tool": 60, "exec": 12, "read": 8, "write": 8, "delta": 4, "cancel": 8}


def _children() -> int:
    tasks = Path(f"/proc/{os.getpid()}/task")
    return sum(len((task / "children").read_text().split()) for task in tasks.iterdir())


@click.command()
@click.option("--seconds", default=60.0, help="How long.")
@click.option("--seed", default=0, help="The same seed sends the same messages.")
@click.option(
    "--engine",
    type=click.Choice([kind.value for kind in ladder.LADDER]),
    default=BoxKind.SESSION.value,
    help="Which engine's boxes.",
)
def main(seconds: float, seed: int, engine: str) -> None:
    """Send messages for a while."""
    with tempfile.TemporaryDirectory(prefix="tadpole-fuzz-") as directory:
        tree = Path(directory)
        tree.chmod(0o755)
        (tree / "a.py").write_text("value = 1\n")
        fuzzer = Fuzzer(ladder.make(BoxKind(engine)), tree, seed)
        asyncio.run(fuzzer.run(seconds))
        if sorted(os.listdir(tree)) != ["a.py"] or (tree / "a.py").read_text() != "value = 1\n":
            fuzzer.failures.append("the host's tree was changed")
    if _children():
        fuzzer.failures.append(f"{_children()} processes are left")
    for failure in fuzzer.failures[:20]:
        click.echo(f"FAILED {failure}")
    click.echo(f"seed {seed}, {seconds:g} s: {fuzzer.counts()}")
    sys.exit(bool(fuzzer.failures))


if __name__ == "__main__":
    main()
