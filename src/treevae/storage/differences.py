"""Whether a run that goes on is the one that was started: what has changed, by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ..errors import ChangedRunError

SHOWN = 60  # characters of a value in a message


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two JSON-able dicts, such as "n_leaves: 10 before, now 20"; inner names are dotted.

    Both are compared as JSON gives them back, so a tuple is the same as a list.
    """
    return list(_differences(json.loads(json.dumps(before)), json.loads(json.dumps(now)), ""))


def check_same(before: dict[str, Any], now: dict[str, Any], folder: str | os.PathLike[str]) -> None:
    """Refuse to go on with a run whose parameters or data have changed.

    Raises
    ------
    ChangedRunError
        Names every difference.
    """
    if changed := differences(before, now):
        raise ChangedRunError(
            f"the run in {os.fspath(folder)} was started with other parameters or data: {'; '.join(changed)}. To go "
            "on, give the same as before; or give another folder, or remove the states in this one to start anew"
        )


_ABSENT = object()


def _differences(before: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            inner = f"{name}.{key}" if name else key
            yield from _differences(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif not _same(before, now):
        old, new = _shown(before), _shown(now)
        yield (
            f"{name}: {old} before, now {new}" if old != new else f"{name}: {old} before, now another that begins alike"
        )


def _same(before: Any, now: Any) -> bool:
    """Equal; NaN equals NaN, and truth values are no numbers."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, bool) != isinstance(now, bool):
        return False
    return before == now or (before != before and now != now)


def _shown(value: Any) -> str:
    text = "absent" if value is _ABSENT else repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
