"""The recorded run of the docs is one run: one repository, one proposal, one commit, in order."""

import json
import re
from pathlib import Path

RECORDING = Path(__file__).parents[2] / "docs/recordings/solve.cast"


def test_the_recording_is_one_run_from_the_issue_to_the_log():
    head, *events = map(json.loads, RECORDING.read_text("utf-8").splitlines())
    assert head["version"] == 2 and (head["width"], head["height"]) == (100, 40)
    times = [at for at, kind, _ in events]
    assert times == sorted(times) and {kind for _, kind, _ in events} == {"o"}
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", "".join(text for _, _, text in events))
    steps = ("$ tadpole solve", "the gate runs", "leave it undecided: a", "approved",
             "$ tadpole apply --branch", "$ git --no-pager log")  # fmt: skip
    places = [shown.index(step) for step in steps]
    assert places == sorted(places) and [shown.count(s) for s in steps] == [1] * len(steps)
    base, *more = re.findall(r"working on ([0-9a-f]{12}) as committed", shown)
    proposal, *others = set(re.findall(r"tadpole (?:review|apply) ([0-9a-f]{16})", shown))
    commit, *again = re.findall(r"([0-9a-f]{12}) on fix/fifo", shown)
    assert not (more or others or again)
    log = shown[places[-1] :]
    assert re.findall(r"commit ([0-9a-f]{12})", log) == [commit, base]
    assert f"Tadpole-Passport: {proposal}" in log
