"""Runs survive crashes: torn lines, two writers, kill -9, unknown versions."""

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from pydantic import BaseModel
from synthetic import make_attempt, make_task, make_trace

from tadpole.config import load
from tadpole.errors import RunError
from tadpole.outcome import Outcome
from tadpole.rl.metrics import UpdateRow
from tadpole.rundir import MARKER, RunDir, cache_dir, write_atomic
from tadpole.trace import Attempt


class Small(BaseModel):
    n: int
    text: str = ""


def child(code: str, *args: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


WRITER = """
    import sys
    from pydantic import BaseModel
    from pathlib import Path
    from tadpole.rundir import RunDir
    class Small(BaseModel):
        n: int
        text: str = ""
    run = RunDir(Path(sys.argv[1]))
    for n in range(int(sys.argv[2]), int(sys.argv[3])):
        run.append("t", Small(n=n, text="x" * 4000))
        print(n, flush=True)
"""


def test_rows_come_back_in_order(run: RunDir):
    for n in range(3):
        run.append("t", Small(n=n))
    assert [row.n for row in run.rows("t", Small)] == [0, 1, 2]
    assert run.rows("none", Small) == []


@pytest.mark.parametrize("torn", [b'{"n": 2', b'{"n": 2}', b"\x00\x00", b"x" * 200_000])
def test_a_torn_last_line_is_dropped_and_cut_off_by_the_next_append(run: RunDir, torn: bytes):
    run.append("t", Small(n=0))
    with run.table("t").open("ab") as stream:
        stream.write(torn)
    assert [row.n for row in run.rows("t", Small)] == [0]
    run.append("t", Small(n=1))
    assert run.table("t").read_bytes() == b'{"n":0,"text":""}\n{"n":1,"text":""}\n'


def test_a_table_that_is_one_torn_line_becomes_empty(run: RunDir):
    run.table("t").write_bytes(b'{"n": 2')
    assert run.rows("t", Small) == []
    run.append("t", Small(n=1))
    assert [row.n for row in run.rows("t", Small)] == [1]


def test_damage_in_the_middle_is_named_not_skipped(run: RunDir):
    run.table("t").write_bytes(b'{"n": 0}\n{"n": \n{"n": 2}\n')
    with pytest.raises(RunError, match="line 2 is damaged"):
        run.rows("t", Small)


def test_two_processes_append_whole_lines(run: RunDir):
    writers = [child(WRITER, str(run.path), str(low), str(low + 60)) for low in (0, 60)]
    for writer in writers:
        _, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
    assert sorted(row.n for row in run.rows("t", Small)) == list(range(120))


def test_kill_in_the_middle_of_appends_loses_no_reported_row(run: RunDir):
    writer = child(WRITER, str(run.path), "0", "1000000")
    while not run.table("t").exists() or run.table("t").stat().st_size < 200_000:
        assert writer.poll() is None
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    out, _ = writer.communicate(timeout=30)
    reported = [int(line) for line in out.split(b"\n")[:-1]]
    rows = [row.n for row in run.rows("t", Small)]
    assert rows == list(range(len(rows)))
    assert len(rows) >= len(reported) > 0
    run.append("t", Small(n=-1))
    assert [row.n for row in run.rows("t", Small)] == [*rows, -1]


def test_a_failed_append_leaves_the_table_as_it_was(run: RunDir):
    code = """
        import resource, sys
        from pathlib import Path
        from pydantic import BaseModel
        from tadpole.rundir import RunDir
        class Small(BaseModel):
            n: int
            text: str = ""
        run = RunDir(Path(sys.argv[1]))
        run.append("t", Small(n=0))
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
        try:
            run.append("t", Small(n=1, text="y" * 100))
        except OSError as error:
            print(error.errno)
    """
    out, err = child(code, str(run.path)).communicate(timeout=30)
    assert out.strip() == b"27", err  # EFBIG: the kernel's way of a full disk, for one process
    assert run.table("t").read_bytes() == b'{"n":0,"text":""}\n'


def test_an_unknown_format_version_is_refused_with_a_clear_line(run: RunDir):
    row = UpdateRow(update=1, episodes=0, mean_reward=None, groups=1, tokens=0)
    body = json.loads(row.model_dump_json()) | {"format": 2}
    run.table("updates").write_text(json.dumps(body) + "\n")
    with pytest.raises(RunError, match="line 1 has format 2, this tadpole knows 1"):
        run.rows("updates", UpdateRow)


def test_a_row_of_another_shape_is_refused_by_field(run: RunDir):
    run.table("t").write_text('{"n": "many"}\n')
    with pytest.raises(RunError, match="line 1 is no Small: n: "):
        run.rows("t", Small)


def test_a_run_of_an_unknown_version_is_refused(run: RunDir):
    run.write(MARKER, b'{"format": 99}')
    with pytest.raises(RunError, match="has run format 99, this tadpole knows 1"):
        RunDir.open(run.path)


@pytest.mark.parametrize("content", [None, b"{", b"[]"])
def test_what_is_no_run_is_refused(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / MARKER).write_bytes(content)
    with pytest.raises(RunError):
        RunDir.open(tmp_path)
    with pytest.raises(RunError):
        RunDir.open(tmp_path / "missing")


def test_a_run_is_never_mixed_into_something_else(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        RunDir.create(tmp_path, load())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError):
        RunDir.create(tmp_path / "file", load())


def test_a_creation_that_was_cut_short_is_done_again(tmp_path: Path):
    (tmp_path / "config.toml").write_text("half")
    (tmp_path / ".config.toml.1234").write_text("ha")
    RunDir.create(tmp_path, load())
    assert RunDir.open(tmp_path).facts["format"] == 1


def test_traces_and_patches_come_back(run: RunDir):
    trace = make_trace(make_task(1), "p", "naïve \udcff".replace("\udcff", "�"))
    where = run.save_trace(trace, "eval/a-1")
    assert run.load_trace(where) == trace
    first = (run.path / where).read_bytes()
    run.save_trace(trace, "eval/a-1")
    assert (run.path / where).read_bytes() == first
    patch = b"--- a/x\r\n+++ b/x\n\xff\n"
    assert (run.path / run.save_patch(patch, "eval/a-1")).read_bytes() == patch


def test_a_trace_of_an_older_format_is_read_and_one_of_a_newer_is_not(run: RunDir):
    trace = make_trace(make_task(1), "p", "")
    where = run.save_trace(trace, "eval/a-1")
    body = json.loads(gzip.decompress((run.path / where).read_bytes()))
    assert body["format"] == 2
    new = {"earlier": (), "compactions": (), "recoveries": 0}  # format 1 did not have them
    for name in new:
        del body[name]
    run.write(where, gzip.compress(json.dumps(body | {"format": 1}).encode()))
    assert run.load_trace(where) == trace.model_copy(update=new | {"format": 1})
    run.write(where, gzip.compress(json.dumps(body | {"format": 3}).encode()))
    with pytest.raises(RunError, match="has format 3, this tadpole knows 1 and 2: read it with"):
        run.load_trace(where)


def test_a_damaged_trace_is_named(run: RunDir):
    where = run.save_trace(make_trace(make_task(1), "p", ""), "a")
    whole = (run.path / where).read_bytes()
    (run.path / where).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="damaged"):
        run.load_trace(where)
    with pytest.raises(RunError, match="missing"):
        run.load_trace("traces/b.json.gz")


def test_names_cannot_lead_out_of_the_run(run: RunDir):
    for name in ("../x", "traces/../../x", "/etc/x"):
        with pytest.raises(RunError, match="leads out"):
            run.write(name, b"")


def test_attempts_that_infrastructure_broke_are_owed_again(run: RunDir):
    task = make_task(1)
    run.append("eval", make_attempt(task, "p", 0, Outcome.INFRASTRUCTURE))
    run.append("eval", make_attempt(task, "p", 1, Outcome.WRONG_PATCH))
    assert run.done("eval") == {(task.id, "p", 1)}
    run.append("eval", make_attempt(task, "p", 0, Outcome.RESOLVED))
    assert run.done("eval") == {(task.id, "p", 0), (task.id, "p", 1)}
    assert len(run.rows("eval", Attempt)) == 3


def test_one_owner_at_a_time_and_none_after_a_kill(run: RunDir):
    code = """
        import sys, time
        from pathlib import Path
        from tadpole.rundir import RunDir
        with RunDir(Path(sys.argv[1])).lock():
            print("locked", flush=True)
            time.sleep(60)
    """
    owner = child(code, str(run.path))
    assert owner.stdout and owner.stdout.readline() == b"locked\n"
    with pytest.raises(RunError, match=f"in use by process {owner.pid}"), run.lock():
        pass
    owner.kill()
    owner.communicate(timeout=30)
    with run.lock():
        pass


def test_a_failed_atomic_write_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    target = tmp_path / "file"
    write_atomic(target, b"old")
    (tmp_path / "dir").mkdir()
    with pytest.raises(IsADirectoryError) as told:
        write_atomic(tmp_path / "dir", b"new")
    assert told.value.filename == str(tmp_path / "dir")  # not the file beside it
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir", "file"]


def test_the_cache_directory_follows_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TADPOLE_CACHE", "/tmp/elsewhere")
    assert cache_dir() == Path("/tmp/elsewhere")
    monkeypatch.delenv("TADPOLE_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_dir() == Path("/home/someone/.cache/tadpole")
