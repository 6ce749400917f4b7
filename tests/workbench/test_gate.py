"""The gate on a real repository: real boxes, real pytest, real scanners."""

from pathlib import Path

import pytest
from making import FIXED, edit, gate_of

from tadpole.workbench.finding import Check
from tadpole.workbench.gate import Verdict
from tadpole.workbench.regression import TestsOutcome


async def test_a_good_fix_passes_with_its_evidence(repo: Path, tmp_path: Path, engine):
    gate = await gate_of(repo, tmp_path, engine)
    report = await gate.judge(edit(gate.base, {"calc.py": FIXED}), "add is wrong")
    assert report.verdict is Verdict.PASS, report
    assert report.tests.outcome is TestsOutcome.COMPARED
    assert report.tests.newly_passing == ("tests/test_calc.py::test_add",)
    assert report.tests.newly_failing == () == report.tests.still_failing
    assert (report.tests.before_passed, report.tests.after_passed) == (1, 2)
    assert {run.tool: run.outcome.value for run in report.scanners} == {
        "bandit": "ran",
        "detect-secrets": "ran",
    }
    assert (report.size.files, report.size.added, report.size.removed) == (1, 1, 1)


@pytest.mark.slow
async def test_what_breaks_a_test_blocks(repo: Path, tmp_path: Path, engine):
    gate = await gate_of(repo, tmp_path, engine)
    broken = FIXED.replace("a * 2", "a * 3")
    report = await gate.judge(edit(gate.base, {"calc.py": broken}), "")
    assert report.verdict is Verdict.BLOCK
    assert report.tests.newly_failing == ("tests/test_calc.py::test_double",)
    assert [finding.check for finding in report.blocks] == [Check.NEWLY_FAILING]
