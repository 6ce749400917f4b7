"""The filter, interpreted instruction by instruction: both machines' tables on any machine."""

import errno
import struct

import pytest

from tadpole.errors import SandboxUnavailable
from tadpole.sandboxes import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", program))
    position, word = 0, 0
    while True:
        code, yes, no, k = steps[position]
        position += 1
        if code == 0x20:
            word = struct.unpack_from("<I", data, k)[0]
        elif code == 0x06:
            return k
        else:
            met = {0x15: word == k, 0x35: word >= k, 0x45: bool(word & k)}[code]
            position += yes if met else no


def refused(code: int) -> int:
    return 0x50000 | code


CASES = [
    # name, (x86_64, aarch64), arguments, expected
    ("read", (0, 63), (), ALLOW),
    ("execve", (59, 221), (), ALLOW),
    ("fork by clone", (56, 220), (17,), ALLOW),
    ("thread by clone", (56, 220), (0x3D0F00,), ALLOW),
    ("new user namespace", (56, 220), (0x10000011,), refused(errno.EPERM)),
    ("new network namespace", (56, 220), (0x40000011,), refused(errno.EPERM)),
    ("clone3", (435, 435), (), refused(errno.ENOSYS)),
    ("mount", (165, 40), (), refused(errno.EPERM)),
    ("ptrace", (101, 117), (), refused(errno.EPERM)),
    ("io_uring_setup", (425, 425), (), refused(errno.EPERM)),
    ("unix socket", (41, 198), (1,), ALLOW),
    ("ip socket", (41, 198), (2,), ALLOW),
    ("ip6 socket", (41, 198), (10,), ALLOW),
    ("netlink socket", (41, 198), (16,), ALLOW),
    ("vsock", (41, 198), (40,), refused(errno.EAFNOSUPPORT)),
    ("packet socket", (41, 198), (17,), refused(errno.EAFNOSUPPORT)),
    ("vsock, high word set", (41, 198), (1 << 32 | 40,), refused(errno.EAFNOSUPPORT)),
    ("unix socketpair", (53, 199), (1,), ALLOW),
    ("tipc socketpair", (53, 199), (30,), refused(errno.EAFNOSUPPORT)),
    ("terminal size", (16, 29), (0, 0x5413), ALLOW),
    ("terminal injection", (16, 29), (0, 0x5412), refused(errno.EPERM)),
    ("terminal injection, high word", (16, 29), (0, 1 << 32 | 0x5412), refused(errno.EPERM)),
]


@pytest.mark.parametrize(("name", "numbers", "arguments", "expected"), CASES)
def test_verdicts(name, numbers, arguments, expected):
    for machine, audit, number in zip(("x86_64", "aarch64"), (X86, ARM), numbers, strict=True):
        assert verdict(seccomp.build(machine), audit, number, *arguments) == expected, machine


def test_other_architectures_of_the_same_kernel():
    assert verdict(seccomp.build("x86_64"), 0x40000003, 1) == KILL  # 32-bit
    assert verdict(seccomp.build("x86_64"), X86, 0x40000000) == refused(errno.ENOSYS)  # x32
    assert verdict(seccomp.build("aarch64"), X86, 1) == KILL
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.build("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_program_fits(machine):
    assert len(seccomp.build(machine)) // 8 < 4096 and len(seccomp.build(machine)) <= 4096
