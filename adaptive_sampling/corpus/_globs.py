"""Files that a pattern matches, sorted; a directory loop is found and reported, not followed."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_MAGIC = re.compile(r"[*?[]")


@dataclass
class Found:
    """Sorted paths with forward slashes; faults are (path, reason)."""

    files: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)


def find_files(pattern: str) -> Found:
    """Files that match `pattern`: `*`, `?` and `[...]` within a name, `**` over any number of folders.

    Names that begin with a dot match only a pattern that begins with one. Links to folders are followed, but never into
    a folder that is being walked already.
    """
    pattern = os.path.expanduser(pattern).replace(os.sep, "/")
    parts = pattern.split("/")
    # "" at the front is the root, elsewhere a doubled slash.
    root = "/" if parts[0] == "" else ""
    found = Found()
    seen: set[str] = set()
    for path, reason in _walk(root, [part for part in parts if part not in ("", ".")], ()):
        if path in seen:
            continue
        seen.add(path)
        if reason:
            found.faults.append((path, reason))
        else:
            found.files.append(path)
    found.files.sort()
    found.faults.sort()
    return found


def _walk(folder: str, parts: list[str], inside: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str]]:
    name, rest = parts[0], parts[1:]
    if name == "**":
        if not rest:
            rest = ["*"]
        yield from _walk(folder, rest, inside)
        try:
            here = os.stat(folder or ".")
        except OSError:
            return
        inside = (*inside, (here.st_dev, here.st_ino))
        for entry in _entries(folder):
            path = folder + entry.name
            # os.path.isdir: of a link in a circle entry.is_dir() raises.
            if entry.name.startswith(".") or not os.path.isdir(path):
                continue
            try:
                status = os.stat(path)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) in inside:
                yield path, "directory loop: the link leads to a folder that it lies in"
            else:
                yield from _walk(path + "/", parts, inside)
        return
    if not _MAGIC.search(name):
        names = [name] if os.path.lexists(folder + name) else []
    else:
        matches = re.compile(fnmatch.translate(name)).match
        names = [
            entry.name
            for entry in _entries(folder)
            if matches(entry.name) and (name.startswith(".") or not entry.name.startswith("."))
        ]
    for found in names:
        path = folder + found
        if os.path.isdir(path):
            if rest:
                yield from _walk(path + "/", rest, inside)
        elif not rest:
            if os.path.isfile(path):
                yield path, ""
            elif os.path.islink(path):
                yield path, "unreadable: a link to nothing, or in a circle"


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
