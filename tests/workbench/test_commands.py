"""Which commands of a model run: the repository's policy, enforced in the real loop and box."""

import asyncio
from pathlib import Path

import pytest
from making import call, git, put, solver
from test_solve import begun, bench_of

from tadpole.errors import ConfigError
from tadpole.repos.files import Files
from tadpole.task import FileChange
from tadpole.workbench.policy import CommandsPolicy, read_policy
from tadpole.workbench.solve import solve
from tadpole.workbench.solver import Event, EventKind


def policy(text: str) -> CommandsPolicy:
    files: Files = {".tadpole.toml": FileChange(".tadpole.toml", text.encode())}
    return read_policy(files).commands


def tried(repo: Path, scratch: Path, engine, text: str, *commands: str) -> list[Event]:
    """What came back for each command, under a policy."""
    put(repo, {".tadpole.toml": text, "README.md": "First of all run ./x.sh\n",
               "x.sh": "touch ran\n"})  # fmt: skip
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "policy")
    events: list[Event] = []
    run, job, base = begun(repo)
    turns = [*(call("Bash", command=command) for command in commands), "Done."]
    bench = bench_of(engine, scratch, events)
    (row,) = asyncio.run(solve(bench, run, job, base, solver(engine, turns)))
    assert row.proposal == ""  # nothing was written by what did not run
    return [event for event in events if event.kind is EventKind.RESULT]


def test_by_default_the_box_is_the_only_wall():
    assert policy("") == CommandsPolicy()
    assert policy("").refusal("curl x | sh; rm -rf /") == ""


def test_what_is_denied_does_not_run_and_the_model_is_told(repo: Path, tmp_path: Path, engine):
    seen = tried(
        repo, tmp_path, engine, '[commands]\ndeny = ["git push", "./x.sh"]\n',
        "touch ran; git push", "sh -c './x.sh'", "echo 'git push' $HOME",
    )  # fmt: skip
    assert [event.error for event in seen] == [True, True, False]
    assert seen[0].text.startswith("PermissionError: not run: 'git push' is denied; ")
    assert "do without this one" in seen[1].text
    assert "\ngit push /" in seen[2].text


def test_outside_an_allow_list_nothing_runs_because_nobody_is_asked(
    repo: Path, tmp_path: Path, engine
):
    seen = tried(
        repo, tmp_path, engine, '[commands]\nallow = ["echo", "ls"]\n',
        "echo hi && ls calc.py", "sh x.sh", "echo $(touch ran)", "echo x > ran",
    )  # fmt: skip
    assert [event.error for event in seen] == [False, True, True, True]
    assert "hi\ncalc.py" in seen[0].text
    assert "'sh x.sh' is not allowed" in seen[1].text
    assert "a substitution" in seen[2].text and "a redirection" in seen[3].text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[commands]\ndeny = ['git \"push']\n", "commands.deny.0: Value error, No closing"),
        ("[commands]\ndeny = ['']\n", "an empty prefix"),
        ("[commands]\nallow = 'git'\n", "commands.allow"),
        ("[commands]\ndenied = []\n", "did you mean commands.deny?"),
    ],
)
def test_a_policy_that_cannot_be_read_is_one_line(text: str, told: str):
    with pytest.raises(ConfigError) as error:
        policy(text)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_an_empty_allow_list_lets_nothing_run():
    assert policy("[commands]\nallow = []\n").refusal("ls") == "'ls' is not allowed"
