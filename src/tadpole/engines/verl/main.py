"""The driver process of a climb: ``python -m tadpole.engines.verl.main OVERRIDES LOG PARENT``.

Composes verl's configuration from a file of overrides, and runs its task runner with our trainer.
All that is printed goes to the log. It ends with the process PARENT, which started it.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import ray
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
from verl.utils.device import auto_set_device

from tadpole.engines.verl.dryrun import composed
from tadpole.engines.verl.parent import end_with
from tadpole.engines.verl.places import NOT_STARTED


@ray.remote
class Runner:
    """verl's task runner, in a process that knows our trainer."""

    def run(self, config: Any) -> None:
        """Climb to the last update."""
        importlib.import_module("tadpole.engines.verl.trainer")  # registers it
        TaskRunnerV1.__ray_metadata__.modified_class().run(config)


def climb(asked: list[str]) -> None:
    """Compose, validate and run. Raises what verl, Ray and the trainer raise.

    Exits with ``NOT_STARTED`` where Ray did not start: what it left running ends with this process.
    """
    config = composed(asked)
    auto_set_device(config)
    try:
        run_ppo(config, task_runner_class=Runner)
    except Exception:
        if ray.is_initialized():
            raise
        traceback.print_exc()
        sys.exit(NOT_STARTED)


def main(overrides: str, log: str, parent: str) -> None:
    """Run the climb of an overrides file; both streams go to ``log``."""
    end_with(int(parent))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    climb(Path(overrides).read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main(*sys.argv[1:])
