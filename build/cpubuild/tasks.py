"""The verbs as Invoke tasks: options in, exit code out; what they do is in ``verbs``."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from cpubuild import settings, ui
from cpubuild.errors import CpuBuildError, ExitCode, fail

if TYPE_CHECKING:
    from cpubuild import calls

COMMON: dict[str, tuple[Any, str]] = {
    "json": (False, "print one JSON document on stdout and nothing else there"),
    "v": (False, "say more (also --verbose)"),
    "verbose": (False, "say more"),
}
SWITCHES = frozenset({"offline", "no_system", "yes"})
SETTING_OPTIONS: dict[str, tuple[Any, str]] = {
    o.name: (False if o.name in SWITCHES else None, o.help) for o in settings.OPTIONS
}
TAKES_COMMAND = frozenset({"diagnose", "serve"})
Option = tuple[Any, str]


class Verb(Task[Any]):
    """A task that keeps its explanations; Invoke's own takes them out as it parses."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The options for the parser."""
        explained = dict(self.help)
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = explained


def verb(name: str, doc: str, /, **extra: Option) -> Verb:
    """Make the Invoke task for one verb; its function is ``cpubuild.verbs.<name>``."""
    options = {**extra, **SETTING_OPTIONS, **COMMON}

    def body(ctx: Context, **given: Any) -> None:
        if name in TAKES_COMMAND and (ctx.remainder or "--" in sys.argv):
            given["command"] = tuple(sys.argv[sys.argv.index("--") + 1 :])
        code = dispatch(name, given)
        if code != ExitCode.OK:
            raise Exit(code=int(code))

    body.__name__, body.__doc__ = name, doc
    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for key, (default, _) in options.items()
    ]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    # A name that is a word of Python ends in an underscore, which Invoke takes off.
    helps = {key.rstrip("_").replace("_", "-"): text for key, (_, text) in options.items()}
    return Verb(body, name=name, auto_shortflags=False, help=helps)


def dispatch(name: str, given: dict[str, Any]) -> ExitCode:
    """Run a verb and print its outcome; every failure becomes a message and an exit code."""
    json, more = bool(given.pop("json")), bool(given.pop("v")) | bool(given.pop("verbose"))
    json, more = json or wished("JSON"), more or wished("VERBOSE")
    flags = {key: given.pop(key) for key in settings.NAMES}
    ui.hear_libraries(verbose=more)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _interrupt)
    told: list[Any] = []

    def tell(outcome: calls.Outcome) -> None:
        if not told:  # stdout holds one outcome, whatever comes after it
            told.append(outcome)
            show(outcome, json=json)

    try:
        from cpubuild import calls, verbs

        run: Callable[[calls.Call], calls.Outcome] = getattr(verbs, name)
        call = calls.Call(
            flags=flags, options=given, verbose=more, environ=os.environ, json=json, tell=tell
        )
        outcome = run(call)
    except CpuBuildError as error:
        return failed(name, error, json=json and not told)
    except KeyboardInterrupt:
        stopped = fail(ExitCode.BUSY, "interrupted", remedy=("run it again to go on from here",))
        return failed(name, stopped, json=json and not told)
    except Exception as error:  # the outermost layer: a defect, too, ends with its exit code
        return failed(name, unforeseen(error), json=json and not told)
    tell(outcome)
    return outcome.exit_code


def show(outcome: calls.Outcome, *, json: bool) -> None:
    """Print an outcome on stdout: its document, or its lines."""
    if json:
        document(outcome.document)
    else:
        data("".join(line + "\n" for line in outcome.lines))


def wished(name: str) -> bool:
    """Whether ``CPUBUILD_<name>`` is switched on."""
    return os.environ.get(settings.PREFIX + name, "").strip().lower() in settings.TRUE


def document(value: Any) -> None:
    """Print one JSON document on stdout, in a form that no locale can break."""
    from cpubuild.jsonio import dumps

    data(dumps(value, ascii_only=True))


def data(text: str) -> None:
    """Print on stdout; a reader that has gone away changes nothing of how the verb came out."""
    if sys.stdout is None:  # it was closed before the start
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ui.say(f"warn the outcome could not be written to stdout: {error.strerror}")


def unforeseen(error: Exception) -> CpuBuildError:
    """What nobody foresaw: the operating system's refusal, or a defect of this tool."""
    ui.lines(traceback.format_exc().splitlines())
    if isinstance(error, shutil.Error) or (isinstance(error, OSError) and error.errno is not None):
        return fail(
            ExitCode.PREREQUISITE,
            f"{error.strerror}: {error.filename or 'no file is named'}"
            if error.errno is not None
            else f"files cannot be copied: {error}"[:400],
            why="the operating system refused it",
            remedy=("look at the path: does it exist, is there room, may this user write there?",),
        )
    return fail(
        ExitCode.BUG,
        f"a defect of this tool: {type(error).__name__}: {error}",
        remedy=("cpubuild diagnose --last --bundle report.tar.gz   # for a bug report",),
    )


def failed(name: str, error: CpuBuildError, *, json: bool) -> ExitCode:
    """Show a failure: lines on stderr, and with ``--json`` a document on stdout too."""
    if error.log is not None:
        from cpubuild.diagnosing import explain_failure

        error = explain_failure(error)
    ui.lines(ui.error_lines(error))
    if json:
        document(
            {
                "verb": name,
                "error": {
                    "exit_code": int(error.exit_code),
                    "problems": error.problems,
                    "log": error.log,
                    "tail": error.tail,
                },
            }
        )
    return error.exit_code


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise KeyboardInterrupt


TASKS = (
    verb(
        "check",
        "Say what this host can run and what is in the way; touches nothing.",
        only=(None, "ids or groups to look at, with commas"),
        skip=(None, "ids or groups to leave out, with commas"),
        fix=(False, "install what is missing, where that is allowed"),
        list=(False, "list the checks"),
        explain=(None, "say what one check means"),
        host=(None, "judge recorded facts (a JSON file) instead of this host"),
    ),
    verb(
        "plan",
        "Show what bootstrap would do, and why; compiles and installs nothing.",
        why=(False, "say why no cached wheel fits"),
    ),
    verb("bootstrap", "Build, install and prove vLLM for this host; does only what is left to do."),
    verb(
        "verify",
        "Prove an installed vLLM again: platform, kernels, words.",
        target=(None, "interpreter or environment to verify instead of the current one"),
        quick=(False, "platform and kernels only, no generation"),
        model=(None, "folder or hub id of a real model to ask as well"),
        server=(False, "start vLLM's server and use it as well"),
        only=(None, "check ids, with commas"),
        skip=(None, "check ids to leave out, with commas"),
        explain=(None, "say what one check means"),
    ),
    verb(
        "repair",
        "Make an installed vLLM recognisable as a CPU build without a rebuild.",
        target=(None, "interpreter or environment to repair instead of the current one"),
        undo=(False, "put back what an earlier repair replaced"),
        dry=(False, "only say what would be done"),
    ),
    verb("status", "List the environments, the current one, and what the state root takes."),
    verb(
        "clean",
        "Remove what is not in use: old environments, unfinished builds, downloads.",
        all=(False, "remove the current environment and the caches too"),
        dry=(False, "only say what would go"),
    ),
    verb("rollback", "Let current point to the newest other environment that was verified."),
    verb(
        "report",
        "Draw the last build as one self-contained HTML page.",
        run=(None, "folder of the run to draw instead of the last build"),
        out=(None, "file to write instead of report.html beside the run's logs"),
    ),
    verb(
        "model",
        "Get a model, list, check or remove what is stored: model get ID|PATH, list, check, rm.",
        action=(None, "get, list, check or rm"),
        name=(None, "id of a hub, short name, or path of a folder or archive"),
        from_=(None, "where to get it: hf, modelscope or git"),
        revision=(None, "branch, tag or commit; what it names is pinned as a commit"),
    ),
    verb(
        "tune",
        "Compute vLLM's settings for this host and a model, each with its reason.",
        model=(None, "folder, stored model or hub id; without it the settings for any model"),
        target=(None, "interpreter or environment to tune for instead of the current one"),
        options=(None, "file with your own options of vllm serve (YAML or words), to be checked"),
        out=(None, "folder for env files, and for a model unit, image, compose and cloud-init"),
        measure=(False, "try the settings that matter in short runs, and keep the best"),
        quick=(False, "with --measure: fewer tokens, for a first look"),
    ),
    verb(
        "serve",
        "Serve a model with vLLM's own server, tuned for this host; --status looks, --stop ends.",
        model=(None, "folder, stored model or hub id"),
        host=(None, "address to listen at instead of 127.0.0.1; others need a key that is given"),
        port=(None, "port to listen at instead of 8000; 0 chooses a free one"),
        name=(None, "the model's name in requests"),
        api_key=(None, "the key that requests must carry; better a file"),
        api_key_file=(None, "file that holds the key, instead of one made and kept"),
        target=(None, "environment to serve from instead of the current one"),
        untuned=(False, "vLLM's own defaults instead of the settings of tune"),
        foreground=(False, "stay, and show the log, as a service manager wants it"),
        wait=(None, "seconds to wait at most until the server answers"),
        status=(False, "say what runs: health, tokens per second, requests, memory"),
        stop=(False, "stop the server, and see that nothing is left of it"),
    ),
    verb(
        "ask",
        "Ask the served model one question; the answer goes to stdout.",
        text=(None, "the question; - reads stdin"),
        system=(None, "what the model is told beforehand"),
        max_tokens=(None, "the longest answer in tokens instead of 1024"),
        temperature=(None, "0 for the likeliest answer, up to 2 for more chance"),
        model=(None, "serve this model for the call if no server runs; with --url its name there"),
        url=(None, "another server to ask, such as http://127.0.0.1:8000"),
        api_key_file=(None, "file that holds the server's key"),
    ),
    verb(
        "chat",
        "Talk with the served model, turn by turn; from a pipe each line is a turn.",
        system=(None, "what the model is told beforehand"),
        max_tokens=(None, "the longest answer in tokens instead of 1024"),
        temperature=(None, "0 for the likeliest answer, up to 2 for more chance"),
        model=(None, "serve this model for the chat if no server runs; with --url its name there"),
        url=(None, "another server to talk to, such as http://127.0.0.1:8000"),
        api_key_file=(None, "file that holds the server's key"),
    ),
    verb(
        "web",
        "Show a page in the browser to talk with the served model; stays until it is ended.",
        system=(None, "what the model is told beforehand, unless the page says otherwise"),
        max_tokens=(None, "the longest answer in tokens instead of 1024, to begin with"),
        temperature=(None, "0 for the likeliest answer, up to 2 for more chance, to begin with"),
        host=(None, "address to listen at instead of 127.0.0.1; others need --auth"),
        port=(None, "port to listen at instead of 7860; 0 chooses a free one"),
        auth=(None, "user that must log in; the password comes from a file or a variable"),
        password_file=(None, "file with the password, instead of CPUBUILD_WEB_PASSWORD"),
        model=(None, "serve this model for the page if no server runs; with --url its name there"),
        url=(None, "another server to talk to, such as http://127.0.0.1:8000"),
        api_key_file=(None, "file that holds the server's key"),
    ),
    verb(
        "bench",
        "Measure the served model: time to the first text, tokens per second, memory.",
        model=(None, "serve this model for the call if no server runs"),
        streams=(None, "answers at once, with commas, instead of 1,4,16"),
        tokens=(None, "tokens of each answer instead of 64"),
        compare=(False, "vLLM's own defaults and the tuned settings in one run"),
        client=(None, "who asks: vllm (vllm bench serve), or api; vllm where it can be had"),
        url=(None, "another server to measure, such as http://127.0.0.1:8000"),
        api_key_file=(None, "file that holds the server's key"),
    ),
    verb(
        "diagnose",
        "Name the cause of a failure and what mends it; reads a log, a folder, stdin or a run.",
        path=(None, "log file or folder; - for stdin"),
        last=(False, "read the last run of this tool"),
        host=(None, "recorded facts (a JSON file) of the host the log is from"),
        release=(None, "the vLLM version the log is of"),
        exit_status=(None, "exit status or signal of the failed command, like -9 or 137"),
        bundle=(None, "write a redacted archive for a bug report to this file"),
        rules=(False, "list the rules"),
    ),
)

namespace = Collection("cpubuild", *TASKS)
