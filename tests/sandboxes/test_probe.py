import subprocess
import sys
from pathlib import Path

import pytest

from tadpole.sandboxes.probe import Hold, probe
from tadpole.sandboxes.refusal import explain


async def test_every_canary_holds_here(engine):
    report = await probe(engine)
    assert [canary for canary in report.canaries if canary.hold is not Hold.HELD] == []
    assert len(report.canaries) > 20
    assert report.lines()[0].startswith("bubblewrap ")


def limited(namespaces: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tadpole.sandboxes.probe"]
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("limited.py"), str(namespaces), *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_where_namespaces_do_not_nest_it_falls_back_and_holds():
    done = limited(2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "box process namespace" in done.stdout and "BROKEN" not in done.stdout
    assert "note        commands share" in done.stdout


def test_where_namespaces_are_refused_nothing_runs_and_the_setting_is_named():
    done = limited(0)
    assert (done.returncode, done.stdout) == (3, "")
    assert "user.max_user_namespaces is 0" in done.stderr
    assert "sudo sysctl -w user.max_user_namespaces" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/sys/user/max_user_namespaces": "0\n"}, "user.max_user_namespaces is 0"),
        ({"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "unprivileged_userns_clone=1"),
        ({"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "apparmor"),
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


def test_other_complaints_are_not_explained_away():
    assert explain("bwrap: Can't find source path /x: No such file or directory") is None
