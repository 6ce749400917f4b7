"""The verbs solve, review and apply: usage, and a job that is interrupted and resumed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from making import VENV, census, git, job_for, put

from tadpole.cli.bench import as_trained, here
from tadpole.cli.main import run
from tadpole.cli.verb import Request
from tadpole.config import load
from tadpole.errors import ConfigError
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.workbench import job as jobs
from tadpole.workbench.base import read_base
from tadpole.workbench.places import work_dir
from tadpole.workbench.usergit import UserGit

COMMAND = [sys.executable, "-c", "from tadpole.cli.main import main; main()"]


def tadpole(repo: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, *args]
    return subprocess.run(
        argv, cwd=repo, capture_output=True, text=True, timeout=240, check=False, input=stdin
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("solve",), 'give one of "ISSUE", --issue FILE'),
        (("solve", "x", "--issue", "y"), "give one of"),
        (("solve", "  "), "the issue is empty"),
        (("solve", "--issue", "none.md"), "none.md cannot be read"),
        (("solve", "--issue", "/dev/zero"), "the issue is empty"),
        (("solve", "x", "--repo", "tset"), "tset is no directory"),
        (("solve", "--again", "abc"), "no proposal 'abc' of this repository"),
        (("solve", "x", "--venv", "."), "is no virtual environment"),
        (("solve", "x", "--model", "/nowhere"), "is no model directory (there is no such"),
        (("solve", "x", "--model", "tests/modle"), "tests/modle is no model directory"),
        (("solve", "x", "--model", "calc.py"), "calc.py is no model directory"),
        (("solve", "x", "--config", "/tmp"), "/tmp cannot be read (Is a directory): give a TOML"),
        (("solve", "x", "--run", "runs/x"), "solve has no run directory: leave --run out"),
        (("solve", "x", "--sandbox.engine", "chroot"), "sandbox.engine"),
        (("solve", "--resume"), "no unfinished job"),
        (("review", "abc"), "no proposal 'abc' of this repository"),
        (("apply",), "no proposal that is approved"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(
    repo: Path, args: tuple[str, ...], told: str, monkeypatch, capsys
):
    monkeypatch.chdir(repo)
    before = census(repo)
    assert run(args) == 2
    said = capsys.readouterr()
    assert told in said.err and said.err.count("\n") == 1 and said.out == ""
    assert census(repo) == before


def test_a_policy_that_does_not_hold_is_told_before_any_model_is_loaded(
    repo: Path, monkeypatch, capsys
):
    monkeypatch.chdir(repo)
    put(repo, {".tadpole.toml": "[gate]\nsecrets = 'warn'\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "policy")
    assert run(["solve", "x", "--model", "/nowhere"]) == 2
    assert "did you mean gate.secret?" in capsys.readouterr().err


def test_a_policy_that_does_not_count_is_told(repo: Path, monkeypatch, capsys):
    monkeypatch.chdir(repo)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    put(repo, {".tadpole.toml": "[gate]\nsize = 'block'\n"})
    request = Request(load({"policy.model": "openai:x"}), False, Progress())

    def begun(dirty: bool = False) -> str:
        place = here(repo, None, request)
        place.begun(("x", ""), attempts=1, command="", dirty=dirty, config=request.config,
                    network=())  # fmt: skip
        return capsys.readouterr().err

    assert ".tadpole.toml is not committed as it lies there" in begun()
    assert "not committed as it lies" not in begun(dirty=True)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "policy")
    assert "not committed as it lies" not in begun()
    (repo / ".tadpole.toml").rename(repo / "rules.toml")
    (repo / ".tadpole.toml").symlink_to("rules.toml")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a link")
    with pytest.raises(ConfigError, match="is a symbolic link: make it a file"):
        begun()


def test_a_policy_that_was_trained_here_is_asked_as_it_was_trained(tmp_path: Path, capsys):
    trained = load({"run.dir": str(tmp_path / "run")})  # the embedded model: compact
    RunDir.create(tmp_path / "run", trained)
    weights = tmp_path / "run" / "checkpoints" / "update-00006"
    put(weights, {"tadpole.json": '{"update":6,"fingerprint":"a+6"}', "config.json": "{}"})

    def profile(**flags: str) -> str:
        flags = {"policy.model": str(weights)} | {k.replace("_", "."): v for k, v in flags.items()}
        return as_trained(Request(load(flags), False, Progress(), flags)).leaf.profile.value

    assert profile() == "compact" and "trained with leaf.profile compact" in capsys.readouterr().err
    assert profile(leaf_profile="full") == "full"
    said = (weights / "tadpole.json").read_text()
    (weights / "tadpole.json").unlink()  # weights of somebody else
    assert profile() == "full"
    weights = tmp_path / "elsewhere"  # a copy, which says it by itself
    put(weights, {"tadpole.json": said[:-1] + ',"profile":"compact"}', "config.json": "{}"})
    assert profile() == "compact"
    (weights / "tadpole.json").write_text("{}")  # of something else
    assert profile() == "full"


@pytest.mark.parametrize(
    ("data", "issue"),
    [
        (b"caf\xe9 breaks\n", "caf\ufffd breaks"),
        (b"\xef\xbb\xbfadd() subtracts", "add() subtracts"),
        ("add() subtracts".encode("utf-16"), "add() subtracts"),
        (b"a\r\nb\r\n", "a\nb"),
    ],
)
def test_an_issue_is_read_in_whatever_encoding(data: bytes, issue: str):
    assert jobs.issue_of(data) == issue


def test_what_needs_no_model_loads_none(repo: Path):
    code = (
        "import sys, tadpole.cli.main as m; m.run(['review']); m.run(['apply']); "
        "m.run(['solve', '--resume']); print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=repo, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n" and done.stderr.count("tadpole: ") == 3


def test_help_lists_only_what_means_something_there(capsys):
    assert run(["solve", "--help"]) == 0
    text = capsys.readouterr().out
    for name in ("--leaf.max_turns", "--eval.temperature", "--sandbox.engine", "--allow"):
        assert name in text
    for name in ("--eval.samples", "--policy.urls", "--policy.engine", "--eval.raw", "--run DIR"):
        assert name not in text


def test_a_damaged_job_is_told_and_the_others_go_on(repo: Path, monkeypatch, capsys):
    base = read_base(UserGit(repo), dirty=False)
    whole = jobs.create(work_dir(repo), job_for(repo, base))
    for name, file, text in (
        ("99990101-000000-aaaa", "config.toml", "issue = 3\n"),
        ("99990101-000000-bbbb", "tadpole-run.json", "{"),
        ("99990101-000000-cccc", "attempts.jsonl", "{}\nnonsense\n"),
    ):
        shutil.copytree(whole.path, whole.path.with_name(name))
        (whole.path.with_name(name) / file).write_text(text)
    said: list[str] = []
    assert jobs.newest(work_dir(repo), said.append) == whole.path
    assert len(said) == 3 and all("passed over: " in line for line in said)
    assert all(re.search(r"\): (restore|delete|read it)|format None", line) for line in said), said
    shutil.rmtree(whole.path)
    monkeypatch.chdir(repo)
    assert run(["solve", "--resume"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and lines[-1].startswith("tadpole: no unfinished job")


def test_no_flag_skips_the_person(capsys):
    for verb in ("solve", "review", "apply"):
        assert run([verb, "--help"]) == 0
        text = capsys.readouterr().out.lower()
        assert not any(word in text for word in ("--yes", "--force", "--approve", "--auto"))


@pytest.mark.slow
def test_interrupted_resumed_and_scripted(repo: Path, tmp_path: Path):
    from tests.tiny import byte_tokenizer, llama

    model = tmp_path / "model"
    byte_tokenizer().save_pretrained(model)
    llama().save_pretrained(model)
    before = census(repo)
    os.environ["TADPOLE_CACHE"] = str(tmp_path / "cache")
    small = ["--leaf.profile", "compact", "--leaf.max_context", "2048", "--run.concurrency", "2"]
    asked = ["--issue", "-", "--model", str(model), "--venv", str(VENV), *small]
    try:
        long = [*COMMAND, "solve", *asked, "-n", "2", "--leaf.max_tokens_per_turn", "1900"]
        process = subprocess.Popen(long, cwd=repo, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert process.stdin and process.stderr
        process.stdin.write("add() subtracts")
        process.stdin.close()
        scratch = tmp_path / "cache" / "scratch"
        deadline = time.monotonic() + 120
        while not (scratch.is_dir() and any(scratch.iterdir())):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "tadpole solve --resume" in process.stderr.read()
        assert list(scratch.iterdir()) == []
        done = tadpole(repo, "solve", "--resume", "--json", "--non-interactive", *small,
                       "--leaf.max_tokens_per_turn", "8")  # fmt: skip
    finally:
        del os.environ["TADPOLE_CACHE"]
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in lines[:-1]] == ["stop", "stop"]
    assert {row["number"] for row in lines[-1]["attempts"]} == {0, 1}
    assert lines[-1]["proposal"] is None
    assert census(repo) == before
