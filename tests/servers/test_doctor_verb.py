"""``tadpole doctor`` about a served model, as a process, and about a real llama.cpp."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from misbehaving import MODEL, begin

from tadpole.cli.main import run

COMMAND = [sys.executable, "-c", "from tadpole.cli.main import main; main()"]
LLAMA = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.port = sys.argv[1], 2048, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def doctor(base: str, *args: str) -> tuple[int, dict]:
    done = subprocess.run(
        [*COMMAND, "doctor", "--json", *args], capture_output=True, text=True, check=False,
        timeout=200, env=os.environ | {"OPENAI_BASE_URL": base},
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.slow
@pytest.mark.parametrize(("call", "code"), [("native", 0), ("refused", 3)])
def test_the_exit_code_says_whether_an_episode_could_run(call: str, code: int):
    server = begin("vLLM", call=call)
    done, found = doctor(server.url, "--context", "3000")
    server.shutdown()
    server.server_close()
    assert done == code
    assert found["server"]["more"] == {"kind": "vLLM", "models": [MODEL]}
    assert found["tool call"]["ok"] is (code == 0) and found["context"]["ok"]
    assert found["sandbox"]["ok"]  # the machine is looked at too


def test_wrong_usage_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert run(["doctor", "--model", "qwen"]) == 2
    assert "--model takes openai:NAME" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_llama_cpp_server(tmp_path: Path):
    """Its model is far too small to call tools and its template knows none: both are found."""
    python = os.environ.get("TADPOLE_TEST_LLAMA_PYTHON") or (
        sys.executable if find_spec("xllamacpp") else ""
    )
    gguf = os.environ.get("TADPOLE_TEST_GGUF", "")
    if not python or not gguf:
        pytest.skip(
            "needs the package xllamacpp (here, or in the Python that TADPOLE_TEST_LLAMA_PYTHON "
            "names) and a GGUF file (TADPOLE_TEST_GGUF)"
        )
    process = subprocess.Popen(
        [python, "-c", LLAMA, gguf], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        base = process.stdout.readline().strip() + "/v1"
        code, found = doctor(base, "--model", "openai:small", "--context", "4096")
    finally:
        process.kill()
        process.wait()
    assert code == 3
    assert found["server"]["more"]["kind"] == "llama.cpp"
    assert found["answer"]["ok"] and found["speed"]["more"]["rate"] > 0
    assert "chat template leaves them out" in found["tool call"]["detail"]
    assert "--chat-template-file" in found["tool call"]["fix"]
    assert found["tool result"]["ok"]
    assert not found["context"]["ok"] and found["context"]["more"]["told"] == 2048
    assert 1800 <= found["context"]["more"]["holds"] <= 2048
    assert found["context"]["fix"].startswith("restart llama-server with -c 4096")
    assert "0.135e9 weights" in found["needs"]["detail"]
