"""HTTP as the host's pip configuration wants it: proxy, certificates, time limits, retries."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cpubuild import __version__
from cpubuild.sources.pipconfig import PipConfig

if TYPE_CHECKING:
    import requests

T = TypeVar("T")
LOG = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
RETRIES = 3
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


def open_session(config: PipConfig) -> requests.Session:
    """Make a session that honours ``config``; the environment's proxies and netrc stay in force."""
    import requests

    class HostSession(requests.Session):
        """A session whose certificate choice beats REQUESTS_CA_BUNDLE, as it does in pip."""

        def merge_environment_settings(
            self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
        ) -> Any:
            """Let pip's trusted hosts and certificate win over the environment."""
            if verify is None and trusted(str(url), config.trusted_hosts):
                verify = False
            elif verify is None and config.cert:
                verify = config.cert
            return super().merge_environment_settings(url, proxies, stream, verify, cert)

    session = HostSession()
    session.headers["User-Agent"] = f"vllm-cpu-build/{__version__}"
    if config.cert:
        session.verify = config.cert
    if config.client_cert:
        session.cert = config.client_cert
    if config.proxy:
        session.proxies = {"http": config.proxy, "https": config.proxy}
    return session


def trusted(url: str, hosts: tuple[str, ...]) -> bool:
    """Whether pip's ``trusted-host`` names the host of ``url`` (with its port, if one is named)."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return any(t.lower() in (host, f"{host}:{parts.port}") for t in hosts)


def limits(config: PipConfig, seconds: float | None = None) -> tuple[float, float]:
    """Seconds to connect and to wait for each read; ``seconds`` caps both (a probe)."""
    read = config.timeout or READ_SECONDS
    if seconds is not None:
        return min(CONNECT_SECONDS, seconds), min(read, seconds)
    return min(CONNECT_SECONDS, read), read


def passing(error: Exception) -> bool:
    """Whether trying again may help: connection trouble, time-outs, an overloaded server."""
    import requests

    if isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return False
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        return error.response.status_code in PASSING_STATUS
    return isinstance(
        error,
        requests.exceptions.ConnectionError
        | requests.exceptions.Timeout
        | requests.exceptions.ChunkedEncodingError,
    )


def retried(
    config: PipConfig, act: Callable[[], T], *, on: Callable[[Exception], bool] = passing
) -> T:
    """Call ``act`` until it ends well, at most pip's ``retries`` (else 3) times more."""
    import stamina
    from stamina.instrumentation import RetryDetails, set_on_retry_hooks

    def note(details: RetryDetails) -> None:
        why, seconds = reason(details.caused_by), details.wait_for
        LOG.warning("try %d failed (%s); the next in %.1f s", details.retry_num, why, seconds)

    set_on_retry_hooks([note])
    attempts = 1 + (RETRIES if config.retries is None else max(0, config.retries))
    for attempt in stamina.retry_context(
        on=on, attempts=attempts, timeout=None, wait_initial=0.2, wait_max=5.0, wait_jitter=0.2
    ):
        with attempt:
            return act()
    raise AssertionError("stamina ends with a result or an exception")


def reason(error: Exception) -> str:
    """Say in one line, without credentials or object addresses, why a request failed."""
    import requests

    from cpubuild.sources.pipconfig import redact

    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.ReadTimeout):
        return "no answer in time"
    text = redact(str(error))
    if "Name or service not known" in text or "resolve" in text or "Name resolution" in text:
        return "the host name cannot be resolved"
    if "Connection refused" in text:
        return "connection refused"
    if isinstance(error, requests.exceptions.SSLError):
        said = re.search(r"\]\s*([^()\[\]]+?)\s*\(_ssl", text)
        return f"TLS failed: {said[1] if said else 'the certificate was not accepted'}"
    return text.splitlines()[0][:200] if text else type(error).__name__
