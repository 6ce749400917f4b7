"""How many wrong repairs the tests of a written task notice: mutants of the written solution.

As :mod:`tadpole.pilot.strength`, for tests and lines that the repository never had: each mutant
changes a line that the solution adds or edits, and all deciding tests are run against it.
"""

from itertools import zip_longest

from tadpole.pilot.code import Code
from tadpole.pilot.proof import Proof
from tadpole.pilot.strength import counted, mutants_in, noticed
from tadpole.pilot.trial import Rules, pristine_file
from tadpole.protocols import SandboxEngine
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.variants import Variant
from tadpole.task import Task


async def strength_of_written(
    task: Task,
    snapshot: Snapshot,
    proof: Proof,
    *,
    store: Store,
    engine: SandboxEngine,
    rules: Rules,
) -> Task:
    """The task with its kill rate in ``measured``; as it is where ``rules.mutants`` is 0.

    The caller has seen that the missing repair is noticed. Raises SandboxError.
    """
    if not rules.mutants:
        return task
    start = {change.path: change.content for change in task.start}
    groups = []
    for good in task.gold:
        if good.path.endswith(".py") and proof.lines.get(good.path):
            old = start.get(good.path)
            if old is None and (snapshot.tree / good.path).is_file():
                old = pristine_file(snapshot, good.path).content
            code = Code.decode(good.path, good.content or b"")
            lines = set(proof.lines[good.path])
            groups.append(mutants_in(code, good.executable, lines, old, rules.mutants))
    turns = zip_longest(*groups)  # the files in turn
    mutants = [mutant for turn in turns for mutant in turn if mutant][: rules.mutants]
    ids = (*task.fail_to_pass, *task.pass_to_pass)
    seconds = proof.seconds
    limits = {i: rules.limit(seconds[i]) for i in ids}
    most = 20 + 3 * sum(seconds[i] for i in ids)
    variants = [
        # Fresh: what an edited file runs at import nobody has measured.
        Variant((mutant.change,), ids, most, limits, maxfail=1, fresh=True)
        for mutant in mutants
    ]
    setup = (*task.start, *task.hidden, *task.gold)
    killed = await noticed(variants, snapshot, store=store, engine=engine, setup=setup)
    return counted(task, len(mutants), killed)
