"""The removal proposer: a feature that is declared and described, and not there.

The body of a function is taken out, or the bodies of a function and of those helpers that run
only together with it. Signature and docstring stay: they are the specification, so a function
without a docstring is never the head of a removal.
"""

import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tadpole.pilot.callgraph import Name, call_graph
from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.code import Code, Function
from tadpole.pilot.sources import Sources, sources_of
from tadpole.repos.snapshot import Snapshot
from tadpole.task import TaskKind

BODY = "remove_body"
GROUP = "remove_group"


@dataclass(frozen=True)
class Removal:
    """Implements :class:`tadpole.protocols.Proposer`. Each head is proposed once."""

    shortest_docstring: int = 24  # characters: less specifies nothing
    shortest_body: int = 2  # lines
    most_helpers: int = 4
    name: str = "removal"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """A group where there is one and the coin says so, else the body alone."""
        sources = sources_of(snapshot)
        graph = call_graph(sources)
        heads = [name for name in sorted(sources.functions) if self._is_head(sources, name)]
        rng.shuffle(heads)
        for head in heads:
            helpers = self._helpers(sources, graph, head) if rng.random() < 0.5 else []
            candidate = self._candidate(sources, [head, *helpers], rng.getrandbits(32))
            if candidate is not None:
                yield candidate

    def _is_head(self, sources: Sources, name: Name) -> bool:
        function, covered = sources.functions[name]
        return (
            len(function.docstring.strip()) >= self.shortest_docstring
            and _lines(function) >= self.shortest_body
            and len(covered.tests) <= sources.most_failing  # all of them will fail
            and not name[1].endswith(("__repr__", "__str__"))
        )

    def _helpers(
        self, sources: Sources, graph: dict[Name, tuple[Name, ...]], head: Name
    ) -> list[Name]:
        """Functions below ``head`` that no test runs without it, nearest first."""
        tests = set(sources.functions[head][1].tests)
        found: list[Name] = []
        waiting = list(graph[head])
        while waiting and len(found) < self.most_helpers:
            name = waiting.pop(0)
            if name == head or name in found:
                continue
            function, covered = sources.functions[name]
            if set(covered.tests) <= tests and function.body:
                found.append(name)
                waiting.extend(graph[name])
        return found

    def _candidate(self, sources: Sources, names: list[Name], seed: int) -> Candidate | None:
        sites = [_emptied(sources, name) for name in names]
        if any(site is None for site in sites):
            return None
        known = tuple(site for site in sites if site is not None)
        changes = sources.changes(known)
        if changes is None:
            return None
        return Candidate(
            proposer=self.name,
            operator=GROUP if len(names) > 1 else BODY,
            changes=changes,
            functions=tuple(name for _, name in names),
            sites=known,
            seed=seed,
            kind=TaskKind.FEATURE,
            request=_request(sources, names),
        )


def _lines(function: Function) -> int:
    first, last = function.body[0], function.body[-1]
    return (last.end_lineno or last.lineno) - first.lineno + 1


def _emptied(sources: Sources, name: Name) -> Site | None:
    """The site that takes a body out, with the comments in front of it."""
    code, (function, covered) = sources.code(name[0]), sources.functions[name]
    assert code is not None
    first, last = code.whole_lines(function.body[0]), code.whole_lines(function.body[-1])
    if first is None or last is None:
        return None
    if _described(function) and code.whole_lines(function.node.body[0]) is None:
        return None
    head = code.line_of(_head_end(code, function) - 1)
    start = min(first[0], code.starts[head])
    indent = code.text[first[0] : code.span(function.body[0])[0]]
    ending = code.ending(function.body[-1].end_lineno or function.body[-1].lineno)
    new = f"{indent}raise NotImplementedError{ending}"
    return sources.site(code, start, last[1], new, covered.lines)


def _request(sources: Sources, names: list[Name]) -> str:
    head, helpers = names[0], names[1:]
    text = (
        f"`{head[1]}` in the module `{head[0]}` is declared and not implemented. Implement it as "
        f"its signature and its docstring say:\n\n{_declared(sources, head)}"
    )
    if helpers:
        listed = "\n\n".join(
            f"`{name}` in `{path}`:\n\n{_declared(sources, (path, name))}" for path, name in helpers
        )
        text += f"\n\nSo are these helpers, which nothing else runs without it:\n\n{listed}"
    return text


def _declared(sources: Sources, name: Name) -> str:
    """Signature and docstring, as they stand in the file."""
    code = sources.code(name[0])
    assert code is not None
    text = declaration(code, sources.functions[name][0])
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}python\n{text}\n{fence}"


def declaration(code: Code, function: Function) -> str:
    """The text of a function from its first decorator to its docstring."""
    node = function.node
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    end = _head_end(code, function)
    text = code.text[code.starts[first - 1] : end].replace("\r\n", "\n").rstrip()
    return textwrap.dedent(text)


def _described(function: Function) -> bool:
    return len(function.body) < len(function.node.body)


def _head_end(code: Code, function: Function) -> int:
    """One past the docstring, or past the colon where there is none: no comment below it."""
    node = function.node
    if _described(function):
        return code.span(node.body[0])[1]
    return code.between(code.starts[node.lineno - 1], code.span(function.body[0])[0])[-1].end
