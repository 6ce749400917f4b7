"""What the gate finds in a patch, as data."""

from enum import StrEnum

from tadpole.trace import Record


class Severity(StrEnum):
    """How bad a finding is, whatever the policy makes of it."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Action(StrEnum):
    """What the repository's policy makes of a check that found something."""

    BLOCK = "block"  # apply refuses
    WARN = "warn"  # the reviewer is told
    IGNORE = "ignore"


class Check(StrEnum):
    """Everything that the gate looks for; each has an action in ``.tadpole.toml``."""

    NEWLY_FAILING = "newly_failing"
    TESTS_NOT_RUN = "tests_not_run"
    NO_TESTS = "no_tests"
    FLAKY = "flaky"
    STILL_FAILING = "still_failing"
    TEST_WEAKENED = "test_weakened"
    SECURITY_HIGH = "security_high"
    SECURITY_MEDIUM = "security_medium"
    SECURITY_LOW = "security_low"
    SECRET = "secret"
    SCANNER_NOT_RUN = "scanner_not_run"
    DANGEROUS_CALL = "dangerous_call"
    SWALLOWED_EXCEPTION = "swallowed_exception"
    UNPARSABLE = "unparsable"
    POLICY_CHANGED = "policy_changed"
    RISKY_PATH = "risky_path"
    DEPENDENCY = "dependency"
    VULNERABLE = "vulnerable"
    BINARY = "binary"
    MODE_CHANGE = "mode_change"
    LINK = "link"
    GENERATED = "generated"
    OUTSIDE_AREA = "outside_area"
    ODD_TEXT = "odd_text"
    SIZE = "size"


class Finding(Record):
    """One thing that was found. ``line`` counts from 1 in the new file; 0 for the whole file."""

    check: Check
    severity: Severity
    path: str = ""
    line: int = 0
    tool: str = "tadpole"
    rule: str = ""
    message: str = ""

    @property
    def place(self) -> str:
        """Where, for a person: ``src/a.py:12``."""
        return f"{self.path}:{self.line}" if self.line else self.path
