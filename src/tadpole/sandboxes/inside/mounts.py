"""Sets the file systems of the box up, from inside its own user namespace.

Standard library only and Python 3.6+: this file runs inside the sandbox.

``/repo`` becomes an overlay of the pristine tree and a tmpfs limited in bytes and inodes;
where the kernel refuses (old kernel, foreign owner, no capabilities in the namespace) the tree
is copied. Nothing is ever written to the host's disks.
"""

import ctypes
import errno
import os

import files

LOWER, SCRATCH = "/.box/lower", "/.box/scratch"
_libc = ctypes.CDLL(None, use_errno=True)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND = 1, 2, 4, 4096
_PLAIN = _MS_NOSUID | _MS_NODEV
_MNT_DETACH = 2
_CLONE_NEWNS = 0x20000


class Tree:
    """The work tree: ``lower`` and ``upper`` are directory descriptors, upper None for a copy."""

    def __init__(self, workdir: str, lower: int, upper: "int | None") -> None:
        self.workdir, self.lower, self.upper = workdir, lower, upper

    def reopen(self) -> None:
        """Undo a mode with which the agent has locked itself out of its own directories."""
        for place in (self.workdir, "/tmp"):
            if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
                try:
                    os.chmod(place, 0o755)
                except OSError:
                    pass

    def bounded(self, inodes: int) -> bool:
        """Whether no more than about ``inodes`` files fit, whoever mounted it."""
        return 0 < os.statvfs(self.workdir).f_files <= 2 * inodes


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(
    source: str, target: str, *, kind: "str | None", flags: int, options: "str | None" = None
) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {target}",
    )


def _detach(target: str) -> None:
    _check(_libc.umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def prepare(workdir: str, disk: int, inodes: int) -> "tuple[Tree, list[str]]":
    """Mount the work tree at ``workdir`` and private /tmp; returns (Tree, notes)."""
    notes: list[str] = []
    try:
        # With --dev and a uid other than 0 bubblewrap nests two user namespaces, and the mount
        # namespace belongs to the outer one: only in a namespace of its own may this one mount.
        _check(_libc.unshare(_CLONE_NEWNS), "unshare")
        options = f"size={disk},nr_inodes={inodes},mode=0755"
        _mount("scratch", SCRATCH, kind="tmpfs", flags=_PLAIN, options=options)
        may_mount = True
    except OSError as error:
        notes.append(f"no mounts inside the box ({error})")
        may_mount = False
    if not may_mount:
        # workdir and /tmp are then size-limited tmpfs that bubblewrap has mounted.
        if not os.access(workdir, os.W_OK):  # an image with a directory of its own there
            raise PermissionError(errno.EACCES, "closed to the user of the box", workdir)
        lower = os.open(LOWER, os.O_RDONLY | os.O_DIRECTORY)
        files.copy_tree(lower, workdir)
        return Tree(workdir, lower, None), notes

    for name, mode in (("upper", 0o755), ("work", 0o755), ("tmp", 0o1777), ("shm", 0o1777)):
        os.mkdir(os.path.join(SCRATCH, name))
        os.chmod(os.path.join(SCRATCH, name), mode)
    lower = os.open(LOWER, os.O_RDONLY | os.O_DIRECTORY)
    upper: int | None = os.open(SCRATCH + "/upper", os.O_RDONLY | os.O_DIRECTORY)
    problem = _overlay(workdir, lower)
    if problem:
        notes.append(f"tree copied ({problem})")
        files.copy_tree(lower, SCRATCH + "/upper")
        _mount(SCRATCH + "/upper", workdir, kind=None, flags=_MS_BIND)
        upper = None
    for name, place in (("tmp", "/tmp"), ("shm", "/dev/shm")):  # one bound for all of them
        _mount(f"{SCRATCH}/{name}", place, kind=None, flags=_MS_BIND)
    # The overlay and the descriptors keep what they need: nobody else gets at these by path.
    _detach(SCRATCH)
    # The host's mounts are locked to us, so this one is covered instead.
    _mount("none", LOWER, kind="tmpfs", flags=_PLAIN | _MS_RDONLY, options="size=4k,nr_inodes=2")
    return Tree(workdir, lower, upper), notes


def _overlay(workdir: str, lower: int) -> "str | None":
    """Mount the overlay: None, or why it cannot be used."""
    if os.fstat(lower).st_uid != os.getuid():
        return "its owner is another user"  # copy-up would be refused
    options = f"lowerdir={LOWER},upperdir={SCRATCH}/upper,workdir={SCRATCH}/work,userxattr"
    try:
        # Needed to make a directory again that was removed; tmpfs has them since Linux 6.6.
        os.setxattr(SCRATCH + "/work", b"user.probe", b"y")
        _mount("overlay", workdir, kind="overlay", flags=_PLAIN, options=options)
    except OSError as error:
        return str(error)
    try:  # some kernels and file systems mount it read-only, or refuse later
        probe = os.path.join(workdir, ".box-probe")
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(probe)
    except OSError as error:
        _detach(workdir)
        return str(error)
    return None
