"""A run that a tiny Qwen3.5 can climb: real tasks, and a vocabulary that holds their repairs.

The tokenizer has one token for each task's right call, one for a useless call, and bytes. The
head prefers those few, so that a random model solves some of its episodes and learns which.
"""

import asyncio
from pathlib import Path

import torch

from tadpole.config import load, open_run
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.grading.grader import PytestGrader
from tadpole.job import Job
from tadpole.leaf.calls import CallFormat, render
from tadpole.models.location import weights_hash
from tadpole.pilot import make
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.progress import Progress
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.task import Task
from tadpole.trace import ToolCall
from tadpole.workshop import Workshop
from tests.engines.qwen import tiny_whole
from tests.tiny import byte_tokenizer

TURN_END = 256  # <|im_end|> in the byte tokenizer


def right_call(task: Task) -> str:
    """The call that repairs a task: the file as it was."""
    gold = task.gold[0]
    arguments = {"file_path": gold.path, "content": gold.content.decode()}
    return render(ToolCall(name="Write", arguments=arguments), CallFormat.HERMES)


def make_model(path: Path, tasks: list[Task]) -> None:
    """Tokenizer and weights as a Hugging Face directory."""
    tokenizer = byte_tokenizer()
    useless = render(ToolCall(name="Glob", arguments={"pattern": "*"}), CallFormat.HERMES)
    calls = [*(right_call(task) for task in tasks), useless]
    tokenizer.add_tokens(calls)
    ids = tokenizer.convert_tokens_to_ids(calls)
    assert len(tokenizer) == len(set(ids)) + 258
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model = tiny_whole(vocabulary=512, eos_token_id=end, pad_token_id=0)
    with torch.no_grad():
        way = torch.randn(model.config.text_config.hidden_size)
        embed, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        embed.copy_(way + 0.3 * torch.randn_like(embed))  # all that is seen leads one way ...
        head.mul_(0.1)
        head.sub_(0.3 * way)  # ... away from bytes,
        for token in set(ids):  # tasks may have one repair
            head[token].add_(0.6 * way)  # ... and to calls
        head[end].add_(0.63 * way)
    tokenizer.save_pretrained(path)
    model.save_pretrained(path)


def make_job(root: Path, repository: str, store, settings: dict) -> Job:
    """A run of three tasks, all of them to train on, with the model in place."""
    engine = BubblewrapEngine()
    tasks = asyncio.run(
        make.make_tasks(
            [repository], count=3, seed=0, store=store, engine=engine,
            grader=PytestGrader(engine, store), out=root / "run" / "tasks",
            progress=Progress.silent(),
        )
    )  # fmt: skip
    make_model(root / "model", tasks)
    made = root / "tasks"
    (root / "run" / "tasks").rename(made)
    (root / "run").rmdir()
    config = load(
        {"run.dir": str(root / "run"), "policy.model": str(root / "model"), "tasks.dir": str(made)}
        | settings
    )
    places = [
        Place(name=t.name, id=t.id, rung=t.rung, part=Part.TRAIN, passes=1, valid=2) for t in tasks
    ]
    with open_run(config) as run:
        save_split(run, Split(places=tuple(places)))
        fingerprint = weights_hash(root / "model")
        note_policy(run, PolicyRow(role=PolicyRole.BEFORE, fingerprint=fingerprint))
    workshop = Workshop.open(store.cache, config.sandbox, config.grading.tier)
    return Job(config, run, workshop, Progress.silent())
