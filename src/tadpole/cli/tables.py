"""Tables on stdout."""

import io
from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tadpole.evals.scoreboard import Scoreboard, compare
from tadpole.outcome import OUTCOME_POLICY, Outcome


def outcomes(boards: Mapping[str, Scoreboard]) -> str:
    """Scoreboards by name, one row each, and the difference of the last two."""
    table = Table(title="held-out tasks, never trained on", title_justify="left", box=SIMPLE_HEAD)
    trusted = [
        outcome
        for outcome in Outcome
        if OUTCOME_POLICY[outcome].trust and any(b.outcomes.get(outcome) for b in boards.values())
    ]
    table.add_column("policy")
    for column in ("pass@1", "95% interval", "tasks", "attempts"):
        table.add_column(column, justify="right")
    for outcome in trusted:
        table.add_column(outcome.value.replace("_", " "), justify="right")
    if any(board.untrusted for board in boards.values()):
        table.add_column("could not tell", justify="right")
    for name, board in boards.items():
        found = board.pass_at_1
        table.add_row(
            name,
            f"{found.value:.3f}" if found else "-",
            f"{found.low:.3f} - {found.high:.3f}" if found else "-",
            str(len(board.tallies)),
            str(board.attempts),
            *(str(board.outcomes.get(outcome, 0)) for outcome in trusted),
            *([str(board.untrusted)] if len(table.columns) > 5 + len(trusted) else []),
        )
    out = io.StringIO()
    Console(file=out, width=140, no_color=True, force_terminal=False).print(table)
    if len(boards) >= 2:
        (before, one), (after, other) = list(boards.items())[-2:]
        gain = compare(one, other)
        if gain:
            out.write(f"{after} - {before}: {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
            out.write(" (paired over tasks)\n")
    return out.getvalue().rstrip()
