"""The command line as a user meets it: exit codes, one line on stderr.

In processes of its own where the process matters; else the same entry point is called here.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from synthetic import make_task

from tadpole.cli.main import VERBS, explain, run
from tadpole.cli.verb import split
from tadpole.errors import SandboxUnavailable, UsageError
from tadpole.pilot.taskdir import save
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.sandboxes.binaries import bubblewrap

COMMAND = [sys.executable, "-c", "from tadpole.cli.main import main; main()"]


def tadpole(*args: str | Path, cwd: Path | None = None, before: list[str] | None = None):
    argv = [*(before or []), *COMMAND, *map(str, args)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def called(capsys: pytest.CaptureFixture[str], *args: str | Path):
    """What ``tadpole`` does in this process, with all its modules imported already."""
    code = run(list(map(str, args)))
    said = capsys.readouterr()
    return subprocess.CompletedProcess(args, code, said.out, said.err)


def one_line(text: str) -> str:
    assert text.startswith("tadpole: ") and text.count("\n") == 1, text
    return text


def writer(fifo: Path) -> int:
    """Open for writing as soon as somebody reads."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def asleep(pid: int) -> None:
    """Return once the process waits in the kernel, twice in a row."""
    deadline, before = time.monotonic() + 30, ""
    while True:
        now = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if now == before == "S":
            return
        assert time.monotonic() < deadline
        before = now
        time.sleep(0.05)


def test_help_lists_every_verb_and_loads_no_torch():
    done = tadpole("--help")
    assert done.returncode == 0 and done.stderr == ""
    assert all(verb in done.stdout for verb in VERBS)
    slow = "{'torch', 'transformers', 'numpy', 'pydantic', 'asyncio'}"
    code = f"import sys, tadpole.cli.main as m; m.run(['--help']); print({slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")


def test_wrong_usage_as_a_program(tmp_path: Path):
    done = tadpole("trian", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean train?" in one_line(done.stderr)


def test_what_needs_no_weights_loads_no_torch(finished: RunDir):
    """A second and more of a verb's start, where it imports one of them without need."""
    slow = "{'torch', 'transformers', 'scipy', 'matplotlib'}"
    verbs = [["audit", "provenance"], ["eval", "export"]]
    runs = f"[m.run([*verb, {str(finished.path)!r}]) for verb in {verbs}]"
    code = f"import sys, tadpole.cli.main as m; {runs}; print({slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")


def test_a_dry_run_prints_toml_that_resolves_to_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first = tadpole("train", "--train.lr", "2e-5", "--train.shuffle_rewards", "--dry-run")
    assert first.returncode == 0
    assert tomllib.loads(first.stdout)["train"]["lr"] == 2e-5
    assert tomllib.loads(first.stdout)["train"]["shuffle_rewards"] is True
    (tmp_path / "my.toml").write_text(first.stdout)
    again = called(capsys, "train", "--config", tmp_path / "my.toml", "--dry-run")
    assert again.stdout == first.stdout


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["train", "--train.lrr", "1"], "did you mean train.lr?"),
        (["train", "--train.lr"], "--train.lr needs a value"),
        (["tasks", "make", "--tasks.sources", ""], "tasks.sources (from the command line)"),
        (["trian"], "no verb 'trian'; did you mean train?"),
        (["frobnicate"], "there are demo"),
        (["train", "--nope"], "No such option"),
        (["demo", "--preset", "fast"], "'embedded'"),
        (["demo", "--config", "none.toml"], "none.toml: no such configuration file"),
        (["train", "--run", "none"], "none is no run directory"),
        (["eval", "run", "--run", "none"], "none is no run directory"),
        (["tasks", "calibrate", "--run", "none"], "none is no run directory"),
        (["report", "none"], "none is no run directory"),
        (["tasks", "show", "none"], "none holds no tasks"),
        (["tasks", "validate", "none"], "none holds no tasks"),
    ],
)
def test_wrong_usage_is_exit_2_and_one_line(
    tmp_path: Path,
    args: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    done = called(capsys, *args)
    assert done.returncode == 2
    assert line in one_line(done.stderr)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_report_prints_the_path_and_nothing_else(finished: RunDir, tmp_path: Path):
    done = tadpole("report", finished.path, "--out", tmp_path / "x.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / 'x.html'}\n", "")
    assert (tmp_path / "x.html").read_bytes().startswith(b"<!doctype html>")


def test_show_lists_tasks_and_shows_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(2):
        save(make_task(number), tmp_path)
    done = called(capsys, "tasks", "show", tmp_path, "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["boltons-0000", "boltons-0001"]
    done = called(capsys, "tasks", "show", tmp_path / "boltons-0001", "--gold")
    assert "+x = 2" in done.stdout and "rung 3" in done.stdout


def test_what_a_task_of_others_says_moves_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    save(make_task(0, text="clear\x1b[2J and\x9b1A up"), tmp_path)
    done = called(capsys, "tasks", "show", tmp_path / "boltons-0000")
    assert "rung 0: clear\\x1b[2J and<U+009B>1A up\n" in done.stdout


def test_what_a_repository_is_called_moves_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    odd = tmp_path / "my\x1b[2Jproject"
    odd.mkdir()
    (odd / "pyproject.toml").write_text("project = 1\n")
    done = called(capsys, "tasks", "doctor", odd)
    assert "\x1b" not in done.stdout + done.stderr
    assert "my\\x1b[2Jproject" in done.stdout


def test_a_bar_shows_what_others_wrote_and_obeys_none_of_it():
    leader, follower = pty.openpty()
    with open(follower, "w") as screen, Progress(screen).task("tests", total=2) as bar:
        bar.advance(note="test_\x1b]0;mine\x07")
        time.sleep(0.5)
    seen = os.read(leader, 1 << 16)
    os.close(leader)
    assert b"test_\\x1b]0;mine" in seen and b"\x1b]0;mine" not in seen


def test_a_budget_is_short_for_its_setting(capsys: pytest.CaptureFixture[str]):
    assert run(["tasks", "calibrate", "--budget", "50", "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["calibrate"]["budget"] == 50
    assert run(["tasks", "calibrate", "--budget", "some", "--dry-run"]) == 2
    assert "calibrate.budget" in one_line(capsys.readouterr().err)


def test_tasks_are_validated_in_the_sandbox_that_was_asked_for(tmp_path: Path):
    save(make_task(0), tmp_path)
    args = ["tasks", "validate", str(tmp_path), "--sandbox.engine", "session"]
    done = tadpole(*args, before=[sys.executable, str(LIMITED), "2"])
    assert (done.returncode, done.stdout) == (3, "")
    assert "sandbox.engine is session" in one_line(done.stderr)


def test_the_yield_of_a_run_as_table_json_and_page(
    finished: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    done = called(capsys, "tasks", "yield", finished.path, "--html", tmp_path / "y.html")
    assert done.returncode == 0 and done.stdout.splitlines()[1].split()[:2] == ["all", "39"]
    assert "CPU seconds: 58, 3.2 a task kept" in done.stdout
    assert b"no test notices the change" in (tmp_path / "y.html").read_bytes()
    body = json.loads(called(capsys, "tasks", "yield", finished.path, "--json").stdout)
    assert (body["counts"]["made"], body["counts"]["kept"]) == (20, 18)
    done = called(capsys, "tasks", "yield", tmp_path)
    assert done.returncode == 2 and "holds no journal of task making" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupt_is_its_own_exit_code(run: RunDir, sign: signal.Signals, code: int):
    fifo = run.table("eval")
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [*COMMAND, "report", str(run.path)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(sign, signal.SIG_DFL),  # nohup's children ignore one
    )
    held = writer(fifo)  # the verb has opened it, and there is nothing to read
    asleep(process.pid)  # a signal just before a read has begun is seen only after it
    process.send_signal(sign)
    _, err = process.communicate(timeout=120)
    os.close(held)
    assert process.returncode == code
    assert err.strip() == "tadpole: interrupted"
    assert not (run.path / "report.html").exists()


LIMITED = Path(__file__).parent.parent / "sandboxes" / "limited.py"


@pytest.mark.parametrize(
    "args",
    [
        ["tasks", "make", "--run", "mine", "--sandbox.engine", "flat"],
        ["demo", "--run", "mine", "--sandbox.engine", "session"],
    ],
)
def test_where_nothing_isolates_a_verb_refuses_before_any_work(tmp_path: Path, args: list[str]):
    done = tadpole(*args, cwd=tmp_path, before=[sys.executable, str(LIMITED), "0"])
    assert (done.returncode, done.stdout) == (3, "")
    assert "user.max_user_namespaces is 0" in one_line(done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_there_is_not_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    done = called(capsys, "tasks", "make", "--sandbox.engine", "none")
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert "sandbox.engine (from the command line)" in line and "'container'" in line


def test_doctor_tells_of_every_engine_what_it_holds():
    done = tadpole("doctor", "--json")
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert found["sandbox"]["more"]["engines"][:2] == ["session", "flat"], done.stderr
    for kind in ("session", "flat"):
        more = found[kind]["more"]
        assert found[kind]["ok"] and {c["code"] for c in more["canaries"]} >= {"P1", "P9"}
        assert more["bounds"]["processes"] == "hard" and more["bounds"]["memory"] == "watched"
    assert "break-outs tried" in found["container"]["detail"] or (
        found["container"]["detail"].startswith("not here: ")
    )


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(run: RunDir, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    box = [str(bubblewrap().path), "--dev-bind", "/", "/", "--size", "4096", "--tmpfs", str(small)]
    script = f'"$@"; code=$?; ls -A {small}; exit $code'
    done = tadpole(
        "report",
        run.path,
        "--out",
        small / "report.html",
        before=[*box, "sh", "-c", script, "x"],
    )
    assert done.returncode == 3
    assert "no space left on the disk" in one_line(done.stderr)
    assert str(small / "report.html") in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("inside", ["file/run", "x" * 300])
def test_a_run_directory_that_cannot_be_is_wrong_usage(
    tmp_path: Path, inside: str, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").touch()
    done = called(capsys, "tasks", "make", "--run", tmp_path / inside)
    assert done.returncode == 2
    assert "give another path" in one_line(done.stderr)


def test_a_defect_of_ours_is_one_line_and_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.environ["TADPOLE_CACHE"] = str(tmp_path)
    try:
        assert explain(KeyError("x")) == 3
    finally:
        del os.environ["TADPOLE_CACHE"]
    line = one_line(capsys.readouterr().err)
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in line and "KeyError" in log.read_text()


def test_the_error_that_can_be_explained_is_taken_from_a_group(capsys: pytest.CaptureFixture[str]):
    group = ExceptionGroup("g", [ValueError("v"), ExceptionGroup("h", [SandboxUnavailable("off")])])
    assert explain(group) == 3
    assert capsys.readouterr().err == "tadpole: off\n"
    assert explain(ExceptionGroup("g", [UsageError("two\nlines")])) == 2
    assert capsys.readouterr().err == "tadpole: two lines\n"


@pytest.mark.parametrize("verb", [(), ("tasks",), ("eval",), ("audit",)])
def test_a_verb_alone_that_has_verbs_below_it_shows_its_help(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    done = called(capsys, *verb)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("Usage: tadpole") and done.stderr.count("\n") > 5


def test_dotted_settings_are_told_from_options():
    flags, rest = split(
        ["--train.lr", "-1", "a.b", "--x", "--tasks.sources=a,b", "--train.shuffle-rewards", "--y"]
    )
    assert flags == {"train.lr": "-1", "tasks.sources": "a,b", "train.shuffle_rewards": True}
    assert rest == ["a.b", "--x", "--y"]
    assert split(["--train.shuffle_rewards", "false"])[0] == {"train.shuffle_rewards": "false"}
    assert split(["--train.lr=1", "--", "--a.b", "c"]) == (
        {"train.lr": "1"},
        ["--", "--a.b", "c"],
    )


def test_tasks_doctor_refuses_what_is_no_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = called(capsys, "tasks", "doctor", tmp_path / "nothing")
    assert done.returncode == 2
    assert "there is no repository at" in one_line(done.stderr)
    assert done.stdout == ""
