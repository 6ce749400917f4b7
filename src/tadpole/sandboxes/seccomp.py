"""The system-call filter of commands in the sandbox, as classic BPF in pure Python.

Protects against: new namespaces, mounts, tracing, kernel key rings, BPF, io_uring and other
calls that a test run never needs and that kernel exploits start from; sockets of families that
no network namespace confines (AF_VSOCK reaches the hypervisor host from a box without network)
or that are exploit-prone; typing into a terminal (TIOCSTI); limits and priorities of the init of
the process namespace, which may be the box's own runner.

Does not protect against: bugs in the system calls that stay allowed. It is a second wall
behind namespaces and missing capabilities, not the first.

Filters are a deny list, so programs meet no surprises: refused calls return EPERM (clone3:
ENOSYS, so that C libraries fall back to clone, whose flags can be looked at).
"""

import errno
import platform
import struct
from dataclasses import dataclass

from tadpole.errors import SandboxUnavailable

# Operations: load the word at k; jump if equal / not below / any bit of k set; and; return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32_BIT = 0x40000000

# CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_PRIO_USER = 2
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# Same number everywhere: io_uring_setup/enter/register, open_tree, move_mount, fsopen, fsconfig,
# fsmount, fspick, pidfd_getfd, mount_setattr, quotactl_fd, memfd_secret, open_tree_attr
_SHARED = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 443, 447, 467)
_CLONE3 = 435


@dataclass(frozen=True)
class _Machine:
    audit: int  # AUDIT_ARCH_*
    clone: int
    socket: int
    socketpair: int
    ioctl: int
    setpriority: int
    about_a_process: tuple[int, ...]  # its limits, its share of the processors
    denied: tuple[int, ...]


# fmt: off
_X86_64 = _Machine(
    audit=0xC000003E, clone=56, socket=41, socketpair=53, ioctl=16,
    setpriority=141,
    about_a_process=(302, 203, 142, 144, 314),  # prlimit64 sched_set{affinity,param,scheduler,attr}
    denied=(
        101, 310, 311, 312,  # ptrace process_vm_readv process_vm_writev kcmp
        165, 166, 155, 161, 272, 308,  # mount umount2 pivot_root chroot unshare setns
        103, 163, 164, 159, 227, 305,  # syslog acct settimeofday adjtimex clock_{settime,adjtime}
        167, 168, 169, 170, 171,  # swapon swapoff reboot sethostname setdomainname
        172, 173, 153, 154, 156, 134, 139,  # iopl ioperm vhangup modify_ldt _sysctl uselib sysfs
        174, 175, 176, 177, 178, 313,  # modules
        179, 180, 212, 246, 320,  # quotactl nfsservctl lookup_dcookie kexec_{load,file_load}
        248, 249, 250,  # add_key request_key keyctl
        256, 279, 298, 300, 303, 304,  # migrate_pages move_pages perf fanotify handles
        321, 323,  # bpf userfaultfd
    ),
)
_AARCH64 = _Machine(
    audit=0xC00000B7, clone=220, socket=198, socketpair=199, ioctl=29,
    setpriority=140,
    about_a_process=(261, 122, 118, 119, 274),
    denied=(
        117, 270, 271, 272,
        40, 39, 41, 51, 97, 268,
        116, 89, 170, 171, 112, 266,
        224, 225, 142, 161, 162,
        58,
        105, 106, 273,
        60, 42, 18, 104, 294,
        217, 218, 219,
        238, 239, 241, 262, 264, 265,
        280, 282,
    ),
)
# fmt: on
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def build(machine: str | None = None) -> bytes:
    """The program as an array of ``struct sock_filter`` for ``machine`` (None: this one).

    Raises SandboxUnavailable for an architecture without a table.
    """
    name = machine or platform.machine()
    if name not in _MACHINES:
        raise SandboxUnavailable(
            f"no system-call filter for {name}: the sandbox runs on x86_64 and aarch64"
        )
    arch = _MACHINES[name]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, arch.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if arch is _X86_64:
        program += [(_AT_LEAST, 0, 1, _X32_BIT), _refuse(errno.ENOSYS)]
    program += [(_EQUAL, 0, 1, _CLONE3), _refuse(errno.ENOSYS)]
    for number in (*arch.denied, *_SHARED):
        program += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    program += _argument(arch.clone, 0, [(_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM)])
    injection = [
        step
        for request in _TERMINAL_INJECTION
        for step in ((_EQUAL, 0, 1, request), _refuse(errno.EPERM))
    ]
    program += _argument(arch.ioctl, 1, injection)
    families = [
        (_EQUAL, len(_FAMILIES) - index, 0, family) for index, family in enumerate(_FAMILIES)
    ]
    of_init = [(_EQUAL, 0, 1, 1), _refuse(errno.EPERM)]
    for call in arch.about_a_process:
        program += _argument(call, 0, of_init)
    of_user = [(_EQUAL, 0, 1, _PRIO_USER), _refuse(errno.EPERM)]
    program += _argument(arch.setpriority, 0, [*of_user, (_LOAD, 0, 0, 24), *of_init])
    for call in (arch.socket, arch.socketpair):
        program += _argument(call, 0, [*families, _refuse(errno.EAFNOSUPPORT)])
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _refuse(code: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | code)


def _argument(
    number: int, index: int, body: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """``body`` on the low word of an argument of one call; what falls through is allowed."""
    low_word = 16 + 8 * index  # both machines are little-endian
    inner = [(_LOAD, 0, 0, low_word), *body, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(inner), number), *inner]
