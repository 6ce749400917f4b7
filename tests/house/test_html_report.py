"""The report: one file, nothing fetched, nothing executed, and it works half-way through."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import HOSTILE, fill

from tadpole.config import load
from tadpole.errors import RunError
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.report.episodes import clip, prose
from tadpole.report.html import write_report
from tadpole.rundir import RunDir

VOID = {"meta", "link", "img", "br", "hr", "input", "path", "use", "rect"}


class Strict(HTMLParser):
    """Keeps tags, attributes and text; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check(path: Path) -> Strict:
    text = path.read_text(encoding="utf-8")
    page = Strict(text)
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    fetched = [v for n, v in page.attributes if n in ("src", "href", "xlink:href", "action")]
    assert all(value.startswith("#") for value in fetched)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    return page


def test_a_finished_run(finished: RunDir):
    page = check(write_report(finished))
    for part in ("raw model", "warmed up", "trained", "boltons-0001", "Paired difference"):
        assert part in page.text
    assert page.tags.count("svg") == 3
    assert "context summed up: 901 tokens, then 202; 2 turns left out" in page.text
    assert "My notes." in page.text and "its box died and was made again (1)" in page.text
    assert "no test notices the change" in page.text and "58 CPU seconds of making" in page.text
    assert "pypi" not in page.text.split("Provenance")[0]
    marks = [value for value in page.ids if not value.startswith("m")]  # markers are shared
    assert len(marks) == len(set(marks))


def test_the_same_run_gives_the_same_bytes(finished: RunDir):
    first = write_report(finished).read_bytes()
    assert write_report(finished).read_bytes() == first


def test_hostile_text_stays_text(run: RunDir):
    fill(run, text=HOSTILE)
    page = check(write_report(run))
    assert HOSTILE in page.text  # shown, letter for letter
    assert "{{ 7*7 }}" in page.text


@pytest.mark.parametrize("kept", [(), ("updates",), ("tasks",), ("eval", "policies"), ("split",)])
def test_a_run_that_is_not_finished(finished: RunDir, kept: tuple[str, ...]):
    for path in finished.path.iterdir():
        if path.suffix == ".jsonl" or path.name in ("split.json", "tasks"):
            if path.stem in kept:
                continue
            if path.is_dir():
                path.rename(finished.path / "gone")
            else:
                path.unlink()
    check(write_report(finished))


def test_a_run_before_training_is_done(run: RunDir):
    fill(run, after=False, updates=2)
    page = check(write_report(run))
    assert "not evaluated yet" in page.text
    assert f"2 of {load().train.updates} updates" in page.text


def test_a_task_that_was_changed_is_a_notice_not_a_failure(finished: RunDir):
    (finished.path / "tasks" / "boltons-0001" / "instruction.md").write_text("other")
    assert "could not be read" in check(write_report(finished)).text


def test_rows_of_an_unknown_version_are_refused(finished: RunDir):
    with finished.table("eval").open("a") as stream:
        stream.write('{"format": 7}\n')
    with pytest.raises(RunError, match="format 7"):
        write_report(finished)


def test_resumed_updates_are_shown_once(run: RunDir):
    fill(run, updates=4)
    rows = run.table("updates").read_text().splitlines(keepends=True)
    with run.table("updates").open("a") as stream:
        stream.write(rows[3])
    assert f"4 of {load().train.updates} updates" in check(write_report(run)).text


class TestRounds:
    """Each round is a run directory of its own, in which updates and tasks count from 1 again."""

    @pytest.fixture
    def page(self, run: RunDir) -> Strict:
        run.save_config(load({"train.updates": "5", "train.rounds": "3"}))
        fill(run, updates=5)
        second = RunDir.create(run.round(2), load({"train.updates": "5"}))
        fill(second, updates=3)
        for one, path, update in (
            (run, "checkpoints/update-00004", 4),  # the best of its five
            (run, "rounds/2/checkpoints/update-00002", 2),
        ):
            row = PolicyRow(
                role=PolicyRole.AFTER, fingerprint="after-fingerprint", update=update, path=path
            )
            note_policy(one, row)
        return check(write_report(run))

    def test_totals_are_those_of_all_rounds(self, page: Strict):
        assert "8 of 15 updates in 2 rounds" in page.text
        assert "40 tasks: 20 trained on, 8 held out" in page.text  # held out: of the first round
        assert "28:20 in all" in page.text  # 2 x (120 + 90 + 640) seconds
        assert "round 2: calibrate" in page.text and "after-fingerprint, 6 updates" in page.text
        assert "Yield of round 1" in page.text and "Yield of round 2" in page.text
        assert "boltons 1.0, BSD, 20 tasks" in page.text

    def test_updates_are_numbered_through(self, page: Strict):
        rows = re.findall(r"^([12])(\d)0\.\d{3}64", page.text, re.MULTILINE)
        assert rows == [("1", str(n)) for n in range(1, 6)] + [("2", str(n)) for n in (6, 7, 8)]

    def test_a_round_that_ended_early_is_not_waited_for(self, run: RunDir):
        run.save_config(load({"train.updates": "50", "train.rounds": "2"}))
        fill(run, updates=5)
        RunDir.create(run.round(2), load())
        assert "5 of 55 updates in 2 rounds" in check(write_report(run)).text


def test_long_text_keeps_head_and_tail():
    text = "h" * 3000 + "m" * 3000 + "t" * 3000
    short = clip(text)
    assert short.startswith("hhh") and short.endswith("ttt")
    assert "[... 5000 characters ...]" in short
    assert prose("I see.\n<tool_call>\n{}") == "I see."
