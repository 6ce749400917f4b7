"""A tiny real library with a real history: helpers, methods, coroutines, human commits."""

from pathlib import Path

from tadpole import process

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.autocrlf=false")

TEXT = '''"""Titles."""


def slug(title, longest=40):
    """A title as a part of an address: words in lower case, joined by hyphens.

    No more than ``longest`` characters, and never a hyphen at the end.
    """
    words = _lowered(_words(title))  # the helpers do the work
    return "-".join(words)[:longest].rstrip("-")


def _words(title):
    found = []
    for word in title.split():
        kept = "".join(letter for letter in word if letter.isalnum())
        if kept:
            found.append(kept)
    return found


def _lowered(words):
    # Sharp s and its like: more than lower() does.
    return [word.casefold() for word in words]


def initials(title, mark="."):
    """The first letters of the words of a title, each with a mark behind it."""
    letters = [word[0].upper() for word in title.split()]
    return mark.join(letters) + mark if letters else ""
'''
TALLY = '''"""Counting."""


class Tally:
    """How often things were seen."""

    def __init__(self, things=()):
        self.counts = {}
        for thing in things:
            self.add_thing(thing)

    def add_thing(self, thing, times=1):
        """See a thing once more, or several times; fewer than one is an error."""
        if times < 1:
            raise ValueError("times has to be positive")
        self.counts[thing] = self.counts.get(thing, 0) + times
        return self

    def ranking(self):
        """Things with their counts, the most frequent first, ties in alphabetical order."""
        pairs = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return [pair for pair in pairs if pair[1] > 0]

    def total(self):
        """All counts together, whatever the things are."""
        return sum(self.counts.values())

    def table(self, width=3):
        """The ranking as lines of text, one line for each rank up to a width."""
        ranked = self.ranking()
        return ["%d. %s" % (n + 1, ranked[n][0]) for n in range(min(width, len(ranked)))]
'''
FLOW = '''"""Waiting."""

import asyncio


async def doubled(number):
    """Twice a number, a moment later."""
    await asyncio.sleep(0)
    return 2 * number


async def all_doubled(numbers):
    """Each number twice, waited for together, in the order in which they were given."""
    return list(await asyncio.gather(*(doubled(number) for number in numbers)))


async def total(numbers):
    """The sum of the doubles, one after the other."""
    found = 0
    for number in numbers:
        found += await doubled(number)
    return found
'''
TEST_TEXT = """from brook import text


def test_slug():
    assert text.slug("Hello, World!") == "hello-world"


def test_slug_is_cut():
    assert text.slug("ab cd ef", longest=6) == "ab-cd"


def test_slug_without_words():
    assert text.slug("?!") == ""


def test_slug_folds():
    assert text.slug("Straße") == "strasse"


def test_initials():
    assert text.initials("ada king") == "A.K."
    assert text.initials("") == ""
"""
TEST_TALLY = """import pytest

from brook.tally import Tally


def test_ranking():
    assert Tally("abb").ranking() == [("b", 2), ("a", 1)]


def test_ties():
    assert Tally("ba").ranking() == [("a", 1), ("b", 1)]


def test_add_thing():
    assert Tally().add_thing("x", times=3).counts == {"x": 3}


def test_add_none_of_a_thing():
    with pytest.raises(ValueError, match="positive"):
        Tally().add_thing("x", times=0)


def test_total():
    assert Tally("aab").total() == 3


def test_table():
    assert Tally("aab").table() == ["1. a", "2. b"]
"""
TEST_FLOW = """import asyncio

from brook import flow


def test_all_doubled():
    assert asyncio.run(flow.all_doubled([1, 2])) == [2, 4]


def test_total():
    assert asyncio.run(flow.total([1, 2, 3])) == 12
"""
SIGN = """def sign(number):
    return (number > 0) - (number < 0)
"""
TEST_SIGN = """import pytest

from brook.sign import sign


@pytest.mark.parametrize("number", range(16))
def test_sign(number):
    assert sign(number) == -sign(-number) == bool(number)
"""
FILES = {
    "brook/__init__.py": '"""A brook."""\n',
    "brook/text.py": TEXT,
    "brook/tally.py": TALLY,
    "brook/flow.py": FLOW,
    "brook/sign.py": SIGN,
    "tests/test_sign.py": TEST_SIGN,
    "tests/test_text.py": TEST_TEXT,
    "tests/test_tally.py": TEST_TALLY,
    "tests/test_flow.py": TEST_FLOW,
    "README.md": "A brook.\n",
}

# Oldest first: message, and what it replaced: path, the text of before, the text of after.
COMMITS = [
    (
        "fix(text): never end a slug with a hyphen (#12)\n\nA cut could leave one, see "
        "https://example.org/12. Broken since 1a2b3c4d5e.\nAdd test_slug_is_cut.\n\nFixes #12",
        [
            ("brook/text.py", '[:longest]\n', '[:longest].rstrip("-")\n'),
            ("tests/test_text.py", "longest=5", "longest=6"),
        ],
    ),
    (
        "Count letters once",  # the next commit changes the very same line
        [("brook/tally.py", "things with counts", "Things with counts")],
    ),
    (
        "Say counts better",
        [("brook/tally.py", "Things with counts", "Things with their counts")],
    ),
    (
        "Add ties in alphabetical order to the ranking",
        [
            (
                "brook/tally.py",
                "key=lambda pair: -pair[1])",
                "key=lambda pair: (-pair[1], pair[0]))",
            ),
            ("tests/test_tally.py", 'Tally("ab").ranking()', 'Tally("ba").ranking()'),
        ],
    ),
    ("Write a line about it", [("README.md", "", "A brook.\n")]),
]  # fmt: skip


def build(root: Path) -> Path:
    """Write the library, commit by commit, into a new git repository."""
    texts = dict(FILES)
    for _, edits in reversed(COMMITS):
        for path, before, after in edits:
            texts[path] = texts[path].replace(after, before, 1)
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Start")
    for message, edits in COMMITS:
        for path, before, after in edits:
            text = (root / path).read_text()
            (root / path).write_text(text.replace(before, after, 1) if before else after)
        git(root, "commit", "-qam", message)
    for path, text in FILES.items():
        assert (root / path).read_text() == text
    return root


def git(root: Path, *words: str) -> str:
    """Run git in it; its output."""
    done = process.run([*GIT, "-C", str(root), *words], timeout=30)
    assert done.ok, done
    return done.stdout.decode().strip()
