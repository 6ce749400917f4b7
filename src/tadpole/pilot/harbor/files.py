"""The generated files of a Harbor task directory: Dockerfile, scripts, runtime, expectations."""

import json
import shlex
import sys
from importlib import resources

from tadpole.task import FileChange, Source, Task

WORKDIR = "/repo"
USER = "agent"
IMAGES = {  # digests of Docker's official images, as published for linux/amd64 and others
    "3.11": "@sha256:70e8e937c1da72df1688e883a2108b0feff03381187fa78eca6d9b10df411320",
    "3.12": "@sha256:11e5de79af775dc79e765116bfd2cd574e3ba0bc0aa87c29bb3ef7b8d03194bb",
    "3.13": "@sha256:08471c63c5fdf2644adc142a7fa8d0290eb405cda14c473fbe5b4cd0933af601",
}


def dockerfile(task: Task) -> bytes:
    """Builds the start tree from the source; runnable wherever the source can be fetched."""
    recipe = task.recipe
    paths = ":".join(f"{WORKDIR}/{path}".removesuffix("/.") for path in recipe.import_paths)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [
        f"FROM python:{python}{IMAGES.get(python, '')}",
        f"WORKDIR {WORKDIR}",
        *_fetch(task.source),
    ]
    if recipe.requirements:
        wanted = " ".join(shlex.quote(item) for item in recipe.requirements)
        lines.append(f"RUN pip install --no-cache-dir {wanted}")
    lines.append(f"COPY start/ {WORKDIR}/")
    gone = [shlex.quote(change.path) for change in task.start if change.content is None]
    if gone:
        lines.append("RUN rm -f -- " + " ".join(gone))
    lines.append(f"ENV PYTHONPATH={paths} PYTHONDONTWRITEBYTECODE=1")
    lines += [f"ENV {name}={shlex.quote(value)}" for name, value in recipe.env]
    lines.append(
        "RUN git init -q && git add -A && "
        "git -c user.name=tadpole -c user.email=tadpole@localhost commit -qm start && "
        f"useradd --create-home {USER} && chown -R {USER}:{USER} {WORKDIR}"
    )
    return "\n".join(lines).encode() + b"\n"


def _fetch(source: Source) -> list[str]:
    unpack = f"tar -xf /tmp/source/* --strip-components=1 -C {WORKDIR} && rm -r /tmp/source"
    if source.kind == "pypi":
        wanted = shlex.quote(f"{source.location}=={source.version}")
        check = f'echo "{source.sha256}  $(ls /tmp/source/*)" | sha256sum -c - && ' * bool(
            source.sha256
        )
        download = "pip download -q --no-deps --no-binary :all: -d /tmp/source"
        return [f"RUN {download} {wanted} && {check}{unpack}"]
    if source.kind == "git":
        where, commit = shlex.quote(source.location), shlex.quote(source.version)
        return [
            f"RUN git clone -q {where} /tmp/source && git -C /tmp/source archive {commit} "
            f"| tar -x -C {WORKDIR} && rm -r /tmp/source"
        ]
    return [
        "# The source is a local directory: copy its pristine files to environment/source first.",
        f"COPY source/ {WORKDIR}/",
    ]


def runtime(task: Task) -> bytes:
    """What an environment without Docker needs to know."""
    recipe = task.recipe
    body = {
        "workdir": WORKDIR,
        "source": vars(task.source),
        "snapshot": task.snapshot,
        "runtime": task.runtime,
        "requirements": recipe.requirements,
        "import_paths": recipe.import_paths,
        "env": dict(recipe.env),
        "delete": [change.path for change in task.start if change.content is None],
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def expected(task: Task) -> bytes:
    """What ``tests/grade.py`` looks for."""
    body = {
        "workdir": WORKDIR,
        "fail_to_pass": task.fail_to_pass,
        "pass_to_pass": task.pass_to_pass,
        "pytest_args": task.recipe.pytest_args,
        "import_paths": task.recipe.import_paths,
        "env": dict(task.recipe.env),
        "seconds": task.test_seconds,
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def grader() -> bytes:
    """The grading program, as it is in this package."""
    return resources.files("tadpole.pilot.harbor").joinpath("grade.py").read_bytes()


TEST_SH = b"""#!/bin/sh
# The verdict is /logs/verifier/reward.json, not an exit code.
exec python3 /tests/grade.py
"""


def solve_sh(gold: tuple[FileChange, ...]) -> bytes:
    """Puts the repair in place, for Harbor's oracle agent."""
    lines = ["#!/bin/sh", "set -e", f"cp -R /solution/files/. {WORKDIR}/"]
    gone = [shlex.quote(f"{WORKDIR}/{change.path}") for change in gold if change.content is None]
    if gone:
        lines.append("rm -f -- " + " ".join(gone))
    return "\n".join(lines).encode() + b"\n"
