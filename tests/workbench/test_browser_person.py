"""A person with a real browser, driven by playwright: Debian's chromium, or none and a reason."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import FIXED, REPORT, edit, proposed

from tadpole.workbench.base import read_base
from tadpole.workbench.finding import Check, Finding, Severity
from tadpole.workbench.gate import Verdict
from tadpole.workbench.key import SigningKey
from tadpole.workbench.passport import Ruling
from tadpole.workbench.places import config_dir
from tadpole.workbench.proposal import Proposal, load
from tadpole.workbench.review import decide
from tadpole.workbench.usergit import UserGit
from tadpole.workbench.web import Page

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MOST_TABS = 40  # more would be no way to get anywhere


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    driver = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt install chromium")
    with driver.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def made(repo: Path) -> Proposal:
    long = FIXED + f"\n\nNAME = '{'x' * 400}'\n"
    files = {"calc.py": long, f"a/{'deep/' * 20}b.py": "x\n", "no\x1b[2Jte.md": "see \u202e\n"}
    warning = Finding(check=Check.SIZE, severity=Severity.LOW, path="calc.py", message="y" * 300)
    report = REPORT.model_copy(update={"verdict": Verdict.WARN, "warnings": (warning,)})
    return proposed(repo, edit(read_base(UserGit(repo), dirty=False), files), report=report)


class Served:
    """The page, until it is decided."""

    def __init__(self, made: Proposal) -> None:
        key = SigningKey.open(config_dir())

        def sign(ruling: Ruling, reason: str) -> None:
            decide(made, key, ruling, "somebody", reason)

        self.page, self.ruling = Page(made, sign), None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.ruling = self.page.serve()

    def end(self) -> None:
        """Close it without a decision."""
        self.page.ruling = Ruling.REJECTED  # which nobody signs
        self._thread.join(60)

    def decided(self) -> Ruling | None:
        self._thread.join(60)
        return self.ruling


def opened(browser, page: Page, width: int = 360):
    """The page in a window of its own; whatever it asks of another place fails the test."""
    context = browser.new_context(viewport={"width": width, "height": 740})
    context.set_default_timeout(60_000)
    tab = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto(page.address)
    assert all(url.startswith(page.address) for url in asked if "favicon" not in url), asked
    return tab, wrong


def until(tab, name: str) -> int:
    """Press Tab until the element of that text has the focus; how often."""
    for times in range(1, MOST_TABS):
        tab.keyboard.press("Tab")
        focused = tab.evaluate("document.activeElement.textContent.trim()")
        if focused == name:
            outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{name} does not show its focus"
            return times
    raise AssertionError(f"{name} is not reached by the keyboard")


def test_a_page_of_360_pixels_is_read_without_scrolling_sideways(browser, made: Proposal):
    served = Served(made)
    tab, wrong = opened(browser, served.page)
    assert tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    # Nothing is cut off: every text lies within the page, in letters that can be read.
    cut = tab.evaluate(
        """[...document.querySelectorAll("body *")].filter(e => {
             const box = e.getBoundingClientRect(), style = getComputedStyle(e);
             const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
             return text && box.width && !e.closest(".skip") &&
               (box.right > 361 || box.left < 0 || parseFloat(style.fontSize) < 12);
           }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    small = tab.evaluate(
        "[...document.querySelectorAll('button')].filter(b => b.offsetHeight < 44).length"
    )
    assert small == 0
    text = tab.inner_text("body")
    assert "no\\x1b[2Jte.md" in text and "<U+202E>" in text and "\u202e" not in text
    assert wrong == []
    place = os.environ.get("TADPOLE_TEST_SCREENSHOTS")
    if place:
        tab.screenshot(path=Path(place) / "narrow.png", full_page=True)
    tab.context.close()
    served.end()


def test_a_keyboard_alone_rejects_and_approves(browser, made: Proposal):
    served = Served(made)
    tab, wrong = opened(browser, served.page, 1000)
    until(tab, "To the decision")
    tab.keyboard.press("Enter")  # past everything
    until(tab, "Reject")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[role=alert]")
    assert "a rejection needs a reason" in tab.inner_text("[role=alert]")
    until(tab, "To the decision")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "reason"
    tab.keyboard.type("looks right to me")
    until(tab, "Approve")
    tab.keyboard.press("Space")
    tab.wait_for_selector("[role=status]")
    assert "approved" in tab.inner_text("[role=status]")
    tab.context.close()
    assert served.decided() is Ruling.APPROVED
    decision = load(made.directory, SigningKey.open(config_dir())).passport.decision
    assert decision and decision.ruling is Ruling.APPROVED
    # 409, which is how a decision that cannot be is answered, is told there and no more.
    assert all("409" in line for line in wrong)


def test_what_blocks_has_no_way_to_be_approved(browser, repo: Path):
    finding = Finding(check=Check.SECRET, severity=Severity.HIGH, message="a key")
    report = REPORT.model_copy(update={"verdict": Verdict.BLOCK, "blocks": (finding,)})
    change = edit(read_base(UserGit(repo), dirty=False), {"calc.py": FIXED})
    served = Served(proposed(repo, change, report=report))
    tab, _ = opened(browser, served.page)
    assert tab.is_disabled("button[value=approved]") and tab.is_enabled("button[value=rejected]")
    assert "What blocks cannot be approved" in tab.inner_text("#decision")
    tab.context.close()
    served.end()
