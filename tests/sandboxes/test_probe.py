import subprocess
import sys
from pathlib import Path

import pytest

from tadpole.errors import SandboxUnavailable
from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.ladder import choose
from tadpole.sandboxes.probe import Bound, Hold, check, probe
from tadpole.sandboxes.refusal import explain
from tadpole.settings import BoxKind, SandboxConfig

CODES = {f"P{number}" for number in range(10)}


async def test_every_canary_holds_here(engine, kind):
    report = await probe(engine)
    assert report.kind is kind and report.broken == []
    assert {canary.code for canary in report.canaries} == CODES
    assert len(report.canaries) > 25
    weak = [
        canary.name
        for canary in report.canaries
        if canary.hold is not Hold.HELD and "is the machine busy?" not in canary.detail
    ]
    # What is not held is a bound that the report says it has not, and nothing else.
    assert weak == (["inode limit"] if report.bounds["inodes"] is Bound.NONE else [])
    assert any(line.startswith(f"engine      {kind.value}: ") for line in report.lines())


class Broken(BubblewrapEngine):
    """Its boxes are shown the host's temporary files."""

    async def start(self, spec: SandboxSpec):
        return await super().start(
            SandboxSpec(spec.tree, {"/opt": spec.tree.parent}, {"PROBED": "1"}, limits=spec.limits)
        )


async def test_a_wall_that_is_not_there_is_told_and_refused(toolbox, monkeypatch):
    monkeypatch.setenv("PROBED", "1")
    with pytest.raises(SandboxUnavailable, match=r"does not hold here \(environment: PROBED"):
        await check(Broken(toolbox))
    report = await probe(Broken(toolbox))
    assert not report.held and report.broken == ["P1 environment: PROBED"]


CHOOSE = """
import asyncio, sys
from tadpole.errors import SandboxError
from tadpole.sandboxes.ladder import choose
from tadpole.settings import SandboxConfig
try:
    print(asyncio.run(choose(SandboxConfig(engine=sys.argv[1]))).kind.value)
except SandboxError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def limited(namespaces: int, engine: str = "auto") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", CHOOSE, engine]
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("limited.py"), str(namespaces), *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_where_namespaces_do_not_nest_the_flat_one_holds():
    done = limited(2)
    assert (done.returncode, done.stdout) == (0, "flat\n"), done.stderr


def test_a_session_that_was_asked_for_is_not_quietly_another():
    done = limited(2, "session")
    assert (done.returncode, done.stdout) == (3, "")
    assert "namespaces do not nest here" in done.stderr and done.stderr.count("\n") == 1


def test_where_namespaces_are_refused_nothing_runs_and_the_setting_is_named():
    done = limited(0)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "user.max_user_namespaces is 0" in done.stderr
    assert "sudo sysctl -w user.max_user_namespaces" in done.stderr
    assert done.stderr.count("user.max_user_namespaces is 0") == 1  # not once for every rung
    assert len(done.stderr.splitlines()) == 1


async def test_what_is_asked_for_is_chosen():
    for kind in (BoxKind.SESSION, BoxKind.FLAT):
        assert (await choose(SandboxConfig(engine=kind))).kind is kind
    assert (await choose(SandboxConfig())).kind is BoxKind.SESSION


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/sys/user/max_user_namespaces": "0\n"}, "user.max_user_namespaces is 0"),
        ({"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "unprivileged_userns_clone=1"),
        ({"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "apparmor"),
        (
            {"proc/self/ns/user": "", "proc/self/attr/current": "docker-default (enforce)\n"},
            "AppArmor profile docker-default refuses it; `sudo aa-complain docker-default`",
        ),
        ({"proc/self/ns/user": "", "proc/self/attr/current": "unconfined\n"}, "kernel refuses"),
        ({}, "no user namespaces"),
        ({"proc/self/ns/user": "", ".dockerenv": ""}, "--security-opt seccomp=unconfined"),
        ({"proc/self/ns/user": ""}, "the kernel refuses"),
    ],
)
def test_the_setting_that_refuses_is_named(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    message = explain("bwrap: setting up uid map: Permission denied\n", tmp_path)
    assert message is not None and expected in message and "\n" not in message


def test_namespaces_that_are_used_up_are_told_from_those_refused(tmp_path):
    (tmp_path / "proc/sys/user").mkdir(parents=True)
    (tmp_path / "proc/sys/user/max_user_namespaces").write_text("7\n")
    complaint = "Creating new namespace failed: nesting depth or max_*_namespaces exceeded"
    message = explain(complaint, tmp_path)
    assert message is not None and "is 7 and they are used up" in message


@pytest.mark.parametrize(
    "complaint",
    [
        "bwrap: Failed to make / slave: Permission denied",
        "bwrap: Can't bind mount /oldroot/usr on /newroot/usr: Permission denied",
        "bwrap: Can't mount tmpfs on /newroot/tmp: Operation not permitted",
        "bwrap: pivot_root: Permission denied",
    ],
)
def test_mounts_that_are_refused_inside_namespaces_are_told(tmp_path, complaint):
    (tmp_path / "proc/self/attr").mkdir(parents=True)
    (tmp_path / "proc/self/attr/current").write_text("snap.x (enforce)\n")
    message = explain(complaint, tmp_path)
    assert message is not None and "the AppArmor profile snap.x refuses it" in message


def test_other_complaints_are_not_explained_away():
    assert explain("bwrap: Can't bind mount /oldroot/x on /newroot/x: No such file") is None
    assert explain("bwrap: Can't find source path /x: No such file or directory") is None
