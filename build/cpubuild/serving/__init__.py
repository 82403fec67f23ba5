"""A model served by vLLM, asked and talked to: its start, its life, its end."""

from cpubuild.serving.client import Answer, Client, Wish
from cpubuild.serving.lifecycle import running
from cpubuild.serving.record import Files, Record, files_of

__all__ = ["Answer", "Client", "Files", "Record", "Wish", "files_of", "running"]
