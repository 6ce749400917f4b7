import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tadpole.leaf import toolbox
from tadpole.process import run

SOURCE = "".join(p.read_text() for p in sorted(Path(toolbox.__file__).parent.glob("*.py")))


@dataclass
class Box:
    """The toolbox on a plain directory."""

    root: Path

    def call(self, tool, **arguments):
        return toolbox.call(tool, arguments, str(self.root), self.bash)

    def ok(self, tool, **arguments):
        text, error = self.call(tool, **arguments)
        assert not error, text
        return text

    def refused(self, tool, **arguments):
        before = self.snapshot()
        text, error = self.call(tool, **arguments)
        assert error, text
        assert self.snapshot() == before, "a refused call changed something"
        return text

    def bash(self, command, seconds):
        done = run(
            ["/bin/bash", "-c", command], cwd=self.root, timeout=seconds, head=40_000, tail=40_000
        )
        return vars(done) | {"reason": done.reason.value}

    def put(self, path, content, mode=None):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        if mode is not None:
            target.chmod(mode)
        return target

    def get(self, path):
        return (self.root / path).read_bytes()

    def snapshot(self):
        return {
            p: p.read_bytes()
            for p in sorted(self.root.rglob("*"))
            if p.is_file() and os.access(p, os.R_OK)
        }


@pytest.fixture
def box(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    return Box(root)


CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As in Qwen2.5: schemas in the system turn, results merged into one user turn.
TOOLS = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content }}"
    "{%- if tools %}{{- '\n<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}"
    "{%- endfor %}{{- '\n</tools>' }}{%- endif %}{{- '<|im_end|>\n' }}{%- endif %}"
)
RESULT = (
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}"
    "{{- '<|im_start|>user' }}{%- endif %}"
    "{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
    "{{- '<|im_end|>\n' }}{%- endif %}"
)
QWEN25 = (
    TOOLS + "{%- for message in messages %}"
    "{%- if message.role == 'user' or message.role == 'assistant' %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    + RESULT
    + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
# Reasoning of turns before the last real question is dropped, an empty block is put into the
# last turn, and the generation prompt may open the reasoning.
QWEN3 = (
    TOOLS + "{%- set ns = namespace(last=0) %}{%- for message in messages %}"
    "{%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}"
    "{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}"
    "{%- set content = message.content %}{%- set thought = '' %}"
    "{%- if '</think>' in content %}"
    "{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{{- '<|im_start|>assistant\n' }}"
    "{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<think>\n' + thought + '\n</think>\n\n' }}{%- endif %}"
    "{{- content + '<|im_end|>\n' }}" + RESULT + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}"
    "{%- elif opens_thinking is defined %}{{- '<think>\n' }}{%- endif %}{%- endif %}"
)
# Drops the reasoning of every turn, as some distilled models do.
FORGETFUL = CHATML.replace("message['content'] +", "message['content'].split('</think>')[-1] +")
TEMPLATES = {"chatml": CHATML, "qwen25": QWEN25, "qwen3": QWEN3, "forgetful": FORGETFUL}


@pytest.fixture(scope="session")
def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    corpus = [SOURCE, '{"name": "Edit", "arguments": {}}' * 9]
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=special,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    for token in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=False)])

    def make(name, **changes):
        options = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} | changes
        made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)
        made.chat_template = TEMPLATES.get(name, name)
        return made

    return make


@pytest.fixture(scope="session")
def old_python():
    """The oldest Python 3 that is there, to show that the toolbox runs on it."""
    found = sorted(Path.home().glob(".pyenv/versions/3.[6-9]*/bin/python"))
    for python in found:
        if subprocess.run([python, "-c", ""], stdin=subprocess.DEVNULL).returncode == 0:
            return str(python)
    return sys.executable
