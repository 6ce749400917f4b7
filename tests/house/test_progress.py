"""Progress: what, how far, how long yet; on stderr; quiet where nothing is new."""

import io
import re
import time

from tadpole.progress import Bar, Progress, clock


def test_plain_lines_tell_what_how_far_and_how_long():
    out = io.StringIO()
    with Progress(out).task("make tasks", total=4, done=1) as bar:
        for name in ("a", "b", "c"):
            bar.advance(note=f"boltons\n{name}")
    first, last = out.getvalue().splitlines()
    assert first == "make tasks: 4 to do, 1 done"
    assert re.fullmatch(r"make tasks: 4/4 \(0:0\d\) boltons c", last)


def test_many_steps_make_few_lines():
    out = io.StringIO()
    with Progress(out).task("train", total=500) as bar:
        for _ in range(500):
            bar.advance()
    assert len(out.getvalue().splitlines()) == 2


def test_what_an_earlier_run_did_says_nothing_of_the_speed():
    bar = Bar("x", 100, 90, lambda bar: None)
    assert bar.remaining is None
    time.sleep(0.02)
    bar.advance()
    assert bar.remaining and bar.remaining >= 0.02 * 9


def test_a_broken_block_still_shows_where_it_stood():
    out = io.StringIO()
    try:
        with Progress(out).task("train", total=2) as bar:
            bar.advance()
            raise ValueError
    except ValueError:
        pass
    assert out.getvalue().splitlines()[-1].startswith("train: 1/2")


def test_markup_in_notes_is_text_and_silence_is_silent():
    out = io.StringIO()
    Progress(out).say("[red]not markup[/red] :smile:")
    assert out.getvalue() == "[red]not markup[/red] :smile:\n"
    with Progress.silent().task("x") as bar:
        bar.advance()


def test_clock():
    assert [clock(7), clock(750), clock(3750)] == ["0:07", "12:30", "1:02:30"]
