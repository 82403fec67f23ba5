"""Models in folders: fetched, checked, listed, removed."""

from cpubuild.models.store import Stored, find, stored, stored_path

__all__ = ["Stored", "find", "stored", "stored_path"]
