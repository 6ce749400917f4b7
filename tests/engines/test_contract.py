"""The contract with verl: every name that is used is there, and it takes our configuration."""

import ast
import contextlib
import importlib.util
import io
import os
import sys
from pathlib import Path

import pytest

from tadpole import process
from tadpole.cli.main import run
from tadpole.config import load
from tadpole.engines import verl as ours
from tadpole.engines.verl import stage
from tadpole.engines.verl.dryrun import composed, validated
from tadpole.engines.verl.overrides import overrides
from tadpole.engines.verl.rows import FAILED, STALE
from tadpole.engines.verl.symbols import BASE, SYMBOLS, VERSION, WORDS, Symbol, Word, moved

PACKAGE = Path(ours.__file__).parent
needs_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None,
    reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
)


def imported():
    """(module, name) of all that the package takes from verl."""
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "verl":
                yield from ((node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((a.name, "") for a in node.names if a.name.partition(".")[0] == "verl")


def test_the_contract_names_all_that_is_imported():
    named = {(symbol.module, symbol.name) for symbol in SYMBOLS}
    used = set(imported())
    assert used and used <= named, used - named


def test_the_contract_names_all_that_is_overridden():
    """What our trainer passes on to verl's, it takes over from it."""
    named = {symbol.name.partition(".")[2] for symbol in SYMBOLS if symbol.module == BASE}
    tree = ast.parse((PACKAGE / "trainer.py").read_text())
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    passed_on = {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute)
        and isinstance(call.value, ast.Call)
        and getattr(call.value.func, "id", "") == "super"
    }
    assert len(passed_on) > 3 and passed_on - {"__init__"} <= named, passed_on - named


def test_the_contract_names_the_words_that_rows_and_stage_read():
    said = {word.text.strip('"') for word in WORDS}
    read = {STALE, FAILED}
    assert {word.removeprefix("training") for word in read} | {stage.LATEST} <= said


def test_nobody_else_imports_verl():
    for file in PACKAGE.parents[1].rglob("*.py"):
        text = file.read_text()
        if PACKAGE not in file.parents and "verl" in text:
            tree = ast.parse(text)
            names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
            names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
            assert not any(name.partition(".")[0] == "verl" for name in names), file


@pytest.mark.parametrize(
    ("symbol", "line"),
    [
        (Symbol("json", "dump_all"), "json.dump_all is gone"),
        (Symbol("no_such_module", "x"), "the module cannot be imported"),
        (Symbol("json", "dumps", takes=("objects",)), "does not take 'objects' any more"),
        (Symbol("json", "JSONEncoder", holds=("encode_all",)), "has no 'encode_all' any more"),
        (Symbol("json", "JSONEncoder.encode_all"), "is gone"),
    ],
)
def test_what_has_moved_is_said_in_words(symbol, line):
    (found,) = moved([symbol], [])
    assert line in found and "\n" not in found


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (Word("json", '"no such key"'), 'json does not say "no such key" any more'),
        (Word("no_such_module", "x"), "no_such_module is gone"),
        (Word("no_such_module.part", "x"), "no_such_module.part: the module cannot be found"),
    ],
)
def test_a_word_that_is_not_said_any_more(word, line):
    assert moved([], [Word("json", "JSONDecoder")]) == []
    (found,) = moved([], [word])
    assert line in found and "\n" not in found


@pytest.mark.slow
@needs_verl
class TestInstalled:
    def test_it_is_the_version_that_was_written_for(self):
        import verl

        assert verl.__version__ == VERSION

    def test_every_symbol_is_as_it_is_used(self):
        assert moved() == []

    @pytest.mark.parametrize("rollout", ["vllm", "sglang"])
    @pytest.mark.parametrize("preset", ["verl-report", "verl-8x80", "verl-2nodes"])
    def test_a_dry_run_is_validated(self, preset, rollout, tmp_path, capsys):
        words = ["--run", str(tmp_path / "run"), "--cluster.rollout", rollout]
        assert run(["train", "--preset", preset, "--dry-run", *words]) == 0
        said = capsys.readouterr()
        assert "composed and validated all of it" in said.err
        assert len(said.out.splitlines()) > 60
        assert not (tmp_path / "run").exists()

    def test_the_entry_point_registers_the_loss_in_a_fresh_process(self):
        code = (
            "import verl; from tadpole.engines.verl.registered import missing_in as m; print(m())"
        )
        fresh = process.run([sys.executable, "-c", code])
        assert fresh.ok and fresh.stdout.decode().strip() == "", fresh
        without = process.run(
            [sys.executable, "-c", code], env=os.environ | {"VERL_USE_EXTERNAL_PLUGINS": "none"}
        )
        assert b"tadpole_dppo is not registered in NoneType" in without.stdout

    def test_a_list_that_verl_does_not_know_is_refused_in_one_line(self):
        asked = [*overrides(load(preset="verl-report")), "trainer.no_such_thing=1"]
        refusal = validated(asked)
        assert "no_such_thing" in refusal and "\n" not in refusal

    def test_what_was_asked_arrives(self):
        with contextlib.redirect_stdout(io.StringIO()):
            config = composed(overrides(load({"train.lr": "3e-6"}, preset="verl-8x80")))
        assert config.actor_rollout_ref.actor.optim.lr == 3e-6
        assert config.actor_rollout_ref.actor.checkpoint.save_contents[-1] == "hf_model"
        assert config.trainer.v1.sampler.max_off_policy_threshold == 4


def test_without_verl_a_dry_run_says_that_nothing_was_validated(capsys):
    if "not validated" not in validated([]):
        pytest.skip("verl is installed here")
    assert run(["train", "--preset", "verl-8x80", "--dry-run"]) == 1
    said = capsys.readouterr()
    assert "trainer.v1.trainer_mode=tadpole" in said.out
    assert "verl is not installed here" in said.err
