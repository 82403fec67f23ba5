"""Each cause of a failure has its own message, and no secret is in any."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from cpubuild.errors import ExitCode
from cpubuild.models import failures
from cpubuild.models.names import Reference

ASKED = Reference(id="a/b", revision="v1")
HOST = "https://hub.example"
PROBE: dict[str, Any] = runpy.run_path(
    str(Path(failures.__file__).parents[1] / "probe" / "hub_client.py")
)


@pytest.mark.parametrize("hub", ["hf", "modelscope", "git"])
@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("network", ExitCode.DOWNLOAD, "does not answer"),
        ("gated", ExitCode.DOWNLOAD, "access is refused"),
        ("absent", ExitCode.DOWNLOAD, f"{HOST} has no a/b, revision v1"),
        ("revision", ExitCode.DOWNLOAD, f"{HOST} has no revision v1 of a/b"),
        ("hash", ExitCode.DOWNLOAD, "another content"),
        ("size", ExitCode.DOWNLOAD, "another size"),
        ("space", ExitCode.PREREQUISITE, "the disk was full"),
        ("other", ExitCode.DOWNLOAD, "could not be fetched from"),
    ],
)
def test_every_kind_has_its_message(hub: str, kind: str, code: ExitCode, told: str) -> None:
    document = {"kind": kind, "type": "Error", "message": "what the client said"}
    error = failures.explained(document, hub, ASKED, HOST)
    (problem,) = error.problems
    assert (problem.exit_code, told in problem.what) == (code, True)
    assert problem.remedy
    assert "{" not in " ".join(problem.remedy)
    assert "what the client said" in problem.what + problem.why


def test_what_is_kept_is_told() -> None:
    document = {"kind": "network", "type": "E", "message": "m"}
    error = failures.explained(document, "hf", ASKED, HOST, kept=17)
    assert "17 bytes are kept to continue from" in error.problems[0].why


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer hf_abcdefghijklmnop",
        "ms-12345678-abcd-efgh",
        "https://user:word@host/x",
        "https://cdn/x?X-Amz-Signature=abcdef&Expires=1",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    shown = failures.redact(text)
    for secret in ("abcdef", "12345678", "user", "word", "Expires"):
        assert secret not in shown
    assert failures.redact("https://host/a/b 404") == "https://host/a/b 404"


class GatedRepoError(Exception):
    pass


class RepositoryNotFoundError(Exception):
    pass


class NetworkError(ConnectionError):
    pass


class Wrapped(Exception):  # noqa: N818 - a client's own name
    pass


def raised(outer: Exception, inner: Exception | None = None) -> Exception:
    try:
        raise outer from inner
    except type(outer) as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (GatedRepoError(), "gated"),
        (RepositoryNotFoundError(), "absent"),
        (NetworkError(), "network"),
        (ConnectionRefusedError(), "network"),
        (OSError(28, "No space left on device"), "space"),
        (OSError("Consistency check failed: file should be of size 3"), "size"),
        (ImportError("no module"), "client"),
        (ValueError("x"), "other"),
        (raised(Wrapped("x"), NetworkError()), "network"),
        (raised(Wrapped("x"), raised(Wrapped("y"), GatedRepoError())), "gated"),
    ],
)
def test_the_probe_tells_causes_apart(error: Exception, kind: str) -> None:
    document = PROBE["failure"](error)
    assert document["kind"] == kind
    assert document["type"] == type(error).__name__


def test_the_probe_names_the_file_that_failed() -> None:
    error = Wrapped("1 of 4 files failed")
    error.failed_files = {"model.safetensors": NetworkError("cut")}  # type: ignore[attr-defined]
    document = PROBE["failure"](error)
    assert (document["file"], document["kind"]) == ("model.safetensors", "network")
