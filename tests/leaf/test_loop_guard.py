import pytest

from tadpole.leaf.guard import LoopGuard, Verdict
from tadpole.trace import Observation, ToolCall

FINE, WARN, STOP = Verdict.FINE, Verdict.WARN, Verdict.STOP


def call(name="Read", **arguments):
    return ToolCall(name=name, arguments=arguments)


def broken(error):
    return ToolCall(name="", error=error)


A, B = (call(file_path="a"), "1. x"), (call("Bash", command="pytest"), "1 failed in 0.10s")


@pytest.mark.parametrize(
    ("steps", "verdicts"),
    [
        pytest.param([A] * 4, [FINE, FINE, WARN, STOP], id="same call, same result"),
        pytest.param([(call(), "TypeError")] * 3, [FINE, FINE, WARN], id="empty arguments"),
        pytest.param(
            [(broken(f"column {k}"), f"column {k}") for k in range(4)],
            [FINE, FINE, WARN, STOP],
            id="malformed, each in another way",
        ),
        pytest.param([A, B, A, B, A], [FINE, FINE, FINE, WARN, STOP], id="A-B-A-B"),
        pytest.param(
            [A, (broken("x"), "x"), A, (broken("y"), "y")],
            [FINE, FINE, FINE, WARN],
            id="a sound call and a malformed one in turn",
        ),
        pytest.param([A, (A[0], "1. y"), A], [FINE] * 3, id="the result changes and changes back"),
        pytest.param(
            [(B[0], f"1 failed in {k}.5{k}s") for k in range(3)],
            [FINE, FINE, WARN],
            id="test times",
        ),
        pytest.param(
            [(B[0], f"1 failed in {k}.50s (0:01:0{k})") for k in range(3)],
            [FINE, FINE, WARN],
            id="test times of minutes",
        ),
        pytest.param(
            [(call("Bash", command="pytest", description=f"Try {k}"), B[1]) for k in range(4)],
            [FINE, FINE, WARN, STOP],
            id="the same command, described in other words",
        ),
        pytest.param(
            [(call("Bash", command="status"), f"{k}0%") for k in range(9)], [FINE] * 9, id="polling"
        ),
        pytest.param(
            [step for k in range(4) for step in ((call("Edit", new_string=str(k)), "ok"), B)],
            [FINE] * 8,
            id="edit and test",
        ),
        pytest.param([A, A, B, A, A], [FINE] * 5, id="twice is allowed"),
        pytest.param(
            [A, A, A, B, A, B], [FINE, FINE, WARN, FINE, FINE, STOP], id="warned once only"
        ),
    ],
)
def test_verdicts(steps, verdicts):
    guard, came = LoopGuard(), []
    for one, text in steps:
        guard.next_turn()
        came.append(guard.see(one, Observation(text=text)))
    assert came == verdicts


def test_a_turn_is_not_ended_for_what_it_could_not_have_read():
    guard = LoopGuard()
    one, text = A
    first = [guard.see(one, Observation(text=text)) for _ in range(6)]
    assert first == [FINE, FINE, WARN, FINE, FINE, FINE]
    guard.next_turn()
    assert guard.see(one, Observation(text=text)) is STOP
