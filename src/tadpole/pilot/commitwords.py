"""What a commit message may tell a solver, and what kind of work its author says it was.

Protects against: words that lead to the answer elsewhere (hashes, links, issue numbers) or name
the hidden tests. Does not protect against an author who describes the repair itself: that is
how people ask.
"""

import re

from tadpole.task import TaskKind

LONGEST = 1200  # characters
_READ = 10 * LONGEST  # of a message: what is behind it would be cut off
_FEWEST_WORDS = 2  # that say something
_IDLE = re.compile(
    r"(?:fix|work|complet|updat|improv|chang|correct|revert|finish|continu)(?:e|es|ed|ing|s|ments?)?"
    r"|minor|more|small|some|few|various|several|other|another|last|previous|recent|this|that"
    r"|issues?|bugs?|problems?|commits?|code|stuff|things?|wip|progress|initial|final|oops|again"
    r"|an?|the|and|or|of|in|on|at|to|for|from|by|with|is|it|as|so|be|my",
    re.IGNORECASE,
)
_TRAILER = re.compile(
    r"^\s*(co-authored-by|signed-off-by|reviewed-by|acked-by|tested-by|reported-by|cc|change-id"
    r"|git-svn-id|fixes|closes|resolves|refs?|see also|bug|issue|pr|backport(ed)?|cherry.?picked"
    r"|\(cherry picked)\b[^a-z]*:?.*(#|:|http|@|commit).*$",
    re.IGNORECASE,
)
_TESTS = re.compile(r"\b(tests?|testing|test[-_ ]?cases?|unit ?tests?|pytest|coverage)\b"
                    r"|\btest_\w+|\w_test\b|\bTest[A-Z]\w+|\btests?/", re.IGNORECASE)  # fmt: skip
_GONE = (
    re.compile(r"(?:\b(?:see|at|in|from|via|cf\.?)(?: also)?:?\s+)?"
               r"<?\b(?:(?:https?|ftp|ssh|git)://|www\.)\S+>?", re.IGNORECASE),
    re.compile(r"(?:\b(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?|see|refs?|in|from)(?: also)?:?\s+)?"
               r"(?:\b[\w.-]+/[\w.-]+)?#\d+\b(?:,\s*#\d+)*", re.IGNORECASE),
    re.compile(r"\bGH-?\d+\b|\b(?:bpo|issue|pr|pull request)[-\s]?#?\d+\b", re.IGNORECASE),
    re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"),
    re.compile(r"\bCVE-\d{4}-\d+\b", re.IGNORECASE),
    re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"),
)  # fmt: skip
# What led up to words that are gone, where nothing follows them: "since", "for issue".
_DANGLING = re.compile(
    r"(?<![\s,:-])[\s,:-]*(?:\b(?:for|since|in|on|of|by|to|at|with|from|per|via|see|the|and"
    r"|issues?|bugs?|pr|commits?|noted|related|suggested)\b[\s,:\0-]*){1,6}"
    r"(?=\0[\s\0]*(?:[.,;:!?)]|$))",
    re.IGNORECASE,
)
# Idle words that led up to what is gone, where the matter itself follows: "Fix for #12 - ".
_OPENING = re.compile(rf"^(?:(?:{_IDLE.pattern})\s+){{0,4}}\0[\s\0]*[-:\u2013\u2014]\s*", re.I)
_SENTENCE = re.compile(
    r"(?<=[.;!?])\s+|,?\s+(?:and|with|plus)\s+(?=(?:(?:add|a|some|new)\s+)*\w*tests?)", re.I
)
_PREFIX = re.compile(
    r"^(?:\[[^\]]{1,30}\]\s*|(?:build|chore|ci|docs?|feat|fix|perf|refactor|style|bug(?:fix)?)"
    r"(?:\([^)]*\))?!?:\s*|:\w+:\s*)+",
    re.IGNORECASE,
)
_KINDS = (
    (TaskKind.REFACTOR, r"refactor|renam|mov(?:e|ing|ed) |extract|clean ?up|simplif|restructur"
                        r"|deduplicat|split (?:out|up|into)|pep ?8|unify|consolidat"),
    (TaskKind.FEATURE, r"feat\b|feature|add(?:s|ed|ing)?\b|support|allow|implement|introduc|new\b"
                       r"|enable|accept|expose|provide"),
)  # fmt: skip
_FIX = re.compile(
    r"\b(fix|bug|crash|error|wrong|incorrect|regress|broken|correct|handle|rais)", re.I
)
_MOVE = re.compile(
    r"migrat|port(?:ed|ing)? to|upgrad|deprecat|compat|drop(?:ped|s)? support|python ?[23]"
    r"|switch(?:ed|es)? (?:from|to)|replace[sd]? \S+ (?:with|by)|instead of|no longer",
    re.IGNORECASE,
)


def cleaned(message: str) -> str:
    """The words that may be shown; empty where too few are left to ask for anything."""
    kept = []
    for number, line in enumerate(message[:_READ].replace("\r\n", "\n").split("\n")):
        if _TRAILER.match(line) or line.startswith(("diff ", "+++", "---", "@@")):
            continue
        text = _PREFIX.sub("", line) if number == 0 else line
        text = " ".join(part for part in _SENTENCE.split(text) if not _TESTS.search(part))
        for pattern in _GONE:
            text = pattern.sub("\0", text)
        text = _DANGLING.sub(" \0", _OPENING.sub("", text))
        text = re.sub(r"[(\[<][\s\0,;]*\0[\s\0,;]*[)\]>]", "", text).replace("\0", "")
        indent = len(line) - len(line.lstrip())
        text = re.sub(r"\s+([,.;:!?])", r"\1", re.sub(r"[ \t]{2,}", " ", text.strip()))
        kept.append(" " * indent + text.rstrip(" ,;:-(") if text.strip(" .,;:-*") else "")
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()[:LONGEST].rstrip()
    telling = [word for word in re.findall(r"[A-Za-z]{2,}", text) if not _IDLE.fullmatch(word)]
    return text if len(telling) >= _FEWEST_WORDS else ""


def kind_of(message: str, imports_differ: bool) -> TaskKind:
    """What the author calls it; a bug fix where the words say nothing else.

    A migration only where the change also imports other things than before.
    """
    subject = message.partition("\n")[0]
    if imports_differ and _MOVE.search(message):
        return TaskKind.MIGRATION
    if _FIX.search(subject):
        return TaskKind.BUG_FIX
    for kind, words in _KINDS:
        if re.search(words, subject, re.IGNORECASE):
            return kind
    return TaskKind.BUG_FIX
