"""What the syntax tree of a changed Python file says: dangerous calls, silenced errors, tests.

Only what is *new* is told: a construct that the file held before, as often, is no finding.
Guards against: a patch whose danger hides among many lines, or behind another name for it
(``run = subprocess.run``, ``map(eval, x)``, ``from os import *``).

Does not guard against: names made at run time (``getattr(os, "sys" + "tem")``), or other languages.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tadpole.syntax import parse
from tadpole.workbench.change import Change, FileDelta, python_files
from tadpole.workbench.finding import Check, Finding, Severity
from tadpole.workbench.riskypath import decides_tests

_HIGH, _MEDIUM, _LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
# Kind, severity, dotted names; a name ending in "." covers all below it.
_DANGEROUS = (
    ("process", _HIGH, ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn", "os.fork",
                        "os.posix_spawn", "pty.spawn", "asyncio.create_subprocess",
                        "multiprocessing.")),
    ("evaluation", _HIGH, ("eval", "exec", "compile", "__import__", "importlib.import_module",
                           "code.interact", "runpy.", "builtins.eval", "builtins.exec")),
    ("network", _MEDIUM, ("socket.", "urllib.request.", "http.client.", "requests.", "httpx.",
                          "aiohttp.", "ftplib.", "smtplib.", "telnetlib.", "xmlrpc.", "paramiko.",
                          "websockets.", "urllib3.")),
    ("deserialization", _HIGH, ("pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load",
                                "marshal.load", "shelve.open", "yaml.load", "yaml.unsafe_load",
                                "joblib.load", "torch.load", "cloudpickle.load", "jsonpickle.")),
    ("native", _MEDIUM, ("ctypes.", "cffi.")),
)  # fmt: skip
_BUILTIN = frozenset({"eval", "exec", "compile", "__import__"})
_SKIPS = ("skip", "skipif", "xfail", "skipTest", "skipUnless", "skipIf", "expectedFailure")


@dataclass(frozen=True)
class _Seen:
    """One construct. Two of one ``key`` are the same wherever they stand."""

    check: Check
    severity: Severity
    rule: str
    key: str
    line: int
    message: str


def python_findings(change: Change) -> list[Finding]:
    """What is new in the Python files of a change."""
    found: list[Finding] = []
    for file in python_files(change.files):
        try:
            found += list(_of_file(file))
        except (RecursionError, MemoryError):
            message = "nested too deeply to be read"
            found.append(
                Finding(
                    check=Check.UNPARSABLE,
                    severity=_HIGH,
                    path=file.path,
                    rule="syntax",
                    message=message,
                )
            )
    return found


def _of_file(file: FileDelta) -> Iterator[Finding]:
    before, _ = _tree(file, new=False)
    after, wrong = _tree(file, new=True)
    if file.after is not None and after is None:
        if before is not None or file.before is None:
            check, severity = Check.UNPARSABLE, _HIGH
        else:  # a fixture, or another Python's: no fault of the patch, and read by nobody here
            check, severity = Check.SCANNER_NOT_RUN, _MEDIUM
            wrong += ", as before the patch: what it calls was not looked at"
        yield Finding(check=check, severity=severity, path=file.path, rule="syntax", message=wrong)
        return
    known = Counter(seen.key for seen in _constructs(before))
    for seen in _constructs(after):
        if known[seen.key]:
            known[seen.key] -= 1
            continue
        yield Finding(
            check=seen.check,
            severity=seen.severity,
            path=file.path,
            line=seen.line,
            rule=seen.rule,
            message=seen.message,
        )
    if decides_tests(file.path) and before is not None:
        yield from _weakened(file, before, after)


def _tree(file: FileDelta, *, new: bool) -> tuple[ast.Module | None, str]:
    content = file.side(new=new).content
    if content is None:
        return None, ""
    try:
        return parse(content), ""
    except ValueError as error:
        return None, f"does not parse: {error}"


def _constructs(tree: ast.Module | None) -> Iterator[_Seen]:
    if tree is None:
        return
    aliases = _aliases(tree)
    # Once as what is called, then not again as what is named.
    told = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _danger(_dotted(node.func, aliases), node, "calls")
            if _dotted(node.func, aliases) == "contextlib.suppress":
                yield _swallowed(node, ", ".join(map(ast.unparse, node.args)))
        elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in told:
            name = _dotted(node, aliases)
            if isinstance(node.ctx, ast.Load) and name.rpartition(".")[2].islower():
                yield from _danger(name, node, "hands on", least=_HIGH)
        elif isinstance(node, ast.ImportFrom) and any(item.name == "*" for item in node.names):
            yield from _danger(f"{node.module}.", node, "imports all of")
        elif isinstance(node, ast.ExceptHandler) and _silent(node):
            yield _swallowed(node, ast.unparse(node.type) if node.type else "everything")


def _danger(
    name: str, node: ast.expr | ast.stmt, how: str, least: Severity | None = None
) -> Iterator[_Seen]:
    for kind, severity, names in _DANGEROUS:
        everything = name.endswith(".") and any(item.startswith(name) for item in names)
        if (everything or _listed(name, names)) and severity is (least or severity):
            message = f"newly {how} {name.rstrip('.')}"
            key = f"{kind} {name} {ast.dump(node)}"
            yield _Seen(Check.DANGEROUS_CALL, severity, kind, key, node.lineno, message)


def _swallowed(node: ast.ExceptHandler | ast.Call, caught: str) -> _Seen:
    broad = caught in ("everything", "Exception", "BaseException")
    severity, key = _MEDIUM if broad else _LOW, f"swallow {caught}"
    rule = "except-pass" if isinstance(node, ast.ExceptHandler) else "suppress"
    told = f"swallows {caught}"
    return _Seen(Check.SWALLOWED_EXCEPTION, severity, rule, key, node.lineno, told)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Names that imports bind -> what they stand for; other variables -> nothing dangerous."""
    found = {
        node.id if isinstance(node, ast.Name) else node.arg: "a variable"
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and _stored(node))
    }
    found = {name: what for name, what in found.items() if name not in _BUILTIN}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                found[item.asname or item.name.split(".")[0]] = (
                    item.name if item.asname else item.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                found[item.asname or item.name] = f"{node.module}.{item.name}"
    return found


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([aliases.get(node.id, node.id), *reversed(parts)])


def _listed(name: str, names: tuple[str, ...]) -> bool:
    return bool(name) and any(
        name == item if item in _BUILTIN else name.startswith(item) for item in names
    )


def _silent(handler: ast.ExceptHandler) -> bool:
    """Whether nothing comes of what was caught."""
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in handler.body
    )


# --- tests ---------------------------------------------------------------------------------


def _weakened(file: FileDelta, before: ast.Module, after: ast.Module | None) -> Iterator[Finding]:
    def tell(rule: str, message: str, line: int = 0) -> Finding:
        return Finding(
            check=Check.TEST_WEAKENED,
            severity=_HIGH,
            path=file.path,
            line=line,
            rule=rule,
            message=message,
        )

    if after is None:
        yield tell("test-file-removed", f"{len(_tests(before))} tests are deleted with their file")
        return
    old, new = _tests(before), _tests(after)
    for name, test in old.items():
        if name not in new:
            yield tell("test-removed", f"{name} is gone")
            continue
        lost = _assertions(test) - _assertions(new[name])
        if lost > 0:
            what = "assertion" if lost == 1 else "assertions"
            yield tell("assertions-removed", f"{name} lost {lost} {what}", new[name].lineno)
    if _skips(after) > _skips(before):
        yield tell("skip-added", "a test is newly skipped or expected to fail")
    was = {ast.dump(node) for node in ast.walk(before) if isinstance(node, ast.Assert)}
    for node in ast.walk(after):
        if (
            isinstance(node, ast.Assert)
            and isinstance(node.test, ast.Constant)
            and ast.dump(node) not in was
        ):
            yield tell("constant-assertion", "asserts a constant", node.lineno)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _tests(tree: ast.Module) -> dict[str, Function]:
    found: dict[str, Function] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, Function) and node.name.startswith("test"):
                found[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")

    walk(tree.body, "")
    return found


def _assertions(test: Function) -> int:
    return sum(
        isinstance(node, ast.Assert)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (node.func.attr.startswith("assert") or node.func.attr in ("raises", "warns"))
        )
        for node in ast.walk(test)
    )


def _skips(tree: ast.Module) -> int:
    return sum(
        (isinstance(node, ast.Attribute) and node.attr in _SKIPS)
        or (isinstance(node, ast.Name) and node.id in _SKIPS)
        for node in ast.walk(tree)
    )
