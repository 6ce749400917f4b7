"""Turns root into nobody before a sandbox starts. Run as a script, by root only.

One process of it serves all boxes that are up at a time (:mod:`tadpole.sandboxes.launcher`): it
forks for each, which costs a fraction of another interpreter.

Standard library only. Protects against: the sandbox's processes being host uid 0, for whom
files of other users are readable and process limits do not count. In a mount namespace of its
own, which nobody else sees, every bind source is put below one directory (so that sources
under a 0700 home can be reached without opening that home), files of the sources' owner are
shown as the new user's where the file system can do that (idmapped mounts), and then user and
group are given up for good and bubblewrap is executed.
"""

# By their C parts: what socket and signal put around them takes long to import.
import _signal as signal
import _socket
import ctypes
import fcntl
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATUS = 3  # descriptor of the status report in the process that is executed
LARGEST = 1 << 20  # bytes of a plan

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on all architectures
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_PARENT = 0x20000, 0x10000000, 0x8000
_PR_SET_PDEATHSIG = 1
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_AT_EMPTY_PATH, _AT_RECURSIVE, _OPEN_TREE_CLONE = 0x1000, 0x8000, 1
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP, _MOVE_FROM_EMPTY = 1, 0x100000, 4


_namespaces: "dict[tuple[int, int], int]" = {}  # one of them serves every bind of an owner


class _Attributes(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")
    ]


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _mount(
    source: str, target: str, *, kind: str | None, flags: int, options: str | None = None
) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {target}",
    )


def _user_namespace(owner: os.stat_result, user: int) -> int:
    """A descriptor of a user namespace that shows the owner's files as ``user``'s."""
    pair = (owner.st_uid, owner.st_gid)
    if pair not in _namespaces:
        _namespaces[pair] = _make_user_namespace(owner, user)
    return _namespaces[pair]


def _make_user_namespace(owner: os.stat_result, user: int) -> int:
    ready, release = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release[1])
        _libc.unshare(_CLONE_NEWUSER)
        os.write(ready[1], b"x")
        os.read(release[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        for name, number in (("uid_map", owner.st_uid), ("gid_map", owner.st_gid)):
            with open(f"/proc/{child}/{name}", "w") as handle:
                handle.write(f"{number} {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(release[1])
        os.waitpid(child, 0)


def _attach(source: int, target: str, owner: os.stat_result | None, user: int) -> None:
    """Bind the path descriptor ``source`` at ``target``; ``owner`` None: ids as they are."""
    if owner is not None:
        try:
            flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
            tree = _check(_libc.syscall(_OPEN_TREE, source, b"", flags), "open_tree")
            namespace = _user_namespace(owner, user)
            attributes = _Attributes(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_IDMAP, 0, 0, namespace)
            _check(
                _libc.syscall(
                    _MOUNT_SETATTR,
                    tree,
                    b"",
                    _AT_EMPTY_PATH,
                    ctypes.byref(attributes),
                    ctypes.sizeof(attributes),
                ),
                "mount_setattr",
            )
            _check(
                _libc.syscall(_MOVE_MOUNT, tree, b"", -100, target.encode(), _MOVE_FROM_EMPTY),
                "move_mount",
            )
            return
        except OSError:
            pass  # an older kernel or file system: the box then copies the tree
    _mount(f"/proc/self/fd/{source}", target, kind=None, flags=_MS_BIND | _MS_REC)


def _become(plan: "dict[str, Any]") -> None:
    """Execute the plan's ``argv`` as its ``user``, with its ``binds`` below ``stage``."""
    user, stage = plan["user"], plan["stage"]
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", "/", kind=None, flags=_MS_REC | _MS_PRIVATE)
    # Opened before the stage covers anything that a source may lie under.
    sources = [os.open(bind["source"], os.O_PATH | os.O_CLOEXEC) for bind in plan["binds"]]
    _mount("stage", stage, kind="tmpfs", flags=0, options="mode=0755,size=1m")
    for bind, source in zip(plan["binds"], sources, strict=True):
        target = f"{stage}/{bind['name']}"
        info = os.stat(source)
        if os.path.isdir(f"/proc/self/fd/{source}"):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            open(target, "x").close()
        _attach(source, target, info if bind["owned"] else None, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execv(plan["argv"][0], plan["argv"])


def _child(plan: bytes, descriptors: "list[int]") -> None:
    """In the new process: wire, wire again, standard error and status report become 0 to 3."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        spare = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in descriptors]
        wire, stderr, status = spare
        for source, target in ((wire, 0), (wire, 1), (stderr, 2), (status, STATUS)):
            os.dup2(source, target)
        _become(marshal.loads(plan))
    except OSError as error:
        os.write(2, f"launch: {error}".encode())
    finally:
        os._exit(1)


def main() -> None:
    """Serve plans (marshalled, with three descriptors) from the socket at standard input.

    Answers with the process id of a new child *of the caller*. Ends with the socket.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller's business
    requests = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 0)
    clone = _CLONE[os.uname().machine]
    while True:
        plan, passed, _, _ = requests.recvmsg(LARGEST, _socket.CMSG_SPACE(3 * 4))
        if not plan:
            return
        numbers = memoryview(passed[0][2]).cast("i").tolist()
        # As a sibling of this process: it ends with the caller, who waits for it.
        pid = _libc.syscall(clone, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            _child(plan, numbers)
        requests.send(str(pid if pid > 0 else -ctypes.get_errno()).encode())
        for number in numbers:
            os.close(number)


if __name__ == "__main__":
    main()
