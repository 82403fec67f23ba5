"""Wheels shared between hosts: a store to read and to fill, and proof before anything is used."""

from cpubuild.wheelcache.explain import explain_miss
from cpubuild.wheelcache.fetch import fetch_wheel
from cpubuild.wheelcache.model import Fetched, Mode, Published, Refused, Store, StoreError
from cpubuild.wheelcache.opening import Shared, open_shared, open_store
from cpubuild.wheelcache.publish import publish_wheel
from cpubuild.wheelcache.trust import Trust

__all__ = [
    "Fetched",
    "Mode",
    "Published",
    "Refused",
    "Shared",
    "Store",
    "StoreError",
    "Trust",
    "explain_miss",
    "fetch_wheel",
    "open_shared",
    "open_store",
    "publish_wheel",
]
