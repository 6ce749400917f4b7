"""What is the container engine's own; the contract itself is in the tests of boxes."""

import asyncio
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tadpole.errors import SandboxStartError, SandboxUnavailable
from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes import container
from tadpole.sandboxes.container import OWNER, ContainerEngine, reap
from tadpole.sandboxes.docker import Docker, docker, image

ROOTFUL, ROOTLESS = Docker("/usr/bin/docker", "28", False), Docker("/usr/bin/docker", "28", True)
PODMAN, PODMAN_ROOTLESS = Docker("podman", "5.2", False), Docker("podman", "5.2", True)
SPEC = SandboxSpec(Path("/tree"), limits=Limits(memory=1 << 30, disk=1 << 28, inodes=777))


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


@pytest.mark.parametrize("engine", [ROOTFUL, ROOTLESS, PODMAN, PODMAN_ROOTLESS], ids=str)
def test_what_every_engine_is_told(engine):
    words = container._options(engine, SPEC, "name")
    assert value(words, "--network") == "none"
    assert value(words, "--cap-drop") == "ALL" and "--cap-add" not in words
    assert {"--read-only", "no-new-privileges", "--rm", "--init=false"} <= set(words)
    assert "--privileged" not in words and not any("docker.sock" in word for word in words)
    assert value(words, "--memory") == value(words, "--memory-swap")
    assert int(value(words, "--memory")) >= 1 << 30
    user, _, group = value(words, "--user").partition(":")
    assert user == group and (int(user) > 0 or "--userns=keep-id" in words)
    places = [words[at + 1] for at, word in enumerate(words) if word == "--tmpfs"]
    assert [place.partition(":")[0] for place in places] == ["/repo", "/tmp"]
    for place in places:
        assert f"size={1 << 28}" in place and "nosuid" in place and "nodev" in place
        assert ("nr_inodes=777" in place) is (not engine.podman)


def test_boxes_of_an_engine_that_is_root_have_users_of_their_own():
    users = {value(container._options(ROOTFUL, SPEC, "n"), "--user") for _ in range(20)}
    assert len(users) == 20


def test_paths_with_commas_and_quotes_stay_one_mount(tmp_path):
    odd = tmp_path / 'a,b"c'
    odd.mkdir()
    words = container._binds([container.Bind(odd, "/x"), container.Bind(tmp_path / "none", "/y")])
    assert words == [
        "--mount",
        f'type=bind,"source={tmp_path}/a,b""c",target=/x,readonly',
    ]


async def test_without_an_engine_each_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "docker"
    broken.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    docker.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable) as refusal:
            await ContainerEngine().start(SandboxSpec(tmp_path))
    finally:
        docker.cache_clear()
    text = str(refusal.value)
    assert "podman is not installed" in text and "Cannot connect to the Docker daemon" in text
    assert "apt install podman" in text and "\n" not in text


def test_an_engine_without_its_service_is_told_from_one_that_works(tmp_path, monkeypatch):
    program = tmp_path / "docker"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 125\n")
    (tmp_path / "podman").chmod(0o755)
    for answer, expected in (
        ('{"ServerVersion": "28.2", "SecurityOptions": ["name=rootless"]}', (True, "28.2")),
        ('{"ServerVersion": "28.2", "SecurityOptions": ["name=seccomp"]}', (False, "28.2")),
        ('{"ServerVersion": ""}', None),
        ("not json", None),
    ):
        program.write_text(f"#!/bin/sh\necho '{answer}'\n")
        program.chmod(0o755)
        docker.cache_clear()
        try:
            found = docker()
            assert (found.rootless, found.version) == expected
        except SandboxUnavailable:
            assert expected is None
        finally:
            docker.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
async def test_containers_of_dead_owners_are_removed_and_others_are_not(tmp_path):
    found = docker()
    name = image(found, "")
    for owner, label in (("dead", "999999999.1"), ("alive", container._owner())):
        made = [found.program, "create", "--name", f"tadpole-test-{os.getpid()}-{owner}", "--label"]
        subprocess.run([*made, f"{OWNER}={label}", name, "/bin/true"], check=True)
    try:
        assert await reap(found) == 1
        argv = [found.program, "ps", "-a", "--format", "{{.Names}}"]
        listed = subprocess.run(argv, capture_output=True, check=True, text=True)
        assert f"{os.getpid()}-alive" in listed.stdout and "-dead" not in listed.stdout
    finally:
        subprocess.run([found.program, "rm", "-f", f"tadpole-test-{os.getpid()}-alive"], check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
async def test_an_image_of_the_users_own(tree, toolbox, tmp_path):
    """A small one, whose programs come by a mount; its profile would lose the box's PATH."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, link in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, link
            archive.addfile(entry)
        for name, text in (("etc/profile", b"PATH=/lost\n"), ("etc/marker", b"of the image\n")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))
    program, name = docker().program, "tadpole-test-image:1"
    subprocess.run([program, "import", "-", name], input=out.getvalue(), check=True)
    try:
        engine = ContainerEngine(name, toolbox)
        spec = SandboxSpec(tree, {"/usr": Path("/usr")}, {"PATH": "/opt/v/bin:/usr/bin:/bin"})
        box = await engine.start(spec)
        result = await box.exec(["/bin/bash", "-lc", "echo $PATH; cat /etc/marker"], timeout=20)
        await box.close()
        assert result.stdout == "/opt/v/bin:/usr/bin:/bin\nof the image\n"
    finally:
        subprocess.run([program, "rmi", "-f", name], check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
async def test_an_image_that_is_not_to_be_had(tree):
    with pytest.raises(SandboxUnavailable, match=r"sandbox.image localhost/none:1 .* fetched"):
        await ContainerEngine("localhost/none:1").start(SandboxSpec(tree))


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
async def test_a_client_that_is_killed_leaves_no_container(tree, toolbox, census):
    box = await ContainerEngine(toolbox=toolbox).start(SandboxSpec(tree))
    running = asyncio.create_task(box.exec(["sleep", census.mark], timeout=60))
    while census.count() == 0:
        await asyncio.sleep(0.02)
    box._processes._client.kill()
    with pytest.raises(Exception, match="died"):
        await running
    await box.close()
    assert census.count() == 0
    listed = subprocess.run(
        [docker().program, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, check=True
    )
    assert box._processes._name.encode() not in listed.stdout.split()


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
async def test_a_tree_that_is_closed_is_told_with_its_cure(tree):
    if docker().rootless:
        pytest.skip("its user is the owner of the tree")
    tree.chmod(0o700)
    with pytest.raises(SandboxStartError, match=r"cannot read .*tree; `chmod -R go\+rX"):
        await ContainerEngine().start(SandboxSpec(tree))
