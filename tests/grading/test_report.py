"""What a report proves, and what gives a forged one away."""

import hashlib
import hmac

import pytest

from tadpole.errors import GraderError
from tadpole.grading.report import Job, judge, must_fail_names
from tadpole.outcome import GradeStatus
from tadpole.protocols import ExecReason, ExecResult

JOB = Job(
    ids=("t.py::a", "t.py::b"),
    args=(),
    seconds=9,
    paths=(),
    env={},
    must_fail=("test_c",),
    status=77,
)
RECORDS = ["ready", "collected 2", "test 0 passed", "canary 0 failed", "test 1 passed", "end 1"]


def report(records, key=JOB.key) -> bytes:
    chain, lines = hmac.new(key, digestmod=hashlib.sha256), []
    for record in records:
        chain.update(record.encode() + b"\n")
        lines.append(f"{chain.hexdigest()} {record}\n".encode())
    return b"".join(lines)


READY = "tadpole " + report(["ready"]).split(b" ")[0].decode() + "\n"


def ended(code=77, reason=ExecReason.EXITED, stdout=READY):
    return ExecResult(code, reason, stdout, "ImportError: no pytest\n", 1.0)


def test_an_honest_run():
    verdict = judge(JOB, ended(), report(RECORDS))
    assert (verdict.status, verdict.failing) == (GradeStatus.GRADED, ())


@pytest.mark.parametrize(
    "records, said",
    [
        ([*RECORDS[:-1], "end 0"], "did not run: pytest ended with 0"),
        ([*RECORDS[:-1], "end SystemExit"], "did not run: pytest ended with SystemExit"),
        (RECORDS[:-1], "no final record"),
        (RECORDS[:1], "no final record"),
        ([*RECORDS[:4], "end 1"], "t.py::b missing"),
        ([*RECORDS[:4], "test 1 skipped", "end 1"], "t.py::b skipped"),
    ],
)
def test_absence_is_not_a_pass(records, said):
    verdict = judge(JOB, ended(), report(records))
    assert verdict.status is GradeStatus.GRADED
    assert said in verdict.reason
    assert "t.py::b" in verdict.failing


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "was removed"),
        (report(RECORDS, key=b"guessed"), "did not write"),
        (report(RECORDS) + report(RECORDS[:1]), "did not write"),
        (report([*RECORDS, "test 1 passed"]), "did not write"),
        (b"".join(report(RECORDS).splitlines(True)[::-1]), "did not write"),
        (b"".join(report(RECORDS).splitlines(True)[1:]), "did not write"),
        (report([*RECORDS[:3], "canary 0 passed"]), "a test that must fail was reported as passed"),
        (report([*RECORDS[:3], "canary 0 skipped"]), "must fail was reported as skipped"),
        (report([*RECORDS[:3], *RECORDS[4:]]), "a test that must fail is missing"),
        (report([*RECORDS[:5], "test 0 passed", "end 1"]), "reported twice"),
        (report([*RECORDS[:2], "test 0 contradiction"]), "did not pass where it ran"),
        (report([*RECORDS[:2], "changed from_call", *RECORDS[2:]]), "test runner: from_call"),
        (report([*RECORDS[:2], "alarm gc.get_objects", *RECORDS[2:]]), "looked into the process"),
        (report([*RECORDS[:-1], "equal Same", "end 1"]), "equal to anything: Same"),
        (b"garbage\n", "did not write"),
        (b"\xff\xff\n", "did not write"),
    ],
)
def test_contradictions_are_tampering(content, said):
    verdict = judge(JOB, ended(), content)
    assert (verdict.status, verdict.failing) == (GradeStatus.TAMPERED, JOB.ids)
    assert said in verdict.reason


@pytest.mark.parametrize(
    "record",
    [
        *("test 999 passed", "test -1 passed", "test None passed", "test 0", "test 0 splendid"),
        *("test", "canary 1 failed", "canary x failed", "canary 0 {}", "at 2 1", "at 0 x", "at 0"),
        *("collected", "collected all", "ready 1", "thanks", "", "caf\u00e9"),
        "test " + "9" * 50 + " passed",
    ],
)
def test_well_keyed_nonsense_is_tampering(record):
    """Whoever has the key can write anything: it ends no run and voids nothing."""
    for records in ([*RECORDS[:2], record, *RECORDS[2:]], [*RECORDS[:-1], record]):
        verdict = judge(JOB, ended(), report(records))
        assert (verdict.status, verdict.failing) == (GradeStatus.TAMPERED, JOB.ids)
        assert "a record that the grader never writes" in verdict.reason


@pytest.mark.parametrize("code", [0, 1, 78])
def test_a_status_that_contradicts_the_report_is_tampering(code):
    verdict = judge(JOB, ended(code), report(RECORDS))
    assert (verdict.status, verdict.failing) == (GradeStatus.TAMPERED, JOB.ids)


@pytest.mark.parametrize(
    "reason", [ExecReason.TIMEOUT, ExecReason.MEMORY, ExecReason.OUTPUT, ExecReason.SIGNAL]
)
def test_a_run_that_was_stopped_is_not_resolved(reason):
    torn = report(RECORDS[:4]) + b"0123abcd test 1 pas"
    verdict = judge(JOB, ended(137, reason), torn)
    assert verdict.status is GradeStatus.GRADED
    assert "t.py::b" in verdict.failing
    assert verdict.timed_out is (reason is ExecReason.TIMEOUT)


@pytest.mark.parametrize(
    "stdout", ["", "tadpole 0123\n", " " + READY], ids=["silent", "other key", "not at the start"]
)
def test_an_environment_that_does_not_start_cannot_be_judged(stdout):
    with pytest.raises(GraderError, match="ImportError: no pytest"):
        judge(JOB, ended(1, stdout=stdout), None)


def test_secrets_differ_and_do_not_show():
    jobs = [Job(ids=(), args=(), seconds=9, paths=(), env={}) for _ in range(20)]
    assert len({job.key for job in jobs}) == len({job.directory for job in jobs}) == 20
    assert all(64 <= job.status < 114 for job in jobs)
    assert jobs[0].key.hex() not in repr(jobs[0])
    assert repr(jobs[0].key) not in repr(jobs[0])


def test_names_that_must_fail_are_new_and_look_like_the_others():
    ids = ["t.py::test_read_file[a_b]", "t.py::TestX::test_write_file"]
    for _ in range(50):
        names = must_fail_names(ids)
        assert len(set(names)) == 2
        assert all(name.startswith("test_") and name.isidentifier() for name in names)
        assert not {"test_read_file", "test_write_file"} & set(names)
    assert len(must_fail_names(["t.py::test_[é]"])) == 2
