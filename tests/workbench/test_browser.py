"""The review page in a real browser: its layout when narrow, and what a keyboard reaches."""

import re
import shutil
from pathlib import Path

import pytest
from making import FIXED, edit, proposed

from tadpole.process import run
from tadpole.workbench.base import read_base
from tadpole.workbench.usergit import UserGit
from tadpole.workbench.web import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MEASURE = """
<script>
const can = [...document.querySelectorAll("a[href], button, textarea, summary, [tabindex='0']")];
const named = can.every(e => e.textContent.trim() || e.getAttribute("aria-label") ||
  document.querySelector(`label[for="${e.id}"]`));
can.forEach(e => e.focus());
const root = document.documentElement;
document.title = `measured ${root.clientWidth} ${root.scrollWidth} ${can.length} ${named} ` +
  can.filter(e => e.tabIndex < 0).length;
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_it_is_readable_at_360_pixels_and_all_of_it_reached_by_keyboard(repo: Path, tmp_path: Path):
    long = FIXED + f"\n\nNAME = '{'x' * 400}'\n"
    change = edit(
        read_base(UserGit(repo), dirty=False), {"calc.py": long, f"a/{'deep/' * 20}b.py": "x\n"}
    )
    page = Page(proposed(repo, change), lambda ruling, reason: None)
    page.close()
    file = tmp_path / "page.html"
    file.write_text(page.html("n").replace("</body>", MEASURE), encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=360,800")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = run([CHROMIUM, *options, profile, "--dump-dom", file.as_uri()], timeout=120)
    found = re.search(rb"measured (\d+) (\d+) (\d+) (\w+) (\d+)", done.stdout)
    assert found, done.last_line()
    width, scrolled, reached, named, skipped = (part.decode() for part in found.groups())
    assert int(width) <= 500 and int(scrolled) <= int(width)
    # Skip link, two files with their differences, the comment, three buttons.
    assert (int(reached), named, skipped) == (9, "true", "0")
