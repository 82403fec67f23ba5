"""Collect every fact about a host: probes side by side, the parsers behind them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cpubuild.facts import (
    compilers,
    container,
    cpu,
    disk,
    distro,
    environment,
    interpreters,
    libc,
    libraries,
    memory,
    numa,
    recorded,
    tools,
)
from cpubuild.facts.model import Compiler, HostFacts, Libraries

LIVE = Path("/")


def collect(
    root: Path = LIVE,
    *,
    disks: Mapping[str, Path],
    compilers: bool = True,
    cxx: str | None = None,
    python: str | None = None,
    environ: Mapping[str, str] = os.environ,
    cache: Path | None = None,
) -> HostFacts:
    """Observe the host, in about a second.

    ``disks`` maps a purpose to the path that will be used for it. ``compilers`` off leaves them
    out and every compile with them. ``cxx`` and ``python`` name a compiler and an interpreter
    to look at before all others.
    ``cache`` is a file that remembers compilers which passed. A ``root`` other than ``/`` is a
    recorded host: its files are read, no program is run, ``disks`` and ``environ`` do not count.
    """
    if root != LIVE:
        return replay(root)
    with ThreadPoolExecutor(max_workers=16) as pool:
        return _live(
            dict(environ),
            disks,
            pool,
            with_compilers=compilers,
            cxx=cxx,
            python=python,
            cache=cache,
        )


def replay(root: Path) -> HostFacts:
    """Build the facts of a recorded host from its folder."""
    known = recorded.read(root)
    cpu_texts = cpu.probe(root)
    processor = cpu.parse(cpu_texts)
    return HostFacts(
        cpu=processor,
        memory=memory.parse(memory.probe(root)),
        numa=numa.parse(numa.probe(root)),
        disks=known.disks,
        distro=distro.parse(distro.probe(root)),
        libc=known.libc or libc.parse(libc.probe(root, {})),
        kernel=cpu.kernel(cpu_texts),
        compilers=known.compilers,
        tools=known.tools,
        interpreters=known.interpreters,
        libraries=known.libraries or libraries.parse({}, root, processor.arch),
        container=known.container or container.recorded(container.probe(root, {}), processor),
        environment=known.environment,
    )


def _live(
    environ: Mapping[str, str],
    disks: Mapping[str, Path],
    pool: ThreadPoolExecutor,
    *,
    with_compilers: bool,
    cxx: str | None,
    python: str | None,
    cache: Path | None,
) -> HostFacts:
    # the outer tasks wait for inner ones, so each has threads of its own
    with ThreadPoolExecutor(max_workers=5) as outer:
        chain = outer.submit(
            _toolchain, environ, pool, with_compilers=with_compilers, cxx=cxx, cache=cache
        )
        pythons = outer.submit(interpreters.collect, environ, pool, asked=python)
        programs = outer.submit(tools.collect, environ, pool)
        c_library = outer.submit(libc.probe, LIVE, environ)
        cpu_texts = cpu.probe(LIVE)
        processor = cpu.parse(cpu_texts)
        around = outer.submit(container.live, container.probe(LIVE, environ), processor, environ)
        loader = libraries.parse_cache(libraries.probe(LIVE, environ), processor.arch)
        mounts = disk.parse_mounts(disk.probe(LIVE))
        found, header, link = chain.result()
        return HostFacts(
            cpu=processor,
            memory=memory.parse(memory.probe(LIVE)),
            numa=numa.parse(numa.probe(LIVE)),
            disks=tuple(disk.measure(path, purpose, mounts) for purpose, path in disks.items()),
            distro=distro.parse(distro.probe(LIVE)),
            libc=libc.parse(c_library.result()),
            kernel=cpu.kernel(cpu_texts),
            compilers=found,
            tools=programs.result(),
            interpreters=pythons.result(),
            libraries=_libraries(loader, processor.arch, header, link),
            container=around.result(),
            environment=environment.parse(environ),
        )


def _libraries(
    loader: Mapping[str, str], arch: str, header: bool | None, link: bool | None
) -> Libraries:
    return libraries.parse(loader, LIVE, arch, numa_header=header, numa_link=link)


def _toolchain(
    environ: Mapping[str, str],
    pool: ThreadPoolExecutor,
    *,
    with_compilers: bool,
    cxx: str | None,
    cache: Path | None,
) -> tuple[tuple[Compiler, ...], bool | None, bool | None]:
    """Probe the compilers, then ask the best of them for libnuma."""
    if not with_compilers:
        return (), None, None
    found = compilers.collect(environ, pool, cxx=cxx, root=LIVE, cache=cache)
    working = next((compiler for compiler in found if compiler.works), None)
    if working is None:
        return found, None, None
    header, link = libraries.compile_numa(working.path, environ)
    return found, header, link
