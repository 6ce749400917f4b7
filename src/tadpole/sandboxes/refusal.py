"""Says which setting of a machine refuses user namespaces, and the command that changes it."""

from pathlib import Path

# What bubblewrap prints where the kernel, a security module or a container says no.
_SIGNS = (
    "Creating new namespace failed",
    "No permissions to create a new namespace",
    "No permissions to creating new namespace",
    "setting up uid map",
    "setting up gid map",
    "Failed RTM_NEWADDR",
    "Failed RTM_NEWLINK",
    "Failed to make / slave",
    "Can't mount proc",
    "launch: [Errno 1]",
)
# And these, where it is permission that is missing: a security module lets namespaces be made and
# then refuses the mounts in them.
_MOUNTS = ("Can't bind mount", "Can't mount", "Can't remount", "pivot_root")
_DENIED = ("Permission denied", "Operation not permitted")
_USED_UP = "nesting depth or"
QUOTED = " [bubblewrap: "  # before the words of bubblewrap, which differ from one try to the next


def explain(complaint: str, root: Path = Path("/")) -> str | None:
    """One line: what refuses and what to type. None where ``complaint`` is about another thing.

    ``root`` is where proc and the marks of containers are looked up.
    """
    denied = any(sign in complaint for sign in _MOUNTS) and any(w in complaint for w in _DENIED)
    if not denied and not any(sign in complaint for sign in _SIGNS):
        return None
    cause, cure = _used_up(root) if _USED_UP in complaint else _cause(root)
    return f"cannot isolate on this machine: {cause}; {cure}{QUOTED}{_line(complaint)}]"


def _used_up(root: Path) -> tuple[str, str]:
    limit = _number(root / "proc/sys/user/max_user_namespaces")
    if not limit:
        return _cause(root)
    return (
        f"user.max_user_namespaces is {limit} and they are used up, or they do not nest deeper",
        "`sudo sysctl -w user.max_user_namespaces=15000` allows more",
    )


def _cause(root: Path) -> tuple[str, str]:
    if _number(root / "proc/sys/user/max_user_namespaces") == 0:
        return (
            "user.max_user_namespaces is 0",
            "`sudo sysctl -w user.max_user_namespaces=15000` allows them",
        )
    if _number(root / "proc/sys/kernel/unprivileged_userns_clone") == 0:
        return (
            "kernel.unprivileged_userns_clone is 0",
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1` allows user namespaces",
        )
    if _number(root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "kernel.apparmor_restrict_unprivileged_userns is 1",
            "`sudo apt install bubblewrap apparmor-profiles` brings a profile that allows it, or "
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
        )
    profile = _profile(root)
    if profile:
        return (
            f"the AppArmor profile {profile} refuses it",
            f"`sudo aa-complain {profile}`, or in a container `--security-opt "
            "apparmor=unconfined`, allows it",
        )
    if not (root / "proc/self/ns/user").exists():
        return ("this kernel has no user namespaces", "another kernel is needed (CONFIG_USER_NS)")
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return (
            "this container's security profile refuses user namespaces",
            "start it with `--security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined --security-opt systempaths=unconfined`",
        )
    return (
        "the kernel refuses user namespaces",
        "`sysctl -a | grep -i userns` shows its settings; in a container, its seccomp profile",
    )


def _profile(root: Path) -> str:
    """The AppArmor profile that this process is held to; "" for none."""
    try:
        told = (root / "proc/self/attr/current").read_text().strip()
    except (OSError, ValueError):
        return ""
    return told.removesuffix(" (enforce)") if told.endswith(" (enforce)") else ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _line(complaint: str) -> str:
    lines = [line for line in complaint.splitlines() if line.strip()]
    return lines[-1].removeprefix("bwrap: ") if lines else ""
