import base64
import io
import os
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tinyrepo import LIBRARY, git, repository, write

from tadpole.errors import NetworkError, SourceError
from tadpole.repos import files
from tadpole.repos import git as trusted
from tadpole.repos.files import Astray
from tadpole.repos.pip import Pip
from tadpole.repos.source import Wanted, fetch, parse, pin
from tadpole.task import FileChange


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pypi:boltons", Wanted("pypi", "boltons", "")),
        ("pypi:More_Itertools==11.2.1", Wanted("pypi", "more-itertools", "11.2.1")),
        ("https://example.org/a/b.git", Wanted("git", "https://example.org/a/b.git")),
        ("git+https://example.org/a/b", Wanted("git", "https://example.org/a/b")),
        ("git@example.org:a/b.git", Wanted("git", "git@example.org:a/b.git")),
        ("git@example.org:a/b.git@v1.2", Wanted("git", "git@example.org:a/b.git", "v1.2")),
        ("https://example.org/a/b@1a2b", Wanted("git", "https://example.org/a/b", "1a2b")),
        ("https://token@example.org/a", Wanted("git", "https://example.org/a")),
        ("git+https://me:to@ken@example.org/a@b", Wanted("git", "https://example.org/a", "b")),
        ("ssh://git:s@example.org:22/a", Wanted("git", "ssh://git@example.org:22/a")),
        ("ssh://git@example.org:22/a@main", Wanted("git", "ssh://git@example.org:22/a", "main")),
    ],
)
def test_a_source_is_read(text: str, wanted: Wanted) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pypi:", "pypi:NAME"),
        ("pypi:--index-url", "pypi:NAME"),
        ("pypi:a b", "pypi:NAME"),
        ("boltons", "or pypi:boltons"),
        ("/no/such/place", "there is no repository at '/no/such/place'"),
        (" ", "a source is empty"),
        ("--upload-pack=x", "give a path, a git URL"),
    ],
)
def test_what_is_no_source_is_told_in_one_line(text: str, says: str) -> None:
    with pytest.raises(SourceError) as error:
        parse(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_git_repository_is_taken_at_the_commit_that_is_named(tmp_path: Path, scratch: Path):
    repo = repository(tmp_path / "repo", LIBRARY)
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "tag", "-a", "v1", "-m", "the first")
    write(repo, {"shapes/area.py": "later\n"})
    git(repo, "commit", "-qam", "later")
    for name in ("v1", first[:9], first, "HEAD~1"):
        wanted = await pin(parse(f"{repo}@{name}"))
        assert wanted == Wanted("git", str(repo), first), name
    assert await trusted.commit(repo.as_uri().replace("file://", "file://localhost"), "v1") == first
    fetched = await fetch(wanted, scratch, Pip())
    assert fetched.files["shapes/area.py"].content == LIBRARY["shapes/area.py"].encode()
    with pytest.raises(SourceError, match="no commit, tag or branch v2"):
        await pin(parse(f"{repo}@v2"))
    write(tmp_path / "plain", LIBRARY)
    with pytest.raises(SourceError, match="leave @v1 out"):
        parse(f"{tmp_path / 'plain'}@v1")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server that shows what lies in ``tmp_path``."""

    known = "Basic " + base64.b64encode(b"me:s3cret").decode()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/private") and self.headers["Authorization"] != known:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_a_name_means_the_branch_or_tag_of_exactly_that_name(tmp_path: Path, served: str):
    repo = repository(tmp_path / "repo", LIBRARY)
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "tag", "-a", "v1", "-m", "the first")
    for name in ("a/release", "only/here", "odd"):
        git(repo, "branch", name)
    write(repo, {"shapes/area.py": "later\n"})
    git(repo, "commit", "-qam", "later")
    later = git(repo, "rev-parse", "HEAD")
    git(repo, "branch", "release")
    git(repo, "tag", "odd")
    git(repo, "tag", "z/v1")
    git(repo, "update-server-info")
    for source in (f"git+{served}/repo/.git", str(repo)):
        for name, wanted in (("release", later), ("v1", first), ("HEAD", later)):
            assert (await pin(parse(f"{source}@{name}"))).version == wanted, (source, name)
        with pytest.raises(SourceError, match="no commit, tag or branch here"):
            await pin(parse(f"{source}@here"))
        with pytest.raises(SourceError, match=f"a branch and a tag odd: .*{first} or {later}"):
            await pin(parse(f"{source}@odd"))


async def test_a_secret_in_an_address_serves_git_and_is_nowhere_else(
    tmp_path: Path, served: str, scratch: Path
):
    repo = repository(tmp_path / "private" / "repo", LIBRARY)
    git(repo, "update-server-info")
    address = f"{served}/private/repo/.git"
    pinned = await pin(parse(address.replace("//", "//me:s3cret@")))
    assert pinned == Wanted("git", address, git(repo, "rev-parse", "HEAD"))
    assert "s3cret" not in repr(pinned) and "me:s3cret@" in pinned.url
    for wrong in (address, address.replace("//", "//me:0ther@")):
        with pytest.raises(SourceError, match="write NAME:TOKEN@ before its host") as error:
            await pin(parse(wrong))
        assert address in str(error.value) and "0ther" not in str(error.value)
    for secret in ("me:s3cret@", "s3cret@"):
        with pytest.raises(SourceError, match=r"no commit|cannot read") as error:
            await pin(parse(address.replace("//", f"//{secret}") + "@none"))
        assert "s3cret" not in str(error.value)
    # Git says itself what it cannot do: this server is too plain for a checkout without history.
    with pytest.raises(SourceError, match="cannot read") as error:
        await fetch(pinned, scratch, Pip())
    assert "s3cret" not in str(error.value)


async def test_a_git_repository_is_taken_at_its_commit(tmp_path: Path, scratch: Path) -> None:
    more = {".gitattributes": "tests export-ignore\n*.txt text eol=crlf\n", "notes.txt": "a\n"}
    repo = repository(tmp_path / "repo", LIBRARY, more)
    commit = git(repo, "rev-parse", "HEAD")
    write(repo, {"shapes/area.py": "changed\n", "new.py": ""})
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    wanted = parse(str(repo))
    assert wanted.kind == "git"
    fetched = await fetch(wanted, scratch, Pip())
    assert fetched.source.version == commit
    assert set(fetched.files) == {*LIBRARY, *more}
    assert fetched.files["shapes/area.py"].content == LIBRARY["shapes/area.py"].encode()
    assert not (tmp_path / "ran").exists()
    again = Wanted("git", str(repo), commit)
    write(repo, {"more.py": ""})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "later")
    (scratch / "two").mkdir()
    assert (await fetch(again, scratch / "two", Pip())).source == fetched.source


async def test_a_bare_repository_and_a_path_with_spaces(tmp_path: Path, scratch: Path) -> None:
    repo = repository(tmp_path / "a repo é", LIBRARY)
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare"))
    first = await fetch(parse(str(repo)), scratch, Pip())
    (scratch / "two").mkdir()
    second = await fetch(parse(str(tmp_path / "bare")), scratch / "two", Pip())
    assert first.source.sha256 == second.source.sha256


async def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(SourceError, match="no commit yet"):
        await pin(parse(str(tmp_path)))


async def test_a_url_where_nothing_answers() -> None:
    with pytest.raises(NetworkError, match=r"cannot reach http://127\.0\.0\.1:9/x\.git") as error:
        await pin(parse("http://127.0.0.1:9/x.git"))
    assert "\n" not in str(error.value) and error.value.exit_code == 3


async def test_a_url_that_is_no_repository_is_told_with_its_cause(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/gone.git"
    with pytest.raises(SourceError, match=r"\(fatal: .*gone\.git.*\): check the address"):
        await pin(parse(url))


async def test_no_network_for_pip(scratch: Path) -> None:
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    pip = Pip(("--index-url=http://127.0.0.1:9/simple",), env)
    with pytest.raises(NetworkError, match="check the network, or set PIP_INDEX_URL") as error:
        await fetch(parse("pypi:boltons==26.2.0"), scratch, pip)
    assert "\n" not in str(error.value)


async def test_a_release_that_does_not_exist(scratch: Path, pip: Pip) -> None:
    with pytest.raises(SourceError, match=r"pip cannot get no-such-thing .*check the name"):
        await fetch(parse("pypi:no-such-thing"), scratch, pip)


async def test_a_directory_is_named_by_its_content(tmp_path: Path, scratch: Path) -> None:
    root = write(tmp_path / "lib", LIBRARY)
    for rubbish in ("shapes/__pycache__/area.pyc", "lib.egg-info/PKG-INFO", "build/lib/x.py"):
        write(root, {rubbish: "x"})
    os.mkfifo(root / "pipe")
    (root / "outside").symlink_to("/etc/passwd")
    (root / "loop").symlink_to("loop")
    (root / "inside.py").symlink_to("shapes/area.py")
    (root / "other").symlink_to("shapes")
    (root / "shapes" / "up").symlink_to("..")
    (root / "away").symlink_to("/etc")
    (root / "kept").symlink_to("build/lib")
    (root / "shapes" / "area.py").chmod(0o755)
    wanted = parse(str(root))
    assert wanted.kind == "directory"
    fetched = await fetch(wanted, scratch, Pip())
    copies = {f"other/{path.partition('/')[2]}" for path in LIBRARY if path.startswith("shapes/")}
    assert set(fetched.files) == {*LIBRARY, *copies, "inside.py"}
    assert fetched.files["other/area.py"].content == LIBRARY["shapes/area.py"].encode()
    assert files.astray(root) == {
        "pipe": Astray.KIND,
        "outside": Astray.OUTSIDE,
        "loop": Astray.OUTSIDE,
        "away": Astray.OUTSIDE,
        "shapes/up": Astray.LOOP,
        "other/up": Astray.LOOP,
    }
    assert fetched.files["shapes/area.py"].executable
    write(root, {"shapes/area.py": "other\n"})
    changed = await pin(wanted)
    assert changed.version != fetched.source.version
    with pytest.raises(SourceError, match="has changed since"):
        await fetch(Wanted("directory", str(root), fetched.source.version), scratch, Pip())


def test_a_directory_below_a_repository_is_a_directory(tmp_path: Path) -> None:
    repo = repository(tmp_path, LIBRARY)
    assert parse(str(repo / "shapes")).kind == "directory"


async def test_an_empty_directory(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="has no files"):
        await fetch(parse(str(tmp_path / "empty")), scratch, Pip())


def _tar(path: Path, *members: tuple[str, bytes | str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            item = tarfile.TarInfo(name)
            if isinstance(content, str):
                item.type, item.linkname = tarfile.SYMTYPE, content
                tar.addfile(item)
            else:
                item.size, item.mode = len(content), 0o4755
                tar.addfile(item, io.BytesIO(content))
    return path


def test_an_archive_loses_its_top_directory_links_and_rubbish(tmp_path: Path) -> None:
    archive = _tar(
        tmp_path / "a-1.tar.gz",
        ("a-1/a.py", b"x\r\n\xff"),
        ("a-1/link", "/etc/passwd"),
        ("a-1/a.egg-info/SOURCES.txt", b""),
        ("a-1/b/__pycache__/b.cpython-311.pyc", b""),
    )
    assert files.from_archive(archive) == {"a.py": FileChange("a.py", b"x\r\n\xff", True)}
    with zipfile.ZipFile(tmp_path / "a-1.zip", "w") as pack:
        pack.writestr("a-1/a.py", "x")
    assert set(files.from_archive(tmp_path / "a-1.zip")) == {"a.py"}


@pytest.mark.parametrize("name", ["/etc/evil", "a-1/../../evil", "../evil"])
def test_an_archive_that_reaches_outside(tmp_path: Path, name: str) -> None:
    archive = _tar(tmp_path / "a-1.tar.gz", ("a-1/a.py", b"x"), (name, b"x"))
    with pytest.raises(SourceError, match="outside of itself"):
        files.from_archive(archive)


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"<html>")
    with pytest.raises(SourceError, match="fetch it again"):
        files.from_archive(tmp_path / "a.tar.gz")


def test_a_digest_names_paths_contents_and_modes() -> None:
    one = {"a": FileChange("a", b"x"), "b": FileChange("b", b"y")}
    others = [
        {"a": FileChange("a", b"x")},
        {"a": FileChange("a", b"y"), "b": FileChange("b", b"x")},
        {**one, "a": FileChange("a", b"x", True)},
        {"c": FileChange("c", b"x"), "b": FileChange("b", b"y")},
    ]
    assert files.digest(one) == files.digest(dict(reversed(one.items())))
    assert len({files.digest(tree) for tree in [one, *others]}) == 5


def test_writing_to_a_linked_copy_leaves_the_original(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files.write(tmp_path / "a", [FileChange("d/x.py", b"old"), FileChange("y", b"y", True)])
    files.link(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a/y").stat().st_ino == (tmp_path / "b/y").stat().st_ino
    files.write(tmp_path / "b", [FileChange("d/x.py", b"new"), FileChange("y", None)])
    assert (tmp_path / "a/d/x.py").read_bytes() == b"old"
    assert (tmp_path / "b/d/x.py").read_bytes() == b"new"
    assert not (tmp_path / "b/y").exists()
    assert stat.S_IMODE((tmp_path / "a/y").stat().st_mode) == 0o755


async def test_a_tree_becomes_exactly_one_commit(tmp_path: Path) -> None:
    more = {".gitignore": "*.log\n", "x.log": "kept", "sub/.gitattributes": "* filter=x\n"}
    for name in ("one", "two"):
        write(tmp_path / name, LIBRARY, more)
        (tmp_path / name / "sub" / "é\n.py").write_bytes(b"\r\n\xff")
        await trusted.one_commit(tmp_path / name)
    root = tmp_path / "one"
    assert git(root, "rev-parse", "HEAD") == git(tmp_path / "two", "rev-parse", "HEAD")
    assert git(root, "rev-list", "--all", "--count") == "1"
    assert git(root, "status", "--porcelain", "--ignored") == ""
    assert git(root, "tag") == git(root, "remote") == git(root, "reflog") == ""
    assert git(root, "log", "-1", "--format=%an %aI") == "tadpole 2020-01-01T00:00:00+00:00"
    assert git(root, "fsck", "--unreachable") == ""
    assert sorted(p.name for p in (root / ".git").iterdir()) == [
        *("HEAD", "config", "index", "info", "objects", "refs")
    ]


async def test_a_commit_holds_the_very_bytes_whatever_the_attributes_say(tmp_path: Path) -> None:
    attributes = "*.txt text eol=crlf\n*.py text ident working-tree-encoding=UTF-16\n* filter=x\n"
    contents = {"a.txt": b"one\r\ntwo\n", "b.py": b"# $Id: of old $\r\n", "c": b"\r\n\0"}
    (tmp_path / "sub").mkdir()
    for name in (".gitattributes", "sub/.gitattributes"):
        (tmp_path / name).write_text(attributes)
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    await trusted.one_commit(tmp_path)
    for name, content in contents.items():
        shown = subprocess.run(
            ["git", "-C", tmp_path, "cat-file", "blob", f"HEAD:{name}"],
            check=True,
            capture_output=True,
        )
        assert shown.stdout == content
        (tmp_path / name).unlink()
    git(tmp_path, "checkout", "--", ".")
    assert {name: (tmp_path / name).read_bytes() for name in contents} == contents
    assert git(tmp_path, "status", "--porcelain") == ""
