"""A person's git repository, read and added to through plumbing only.

Guards against: code that runs on this machine because git was started in somebody's repository.
Hooks (also those that the configuration itself defines, as git knows since 2.54), filters, external
diffs, file system monitors, pagers and remotes that the repository's or the person's configuration
names are never started: no command here takes a path through a
filter, refreshes the index, or talks to a remote; contents of the work tree are read by us.

Does not guard against: a git that is itself replaced, or an object store damaged by hand.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tadpole import process
from tadpole.errors import SourceError, UsageError
from tadpole.repos import git

_SECONDS = 120.0
_OUTPUT = 2 << 30  # bytes
_QUIET = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.untrackedCache=false", "-c", "core.attributesFile=/dev/null"),
    *("-c", "core.pager=cat", "-c", "core.quotePath=false", "-c", "commit.gpgSign=false"),
    *("-c", "core.autocrlf=false", "-c", "core.splitIndex=false"),
)


@dataclass(frozen=True)
class TreeEntry:
    """One entry of a commit's tree."""

    mode: str  # "100644", "100755", "120000", "160000"
    oid: str
    path: str


@dataclass(frozen=True)
class Person:
    """Who a commit is by."""

    name: str
    email: str


class UserGit:
    """The repository around ``start`` (a directory). Raises SourceError where there is none."""

    def __init__(self, start: Path) -> None:
        if not start.is_dir():  # a mistyped one must not be taken for the repository around it
            raise SourceError(f"{start} is no directory: give that of a git repository")
        here = start.resolve()
        for place in (here, *here.parents):
            if (place / ".git").exists():
                self.root = place
                return
            if place.name != ".git" and git.is_repository(place):
                raise SourceError(
                    f"{place} is a bare repository, without a work tree: git clone it, and work "
                    "in the clone"
                )
        raise SourceError(f"{start} is in no git repository: cd into one, or run git init")

    def head(self) -> str:
        """The commit of HEAD. Raises SourceError where there is none yet, or git cannot tell."""
        done = self._git("rev-parse", "--verify", "-q", "HEAD^{commit}", check=False)
        if done.ok:
            return done.stdout.decode().strip()
        if done.code != 1:  # 1: there is no such object; all else: git could not even look
            raise SourceError(
                f"git cannot read the repository {self.root} ({done.last_line()}): "
                "see what git status says there"
            )
        points = self._git("symbolic-ref", "-q", "HEAD", check=False)
        ref = os.fsdecode(points.stdout.strip())
        if not points.ok or self._git("rev-parse", "--verify", "-q", ref, check=False).ok:
            raise SourceError(
                f"the commit of HEAD in {self.root} cannot be read: git fsck says what is damaged"
            )
        name = ref.removeprefix("refs/heads/")
        raise SourceError(
            f"the branch {name} of {self.root} has no commit yet: git add and git commit first"
        )

    def branch(self) -> str:
        """The branch that is checked out; empty where HEAD is detached."""
        done = self._git("symbolic-ref", "-q", "--short", "HEAD", check=False)
        return os.fsdecode(done.stdout.strip()) if done.ok else ""

    def entries(self, commit: str) -> list[TreeEntry]:
        """All entries of a commit's tree, as they are written there (odd paths included)."""
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", commit).stdout
        found = []
        for line in filter(None, listed.split(b"\0")):
            about, _, path = line.partition(b"\t")
            mode, _, oid = about.decode().split()
            found.append(TreeEntry(mode, oid, os.fsdecode(path)))
        return found

    def blobs(self, oids: Iterable[str]) -> dict[str, bytes]:
        """Contents by object id, as stored: no filter has seen them."""
        asked = list(dict.fromkeys(oids))
        if not asked:
            return {}
        data = self._git("cat-file", "--batch", stdin="".join(f"{o}\n" for o in asked).encode())
        if data.stdout_cut:
            raise SourceError(f"{self.root} holds more than {_OUTPUT >> 30} GiB: too large to copy")
        out, at, found = data.stdout, 0, {}
        for oid in asked:
            end = out.index(b"\n", at)
            words = out[at:end].split()
            if len(words) != 3:
                raise SourceError(
                    f"{self.root} lacks object {oid[:12]} (a partial clone?): git fetch first"
                )
            size = int(words[2])
            found[oid] = out[end + 1 : end + 1 + size]
            at = end + 2 + size
        return found

    def present(self) -> list[str]:
        """Paths of the work tree that a commit of everything would take: tracked or not ignored."""
        asked = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        listed = self._git("-c", f"core.excludesFile={self._excludes()}", *asked)
        names = (os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
        return sorted(dict.fromkeys(names))

    def person(self) -> Person:
        """Who the person's git says they are. Raises UsageError where it does not know."""
        found = [self._setting("--get", key) for key in ("user.name", "user.email")]
        if not all(found):
            raise UsageError(
                'git does not know who commits: git config user.name "..." and user.email "..."'
            )
        return Person(*(os.fsencode(one).decode("utf-8", "replace") for one in found))

    def _setting(self, *asked: str) -> str:
        """One setting as git has it for the person; empty where there is none. Nothing runs."""
        env = git.environment() | {"HOME": os.environ.get("HOME", "/nonexistent")}
        for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
            env.pop(name, None)
            if name in os.environ:
                env[name] = os.environ[name]
        argv = ["git", f"--git-dir={self.root / '.git'}", "config", *asked]
        done = process.run(argv, env=env, cwd=self.root, timeout=_SECONDS)
        return os.fsdecode(done.stdout).strip() if done.ok else ""

    def _excludes(self) -> str:
        """The file with what the person ignores in all repositories, as git looks for it."""
        if named := self._setting("--path", "--get", "core.excludesFile"):
            return named
        home = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
        return f"{home}/git/ignore"

    @cached_property
    def _hooks_off(self) -> dict[str, str]:
        """Every hook that the configuration defines, switched off: core.hooksPath is not theirs."""
        asked = ("config", "-z", "--name-only", "--get-regexp", r"^hook\..*\.")
        listed = self._start(asked, git.environment())
        names = {
            key[len("hook.") : key.rindex(".")]
            for key in map(os.fsdecode, listed.stdout.split(b"\0") if listed.ok else ())
            if key.count(".") > 1
        }
        off = {"GIT_CONFIG_COUNT": str(len(names))}
        for number, name in enumerate(sorted(names)):
            off[f"GIT_CONFIG_KEY_{number}"] = f"hook.{name}.enabled"
            off[f"GIT_CONFIG_VALUE_{number}"] = "false"
        return off

    def has_branch(self, name: str) -> bool:
        """Whether a branch is there. Raises UsageError for a name that none may have."""
        odd = name.startswith("-") or name == "HEAD" or "\0" in name
        if odd or not self._git("check-ref-format", f"refs/heads/{name}", check=False).ok:
            raise UsageError(f"{name!r} cannot be a branch: give another name")
        return self._git("show-ref", "-q", "--verify", f"refs/heads/{name}", check=False).ok

    def write_blob(self, content: bytes) -> str:
        """Store a content as it is; its object id."""
        return self._git("hash-object", "-w", "--stdin", stdin=content).stdout.decode().strip()

    def write_tree(self, commit: str, changes: Sequence[tuple[str, str, str]], index: Path) -> str:
        """The tree of ``commit`` with ``changes``: (mode, object id, path), mode "0" deletes.

        ``index`` is a scratch file: the person's own index is not touched.
        """
        env = {"GIT_INDEX_FILE": str(index)}
        self._git("read-tree", commit, env=env)
        lines = b"".join(f"{m} {oid}\t".encode() + os.fsencode(p) + b"\0" for m, oid, p in changes)
        self._git("update-index", "-z", "--index-info", stdin=lines, env=env)
        return self._git("write-tree", env=env).stdout.decode().strip()

    def commit(self, tree: str, parent: str, message: str, person: Person, when: str) -> str:
        """Make one commit, unsigned and on no branch yet; its id. ``when``: "SECONDS +0000"."""
        env: dict[str, str] = {}
        for role in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{role}_NAME": person.name, f"GIT_{role}_EMAIL": person.email}
            env[f"GIT_{role}_DATE"] = when
        done = self._git("commit-tree", tree, "-p", parent, stdin=message.encode(), env=env)
        return done.stdout.decode().strip()

    def create_branch(self, name: str, commit: str) -> None:
        """Put a new branch at ``commit``. Raises SourceError where it is there by now."""
        self._git("update-ref", f"refs/heads/{name}", commit, "0" * len(commit))

    def _git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        check: bool = True,
    ) -> process.Finished:
        # No remote may be asked for what a partial clone lacks; no replaced object is read.
        extra = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_REPLACE_OBJECTS": "1"}
        extra |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_LITERAL_PATHSPECS": "1"}
        whole = git.environment() | extra | self._hooks_off | (env or {})
        done = self._start(arguments, whole, stdin)
        if check and not done.ok:
            verb = next(word for word in arguments if word != "-c" and "=" not in word)
            raise SourceError(f"git {verb} failed in {self.root}: {done.last_line()}")
        return done

    def _start(
        self, arguments: Sequence[str], env: dict[str, str], stdin: bytes = b""
    ) -> process.Finished:
        where = (f"--git-dir={self.root / '.git'}", f"--work-tree={self.root}")
        argv = ["git", *_QUIET, *where, *arguments]
        try:
            return process.run(
                argv, cwd=self.root, env=env, timeout=_SECONDS, stdin=stdin, head=_OUTPUT
            )
        except FileNotFoundError:
            raise SourceError("git is not installed: apt install git") from None
