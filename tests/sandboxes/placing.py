"""A place for a box of errands: a real box of bubblewrap, which only runs programs and files."""

import io
import shlex
import tarfile
from dataclasses import replace
from pathlib import Path

from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.errands import Errands
from tadpole.sandboxes.session import Session
from tadpole.settings import BoxKind


class BoxPlace:
    """Programs and files of ``box``."""

    def __init__(self, box: Session) -> None:
        self.box, self.ended = box, 0

    async def run(self, command: str, seconds: float) -> str:
        done = await self.box.exec(["/bin/bash", "-c", command], timeout=seconds)
        return f"exit code {done.code}: {done.stderr[-300:]}" if done.code else ""

    async def put(self, source: Path, target: str) -> None:
        where, content = shlex.quote(target), io.BytesIO()
        if source.is_dir():
            with tarfile.open(fileobj=content, mode="w") as packed:
                packed.add(source, arcname=".")
            script = f"tar -xf - -C {where}"
        else:
            content.write(source.read_bytes())
            script = f"cat > {where}"
        argv = ["/bin/sh", "-c", script]
        done = await self.box.exec(argv, timeout=60, stdin=content.getvalue())
        assert not done.code, done.stderr

    async def get(self, source: str, target: Path) -> None:
        target.write_bytes(await self.box.read(source))

    async def end(self) -> None:
        self.ended += 1
        await self.box.close()


async def placed(spec: SandboxSpec, empty: Path) -> tuple[Errands, BoxPlace]:
    """A box of errands over ``spec``, in a box over ``empty``."""
    empty.mkdir()
    place = BoxPlace(await BubblewrapEngine().start(replace(spec, tree=empty)))
    return await Errands(BoxKind.HARBOR, place, spec, "python3").opened(spec), place
