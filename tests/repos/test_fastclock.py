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
    real, shown = old[name](), getattr(time, name)()
    sleep(0.05)
    return (getattr(time, name)() - shown) / (old[name]() - real)

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
day = fastclock.TimeOfDay(lambda: there, 10, 1.0) if (there := 5.0) else None
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
        assert 9 < found[name] < 11, name
    assert found["whole"] is True
    assert found["ahead"] > 0.4  # what the sleeping gave it
    assert found["afresh"] < 0.1
    assert found["spent"] == [True, True]
    assert found["kept"] is True
    assert found["named"] == ["monotonic", "time_ns"]
    assert found["set"] == 1e6
