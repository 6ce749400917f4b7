"""A climb learns, leaves its rows, and survives kill -9."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from tadpole.errors import TrainerError
from tadpole.rl.batch import Sample, micro_batches
from tadpole.rl.checkpoint import checkpoints, read_state
from tadpole.rl.dealing import pick_tasks
from tadpole.rl.learner import Learner
from tadpole.rl.logprob import token_logprobs
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rundir import RunDir
from tadpole.trace import Attempt, Tokens
from tests.rl.climbing import make_climb, tasks
from tests.tiny import llama

ROOT = Path(__file__).parents[2]


def sample(ids, prompt, advantage=1.0, logq=-1.0):
    rest = len(ids) - prompt
    return Sample(
        Tokens(
            ids=tuple(ids),
            logprobs=(*[0.0] * prompt, *[logq] * rest),
            loss_mask=(*[0] * prompt, *[1] * rest),
            versions=(*[-1] * prompt, *[0] * rest),
        ),
        advantage,
    )


def group(seed, members=5, prompt=9):
    torch.manual_seed(seed)
    common = torch.randint(257, (prompt,)).tolist()
    return [
        sample([*common, *torch.randint(257, (length,)).tolist()], prompt, advantage=length - 3.0)
        for length in (1, 4, 4, 7, 2)[:members]
    ]


class TestSharedPrefix:
    """Laying a group out in one row changes the work, never the numbers."""

    @pytest.mark.parametrize("most", [16, 30, 64, 1000])
    def test_log_probabilities_are_those_of_separate_rows(self, most):
        model = llama()
        samples = [*group(0), *group(1)]

        def scored(share):
            found = {}
            for batch in micro_batches(samples, most, share):
                logp_N, _ = token_logprobs(model, batch)
                for target, a, logp in zip(
                    batch.target_N, batch.advantage_N, logp_N.detach(), strict=True
                ):
                    found.setdefault((int(target), float(a)), []).append(round(float(logp), 4))
            return {key: sorted(values) for key, values in found.items()}

        shared, apart = scored(True), scored(False)
        assert shared.keys() == apart.keys()
        for key, values in shared.items():
            assert values == pytest.approx(apart[key], abs=2e-4)

    def test_it_is_less_work(self):
        samples = group(0)
        work = {
            share: sum(batch.ids_BT.numel() for batch in micro_batches(samples, 1000, share))
            for share in (True, False)
        }
        assert work[True] == 9 + 18 < work[False]

    @pytest.mark.parametrize(("prompt", "rest", "rows"), [(200, 20, 1), (200, 180, 2), (9, 200, 8)])
    def test_a_row_is_as_long_as_pays(self, prompt, rest, rows):
        """Attention costs its square: long rests after a short prompt have rows of their own."""
        ids = [1] * prompt + [2] * rest
        found = list(micro_batches([sample(ids, prompt)] * 8, 1 << 20))
        assert sum(len(batch.ids_BT) for batch in found) == rows
        assert sum(len(batch.target_N) for batch in found) == 8 * rest
        assert any(batch.shared for batch in found) == (rows < 8)

    def test_every_trainable_token_comes_once(self):
        samples = [*group(0), *group(1), *group(2, members=1)]
        for share in (True, False):
            total = sum(len(b.target_N) for b in micro_batches(samples, 40, share))
            assert total == sum(s.trainable for s in samples)

    def test_gradients_agree(self):
        norms = []
        for share in (True, False):
            learner = Learner(llama(), lr=0.0, micro_batch_tokens=64, max_mean_gap=1.0)
            learner.share = share
            norms.append(learner.update(group(0)).grad_norm)
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


class TestLearner:
    def test_micro_batches_do_not_change_the_update(self):
        states = []
        for most in (24, 4096):
            model = llama()
            Learner(model, lr=1e-2, micro_batch_tokens=most, max_mean_gap=1.0).update(group(3))
            states.append(model.state_dict())
        for name, tensor in states[0].items():
            torch.testing.assert_close(tensor, states[1][name], atol=2e-4, rtol=1e-3)

    def test_a_mismatch_between_engines_is_refused_and_changes_nothing(self):
        model = llama()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        learner = Learner(model, lr=1e-2, max_mean_gap=0.05)
        with pytest.raises(TrainerError, match=r"mean \|p - q\|"):
            learner.update([sample([1, 2, 3], 1, logq=0.0)])
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name])

    def test_too_many_tokens_outside_the_trust_region_are_refused(self):
        model = llama()
        far = sample([1, 2], 1, advantage=-1.0, logq=0.0)  # q = 1: p - q < -0.2
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with pytest.raises(TrainerError, match="100% of the tokens are outside the trust region"):
            Learner(model, lr=1e-2, max_mean_gap=1.0, max_dropped_share=0.5).update([far])
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name])
        stats = Learner(model, lr=1e-2, max_mean_gap=1.0, max_dropped_share=1.0).update([far])
        assert stats.dropped_share == 1.0

    def test_an_update_that_leaves_no_finite_weights_is_told(self):
        model = llama()
        learner = Learner(model, lr=1e-3, max_mean_gap=1.0)
        learner.update(group(0))
        state = learner.optimizer.state[model.model.embed_tokens.weight]
        state["exp_avg"][5] = torch.nan  # a torn optimizer state
        with pytest.raises(TrainerError, match=r"not finite, first model\.embed_tokens\.weight"):
            learner.update(group(0))

    @pytest.mark.parametrize("case", ["not finite", "spike"])
    def test_a_step_that_would_do_harm_is_skipped_and_says_so(self, case):
        model = llama()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if case == "spike":
            learner = Learner(model, lr=1e-2, max_mean_gap=1.0, spike_norm=1e-9)
            stats = learner.update(group(0))
            assert "is above 1e-09" in stats.skipped
        else:
            learner = Learner(model, lr=1e-2, max_mean_gap=1.0)
            # p / q overflows although p - q is small: log q of a token that was never drawn
            stats = learner.update([sample([1, 2, 3], 1, advantage=1.0, logq=-200.0)])
            assert "is not finite" in stats.skipped
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name])
        assert not learner.update(group(1)).skipped or case == "spike"  # and it goes on

    @pytest.mark.parametrize("how", ["trained", "refused", "imitated"])
    def test_the_model_is_sampled_next_and_so_is_not_left_in_training_mode(self, how):
        model = llama()
        learner = Learner(model, lr=1e-2, max_mean_gap=0.0 if how == "refused" else 1.0)
        if how == "imitated":
            learner.imitate(group(0))
        elif how == "refused":
            with pytest.raises(TrainerError):
                learner.update(group(0))
        else:
            learner.update(group(0))
        assert not any(module.training for module in model.modules())

    def test_gradient_checkpointing_changes_nothing(self):
        states = []
        for checkpointing in (False, True):
            model = llama()
            learner = Learner(model, lr=1e-2, max_mean_gap=1.0, checkpointing=checkpointing)
            learner.update(group(0))
            learner.update(group(1))
            states.append(model.state_dict())
            with torch.no_grad():  # it still decodes with a cache
                assert model(torch.tensor([[1, 2]]), use_cache=True).past_key_values is not None
        for name, tensor in states[0].items():
            torch.testing.assert_close(tensor, states[1][name], atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("chunk", [1, 3, 8, 1000])
    def test_chunks_change_neither_log_probabilities_nor_gradients(self, chunk):
        """And the head never sees more positions at a time: the vocabulary stays in pieces."""
        found = []
        for size in (chunk, 1 << 20):
            model, seen = llama(), []
            model.lm_head.register_forward_hook(lambda *a, seen=seen: seen.append(len(a[1][0])))
            (batch,) = micro_batches([*group(0), *group(1)], 1000)
            logp_N, entropy_N = token_logprobs(model, batch, chunk=size)
            logp_N.sum().backward()
            assert max(seen) == min(size, len(logp_N)) and len(logp_N) == 36
            found.append((logp_N.detach(), entropy_N, model.model.embed_tokens.weight.grad))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)

    def test_bfloat16_keeps_float32_weights_and_moments(self):
        """A step of the published size is far below what bfloat16 can tell apart."""
        model = llama()
        before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        learner = Learner(model, lr=1e-6, dtype=torch.bfloat16, max_mean_gap=1.0, weight_decay=0.0)
        learner.update(group(0))
        state = [s[name] for s in learner.optimizer.state.values() for name in ("exp_avg",)]
        assert {p.dtype for p in learner.parameters} == {m.dtype for m in state} == {torch.float32}
        moved = kept = 0
        for name, tensor in model.named_parameters():
            moved += int((tensor != before[name]).sum())
            kept += int((tensor.bfloat16() != before[name].bfloat16()).sum())
        assert moved > 0.5 * sum(p.numel() for p in model.parameters()) > 100 * kept

    def test_nothing_to_train_on_is_an_error(self):
        with pytest.raises(TrainerError, match="at least one"):
            Learner(llama(), lr=1e-2).update([])


class TestClimb:
    async def test_it_learns_and_its_checkpoint_is_the_policy(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=12)
        rows = []
        try:
            saved = await climb.run(tasks(), rows.append)
        finally:
            climb.policy.close()
        rewards = [row.mean_reward for row in rows]
        assert sum(rewards[-4:]) / 4 > sum(rewards[:3]) / 3 + 0.2
        assert max(row.max_abs_pq or 0 for row in rows) < 1e-5  # trained by who sampled it
        assert read_state(saved).update == 12
        fresh = type(climb.learner.model).from_pretrained(saved)
        for name, tensor in fresh.state_dict().items():
            assert torch.equal(tensor, climb.learner.model.state_dict()[name])

    async def test_what_was_rolled_out_before_is_read_once(self, tmp_path):
        """The table grows with every update: to read it at each costs their square."""

        class Counted(RunDir):
            tables: ClassVar = []

            def rows(self, table, model):
                self.tables.append(table)
                return super().rows(table, model)

        climb = make_climb(tmp_path / "run", updates=5)
        climb.rundir = Counted(climb.rundir.path)
        await climb.run(tasks(), lambda row: None)
        climb.policy.close()
        assert Counted.tables.count(ROLLOUTS) == 1

    async def test_a_finished_climb_is_not_made_again(self, tmp_path):
        for _ in range(2):
            climb = make_climb(tmp_path / "run", updates=2)
            await climb.run(tasks(), lambda row: None)
            climb.policy.close()
        assert not climb.rollout.made
        assert len(climb.rundir.rows(TABLE, UpdateRow)) == 2

    async def test_what_infrastructure_broke_is_made_again_and_never_a_zero(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=1, broken={("t1", 3)})
        rows = []
        await climb.run(tasks(), rows.append)
        climb.policy.close()
        tries = [made for made in climb.rollout.made if made[1:] == ("t1", 3)]
        assert len(tries) == 3
        assert (rows[0].episodes, rows[0].invalid) == (23, 1)

    async def test_groups_without_variance_make_no_step(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=1, fixed_reward=1.0)
        before = {k: v.clone() for k, v in climb.learner.model.state_dict().items()}
        rows = []
        await climb.run(tasks(), rows.append)
        climb.policy.close()
        assert (rows[0].dropped_groups, rows[0].solved_groups, rows[0].loss) == (3, 3, None)
        for name, tensor in climb.learner.model.state_dict().items():
            assert torch.equal(tensor, before[name])

    async def test_three_skipped_updates_in_a_row_end_it(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=6)
        climb.learner.spike_norm = 1e-9
        rows = []
        with pytest.raises(TrainerError, match="3 updates in a row were skipped") as caught:
            await climb.run(tasks(), rows.append)
        climb.policy.close()
        assert [bool(row.skipped) for row in rows] == [True, True]
        newest = checkpoints(tmp_path / "run" / "checkpoints")[-1]
        assert f"remove {newest} to go on from before it" in str(caught.value)

    async def test_no_tasks(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=1)
        with pytest.raises(TrainerError, match="no task to train on"):
            await climb.run([], lambda row: None)

    async def test_a_checkpoint_with_nan_is_not_gone_on_from(self, tmp_path):
        climb = make_climb(tmp_path / "run", updates=2)
        saved = await climb.run(tasks(), lambda row: None)
        climb.policy.close()
        model = climb.learner.model
        with torch.no_grad():
            model.lm_head.weight[3, 3] = torch.nan
        model.save_pretrained(saved)
        again = make_climb(tmp_path / "run", updates=4)
        with pytest.raises(TrainerError, match=r"not all finite, first model\.embed_tokens"):
            await again.run(tasks(), lambda row: None)

    @pytest.mark.parametrize("broken", ["nan", "torn weights", "torn adapters", "torn moments"])
    async def test_what_a_broken_checkpoint_advises_works(self, tmp_path, broken):
        """Of the checkpoint before it the optimizer's state is gone: it costs disk."""
        train = {"lora": {"rank": 2}} if broken == "torn adapters" else {}
        if train:
            pytest.importorskip("peft")
        climb = make_climb(tmp_path / "run", 4, train)
        saved = await climb.run(tasks(), lambda row: None)
        climb.policy.close()
        removed = saved
        if broken == "nan":
            with torch.no_grad():
                climb.learner.model.lm_head.weight[3, 3] = torch.nan
            climb.learner.model.save_pretrained(saved)
        elif broken == "torn moments":
            removed = saved / "optimizer.pt"
            removed.write_bytes(removed.read_bytes()[:99])
        else:
            name = "adapter/adapter_model" if train else "model"
            file = saved / f"{name}.safetensors"
            file.write_bytes(file.read_bytes()[:99])
        again = make_climb(tmp_path / "run", 6, train)
        with pytest.raises(TrainerError, match=r"remove (that directory|it)\b") as caught:
            await again.run(tasks(), lambda row: None)
        again.policy.close()
        assert str(removed) in str(caught.value) and "\n" not in str(caught.value)
        if removed.is_dir():
            shutil.rmtree(removed)
        else:
            removed.unlink()
        said, rows = [], []
        third = make_climb(tmp_path / "run", 6, train)
        third.say = said.append
        await third.run(tasks(), rows.append)
        third.policy.close()
        assert [row.update for row in rows] == ([5, 6] if removed.suffix else [3, 4, 5, 6])
        assert len(said) == 1 and "new moments" in said[0]


class TestOverlap:
    @pytest.mark.parametrize("lag", [1, 3])
    async def test_it_learns_within_its_lag(self, tmp_path, lag):
        climb = make_climb(tmp_path / "run", 8, {"max_lag": lag, "max_mean_gap": 1.0})
        rows = []
        try:
            saved = await climb.run(tasks(), rows.append)
        finally:
            climb.policy.close()
        assert [row.update for row in rows] == list(range(1, 9))
        assert rows[0].lag_max == 0 and max(row.lag_max for row in rows) in range(1, lag + 1)
        assert all(row.episodes == 24 and row.invalid == 0 for row in rows)
        # What is sampled last is what the last checkpoint holds, bit for bit.
        fresh = type(climb.learner.model).from_pretrained(saved)
        mine = climb.policy._rounded.state_dict()
        assert all(torch.equal(tensor, mine[name]) for name, tensor in fresh.state_dict().items())
        traces = [
            climb.rundir.load_trace(row.trace) for row in climb.rundir.rows(ROLLOUTS, Attempt)
        ]
        assert {max(trace.tokens.versions) for trace in traces} <= set(range(8))

    async def test_its_rows_say_how_old_the_trained_tokens_were(self, tmp_path):
        climb = make_climb(tmp_path / "run", 6, {"max_lag": 1, "max_mean_gap": 1.0})
        rows = []
        await climb.run(tasks(), rows.append)
        climb.policy.close()
        for row in rows:
            traces = [climb.rundir.load_trace(name) for name in row.traces]
            ages = [row.update - 1 - max(trace.tokens.versions) for trace in traces]  # one token
            assert row.lag_max == max(ages, default=0)
            assert row.lag_mean == (pytest.approx(sum(ages) / len(ages)) if ages else None)
        assert any(row.lag_mean for row in rows)

    async def test_the_same_tasks_as_without(self, tmp_path):
        made = []
        for lag in (0, 1):
            climb = make_climb(tmp_path / f"{lag}", 4, {"max_lag": lag, "max_mean_gap": 1.0})
            await climb.run(tasks(5), lambda row: None)
            climb.policy.close()
            made.append(sorted((stage, task) for stage, task, _ in climb.rollout.made))
            rows = climb.rundir.rows(ROLLOUTS, Attempt)
            assert len({(row.task, row.policy, row.sample) for row in rows}) == len(rows) == 96
        assert made[0] == made[1]

    async def test_what_hangs_is_left_out_at_the_deadline(self, tmp_path):
        hangs = {("train-0001", "t1", 3)}
        climb = make_climb(tmp_path / "run", 2, {"max_lag": 1, "batch_seconds": 1.0}, hangs=hangs)
        rows = []
        await climb.run(tasks(), rows.append)
        climb.policy.close()
        assert [(row.episodes, row.invalid) for row in rows] == [(23, 1), (24, 0)]

    async def test_a_token_older_than_the_bound_is_never_trained_on(self, tmp_path):
        """An engine that answers with weights it should have replaced long ago."""
        climb = make_climb(tmp_path / "run", 3, {"max_lag": 0})
        honest = climb.rollout.attempt

        async def late(task, sample, **options):
            attempt, trace = await honest(task, sample, **options)
            if options["stage"] == "train-0003" and task.name == "t1":
                old = tuple(min(v, 0) for v in trace.tokens.versions)
                tokens = trace.tokens.model_copy(update={"versions": old})
                trace = trace.model_copy(update={"tokens": tokens})
            return attempt, trace

        climb.rollout.attempt = late
        rows = []
        await climb.run(tasks(), rows.append)
        climb.policy.close()
        assert [(row.episodes, row.invalid, row.lag_max) for row in rows] == [
            (24, 0, 0),
            (24, 0, 0),
            (16, 8, 0),
        ]

    async def test_infrastructure_that_breaks_all_ends_the_run(self, tmp_path):
        broken = {(f"t{n}", m) for n in range(3) for m in range(8)}
        climb = make_climb(tmp_path / "run", 1, broken=broken)
        with pytest.raises(TrainerError, match="none of the 24 episodes of update 1"):
            await climb.run(tasks(), lambda row: None)
        climb.policy.close()
        assert not climb.rundir.rows(TABLE, UpdateRow)


class TestKill:
    def start(self, run, updates, lag=0, *more):
        program = str(ROOT / "tests/rl/climbing.py")
        command = [sys.executable, program, str(run), str(updates), str(lag), *more]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"}
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def test_kill_9_and_resume_reach_the_same_last_update(self, tmp_path):
        run = tmp_path / "run"
        process = self.start(run, 6, 0, "once")  # somewhere in the updates after a checkpoint
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
        rows = RunDir.open(run).rows(TABLE, UpdateRow)
        assert {row.update for row in rows} == {1, 2, 3, 4, 5, 6}
        assert read_state(checkpoints(run / "checkpoints")[-1]).update == 6
        # One attempt per (task, policy, sample): what was made by one policy is not made twice.
        keys = [(a.task, a.policy, a.sample) for a in RunDir.open(run).rows(ROLLOUTS, Attempt)]
        assert len(keys) == len(set(keys))

    @pytest.mark.slow
    @pytest.mark.parametrize("how", [(), ("talk",)], ids=["one turn", "repeatable"])
    def test_killed_at_ten_random_points_it_reaches_the_same_numbers(self, tmp_path, how):
        """The very weights and figures of a climb that nothing interrupted, bit for bit.

        With several turns, whose pauses are never the same twice, where the policy is repeatable.
        """
        updates, more = 4 if how else 12, ()
        for name in ("whole", "killed"):
            process = self.start(tmp_path / name, updates, 0, *how, *more)
            said, errors = process.communicate(timeout=500)
            assert process.returncode == 0, errors
            told = dict(line.split()[:2] for line in said.splitlines())
            more = ("killed", told["took"])
        assert int(told["kills"]) == 10
        found = []
        for name in ("whole", "killed"):
            run = RunDir.open(tmp_path / name)
            rows = {row.update: row for row in run.rows(TABLE, UpdateRow)}
            figures = [(n, r.mean_reward, r.tokens, r.loss, r.grad_norm) for n, r in rows.items()]
            saved = checkpoints(run.path / "checkpoints")[-1]
            found.append((sorted(figures), (saved / "model.safetensors").read_bytes()))
        assert found[0][0] == found[1][0]
        assert found[0][1] == found[1][1]


def test_tasks_are_dealt_like_cards():
    deck = tasks(7)
    dealt = [pick_tasks(deck, 3, update, seed=1) for update in range(1, 8)]
    names = [task.name for hand in dealt for task in hand]
    assert all(len({task.name for task in hand}) == 3 for hand in dealt)
    counts = [names.count(task.name) for task in deck]
    assert max(counts) - min(counts) <= 2
    assert dealt[4] == pick_tasks(list(reversed(deck)), 3, 5, seed=1)
    assert [t.name for t in pick_tasks(deck, 3, 1, seed=2)] != [t.name for t in dealt[0]]
