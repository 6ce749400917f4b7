"""May a Bash command run without asking? Decided from what bash would run, not from how it begins.

A command is split as bash splits it: into the simple commands of its lists and pipes, into
substitutions, and behind words that run another command (sudo, xargs, env, ...). It is allowed
where every simple command, word for word, begins with one of the allowed prefixes and nothing in
it depends on what only bash knows. Whatever is not understood with certainty is asked about.

Protects against: a second command behind an allowed one (``;``, ``|``, ``&``, a new line,
``$(...)``, backquotes, a here-document), an environment that turns a harmless program into
another (``PATH=. git status``), redirections that write, expansions that put in options.
Does not protect against: what an allowed program itself may be told to do by its arguments or
by files (a prefix ``python`` allows everything, and ``git`` reads the repository's own
configuration). The sandbox is the wall; this only keeps a person from being asked too often.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Words = tuple[str, ...]


class Approval(StrEnum):
    """What to do with a command."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Decision:
    """An approval and the reason for it, in one line for a person."""

    approval: Approval
    reason: str


@dataclass
class Parsed:
    """What bash would run: the simple commands, and why more than that may happen."""

    commands: list[Words] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CommandPolicy:
    """Prefixes of commands, as words: ``("git", "status")`` allows ``git status -s``.

    ``deny`` counts wherever such a command is run, also behind sudo, xargs and the like.
    """

    allow: tuple[Words, ...] = ()
    deny: tuple[Words, ...] = ()

    def decide(self, command: str) -> Decision:
        """The decision on one command line; pure."""
        parsed = parse(command)
        for words in parsed.commands:
            for inner in _behind(words):
                if any(_denied(inner, prefix) for prefix in self.deny):
                    return Decision(Approval.DENY, f"{' '.join(inner)!r} is denied")
        if parsed.unsure:
            return Decision(Approval.ASK, f"it has {parsed.unsure[0]}")
        if not parsed.commands:
            return Decision(Approval.ASK, "it runs nothing")
        for words in parsed.commands:
            if not any(words[: len(prefix)] == prefix for prefix in self.allow):
                return Decision(Approval.ASK, f"{' '.join(words)!r} is not allowed")
        return Decision(Approval.ALLOW, "every command in it is allowed")


def _denied(words: Words, prefix: Words) -> bool:
    """Whether ``words`` begin with ``prefix``, options in between and their values aside.

    Which options take a value cannot be known here: the word after one may be either.
    """
    if not prefix:
        return True
    if not words:
        return False
    if words[0] == prefix[0] and _denied(words[1:], prefix[1:]):
        return True
    option = words[0].startswith("-") and not prefix[0].startswith("-")
    return option and (_denied(words[1:], prefix) or _denied(words[2:], prefix))


def parse(command: str) -> Parsed:
    """Split a command line as bash does; never raises."""
    found = Parsed()
    _parse(command, found, 0)
    return found


# One piece of a line at a time; the first alternative that fits is what bash sees there.
_PIECE = re.compile(
    r"""
      (?P<blank>[ \t]+ | \\\n)
    | (?P<hash>\#)
    | (?P<redirect>(?:(?<![^\s;&|])\d+)?(?:&>>?|>>|>\||>&|<<<|<<-?|<>|<&|[<>])(?!\())
    | (?P<end>;;&?|;&|&&|\|\||\|&|[;&|\n()])
    | (?P<single>'[^']*')
    | (?P<open>\$?"|`|[$<>]\()
    | (?P<expansion>\$['\w{@*\#?$!-] | [*?\[{] | (?<!\w)~)
    | (?P<escaped>\\.)
    | (?P<plain>[^\s\\'"`$;&|()<>*?\[{~\#]+ | [$\\'~])
    """,
    re.VERBOSE | re.DOTALL,
)
_RESERVED = {
    "!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while", "{", "}", "[[", "]]",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
# Words that run what follows them, and how many words of their own they take first.
_RUNNERS = {
    "sudo": 0, "doas": 0, "env": 0, "xargs": 0, "nohup": 0, "nice": 0, "ionice": 0, "time": 0,
    "command": 0, "builtin": 0, "exec": 0, "eval": 0, "setsid": 0, "stdbuf": 0, "busybox": 0,
    "timeout": 1, "chroot": 1, "flock": 1, "watch": 0, "strace": 0, "unshare": 0,
    "trap": 0, "su": 0, "runuser": 0, "script": 0, "parallel": 0, "ssh": 0, "-p": 0,
}  # fmt: skip
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash"}
_DEEPEST = 20


def _parse(text: str, found: Parsed, depth: int) -> None:
    words: list[str] = []
    word: str | None = None
    at, unsure = 0, found.unsure

    def end_word() -> None:
        nonlocal word
        if word is not None:
            words.append(word)
            word = None

    def end_command() -> None:
        end_word()
        _add(words, found)
        words.clear()

    if depth > _DEEPEST:
        unsure.append("substitutions that are nested too deeply")
        return
    while at < len(text):
        piece = _PIECE.match(text, at)
        if not piece:
            unsure.append(f"a {text[at]!r} that cannot be read")
            at += 1
            continue
        kind, part = piece.lastgroup, piece.group()
        at = piece.end()
        if kind == "blank":
            if part != "\\\n":
                end_word()
        elif kind == "hash":
            if word is None:  # a comment; else a letter of a word, maybe over a line's end
                at = len(text) if text.find("\n", at) < 0 else text.find("\n", at)
            else:
                word += part
        elif kind == "end":
            end_command()
            if part in ("(", ")", ";;", ";;&", ";&"):
                unsure.append(f"{part!r}")
        elif kind == "redirect":
            end_word()
            unsure.append(f"a redirection ({part})")
        elif kind == "single":
            word = (word or "") + part[1:-1]
        elif kind == "open":
            inside, at = _quoted(text, piece.start(), at, found, depth)
            word = (word or "") + inside
        elif kind == "expansion":
            unsure.append(f"an expansion ({part})")
            word = (word or "") + part
        elif kind == "escaped":
            word = (word or "") + part[1]
        elif kind == "plain":
            if part in ("'", "\\"):
                unsure.append(f"a {part} without its end")
            word = (word or "") + part
    end_command()


def _quoted(text: str, begin: int, at: int, found: Parsed, depth: int) -> tuple[str, int]:
    """``(text, end)`` of a double-quoted text or a substitution that opens at ``begin``.

    The commands of a substitution are added to ``found``.
    """
    opening = text[begin:at]
    if not opening.endswith('"'):
        found.unsure.append(f"a substitution ({opening})")
        end = text.find("`", at) if opening == "`" else _closing(text, at)
        inside = text[at:end] if end >= 0 else text[at:]
        _parse(inside.replace("\\`", "`"), found, depth + 1)
        return f"{opening}...", end + 1 if end >= 0 else len(text)
    out = ""
    while at < len(text):
        char = text[at]
        if char == '"':
            return out, at + 1
        if char == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            out += text[at + 1].replace("\n", "")
            at += 2
        elif char == "`" or text.startswith("$(", at):
            width = 1 if char == "`" else 2
            inside, at = _quoted(text, at, at + width, found, depth)
            out += inside
        else:
            if char == "$":
                found.unsure.append("an expansion ($)")
            out += char
            at += 1
    found.unsure.append('a " without its end')
    return out, at


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that was opened before ``at`` is closed; -1 for nowhere."""
    depth, quote = 1, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return at
        at += 1
    return -1


def _add(words: Sequence[str], found: Parsed) -> None:
    """A simple command, without reserved words and assignments before it."""
    rest = list(words)
    while rest and (rest[0] in _RESERVED or _ASSIGNMENT.match(rest[0])):
        what = "a shell keyword" if rest[0] in _RESERVED else "an environment of its own"
        found.unsure.append(f"{what} ({rest.pop(0)})")
    if rest:
        found.commands.append(tuple(rest))


def _behind(words: Words, depth: int = 0) -> list[Words]:
    """A command and those that it runs: ``sudo -u x rm`` also as ``x rm`` and ``rm``."""
    plain = (words[0].rpartition("/")[2], *words[1:])
    found = [words, plain]
    if depth > _DEEPEST:
        return found
    name, rest = plain[0], plain[1:]
    if name in _SHELLS or name == "eval":
        scripts = [word for word in rest if not word.startswith("-")]
        for script in scripts if name in _SHELLS else [" ".join(rest)]:
            for inner in parse(script).commands:
                found += _behind(inner, depth + 1)
    elif name in _RUNNERS or name == "find":
        # Which words are an option's own cannot be known here: every tail may be the command.
        for k in range(_RUNNERS.get(name, 0), len(rest)):
            if not rest[k].startswith("-") and not _ASSIGNMENT.match(rest[k]):
                found += _behind(rest[k:], depth + 1)
            if " " in rest[k].strip():  # a whole line in one word: trap, su -c, env -S
                for inner in parse(rest[k]).commands:
                    found += _behind(inner, depth + 1)
    return found
