"""Run a command in a user namespace that allows N more: ``limited.py N command...``."""

import ctypes
import os
import sys


def main() -> None:
    libc, root = ctypes.CDLL(None), os.geteuid() == 0
    user, group = os.geteuid(), os.getegid()
    ready, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        if libc.unshare(0x10000000) != 0:
            os._exit(99)
        os.write(ready[1], b"x")
        os.read(mapped[0], 1)
        with open("/proc/sys/user/max_user_namespaces", "w") as handle:
            handle.write(sys.argv[1])
        os.execvp(sys.argv[2], sys.argv[2:])
    os.read(ready[0], 1)
    if root:
        maps = {"uid_map": "0 0 65536", "gid_map": "0 0 65536"}
    else:
        maps = {"setgroups": "deny"}
        maps |= {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in maps.items():
        with open(f"/proc/{child}/{name}", "w") as handle:
            handle.write(text)
    os.write(mapped[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
