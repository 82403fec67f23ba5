"""The verb ``bench``: how fast the served model answers, kept and compared with the last time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpubuild import jsonio, models, ui
from cpubuild.benchmark import own
from cpubuild.benchmark.load import Load, measure
from cpubuild.calls import Call, Outcome
from cpubuild.diagnosing import explain_failure
from cpubuild.errors import CpuBuildError, ExitCode, fail
from cpubuild.facts import cpu
from cpubuild.render import render
from cpubuild.serving import connect, lifecycle, serve
from cpubuild.serving.client import Client
from cpubuild.serving.record import Files, family, files_of, memory
from cpubuild.state import State, now
from cpubuild.survey import observe
from cpubuild.tune.api import KV_VARIABLE, cache_space

STREAMS = (1, 4, 16)
TOKENS = 64
VLLM, API = "vllm", "api"
DEFAULTS, TUNED = "vLLM's defaults", "tuned"
RESULT, PICTURE = "bench.json", "bench.svg"
# Noise between two runs on one host; less is no news.
NOISE = 0.10
PUBLISHED = (
    ("vLLM on a Xeon 6248R, a 0.5B model, as published", 3.7),
    ("llama.cpp on 2 cores with AMX, a 0.5B model in Q4_K_M", 23.6),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to be measured: streams at once, tokens of each answer, who asks if it was said."""

    streams: tuple[int, ...]
    tokens: int
    client: str | None


def bench(call: Call) -> Outcome:
    """Measure the server that runs, or one for this call; with --compare both ways of starting."""
    wanted = Wanted(
        streams=streams_of(call.options["streams"]),
        tokens=tokens_of(call.options["tokens"]),
        client=client_of(call.options["client"]),
    )
    state = State(root=call.resolved().settings.state)
    refused = None
    if call.options["compare"]:
        folder, name, runs, refused = both(call, state, wanted)
    else:
        with connect.talk(call) as talk:
            folder, name = state.new_run("bench"), talk.model
            runs = [measured("as served", talk, wanted, folder)]
    document: dict[str, Any] = {
        "created": now(),
        "model": name,
        "host": host(),
        "tokens": wanted.tokens,
        "runs": runs,
        "refused": refused,
        "ratio": ratios(runs),
        "last": last(state, name, runs),
        "published": [{"what": what, "tokens_per_s": rate} for what, rate in PUBLISHED],
        "folder": str(folder),
    }
    jsonio.write(folder / RESULT, document)
    jsonio.write_text(folder / PICTURE, picture(document))
    return Outcome(document=document, lines=lines(document))


def client_of(text: str | None) -> str | None:
    """Who asks: vLLM's own bench or this tool; None where neither was named."""
    if text in (None, VLLM, API):
        return text
    raise fail(
        ExitCode.SETTINGS,
        f"--client {text}: {VLLM} or {API} is needed",
        remedy=(f"leave it out: {VLLM} where it can be had, else {API}",),
    )


def streams_of(text: str | None) -> tuple[int, ...]:
    """How many streams at once, in the order that was given."""
    if text is None:
        return STREAMS
    parts = [part.strip() for part in text.split(",")]
    if all(p.isascii() and p.isdigit() and 1 <= int(p) <= 256 for p in parts):
        return tuple(dict.fromkeys(int(p) for p in parts))
    raise fail(
        ExitCode.SETTINGS,
        f"--streams {text}: numbers from 1 to 256 with commas are needed",
        remedy=(f"leave it out: {','.join(map(str, STREAMS))}",),
    )


def tokens_of(text: str | None) -> int:
    """How many tokens each answer has."""
    if text is None:
        return TOKENS
    if text.isascii() and text.isdigit() and 2 <= int(text) <= 4096:
        return int(text)
    raise fail(
        ExitCode.SETTINGS,
        f"--tokens {text}: a whole number from 2 to 4096 is needed",
        remedy=(f"leave it out: {TOKENS}",),
    )


def both(
    call: Call, state: State, wanted: Wanted
) -> tuple[Path, str, list[dict[str, Any]], dict[str, Any] | None]:
    """VLLM's own defaults and the tuned settings in one run, each with a server of its own.

    On a small or busy host the defaults want more memory than is free and do not start: then the
    last value says why, and the cache is given a size, or there is no such run at all.
    """
    files = files_of(state)
    if not call.options["model"] or call.options["url"]:
        raise fail(
            ExitCode.SETTINGS,
            "--compare starts servers of its own: it needs --model MODEL, and no --url",
            remedy=("cpubuild bench MODEL --compare",),
        )
    if lifecycle.running(files) is not None:
        raise fail(
            ExitCode.BUSY,
            "a server runs: it would take part in what is measured",
            remedy=("cpubuild serve --stop",),
        )
    models.find(call.options["model"], state, call.environ)
    folder, refused = state.new_run("bench"), None
    runs: list[dict[str, Any]] = []
    for label, environ in ways(call, state):
        try:
            runs.append(served(call, state, wanted, folder / "default", label, environ)[1])
            break
        except CpuBuildError as error:
            if error.exit_code is not ExitCode.VERIFY:
                raise
            (problem, *_) = explain_failure(error).problems
            ui.say(f"{ui.mark('warn')} {label}: {problem.what}; {problem.why}")
            refused = refused or {"label": label, "what": problem.what, "why": problem.why}
    name, tuned = served(call, state, wanted, folder / "tuned", TUNED, call.environ)
    return folder, name, [*runs, tuned], refused


def ways(call: Call, state: State) -> Iterator[tuple[str, Mapping[str, str]]]:
    """VLLM's defaults, and the same with a cache of a stated size, as vLLM's own remedy says."""
    yield DEFAULTS, call.environ
    facts = observe(call.resolved().settings, state)
    space = str(cache_space(facts))
    yield f"{DEFAULTS}, {space} GiB cache", {**call.environ, KV_VARIABLE: space}


def served(
    call: Call, state: State, wanted: Wanted, folder: Path, label: str, environ: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """One way of starting: the model's name, and what was measured."""
    files = files_of(state)
    ui.say(f"---- {label}")
    more = {**connect.UNSAID, "model": call.options["model"], "untuned": label != TUNED}
    more["api_key_file"] = call.options["api_key_file"]
    try:
        serve.begin(dataclasses.replace(call, options=more, environ=environ), state, files)
        with connect.talk(dataclasses.replace(call, options=dict(call.options))) as talk:
            return talk.model, measured(label, talk, wanted, folder)
    finally:
        lifecycle.stop(files)


def measured(label: str, talk: connect.Talk, wanted: Wanted, folder: Path) -> dict[str, Any]:
    """All loads of one server, after one answer that is not counted."""
    room, tokens = talk.context, wanted.tokens
    if room is not None and tokens > room // 2:
        raise fail(
            ExitCode.SETTINGS,
            f"--tokens {tokens}: the served context holds {room} tokens, prompt and answer",
            remedy=(f"--tokens {room // 2} or less",),
        )
    client, measure = asker(talk, wanted.client, folder)
    over_api(talk)(talk.model, first=0, streams=1, tokens=min(tokens, 8))
    rows, asked = [], 1
    for count in wanted.streams:
        load = measure(talk.model, first=asked, streams=count, tokens=tokens)
        asked += count
        ui.note(f"{count} streams: {load.rate:.1f} tokens/s in all")
        rows.append(row(load))
    used = server_memory(talk.files)
    return {"label": label, "client": client, "loads": rows, "memory": used}


def over_api(talk: connect.Talk) -> Callable[..., Load]:
    """The tool's own measure, each stream with a connection of its own."""

    def client() -> Client:
        return Client(url=talk.client.url, key=talk.client.key)

    return functools.partial(measure, client)


def asker(talk: connect.Talk, wanted: str | None, folder: Path) -> tuple[str, Callable[..., Load]]:
    """Who asks, and how: vLLM's own bench unless it cannot; SETTINGS if it was asked for then."""
    record = lifecycle.running(talk.files) if talk.files is not None else None
    why = own.lacking(record)
    if wanted == VLLM and why is not None:
        raise fail(
            ExitCode.SETTINGS,
            f"--client {VLLM}: vLLM's own bench cannot measure this server",
            why=why,
            remedy=(f"--client {API}   # the same measures over the API",),
        )
    if wanted == API or record is None or talk.files is None or why is not None:
        return API, over_api(talk)
    bench = own.Own(record=record, key=talk.client.key, folder=folder, neutral=talk.files.neutral)
    return f"vllm bench serve, {record.release}", bench.measure


def row(load: Load) -> dict[str, Any]:
    """A load as a table row: rates in tokens/s, times in seconds."""
    return {
        "streams": load.streams,
        "tokens_per_s": round(load.rate, 2),
        "each": round(load.each, 2),
        "first_median": round(load.first_median, 3),
        "first_p95": round(load.first_p95, 3),
        "seconds": round(load.seconds, 2),
    }


def server_memory(files: Files | None) -> int | None:
    """Bytes that our own server's processes take together (shared pages once)."""
    record = lifecycle.running(files) if files is not None else None
    return memory(family(record))["pss"] if record is not None else None


def host() -> dict[str, Any]:
    """The processor in words, and the CPUs that may be used."""
    found = cpu.parse(cpu.probe(Path("/")))
    return {"cpu": found.model, "cpus": len(found.allowed)}


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Tokens/s of the second run for each of the first's, by number of streams."""
    return compared(runs[1], runs[0]) if len(runs) == 2 else None


def compared(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    """Ratios of tokens/s by number of streams, where both were measured."""
    base = {r["streams"]: r["tokens_per_s"] for r in theirs["loads"]}
    return {
        str(r["streams"]): round(r["tokens_per_s"] / base[r["streams"]], 2)
        for r in ours["loads"]
        if base.get(r["streams"])
    }


def last(state: State, model: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The newest earlier run of this model on this host, and the ratios against it."""
    for path in sorted(state.runs.glob(f"*-bench-*/{RESULT}"), reverse=True):
        earlier = jsonio.read(path) or {}
        if earlier.get("model") != model or earlier.get("host") != host():
            continue
        before = {run["label"]: run for run in earlier.get("runs", ())}
        mine = runs[-1]
        same = before.get(mine["label"])
        if same is not None and same.get("client", API) == mine["client"]:
            found = compared(mine, same)
            return {"created": earlier["created"], "label": mine["label"], "ratio": found}
    return None


def lines(document: Mapping[str, Any]) -> list[str]:
    """The table for people."""
    shown = [f"{document['model']} on {document['host']['cpu']}, {document['tokens']} tokens each"]
    shown.append(f"asked by {document['runs'][0]['client']}")
    wide = max(18, *(len(run["label"]) + 2 for run in document["runs"]))
    head = f"{'':<{wide}}{'streams':>8}{'tokens/s':>10}{'each':>8}{'first, s':>10}{'95 of 100':>11}"
    shown.append(head)
    for run in document["runs"]:
        shown += [
            f"{run['label']:<{wide}}{r['streams']:>8}{r['tokens_per_s']:>10.1f}{r['each']:>8.1f}"
            f"{r['first_median']:>10.2f}{r['first_p95']:>11.2f}"
            for r in run["loads"]
        ]
        if run["memory"]:
            shown.append(f"{run['label']:<{wide}}memory {run['memory'] / 2**30:.2f} GiB")
    if document["refused"]:
        shown.append(f"{document['refused']['label']} did not start: {document['refused']['why']}")
    if document["ratio"]:
        pairs = ", ".join(f"{s}: {x:.2f} x" for s, x in document["ratio"].items())
        shown.append(f"tuned against vLLM's defaults, by streams: {pairs}")
    if document["last"]:
        shown += last_lines(document["last"])
    shown += [
        f"for comparison, one stream: {p['tokens_per_s']} tokens/s, {p['what']}"
        for p in document["published"]
    ]
    return [*shown, f"kept in {document['folder']}"]


def last_lines(found: Mapping[str, Any]) -> list[str]:
    """What changed since the last run; a slowdown beyond noise is marked."""
    slower = [x for x in found["ratio"].values() if x < 1 - NOISE]
    pairs = ", ".join(f"{s}: {x:.2f} x" for s, x in found["ratio"].items())
    mark = ui.mark("warn") + " slower than" if slower else "against"
    return [f"{mark} the run of {found['created']}, by streams: {pairs}"]


def picture(document: Mapping[str, Any]) -> str:
    """The table as bars."""
    bars = [
        {"label": f"{run['label']}, {r['streams']} streams", "value": r["tokens_per_s"], "run": n}
        for n, run in enumerate(document["runs"])
        for r in run["loads"]
    ]
    most = max((bar["value"] for bar in bars), default=1.0) or 1.0
    values = {"bars": bars, "most": most, "model": document["model"], "host": document["host"]}
    return render("bench.svg.j2", values)
