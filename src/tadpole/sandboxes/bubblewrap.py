"""The embedded sandbox: bubblewrap, one long-lived box per work tree.

Protects against: a program in the box reading or changing anything of the host but what was
mounted for it (read-only), reaching a network or another box, seeing or signalling processes
outside, keeping processes after a call or after the end, using more processes, disk, inodes,
output or (within a tenth of a second) memory than its limits. Everything of a box dies with
the controller, also by kill -9. Host uid 0 is never used: root becomes an otherwise unused
user first.

Does not protect against: bugs in the host's kernel, which all boxes share (for tenants who do
not trust each other put a virtual machine around it); side channels; CPU use within a call's
deadline; memory between two looks of the watchdog, where no cgroup bounds it.
"""

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from tadpole.errors import SandboxDied, SandboxError, SandboxStartError, SandboxUnavailable
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes import identity, seccomp
from tadpole.sandboxes.binaries import bubblewrap
from tadpole.sandboxes.layout import SHARED_MEMORY, Layout
from tadpole.sandboxes.refusal import explain
from tadpole.sandboxes.session import BubblewrapSandbox
from tadpole.sandboxes.spawner import spawner

_START_SECONDS = 45.0  # a busy machine, a large tree to copy
_TOOLBOX = Path(__file__).resolve().parent.parent / "leaf" / "toolbox.py"


class BubblewrapEngine:
    """Starts sandboxes. ``toolbox`` is the file whose ``call`` the box runs for each tool."""

    # Whether namespaces nest on this machine: the first box finds out.
    _nested: ClassVar[bool | None] = None

    def __init__(self, toolbox: Path = _TOOLBOX) -> None:
        self._toolbox = toolbox

    async def start(self, spec: SandboxSpec) -> BubblewrapSandbox:
        """Start a box over ``spec.tree``.

        Raises SandboxUnavailable where this machine cannot isolate, SandboxStartError where
        this one box did not start.
        """
        if not spec.tree.is_dir():
            raise SandboxStartError(f"the work tree {spec.tree} is not a directory")
        layout = Layout(spec, bubblewrap(), self._toolbox)
        program = seccomp.build()
        ours, theirs = socket.socketpair()
        # Files in memory: never full, never waited for, gone with the last descriptor.
        status_fd, stderr_fd = os.memfd_create("status"), os.memfd_create("stderr")
        try:
            started = spawner().popen(
                layout.command(status_fd, identity.box_user()),
                stdin=theirs,
                stdout=theirs,
                stderr=stderr_fd,
                pass_fds=(status_fd,),
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
            )
            # Waited for here, a few milliseconds, so that a cancellation cannot come between.
            process: subprocess.Popen[bytes] = started.result()
        except OSError as error:
            ours.close()
            os.close(status_fd)
            os.close(stderr_fd)
            raise SandboxStartError(f"cannot start bubblewrap: {error}") from error
        finally:
            theirs.close()
        sandbox = BubblewrapSandbox(
            process=process,
            control=ours,
            status_fd=status_fd,
            stderr_fd=stderr_fd,
            limits=spec.limits,
        )
        limits = spec.limits
        setup = {
            "workdir": spec.workdir,
            "environment": layout.environment,
            "bwrap": layout.bwrap_inside,
            "nested": self._nested,
            "limits": {
                "disk": limits.disk,
                "inodes": limits.inodes,
                "memory": limits.memory,
                "processes": limits.processes,
                "shared": SHARED_MEMORY,
                "call_seconds": limits.call_seconds,
                "output_head": limits.output_head,
                "output_tail": limits.output_tail,
            },
        }
        try:
            await sandbox.connect(setup, [program], _START_SECONDS)
            BubblewrapEngine._nested = sandbox.nested
        except BaseException as error:
            complaint = sandbox.complaint()
            with contextlib.suppress(Exception):
                await sandbox.close()
            if isinstance(error, SandboxDied):
                refusal = explain(complaint)
                if refusal is not None:
                    raise SandboxUnavailable(refusal) from error
            if isinstance(error, SandboxError | OSError | ValueError):
                raise SandboxStartError(
                    f"the sandbox did not start: {complaint or error}"
                ) from error
            raise
        return sandbox
