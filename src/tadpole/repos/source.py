"""Where a repository comes from: PyPI, a git repository here or elsewhere, or a directory."""

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from tadpole.errors import SourceError
from tadpole.repos import files, git
from tadpole.repos.address import shown
from tadpole.repos.files import Files
from tadpole.repos.pip import Pip
from tadpole.task import Source

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9.!+_-]+")
_REMOTE = re.compile(r"[a-z+]+://|[^/]+@[^/]+:")


@dataclass(frozen=True)
class Wanted:
    """A source as it was asked for; an empty version means the newest."""

    kind: str  # as in task.Source
    location: str
    version: str = ""
    address: str = field(default="", repr=False, compare=False)  # with secrets; empty for none

    @property
    def url(self) -> str:
        """What git gets: a path as a URL, for only then does git copy nothing but the commit that
        is asked for.
        """
        if self.address:
            return self.address
        return self.location if _REMOTE.match(self.location) else Path(self.location).as_uri()


@dataclass(frozen=True)
class Fetched:
    """A source and all its files."""

    source: Source
    files: Files


def parse(text: str) -> Wanted:
    """Read "pypi:NAME", "pypi:NAME==VERSION", a path, or a git URL.

    A git repository may be followed by "@" and a commit, a tag or a branch. A secret in its URL
    is no part of its location.

    Raises SourceError, one line that says what to type.
    """
    if not text.strip():
        raise SourceError("a source is empty: give a directory, a git URL, or pypi:NAME")
    if text.startswith("pypi:"):
        name, _, version = text.removeprefix("pypi:").partition("==")
        if not _NAME.fullmatch(name) or (version and not _VERSION.fullmatch(version)):
            raise SourceError(f"{text!r} names no release: write pypi:NAME or pypi:NAME==VERSION")
        return Wanted("pypi", re.sub(r"[-_.]+", "-", name).lower(), version)
    if text.startswith("-"):
        raise SourceError(f"{text!r} is no repository: give a path, a git URL, or pypi:NAME")
    if _REMOTE.match(text):
        text = text.removeprefix("git+")
        scheme = re.match(r"[a-z+]+://[^/]*/?|[^/@]+@[^/]+:", text)
        start = scheme.end() if scheme else 0
        place, at, revision = text[start:].rpartition("@")
        if at and place and "/" not in revision:
            return _remote(text[:start] + place, revision)
        return _remote(text)
    path = Path(text).expanduser()
    if path.is_dir():
        path = path.resolve()
        return Wanted("git" if git.is_repository(path) else "directory", str(path))
    before, at, revision = text.rpartition("@")
    clone = Path(before).expanduser()
    if at and revision and clone.is_dir():
        if not git.is_repository(clone.resolve()):
            raise SourceError(f"{before} is no git repository: leave @{revision} out")
        return Wanted("git", str(clone.resolve()), revision)
    hint = f", or pypi:{text}" if _NAME.fullmatch(text) else ", or pypi:NAME"
    raise SourceError(f"there is no repository at {text!r}: give a directory, a git URL{hint}")


def _remote(url: str, revision: str = "") -> Wanted:
    location = shown(url)
    return Wanted("git", location, revision, "" if url == location else url)


async def pin(wanted: Wanted) -> Wanted:
    """The same with the version in force now, where that is known without fetching.

    Raises SourceError.
    """
    if wanted.kind == "git":
        commit = await git.commit(wanted.url, wanted.version or "HEAD")
        return replace(wanted, version=commit)
    if wanted.version or wanted.kind == "pypi":
        return wanted
    return Wanted("directory", wanted.location, _directory(wanted).source.version)


async def fetch(wanted: Wanted, scratch: Path, pip: Pip) -> Fetched:
    """Get the files, in an empty ``scratch`` directory. Raises SourceError."""
    if wanted.kind == "pypi":
        return await _release(wanted, scratch, pip)
    if wanted.kind == "git":
        pinned = await pin(wanted)
        await git.checkout(pinned.url, pinned.version, scratch / "checkout")
        found = files.from_directory(scratch / "checkout")
        source = Source("git", pinned.location, pinned.version, files.digest(found))
        return _some(Fetched(source, found))
    fetched = _directory(wanted)
    if wanted.version and wanted.version != fetched.source.version:
        raise SourceError(
            f"{wanted.location} has changed since version {wanted.version} of it was used: "
            "restore it, or make the tasks again"
        )
    return fetched


def _directory(wanted: Wanted) -> Fetched:
    root = Path(wanted.location)
    if not root.is_dir():
        raise SourceError(f"there is no directory {root}: it was where this source came from")
    found = files.from_directory(root)
    digest = files.digest(found)
    return _some(Fetched(Source("directory", wanted.location, digest[:16], digest), found))


def _some(fetched: Fetched) -> Fetched:
    if not fetched.files:
        where = fetched.source.location
        raise SourceError(f"{where} has no files: give the directory of a repository")
    return fetched


async def _release(wanted: Wanted, scratch: Path, pip: Pip) -> Fetched:
    requirement = wanted.location + (f"=={wanted.version}" if wanted.version else "")
    into = scratch / "download"
    into.mkdir()
    archive = await pip.fetch(requirement, wanted.location, into)
    found = files.from_archive(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    version = wanted.version or _version(archive)
    return Fetched(Source("pypi", wanted.location, version, digest), found)


def _version(archive: Path) -> str:
    stem = re.sub(r"\.(tar\.\w+|tgz|zip)$", "", archive.name)
    return stem.rsplit("-", 1)[-1]
