"""A Harbor environment of bubblewrap boxes that are what a definition's Dockerfile copies."""

import json
from pathlib import Path

from tadpole.pilot.harbor.environment import BoxEnvironment
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine


class CopiedEnvironment(BoxEnvironment):
    """Builds nothing: what is copied is mounted."""

    def _validate_definition(self) -> None:
        self.lines = (Path(self.environment_dir) / "Dockerfile").read_text().splitlines()

    async def start(self, force_build: bool) -> None:
        copied = [json.loads(line.partition(" ")[2]) for line in self.lines if "COPY" in line]
        mounts = {target: Path(self.environment_dir) / name for name, target in copied}
        empty = self.trial_paths.trial_dir / "empty"
        empty.mkdir()
        spec = SandboxSpec(tree=empty, mounts=mounts)
        self.sandbox = await BubblewrapEngine().start(spec)


class StuckEnvironment(CopiedEnvironment):
    """Neither starts nor stops."""

    async def start(self, force_build: bool) -> None:
        raise RuntimeError("no room")

    async def stop(self, delete: bool) -> None:
        raise RuntimeError("no answer")
