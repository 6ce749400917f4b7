"""The embedded sandbox: bubblewrap, one long-lived box per work tree.

Two kinds. ``session``: every command gets a process namespace of its own inside the box.
``flat``: where namespaces do not nest, commands are children of the box's runner, which is the
init of the box and kills all others after each call.

Protects against: a program in the box reading or changing anything of the host but what was
mounted for it (read-only), reaching a network or another box, seeing or signalling processes
outside, keeping processes after a call or after the end, using more processes, disk, inodes,
output or (within a tenth of a second) memory and processor time than its limits. Everything of
a box dies with the controller, also by kill -9 (in the milliseconds of a start, with the next
start of any controller: :mod:`tadpole.sandboxes.orphans`). Host uid 0 is never used: root becomes
an otherwise unused user first.

Does not protect against: bugs in the host's kernel, which all boxes share (for tenants who do
not trust each other put a virtual machine around it); side channels; all cores being busy
within a call's deadline and processor time; memory between two looks of the watchdog, and memory
that no process has mapped (files in memory, shared memory that was let go of, what is on its way
through sockets), which only a control group around the whole run bounds; what the kernel counts
by user (watched files, pipes), where boxes are those of one ordinary user; in ``flat``, a command
that sees the runner's process (not its memory or files).
"""

import contextlib
import os
import socket
from pathlib import Path
from typing import ClassVar

from tadpole.errors import SandboxStartError, SandboxUnavailable
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes import identity, seccomp
from tadpole.sandboxes.binaries import box_python, bubblewrap
from tadpole.sandboxes.layout import Layout
from tadpole.sandboxes.monitor import Monitor
from tadpole.sandboxes.refusal import explain
from tadpole.sandboxes.session import Session
from tadpole.sandboxes.spawner import Process, spawner
from tadpole.settings import BoxKind

TOOLBOX = Path(__file__).resolve().parent.parent / "leaf" / "toolbox"


class BubblewrapEngine:
    """Starts sandboxes. ``toolbox`` is the package whose ``call`` the box runs for each tool.

    ``kind`` AUTO: ``session`` where namespaces nest, else ``flat``.
    """

    # Whether namespaces nest on this machine: the first box finds out.
    _nested: ClassVar[bool | None] = None

    def __init__(self, toolbox: Path = TOOLBOX, kind: BoxKind = BoxKind.AUTO) -> None:
        self._toolbox = toolbox
        self.kind = kind

    @property
    def python(self) -> str:
        """The interpreter inside."""
        return str(box_python())

    @property
    def made_of(self) -> str:
        """What the boxes are made of, for a person. Raises SandboxUnavailable."""
        found = bubblewrap()
        return f"bubblewrap {'.'.join(map(str, found.version))} ({found.path})"

    async def start(self, spec: SandboxSpec) -> Session:
        """Start a box over ``spec.tree``.

        Raises SandboxUnavailable where this machine cannot isolate in this way,
        SandboxStartError where this one box did not start.
        """
        if not spec.tree.is_dir():
            raise SandboxStartError(f"the work tree {spec.tree} is not a directory")
        flat = self.kind is BoxKind.FLAT
        nested = False if flat else self._nested
        if nested is False and self.kind is BoxKind.SESSION:
            raise SandboxUnavailable(_NOT_NESTED)
        layout = Layout(spec, bubblewrap(), self._toolbox)
        program = seccomp.build()
        monitor = _spawn(layout)
        session = Session(BoxKind.FLAT if flat else BoxKind.SESSION, monitor, spec.limits)
        try:
            await session.connect(spec, program, bwrap=layout.bwrap_inside, nested=nested)
        except SandboxStartError as error:
            refusal = explain(str(error))
            if refusal is not None:
                raise SandboxUnavailable(refusal) from error
            raise
        if not flat:
            BubblewrapEngine._nested = session.traits.nested
            if not session.traits.nested:
                session.kind = BoxKind.FLAT
                if self.kind is BoxKind.SESSION:
                    await session.close()
                    raise SandboxUnavailable(_NOT_NESTED)
        return session


_NOT_NESTED = (
    "sandbox.engine is session, but namespaces do not nest here: --sandbox.engine auto takes flat"
)


def _spawn(layout: Layout) -> Monitor:
    ours, theirs = socket.socketpair()
    # Files in memory: never full, never waited for, gone with the last descriptor.
    status, stderr = os.memfd_create("status"), os.memfd_create("stderr")
    with contextlib.ExitStack() as failed:
        failed.callback(os.close, status)
        failed.callback(os.close, stderr)
        failed.callback(ours.close)
        with theirs:
            user = identity.box_user()
            try:
                if user is None:
                    argv = layout.command(status)
                    process: Process = spawner().popen(
                        argv,
                        stdin=theirs,
                        stdout=theirs,
                        stderr=stderr,
                        pass_fds=(status,),
                        env={"PATH": "/usr/bin:/bin"},
                        cwd="/",
                    )
                else:
                    process = spawner().launch(layout.plan(user), theirs, stderr, status)
            except OSError as error:
                raise SandboxStartError(f"cannot start a sandbox: {error}") from error
        failed.pop_all()
    return Monitor(process, ours, status, stderr)
