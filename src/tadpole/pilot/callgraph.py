"""Who calls whom while the tests run: names in the source, confirmed by coverage.

A call on a covered line leads to a function of that name where every test that executes the
line also executes the function. So what a name could mean but never does is left out; calls
through other names, descriptors or registries are not seen.
"""

import ast
from collections import defaultdict

from tadpole.pilot.sources import Sources

Name = tuple[str, str]  # file and qualified name


def call_graph(sources: Sources) -> dict[Name, tuple[Name, ...]]:
    """For each covered function, those that it calls, in the order of its text."""
    by_leaf: dict[str, list[Name]] = defaultdict(list)
    for path, name in sources.functions:
        owner, _, leaf = name.rpartition(".")
        by_leaf[leaf].append((path, name))
        if leaf == "__init__":  # calling a class
            by_leaf[owner.rpartition(".")[2]].append((path, name))
    graph = {}
    for here, (function, _) in sources.functions.items():
        lines = sources.covered(here[0])
        found: dict[Name, None] = {}
        for top in function.body:
            for node in ast.walk(top):
                if isinstance(node, ast.Call) and node.lineno in lines:
                    for there in _meant(node.func, here, by_leaf):
                        tests = sources.functions[there][1].tests
                        if there != here and set(lines[node.lineno]) <= set(tests):
                            found[there] = None
        graph[here] = tuple(found)
    return graph


def _meant(called: ast.expr, here: Name, by_leaf: dict[str, list[Name]]) -> list[Name]:
    """What a call can mean: its own class or file first, else the only one of that name."""
    path, name = here
    if isinstance(called, ast.Attribute):
        leaf = called.attr
        if isinstance(called.value, ast.Name) and called.value.id in ("self", "cls"):
            mine = (path, f"{name.rpartition('.')[0]}.{leaf}")
            if mine in by_leaf[leaf]:
                return [mine]
    elif isinstance(called, ast.Name):
        leaf = called.id
        near = [(where, full) for where, full in by_leaf[leaf] if where == path]
        if near:
            return [entry for entry in near if entry[1] in (leaf, f"{leaf}.__init__")]
    else:
        return []
    return by_leaf[leaf] if len(by_leaf[leaf]) == 1 else []
