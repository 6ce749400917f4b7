"""What verl loads in each of its processes (entry point ``verl.plugins``): our loss."""

from tadpole.engines.verl import loss

__all__ = ["loss"]
