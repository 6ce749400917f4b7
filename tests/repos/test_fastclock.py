import json
import sys
from pathlib import Path

from tadpole import process, repos

PROGRAM = """
import json, sys, time
clocks = ("monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns")
old = {name: getattr(time, name) for name in clocks}
sleep = time.sleep
sys.path.insert(0, sys.argv[1])
import fastclock

begin = fastclock.hurry(10)

def ran(name):
    # What the clock shows to pass, between the least and the most that passes meanwhile.
    real, fast = old[name], getattr(time, name)
    outer, begun, inner = real(), fast(), real()
    sleep(0.05)
    least, ended, most = real() - inner, fast(), real() - outer
    return least, ended - begun, most

class Kept:
    clock = time.monotonic

found = {name: ran(name) for name in clocks}
found["whole"] = all(type(getattr(time, name)()) is int for name in clocks if name[-1] == "s")
found["ahead"] = time.time() - old["time"]()
begin()
found["afresh"] = time.time() - old["time"]()
begun = time.process_time(), time.thread_time()
sum(range(100000))
found["spent"] = [time.process_time() > begun[0], time.thread_time() > begun[1]]
found["kept"] = Kept().clock() > 0
found["named"] = time.monotonic.__name__, time.time_ns.__name__
there = 5.0
day = fastclock.TimeOfDay(lambda: there, 10, 1.0)
sleep(0.01)
there = 1e6
found["set"] = day()
print(json.dumps(found))
"""


def test_clocks_run_ten_times_as_fast_and_dates_stay() -> None:
    inside = Path(repos.__file__).parent / "inside"
    done = process.run([sys.executable, "-c", PROGRAM, str(inside)], timeout=30)
    assert done.ok, done
    found = json.loads(done.stdout)
    for name in ("monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"):
        least, shown, most = found[name]
        assert 9.9 * least < shown < 10.1 * most, name
    assert found["whole"] is True
    assert found["ahead"] > 9 * 6 * 0.05  # what the sleeping gave it
    assert found["afresh"] < found["ahead"] / 2
    assert found["spent"] == [True, True]
    assert found["kept"] is True
    assert found["named"] == ["monotonic", "time_ns"]
    assert found["set"] == 1e6
