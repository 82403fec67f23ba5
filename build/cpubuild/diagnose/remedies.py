"""Choose and fill in the remedies of a rule for one distribution, or for any."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cpubuild.diagnose.rules import Rule, load_lookups

FAMILY_NAMES = {
    "apt": "Debian, Ubuntu",
    "dnf": "RHEL and kin, Fedora",
    "zypper": "SUSE",
    "pacman": "Arch",
    "apk": "Alpine",
}
INSTALL = {
    "apt": "sudo apt-get install -y {package}",
    "dnf": "sudo dnf install -y {package}",
    "zypper": "sudo zypper install -y {package}",
    "pacman": "sudo pacman -S --needed {package}",
    "apk": "sudo apk add {package}",
}
FIELD = re.compile(r"\{([a-z_]+)\}")
_OPTIONAL = re.compile(r"\[\[(.{1,200}?)\]\]")


def fill(text: str, groups: Mapping[str, str]) -> str:
    """Put captured values into ``{name}`` fields; one without a value reads ``<name>``.

    A piece in ``[[ ]]`` is left out unless all of its fields have values.
    """

    def piece(found: re.Match[str]) -> str:
        return found[1] if all(groups.get(name) for name in FIELD.findall(found[1])) else ""

    filled = FIELD.sub(lambda m: groups.get(m[1]) or f"<{m[1]}>", _OPTIONAL.sub(piece, text))
    return filled[:1].upper() + filled[1:] if text.startswith("[[") else filled


def certain(text: str) -> str:
    """``text`` without the pieces that are left out when a value is not known."""
    return _OPTIONAL.sub("", text)


def shown(text: str) -> str:
    """``text`` with all of its pieces, fields as they are written."""
    return _OPTIONAL.sub(r"\1", text)


def remedies_for(
    rule: Rule,
    groups: Mapping[str, str],
    *,
    family: str | None = None,
    distro: str | None = None,
) -> tuple[str, ...]:
    """The remedies in order: this distribution's, else its family's, else all by name.

    ``family`` is a key of ``FAMILY_NAMES``, ``distro`` an id with a version (``debian-12``).
    """
    chosen = _specific(rule, family=family, distro=distro)
    looked_up = looked_up_packages(rule, groups)
    lines = [fill(text, groups) for text in (*chosen, *rule.remedies.get("general", ()))]
    install = [
        _labelled(fill(INSTALL[name], {"package": package}), name, family)
        for name, package in looked_up.items()
        if name in INSTALL and (family is None or name == family)
    ]
    pip = [f"pip install {looked_up['pip']}"] if "pip" in looked_up else []
    return tuple(dict.fromkeys((*install, *pip, *lines)))


def _specific(rule: Rule, *, family: str | None, distro: str | None) -> tuple[str, ...]:
    if distro is not None and distro in rule.remedies:
        return rule.remedies[distro]
    if family is not None:
        return rule.remedies.get(family, ())
    return tuple(
        _labelled(text, name, None) for name in FAMILY_NAMES for text in rule.remedies.get(name, ())
    )


def _labelled(text: str, name: str, family: str | None) -> str:
    return text if family is not None else f"{FAMILY_NAMES[name]}: {text}"


def looked_up_packages(rule: Rule, groups: Mapping[str, str]) -> dict[str, str]:
    """Package by family (or ``pip``) for what the rule's patterns captured."""
    for table, group in rule.lookup.items():
        entries = load_lookups().get(table, {})
        key = groups.get(group, "")
        for name in (key, key.rsplit("/", 1)[-1], key.split(".", 1)[0]):
            if name and name in entries:
                return entries[name]
    return {}
