"""vLLM's own bench: ``vllm bench serve`` of the environment that serves, one process for a load."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild import jsonio
from cpubuild.benchmark.load import Load
from cpubuild.errors import ExitCode, fail
from cpubuild.run import capture, failed
from cpubuild.serving.launch import surroundings
from cpubuild.serving.record import Record

# The random prompts are as long as those that are asked over the API.
PROMPT_TOKENS = 24
WAIT_SECONDS = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """The bench of the environment ``record`` serves from; ``folder`` takes results and output."""

    record: Record
    key: str | None
    folder: Path
    neutral: Path

    def measure(self, model: str, *, first: int, streams: int, tokens: int) -> Load:
        """Ask for ``tokens`` tokens in each of ``streams`` streams; ``first`` seeds the prompts.

        VERIFY if it fails, or if any answer does.
        """
        name = f"{streams}-streams-{first}"
        argv = (
            *(str(self.record.env / "bin/python"), str(self.record.env / "bin/vllm")),
            *("bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
            *("--base-url", self.record.url, "--model", model, "--tokenizer", self.record.model),
            *("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)),
            *("--random-output-len", str(tokens), "--num-prompts", str(streams)),
            *("--max-concurrency", str(streams), "--seed", str(first), "--ignore-eos"),
            *("--temperature", "0", "--disable-tqdm", "--save-result", "--save-detailed"),
            *("--result-dir", str(self.folder), "--result-filename", f"{name}.json"),
        )
        env = surroundings(os.environ, env=self.record.env, tuning=None, cache=self.folder)
        if self.key is not None:
            env["OPENAI_API_KEY"] = self.key
        self.folder.mkdir(parents=True, exist_ok=True)
        done = capture(argv, env=env, cwd=self.neutral, timeout=WAIT_SECONDS)
        jsonio.write_text(self.folder / f"{name}.log", done.stdout + done.stderr)
        found = jsonio.read(self.folder / f"{name}.json") if done.returncode == 0 else None
        if found is None:
            raise failed(done, ExitCode.VERIFY, "vllm bench serve failed")
        return load_of(found, streams=streams)


def load_of(result: dict[str, Any], *, streams: int) -> Load:
    """A load from the document of ``vllm bench serve --save-detailed``; VERIFY for lost answers."""
    lost = [str(error).strip() for error in result.get("errors") or () if error]
    if lost or result["completed"] < streams:
        raise fail(
            ExitCode.VERIFY,
            f"{streams - result['completed']} of {streams} answers were lost",
            why=lost[0].splitlines()[-1] if lost else "vllm bench serve does not say why",
            remedy=("cpubuild serve --status   # says whether the server still runs",),
        )
    return Load(
        streams=streams,
        tokens=int(result["total_output_tokens"]),
        seconds=float(result["duration"]),
        first=tuple(float(seconds) for seconds in result["ttfts"]),
    )


def lacking(record: Record | None) -> str | None:
    """Why vLLM's own bench cannot measure this server; None if it can."""
    if record is None:
        return "the server is not one of this state root"
    if not any(record.env.glob("lib/python3*/site-packages/vllm/benchmarks/serve.py")):
        return f"vLLM {record.release} has none"
    if not Path(record.model).is_dir():
        return f"it needs the model's folder for its tokenizer; {record.model} is none"
    return None
