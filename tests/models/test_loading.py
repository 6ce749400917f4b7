"""A model directory is loaded whole, or refused in one line."""

import json
import subprocess
import sys

import pytest
import torch

from tadpole.errors import ModelError
from tadpole.models.embedded import embedded_policy
from tadpole.models.loading import load_model, weights_hash
from tadpole.models.location import problem
from tadpole.progress import Progress
from tests.tiny import byte_tokenizer, llama


@pytest.fixture
def directory(tmp_path):
    llama().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def refused(directory):
    with pytest.raises(ModelError) as caught:
        load_model(directory)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_it_is_loaded_whole(directory):
    loaded = load_model(directory)
    for name, tensor in llama().state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])
    assert loaded.fingerprint == weights_hash(directory)


def test_a_mistyped_directory_is_not_taken_for_a_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/main/policy").mkdir(parents=True)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    for name in ("runs/polcy", "runs/main/polcy", "a/b/c", "./x", "/x", "~/x", "x/", "runs"):
        assert "is no model directory" in problem(name), name
    assert problem("polcy").endswith("did you mean policy?")
    assert "did you mean policy? Else give" in problem("./polcy")
    for name in ("Qwen/Qwen3.5-4B", "gpt2", "policy"):
        assert problem(name) == ""
    assert "there is no such directory" in refused("runs/main/polcy")


def test_missing_weights_are_not_filled_with_random_ones(directory):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    assert "missing" in refused(directory)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(directory, value):
    model = llama()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[2, 5] = value
    model.save_pretrained(directory)
    assert "first model.layers.1.mlp.up_proj.weight" in refused(directory)


def test_truncated_weights(directory):
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(directory)


@pytest.mark.parametrize("text", ["[]", "{", '{"model_type": "no-such-model"}'])
def test_broken_config(directory, text):
    (directory / "config.json").write_text(text)
    refused(directory)


def test_code_that_lies_beside_the_weights_is_not_run_even_where_one_would_say_yes(
    directory, tmp_path
):
    mark = tmp_path / "ran"
    config = json.loads((directory / "config.json").read_text())
    auto = {"AutoConfig": "beside.Config", "AutoModelForCausalLM": "beside.Model"}
    (directory / "config.json").write_text(
        json.dumps(config | {"model_type": "theirs", "auto_map": auto})
    )
    (directory / "beside.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    code = f"from tadpole.models.loading import load_model; load_model({str(directory)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], input="y\n" * 5, capture_output=True, text=True, check=False
    )
    assert not mark.exists() and "ModelError: cannot load the model" in done.stderr, done.stderr


def test_no_model_at_all(tmp_path):
    assert "no config.json" in refused(tmp_path)
    assert "there is no such directory" in refused(tmp_path / "nothing")


@pytest.mark.slow
def test_the_embedded_model_is_made_with_our_own_progress_alone(tmp_path, capfd):
    path = embedded_policy(tmp_path, Progress())
    assert (path / "config.json").exists() and (path / "model.safetensors").exists()
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == "make the embedded model: 2 to do, 0 done"
    assert "GGUF" not in said.err and "%|" not in said.err
