"""Rollout servers on other processes or machines, asked in token ids: SGLang and vLLM."""
