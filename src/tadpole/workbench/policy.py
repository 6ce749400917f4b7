"""What blocks a patch and what warns: ``.tadpole.toml`` in the repository, with its defaults.

Guards against: a patch that relaxes the policy it is judged by. The file is read from the base,
never from the patched tree.

::

    [tests]
    command = "pytest -q tests"   # pytest is read test by test, others by their exit status
    seconds = 600                 # deadline of one run
    repeats = 2                   # runs more for a test that changed, to tell flaky ones

    [gate]                        # block, warn or ignore, one line per check
    newly_failing = "block"
    max_files = 20                # above these it is of a size to be told
    max_lines = 400

    [scanners]
    semgrep = "ci/semgrep"        # rules in the repository; left out: .semgrep.yml or .semgrep
    pip_audit = false             # do not ask a database about newly pinned packages

    [commands]                    # of the model, while it works; by their first words
    allow = ["pytest", "git log"] # nothing else runs; left out: all that is not denied
    deny = ["pip install"]
"""

import difflib
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tadpole.errors import ConfigError
from tadpole.leaf.approval import Approval, CommandPolicy
from tadpole.repos.files import Files
from tadpole.tomlfile import parse_toml, shown
from tadpole.workbench.finding import Action, Check

FILE = ".tadpole.toml"
_BLOCK, _WARN, _IGNORE = Action.BLOCK, Action.WARN, Action.IGNORE


def _words(prefix: Any) -> Any:
    """``"git push"`` as the words that bash would see. Raises ValueError."""
    if not isinstance(prefix, str):
        return prefix
    words = shlex.split(prefix)
    if not words:
        raise ValueError("an empty prefix: name a program, or leave it out")
    return tuple(words)


Prefix = Annotated[tuple[str, ...], BeforeValidator(_words)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TestsPolicy(_Part):
    """How the tests are run."""

    __test__ = False  # not a test class for pytest

    command: str = ""  # empty: pytest, where and as the repository configures it
    seconds: Annotated[float, Field(gt=0)] = 600.0
    repeats: Annotated[int, Field(ge=0, le=10)] = 2


class GatePolicy(_Part):
    """One action per check, and the sizes above which ``size`` is found."""

    newly_failing: Action = _BLOCK
    tests_not_run: Action = _BLOCK
    no_tests: Action = _WARN
    flaky: Action = _WARN
    still_failing: Action = _WARN
    test_weakened: Action = _BLOCK
    security_high: Action = _BLOCK
    security_medium: Action = _WARN
    security_low: Action = _WARN
    secret: Action = _BLOCK
    scanner_not_run: Action = _WARN
    dangerous_call: Action = _WARN
    swallowed_exception: Action = _WARN
    unparsable: Action = _BLOCK
    policy_changed: Action = _BLOCK
    risky_path: Action = _WARN
    dependency: Action = _WARN
    vulnerable: Action = _BLOCK
    binary: Action = _WARN
    mode_change: Action = _WARN
    link: Action = _WARN
    generated: Action = _WARN
    outside_area: Action = _WARN
    odd_text: Action = _BLOCK
    size: Action = _WARN
    max_files: Annotated[int, Field(ge=1)] = 20
    max_lines: Annotated[int, Field(ge=1)] = 400

    def action(self, check: Check) -> Action:
        """What is made of a finding of ``check``."""
        found: Action = getattr(self, check.value)
        return found


class ScannersPolicy(_Part):
    """What the scanners go by that are not always there."""

    semgrep: str = ""  # its rules in the repository; empty: .semgrep.yml or .semgrep, if there
    pip_audit: bool = True  # where it is installed: asks a database about newly pinned packages


class CommandsPolicy(_Part):
    """Which Bash commands of the model run. Nobody is asked while it works: what would have to
    be asked about does not run."""

    allow: tuple[Prefix, ...] | None = None  # None: in its box it may run what is not denied
    deny: tuple[Prefix, ...] = ()

    def refusal(self, command: str) -> str:
        """Why ``command`` does not run; empty where it does."""
        if self.allow is None and not self.deny:
            return ""
        decision = CommandPolicy(self.allow or (), self.deny).decide(command)
        denied = decision.approval is Approval.DENY
        outside = self.allow is not None and decision.approval is not Approval.ALLOW
        return decision.reason if denied or outside else ""


class GateRules(_Part):
    """The whole file."""

    tests: TestsPolicy = TestsPolicy()
    gate: GatePolicy = GatePolicy()
    scanners: ScannersPolicy = ScannersPolicy()
    commands: CommandsPolicy = CommandsPolicy()


def read_policy(base: Files) -> GateRules:
    """The policy of a base tree; defaults where it has none. Raises ConfigError, one line."""
    file = base.get(FILE)
    if file is None or file.content is None:
        return GateRules()
    try:
        body = parse_toml(file.content.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{FILE} is not valid TOML ({error}): correct it and commit") from None
    _refuse_unknown(body, GateRules, "")
    try:
        return GateRules.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        got = f", got {shown(first['input'])}"
        raise ConfigError(f"{FILE} {name}: {first['msg']}{got}: correct it and commit") from None


def _refuse_unknown(body: Mapping[str, Any], kind: type[BaseModel], where: str) -> None:
    for key, value in body.items():
        field = kind.model_fields.get(key)
        if field is None:
            near = difflib.get_close_matches(key, kind.model_fields, n=1)
            known = ", ".join(kind.model_fields)
            hint = f"did you mean {where}{near[0]}?" if near else f"there are {known}"
            raise ConfigError(f"{FILE} has an unknown key {where}{key}; {hint}")
        part = field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            if not isinstance(value, dict):
                raise ConfigError(
                    f"{FILE} {where}{key} is {shown(value)}: make it a table, [{key}]"
                )
            _refuse_unknown(value, part, f"{where}{key}.")
