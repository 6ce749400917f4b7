"""What can go wrong, by the boundary where it is caught.

Each class carries the exit code that the command line returns for it. A message is one clear
line: what is wrong, and what to type next.
"""


class TadpoleError(Exception):
    """Base of all errors that are ours to explain."""

    exit_code = 3


class UsageError(TadpoleError):
    """The caller asked for something that cannot be: a bad path, flag, or source."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration that does not hold: unknown key, wrong type, contradiction."""


class SourceError(UsageError):
    """A repository that cannot become a snapshot: none there, no tests, tests red at baseline."""


class NetworkError(TadpoleError):
    """A package index or a repository that could not be reached: the same command may do later."""


class TaskError(UsageError):
    """A task directory that is incomplete, changed, or of an unknown version."""


class RunError(UsageError):
    """A run directory that is none, damaged, in use, or of an unknown version."""


class ModelError(TadpoleError):
    """The policy could not be loaded or asked."""


class ContextFull(ModelError):
    """The prompt is longer than what the policy can read: a limit, not a failure."""


class SandboxError(TadpoleError):
    """Base of sandbox failures: never the model's fault, never a reward."""


class SandboxUnavailable(SandboxError):
    """This machine cannot isolate (and nothing runs unprotected): aborts the run."""


class SandboxStartError(SandboxError):
    """One sandbox did not start: try again."""


class SandboxDied(SandboxError):
    """A running sandbox went away: void the episode and make it again."""


class GraderError(TadpoleError):
    """The grader could not tell (not: the tests failed)."""


class TrainerError(TadpoleError):
    """An update that must not be applied: non-finite loss, log-probability mismatch, torn state."""
