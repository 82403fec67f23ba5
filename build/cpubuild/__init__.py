"""vllm-cpu-build: build, install and prove vLLM on hosts without a GPU."""

__version__ = "0.1.0"
