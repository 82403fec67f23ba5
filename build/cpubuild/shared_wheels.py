"""The shared wheel cache in a bootstrap: asked before the plan, published to after the proof."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpubuild import ui
from cpubuild.findings import Finding
from cpubuild.plan import Inputs, wheel_of
from cpubuild.settings import Settings
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.state import State
from cpubuild.survey import Survey
from cpubuild.wheelcache import Fetched, Refused, Shared, fetch_wheel, open_shared, publish_wheel


@dataclass(kw_only=True, slots=True)
class SharedWheels:
    """An open shared cache; remembers a refused entry, which a publisher may replace."""

    shared: Shared
    state: State
    config: PipConfig
    refused: Refused | None = field(default=None)

    def fetch(self, inputs: Inputs) -> None:
        """Place the wheel of ``inputs`` into the state root, if a trusted one is shared."""
        into = self.state.wheels / inputs.wheel_key
        trust = self.shared.trust
        if wheel_of(into) is not None or not (trust.signers or trust.pins):
            return
        got = fetch_wheel(
            self.shared.store, inputs.wheel_key, inputs.wheel, into, trust, config=self.config
        )
        if isinstance(got, Fetched):
            ui.note(f"wheel {inputs.wheel_key} from {got.store}, vouched for by {got.authority}")
        elif isinstance(got, Refused):
            self.refused = got
            tell(got.finding)

    def publish(self, inputs: Inputs, results: Sequence[Mapping[str, Any]]) -> None:
        """Publish a wheel that this run has compiled and proved, where the store may be written."""
        compiled = any(r["id"] == "compile" and r["status"] == "done" for r in results)
        if compiled and self.shared.store.writable:
            done = publish_wheel(
                self.shared.store,
                self.state.wheels / inputs.wheel_key,
                signer=self.shared.signer,
                replace=self.refused is not None and self.refused.replaceable,
            )
            if isinstance(done, Refused):
                tell(done.finding)
            else:
                ui.note(f"wheel {inputs.wheel_key} published to {self.shared.store.name}")
        self.shared.store.close()


def open_for(settings: Settings, survey: Survey, state: State) -> SharedWheels | None:
    """The shared cache that the settings name; None without one, or offline with a remote one."""
    shared = open_shared(
        settings.wheel_cache,
        mode=settings.wheel_cache_mode,
        trust=settings.wheel_cache_trust,
        key=settings.wheel_cache_key,
        environ=os.environ,
        config=survey.config,
    )
    if shared is None or (settings.offline and shared.store.remote):
        return None
    return SharedWheels(shared=shared, state=state, config=survey.config)


def tell(finding: Finding) -> None:
    """Show why an entry of the cache is not used; the build goes on without it."""
    ui.say(f"{ui.mark(finding.status.value)} {finding.id}: {finding.title}: {finding.found}")
    for line in finding.remedy:
        ui.note(f"do:  {line}")
