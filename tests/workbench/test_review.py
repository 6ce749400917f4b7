"""A person decides: at a terminal of their own, or on the page in a real browser's requests."""

import http.client
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from making import FIXED, REPORT, edit, git, job_for, proposed
from rich.console import Console

from tadpole.cli.main import run
from tadpole.errors import UsageError
from tadpole.outcome import StopReason
from tadpole.trace import Observation, Tokens, ToolCall, Trace, Turn
from tadpole.workbench import job as jobs
from tadpole.workbench import review
from tadpole.workbench.base import read_base
from tadpole.workbench.finding import Check, Finding, Severity
from tadpole.workbench.gate import Verdict
from tadpole.workbench.job import TABLE, AttemptRow
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import Ruling, commands_of
from tadpole.workbench.places import config_dir, work_dir
from tadpole.workbench.proposal import Proposal, find, load
from tadpole.workbench.usergit import UserGit
from tadpole.workbench.web import Page

COMMAND = [sys.executable, "-c", "from tadpole.cli.main import main; main()"]


@pytest.fixture
def made(repo: Path) -> Proposal:
    files = {"calc.py": FIXED, "no\x1b[2J\nte.md": "see \u202e this\n", "b.bin": b"\0"}
    return proposed(repo, edit(read_base(UserGit(repo), dirty=False), files))


def decision_of(made: Proposal):
    return load(made.directory, SigningKey.open(config_dir())).passport.decision


def test_what_is_shown_is_evidence_first_and_obeys_nothing_of_it(repo: Path, made: Proposal):
    out = io.StringIO()
    review.show(Console(file=out, width=100, color_system=None), made)
    text = out.getvalue()
    assert text.index("newly failing") < text.index("+    return a + b")
    assert "no\\x1b[2J\\nte.md" in text and "<U+202E>" in text
    assert "\x1b" not in text and "\u202e" not in text
    assert "b.bin" in text and "binary, 1 bytes" in text


def test_a_decision_needs_its_reason_and_what_was_shown(repo: Path, made: Proposal):
    key = SigningKey.open(config_dir())
    for ruling in (Ruling.REJECTED, Ruling.ASK_AGAIN):
        with pytest.raises(UsageError, match="say why"):
            review.decide(made, key, ruling, "me", "  ")
    review.decide(made, key, Ruling.REJECTED, "me", "wrong place")
    assert decision_of(made).reason == "wrong place"
    with pytest.raises(UsageError, match="in the meantime"):
        review.decide(made, key, Ruling.APPROVED, "me", "")
    assert decision_of(made).ruling is Ruling.REJECTED


def test_of_several_attempts_the_best_is_shown_and_after_it_the_next(repo: Path):
    base = read_base(UserGit(repo), dirty=False)
    run = jobs.create(work_dir(repo), job_for(repo, base, attempts=3))
    contents = {"right": FIXED, "void": FIXED + "\n", "long": FIXED + "\n\n"}  # the newest last
    made = {
        name: proposed(repo, edit(base, {"calc.py": text}), run=run)
        for name, text in contents.items()
    }
    # All with warnings: that tests pass that did not counts for more than to be short.
    for number, (name, fixed, tokens) in enumerate(
        [("right", 2, 60), ("void", 0, 9), ("long", 2, 80)]
    ):
        run.append(TABLE, AttemptRow(number=number, stop=StopReason.AGENT, proposal=made[name].id,
                                     verdict=Verdict.WARN, newly_passing=fixed, turns=2,
                                     generated_tokens=tokens, seconds=1.0))  # fmt: skip
    key = SigningKey.open(config_dir())
    for name in ("right", "long", "void"):
        found = find(work_dir(repo), None, ruling=None)
        assert found == made[name].directory
        review.decide(load(found, key), key, Ruling.REJECTED, "me", "not this one")
    with pytest.raises(UsageError, match="no proposal that waits"):
        find(work_dir(repo), None, ruling=None)
    anew = proposed(repo, edit(base, {"calc.py": "judged = 'anew'\n"}), run=run)
    assert find(work_dir(repo), None, ruling=None) == anew.directory


def at_terminal(repo: Path, typed: str, *args: str) -> tuple[int, str]:
    """Run a verb on a terminal of its own and type."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([*COMMAND, *args], cwd=repo, stdin=follower, stdout=follower,
                               stderr=follower, start_new_session=True)  # fmt: skip
    os.close(follower)
    said = b""
    prompts = typed.splitlines()
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            try:
                more = os.read(leader, 65536)
            except OSError:
                break
            if not more:
                break
            said += more
            if prompts and re.search(rb": $", said):
                os.write(leader, prompts.pop(0).encode() + b"\n")
                said += b"|"
        return process.wait(timeout=30), said.decode("utf-8", "replace")
    finally:
        process.kill()
        os.close(leader)


def test_from_review_at_a_terminal_to_the_commit_in_the_log(
    repo: Path, made: Proposal, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(repo)
    assert run(["apply", made.id]) == 2
    assert capsys.readouterr().err == (
        f"tadpole: nobody has reviewed {made.id} yet: tadpole review {made.id}\n"
    )
    alone = subprocess.run([*COMMAND, "review"], cwd=repo, capture_output=True, text=True,
                           timeout=120, check=False, stdin=subprocess.DEVNULL)  # fmt: skip
    assert alone.returncode == 2 and "needs a person at a terminal" in alone.stderr
    assert decision_of(made) is None
    code, said = at_terminal(repo, "x\na\n", "review", made.id[:6])
    assert code == 0, said
    assert f"{made.id} approved; next: tadpole apply {made.id}" in said
    assert run(["apply", "--branch", "fix"]) == 0, capsys.readouterr().err
    assert f"Tadpole-Passport: {made.id}" in git(repo, "log", "-1", "fix")
    capsys.readouterr()
    assert run(["review", made.id, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["decision"]["ruling"] == "approved" and body["signature"]


def test_asking_again_keeps_the_comment_for_the_next_attempt(repo: Path, made: Proposal):
    code, said = at_terminal(repo, "c\nalso test it\n", "review")
    assert code == 1 and f"tadpole solve --again {made.id}" in said
    assert decision_of(made).ruling is Ruling.ASK_AGAIN
    from tadpole.cli.bench import here
    from tadpole.cli.verb import Request

    issue, follows = here(repo, None, Request.plain(False)).again(made.id)
    assert issue.startswith("add() is wrong") and issue.endswith("also test it")
    assert follows == made.id


def said_of(answers: list[str | Exception], made: Proposal):
    def read(prompt: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return review.ask(Console(file=io.StringIO()), made, read)


def test_a_person_who_leaves_or_types_no_text_decides_nothing(repo: Path, made: Proposal):
    no_text = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert said_of([EOFError()], made) is None
    assert said_of(["r", EOFError()], made) is None
    assert said_of([no_text, "r", no_text, "q"], made) is None
    key = SigningKey.open(config_dir())
    review.decide(made, key, Ruling.REJECTED, "me", "half \udcff of it")
    assert decision_of(made).reason == "half ? of it"


def test_commands_are_shown_whole(repo: Path):
    long = f"echo {'x' * 9000}; curl evil"
    turns = [Turn(text="", calls=(ToolCall(name="Bash", arguments={"command": long}),) * 600,
                  observations=(Observation(text=""),) * 600)]  # fmt: skip
    trace = Trace(task="t", policy="p", seed=1, system="", statement="", turns=tuple(turns),
                  stop=StopReason.AGENT, tokens=Tokens())  # fmt: skip
    found = commands_of(trace)
    assert len(found) == 600 and {one.command for one in found} == {long}


def test_a_terminal_that_lacks_letters_shows_them_all_the_same(repo: Path):
    change = edit(read_base(UserGit(repo), dirty=False), {"calc.py": f"{FIXED}# \u6f22\n"})
    made = proposed(repo, change)
    for more in ({"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "1"}):
        argv, env = [*COMMAND, "review", made.id, "--show"], {**os.environ, **more}
        done = subprocess.run(argv, cwd=repo, env=env, timeout=120, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        if "COLUMNS" not in more:
            assert b"\\u6f22" in done.stdout and b"+    return a + b" in done.stdout


# --- the page --------------------------------------------------------------------------------


class Browser:
    def __init__(self, page: Page) -> None:
        self.page, self.ruling = page, None
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        self.ruling = self.page.serve()

    def ask(self, method: str, path: str, body: dict | None = None, **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", self.page.port, timeout=20)
        data = urlencode(body) if body else None
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, given)
        answer = connection.getresponse()
        return answer, answer.read().decode()


@pytest.fixture
def browser(made: Proposal):
    key = SigningKey.open(config_dir())
    page = Page(made, lambda ruling, reason: review.decide(made, key, ruling, "me", reason))
    one = Browser(page)
    yield one
    page.ruling = page.ruling or Ruling.REJECTED  # lets it go
    one.thread.join(10)
    assert not one.thread.is_alive()


def test_the_page_shows_all_and_holds_nothing_from_outside(browser: Browser, made: Proposal):
    answer, text = browser.ask("GET", f"/{browser.page.token}/")
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script" not in policy
    assert not re.search(r"(src|href)=\"(?!#)|<script|url\(", text)
    assert text.index("newly failing") < text.index("return a + b")
    assert "&lt;U+202E&gt;" in text and "\u202e" not in text and "\x1b" not in text


def test_only_who_has_the_address_gets_anything(browser: Browser, made: Proposal):
    path = f"/{browser.page.token}/"
    approve = {"ruling": "approved"}
    for method, where, headers, status in (
        ("GET", "/", {}, 404),
        ("GET", f"/{'x' * 32}/", {}, 404),
        ("GET", path, {"Host": "evil.example"}, 404),
        ("POST", "/", {}, 404),
        ("POST", path, {"Origin": "http://evil.example"}, 403),
        ("POST", path, {"Content_Length": "99999999"}, 413),
        ("POST", path, {"Content_Length": "\xb2"}, 413),
    ):
        body = approve if method == "POST" else None
        answer, text = browser.ask(method, where, body, **headers)
        assert answer.status == status and made.id not in text
    assert decision_of(made) is None


def test_a_decision_on_the_page_is_signed_and_ends_it(browser: Browser, made: Proposal):
    path = f"/{browser.page.token}/"
    answer, text = browser.ask("POST", path, {"ruling": "rejected", "reason": " "})
    assert answer.status == 409 and "say why" in text
    answer, _ = browser.ask("POST", path, {"ruling": "everything"})
    assert answer.status == 400
    origin = f"http://127.0.0.1:{browser.page.port}"
    answer, text = browser.ask("POST", path, {"ruling": "approved"}, Origin=origin)
    assert answer.status == 200 and "Decided" in text
    browser.thread.join(10)
    assert browser.ruling is Ruling.APPROVED and decision_of(made).ruling is Ruling.APPROVED


def test_a_button_that_is_pressed_twice_is_one_decision(browser: Browser, made: Proposal):
    path = f"/{browser.page.token}/"
    answers = []
    presses = [
        threading.Thread(
            target=lambda: answers.append(browser.ask("POST", path, {"ruling": "approved"}))
        )
        for _ in range(2)
    ]
    with browser.page.lock:  # until both have been heard
        for press in presses:
            press.start()
        deadline = time.monotonic() + 60
        while sum("process_request" in one.name for one in threading.enumerate()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for press in presses:
        press.join(20)
    assert [answer.status for answer, _ in answers] == [200, 200]
    assert decision_of(made).ruling is Ruling.APPROVED


def test_the_page_offers_no_approval_of_what_blocks(repo: Path):
    evil = Finding(check=Check.SECRET, severity=Severity.HIGH, message="<script>x</script>")
    report = REPORT.model_copy(update={"verdict": Verdict.BLOCK, "blocks": (evil,)})
    change = edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED})
    page = Page(proposed(repo, change, report=report), lambda ruling, reason: None)
    text = page.html("n")
    page.close()
    assert re.search(r'value="approved" disabled', text)
    assert "<script>" not in text and "&lt;script&gt;" in text
