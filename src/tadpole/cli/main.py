"""``tadpole``: the verbs, and the one place where errors become a line and an exit code.

====  ======================================================================
0     done
1     ran, but not all of it came out: see the output
2     wrong usage: flags, configuration, sources, directories
3     infrastructure: sandbox, model, disk, network, or a defect of ours
130   interrupted (143 where it was told to terminate, 129 where its terminal went away)
====  ======================================================================
"""

import contextlib
import difflib
import errno
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType

import click

from tadpole.errors import TadpoleError
from tadpole.visible import visible

INTERRUPTED = 130
# click before 8.2 prints that help itself.
_NO_ARGUMENTS: tuple[type[click.UsageError], ...] = tuple(
    filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)])
)
INFRASTRUCTURE = 3
UNUSABLE = (  # a path that was given, not a defect of ours
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)

# Verb: (module, what it does). Modules load when their verb is called: --help stays quick.
VERBS = {
    "demo": ("demo", "Make tasks, train, evaluate and report: the whole loop."),
    "tasks": ("tasks", "Make, validate, calibrate and show tasks."),
    "train": ("train", "Train the policy on the calibrated tasks of a run."),
    "eval": ("evaluate", "Evaluate a policy on the held-out tasks of a run."),
    "solve": ("solve", "Have an issue of your own repository worked on, in isolation."),
    "review": ("review", "Look at a proposal and decide."),
    "apply": ("apply", "Write an approved proposal into your repository."),
    "audit": ("audit", "Say whether a run is what it claims to be."),
    "report": ("report", "Write one HTML file about a run."),
    "doctor": ("doctor", "Check whether this machine can run it all."),
}


class Verbs(click.Group):
    """The verbs, loaded when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the story."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the verb's module; None where there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"tadpole.cli.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verb where there is no such one."""
        near = difflib.get_close_matches(args[0], VERBS, n=1)
        if args[0] not in VERBS:
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(VERBS)}"
            ctx.fail(f"no verb {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without loading them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, about) for verb, (_, about) in VERBS.items()])


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tadpole")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def tadpole(debug: bool) -> None:
    """Raise a small coding agent: tasks from real repositories, rewards from their tests.

    \b
    tadpole demo                      the whole loop on the embedded model
    tadpole train --help              every verb lists its settings
    tadpole train --dry-run           print the resolved configuration
    """


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    told = _on_terminate()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter stops nothing
            stream.reconfigure(errors="backslashreplace")
    try:
        code = tadpole.main(list(args), prog_name="tadpole", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except _NO_ARGUMENTS as error:  # a verb that only has verbs below it: its help, as it is
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", 128 + told[0] if told else INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if "--debug" in args:
            traceback.print_exc()
        return explain(error)


def explain(error: BaseException) -> int:
    """Print one line about an error on stderr; returns the exit code."""
    error = _innermost(error)
    if isinstance(error, TadpoleError):
        return _say(str(error), error.exit_code)
    from tadpole.rundir import cache_dir  # with all the shapes of rows, which --help does without

    if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
        where = getattr(error, "filename", None) or f"the run directory or {cache_dir()}"
        return _say(
            f"no space left on the disk, writing {where}: free some and repeat the command, it "
            f"goes on where it was ({cache_dir()} may be deleted, it is made again)",
            INFRASTRUCTURE,
        )
    if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename:
        return _say(f"cannot use {error.filename} ({error.strerror}): give another path", 2)
    if isinstance(error, MemoryError):
        return _say("out of memory: lower --run.concurrency or use a smaller model", INFRASTRUCTURE)
    kept = _keep(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _say(f"unexpected {what[:200]} ({kept})", INFRASTRUCTURE)


def _innermost(error: BaseException) -> BaseException:
    """Of a group, the error that can be explained, else the first."""
    while isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(TadpoleError)
        error = (ours or error).exceptions[0]
    return error


def _keep(error: BaseException) -> str:
    """Write the traceback to a log; says where it is."""
    from tadpole.rundir import cache_dir

    name = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    try:
        log = Path(cache_dir(), "logs", name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError:
        return "say tadpole --debug ... to see where"
    return f"details in {log}"


def _say(line: str, code: int) -> int:
    with contextlib.suppress(OSError):  # a terminal that went away
        print("tadpole:", visible(" ".join(line.split())), file=sys.stderr)
    return code


def _on_terminate() -> list[int]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that nothing of ours is left; notes which.

    A SIGHUP that is ignored, as under nohup, stays so.
    """
    told: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt  # not by SIGINT: a shell's background job ignores that one

    signal.signal(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, terminate)
    return told
