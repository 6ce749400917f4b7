"""Git with nothing of the machine in it: no user configuration, hooks, prompts or identity."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tadpole import process
from tadpole.errors import NetworkError, SourceError, TadpoleError
from tadpole.protocols import ExecReason
from tadpole.repos.address import shown

_KEPT = ("PATH", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY")
_KEPT_PREFIXES = ("GIT_SSL_", "SSL_", "SSH_", "GIT_SSH", "LD_LIBRARY")
_WHEN = "2020-01-01T00:00:00+0000"
_LEFTOVERS = ("hooks", "branches", "description", "COMMIT_EDITMSG", "FETCH_HEAD", "logs")
_NO_NETWORK = (
    "Could not resolve",
    "Couldn't connect",
    "Failed to connect",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Operation timed out",
    "Network is unreachable",
    "No route to host",
    "Temporary failure in name resolution",
    "Name or service not known",
)
_NOBODY = ("could not read Username", "could not read Password", "Authentication failed")
_COMMIT = re.compile(r"[0-9a-f]{40}")
NETWORK_SECONDS = 600.0
LOCAL_SECONDS = 120.0
# Over what the tree's own .gitattributes ask for: line ends, keywords, encodings, filters.
_BYTES_AS_THEY_ARE = "* -text -ident !filter !working-tree-encoding\n"


def environment() -> dict[str, str]:
    """What a git command of ours runs under."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    return kept | {
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_AUTHOR_NAME": "tadpole",
        "GIT_AUTHOR_EMAIL": "tadpole@localhost",
        "GIT_AUTHOR_DATE": _WHEN,
        "GIT_COMMITTER_NAME": "tadpole",
        "GIT_COMMITTER_EMAIL": "tadpole@localhost",
        "GIT_COMMITTER_DATE": _WHEN,
    }


def is_repository(path: Path) -> bool:
    """Whether this very directory is a work tree's top or a bare repository."""
    bare = all((path / part).exists() for part in ("HEAD", "objects", "refs"))
    return bare or (path / ".git").exists()


async def commit(url: str, revision: str) -> str:
    """The commit that a name (HEAD, a branch, a tag, a commit) stands for at a URL.

    Raises SourceError, also where branch and tag of that name differ, and NetworkError.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    found = await _named_here(url, revision) if url.startswith("file://") else []
    found = found or await _named_there(url, revision)
    url = shown(url)
    if not found:
        if revision == "HEAD":
            raise SourceError(f"{url} has no commit yet: commit something first")
        raise SourceError(
            f"{url} has no commit, tag or branch {revision}: give its name, or all 40 digits"
        )
    if len(set(found)) > 1:
        raise SourceError(
            f"{url} has a branch and a tag {revision}: instead of the name, give the commit, "
            f"{' or '.join(found)}"
        )
    return found[0]


async def _named_here(url: str, revision: str) -> list[str]:
    """The commits of a name on this machine, where also the short form of one can be told."""
    here = unquote(urlsplit(url).path)
    asked = ("-C", here, "rev-parse", "--verify", "--quiet", "--end-of-options")
    exact = (f"refs/heads/{revision}", f"refs/tags/{revision}") if revision != "HEAD" else ()
    for names in (exact, (revision,)):
        told = [await _git(*asked, name + "^{commit}", timeout=LOCAL_SECONDS) for name in names]
        if found := [one.stdout.split()[0].decode() for one in told if one.ok]:
            return found
    return []


async def _named_there(url: str, revision: str) -> list[str]:
    """The same at any URL. Raises SourceError, NetworkError."""
    branch, tag = f"refs/heads/{revision}", f"refs/tags/{revision}"
    target = f"{tag}^{{}}"  # what a tag with words of its own points to
    places = ("HEAD",) if revision == "HEAD" else (branch, tag, target)
    listed = await _git("ls-remote", "--", url, *places, timeout=NETWORK_SECONDS)
    if not listed.ok:
        raise _unreachable(url, listed)
    # It lists every place that ends like one of these.
    lines = [line.split("\t", 1) for line in listed.stdout.decode().splitlines()]
    told = {place: name for name, place in lines if place in places}
    if target in told:
        told.pop(tag, None)
    return list(told.values())


async def checkout(url: str, commit: str, into: Path) -> None:
    """Check one commit out into a new directory, without its history.

    Raises SourceError, NetworkError.
    """
    into.mkdir(parents=True)
    for arguments in (
        ("init", "-q", "--template="),
        ("fetch", "-q", "--depth=1", "--no-tags", "--end-of-options", url, commit),
        ("checkout", "-q", "--detach", "FETCH_HEAD"),
    ):
        done = await _git("-C", str(into), *arguments, timeout=NETWORK_SECONDS)
        if not done.ok:
            raise _unreachable(url, done)
    shutil.rmtree(into / ".git")


async def at_head(clone: Path, path: str) -> bytes | None:
    """A file at the head of a local clone; None where it has none."""
    done = await _git("-C", str(clone), "cat-file", "blob", f"HEAD:{path}", timeout=LOCAL_SECONDS)
    return done.stdout if done.ok and not done.stdout_cut else None


async def one_commit(tree: Path) -> None:
    """Make a directory a repository of exactly one commit: same files, same commit id.

    No remote, tag, reflog, hook or other object is in it, and git takes and gives back every byte
    of a file, whatever its attributes say. Raises SourceError.
    """
    for arguments in (
        ("init", "-q", "--template="),
        ("add", "-A", "-f", "."),  # also what .gitignore names: it is part of the tree
        ("commit", "-q", "--allow-empty", "-m", "Initial state"),
        ("config", "user.name", "agent"),
        ("config", "user.email", "agent@localhost"),
    ):
        done = await _git("-C", str(tree), *arguments, timeout=LOCAL_SECONDS)
        if not done.ok:
            raise SourceError(f"git {arguments[0]} failed: {done.last_line()}")
        if arguments[0] == "init":
            (tree / ".git" / "info").mkdir(exist_ok=True)
            (tree / ".git" / "info" / "attributes").write_text(_BYTES_AS_THEY_ARE)
    for name in _LEFTOVERS:
        shutil.rmtree(tree / ".git" / name, ignore_errors=True)
        if (tree / ".git" / name).exists():
            (tree / ".git" / name).unlink()


async def blobs(tree: Path, paths: Iterable[str]) -> dict[str, str]:
    """What the commit of a :func:`one_commit` holds: git's names of contents, by path.

    Paths that are not in it are left out. Raises SourceError.
    """
    asked = ("-C", str(tree), "ls-tree", "-z", "HEAD", "--", *paths)
    listed = await _git(*asked, timeout=LOCAL_SECONDS)
    if not listed.ok:
        raise SourceError(f"git ls-tree failed in {tree}: {listed.last_line()}")
    rows = (os.fsdecode(row).split("\t", 1) for row in listed.stdout.split(b"\0") if row)
    return {path: about.split(" ")[2] for about, path in rows}


async def _git(*arguments: str, timeout: float) -> process.Finished:
    try:
        return await process.arun(["git", *arguments], env=environment(), timeout=timeout)
    except FileNotFoundError:
        raise SourceError("git is not installed: apt install git") from None


def _unreachable(url: str, done: process.Finished) -> TadpoleError:
    url = shown(url)
    if done.reason is ExecReason.TIMEOUT:
        return NetworkError(f"{url} did not answer git in {NETWORK_SECONDS:.0f} s: try again later")
    lines = shown(done.stderr.decode(errors="replace")).splitlines()
    told = (line.strip() for line in lines if not line.lower().startswith("warning:"))
    said = next(filter(None, told), f"exit code {done.code}")  # the cause; advice follows it
    if any(sign in line for sign in _NO_NETWORK for line in lines):
        return NetworkError(f"cannot reach {url} with git ({said}): check the network")
    if any(sign in line for sign in _NOBODY for line in lines):
        return SourceError(
            f"cannot read {url} with git ({said}): write NAME:TOKEN@ before its host, which is "
            "used and not kept, or use ssh"
        )
    return SourceError(f"cannot read {url} with git ({said}): check the address")
