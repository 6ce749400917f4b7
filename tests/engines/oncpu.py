"""What verl lacks to run without a GPU: a platform, a rollout engine and a way for weights.

Loaded by ``VERL_USE_EXTERNAL_MODULES`` in every process of a smoke climb. All else is verl's own:
Ray, TransferQueue, the asynchronous trainer, FSDP2, the load balancer, and the client that takes
interrupted turns up again.
"""

import asyncio
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import ray
import torch
import torch.distributed
from verl.plugin.platform import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

NAME = "tinycpu"  # of the rollout engine, and of the way for weights
WEIGHTS = "SMOKE_WEIGHTS"  # environment: where the weights pass
_init = torch.distributed.init_process_group


def _init_once(backend=None, **more):
    """verl asks for "cpu:gloo,cpu:gloo" on a CPU, which torch refuses."""
    parts = dict.fromkeys((backend or "").split(","))
    return _init(backend=",".join(parts) or None, **more)


torch.distributed.init_process_group = _init_once


def _nothing(*_, **__):
    return 0


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name, vendor_name = "cpu", "none"
    device_module = SimpleNamespace(
        max_memory_allocated=_nothing, max_memory_reserved=_nothing, memory_allocated=_nothing,
        memory_reserved=_nothing, reset_peak_memory_stats=_nothing, empty_cache=_nothing,
        mem_get_info=lambda *_: (1 << 30, 1 << 30), synchronize=_nothing, set_device=_nothing,
        current_device=lambda: "cpu", device_count=lambda: 1, is_available=lambda: True,
        get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state,
        manual_seed=torch.manual_seed, manual_seed_all=torch.manual_seed,
        ipc_collect=_nothing, get_device_name=lambda *_: "cpu",
    )  # fmt: skip

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    profiler_stop = profiler_start

    def ray_resource_name(self):
        return "GPU"  # Ray is told of some that are not there

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


class TinyServer:
    """Samples token by token from whole prompts. New weights interrupt a turn between two."""

    def __init__(self, path):
        from transformers import AutoModelForImageTextToText

        torch.set_num_threads(1)
        self.model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
        self.version, self.open = None, asyncio.Event()
        self.interrupted = 0

    async def generate(self, request_id, prompt_ids, sampling_params, **_):
        from verl.workers.rollout.replica import TokenOutput

        await self.open.wait()
        version, ids, logprobs, reason = self.version, [], [], "length"
        while len(ids) < sampling_params["max_tokens"]:
            await asyncio.sleep(0)
            if not self.open.is_set():
                self.interrupted += 1
                reason = "aborted"
                break
            token, logprob = self._draw([*prompt_ids, *ids])
            ids.append(token)
            logprobs.append(logprob)
            if token in sampling_params["stop_token_ids"]:
                reason = "completed"
                break
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs,
            stop_reason=reason,
            extra_fields={"global_steps": version},
        )

    @torch.no_grad()
    def _draw(self, ids):
        logs = (
            self.model(input_ids=torch.tensor([ids]), use_cache=False)
            .logits[0, -1]
            .float()
            .log_softmax(-1)
        )
        token = int(torch.multinomial(logs.exp(), 1))
        return token, float(logs[token])

    async def take(self, file, version):
        missing = self.model.load_state_dict(torch.load(file), strict=False).missing_keys
        assert not [name for name in missing if "visual" not in name], missing
        self.version = version

    async def abort_all_requests(self, reject_request=False):
        self.open.clear()

    async def resume_generation(self):
        self.open.set()

    async def nothing(self, *_, **__):
        pass

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing


def _replica():
    from verl.workers.rollout.replica import RolloutReplica

    class TinyReplica(RolloutReplica):
        async def launch_servers(self):
            name = f"{NAME}-{self.replica_rank}"
            server = ray.remote(TinyServer).options(name=name, max_concurrency=64)
            self.servers = [server.remote(self.model_config["path"])]
            self._server_handle, self._server_address = self.servers[0], f"{self.replica_rank}"

    return TinyReplica


def _adapter():
    from verl.workers.rollout.base import BaseRollout

    class TinyAdapter(BaseRollout):
        replica_rank, is_leader_rank = 0, True

        async def resume(self, tags):
            pass

        async def release(self):
            pass

        async def update_weights(self, weights, global_steps=None, **_):
            async for file in weights:
                server = ray.get_actor(f"{NAME}-{self.replica_rank}")
                await server.take.remote(file, global_steps)

    return TinyAdapter


def _register():
    from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
    from verl.workers.rollout import base, replica

    @CheckpointEngineRegistry.register(NAME)
    class ByFile(CheckpointEngine):
        """Weights pass as one file, named by their version."""

        def __init__(self, bucket_size, is_master=False):
            self.place = Path(os.environ[WEIGHTS])

        def prepare(self):
            return {}

        @classmethod
        def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
            return (
                {"rank": list(range(actor_wg_world_size))},
                {"rank": list(range(rollout_world_size))},
            )

        def init_process_group(self, rank):
            pass

        def finalize(self):
            pass

        async def send_weights(self, weights, global_steps=None):
            beside = self.place / f"{global_steps}.part"
            torch.save({name: tensor.clone() for name, tensor in weights}, beside)
            beside.replace(self.place / f"{global_steps}.pt")

        async def receive_weights(self, global_steps=None):
            file = self.place / f"{global_steps}.pt"
            while not file.exists():
                await asyncio.sleep(0.02)
            yield file
            file.unlink()  # a later climb has weights of the same number

    globals()["TinyAdapter"] = _adapter()
    replica.RolloutReplicaRegistry.register(NAME, _replica)
    base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.TinyAdapter"


_register()
