"""A climb begins only where every worker of Ray has our loss: verl hides a plugin that failed."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from tadpole.errors import TrainerError
from tests.engines.patience import PATIENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None,
        reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
    ),
]


class Worker:
    """A worker loads verl, as those of a climb do, and with it the plugins of its environment."""

    def __init__(self):
        importlib.import_module("verl")


@pytest.fixture(scope="module")
def workers():
    """One that has our loss, and one in which the plugin was not loaded."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # not on a worker's path
        remote = ray.remote(Worker)
        without = {"env_vars": {"VERL_USE_EXTERNAL_PLUGINS": "none"}}
        yield remote.remote(), remote.options(runtime_env=without).remote()
        ray.shutdown()


def test_a_worker_without_our_loss_ends_the_climb_before_it_begins(workers):
    from tadpole.engines.verl.trainer import Climbing

    whole, lacking = workers

    class Verl:
        """Stands where verl's trainer stands, which would start its engines."""

        def __init__(self, *started):
            self.started = started

        def init(self):
            self.actor_rollout_wg = SimpleNamespace(workers=list(self.started))

    class Trainer(Climbing, Verl):
        __init__ = Verl.__init__

    Trainer(whole).init()
    with pytest.raises(TrainerError, match="tadpole_dppo is not registered in Worker: reinstall"):
        Trainer(whole, lacking).init()
