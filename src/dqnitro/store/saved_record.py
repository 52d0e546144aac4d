"""The record of a checkpoint: all that a manifest says, checked before a run uses or writes anything.

A checksum catches what a disk does to a manifest. This catches the rest: manifests of older versions, which have none,
and those that were edited.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError

MOST = 2**53  # beyond it a JSON reader may have rounded


def check_record(record: Mapping[str, Any], where: pathlib.Path) -> Config:
    """The config of a checkpoint whose record can be used; CheckpointError otherwise."""
    try:
        config = Config.from_dict(_mapping(record, "config"))
        for name in ("steps", "updates", "syncs"):
            _whole(_mapping(record, "clock"), name)
        for phase, seconds in _mapping(record, "phases").items():
            _number({phase: seconds}, phase)
        _whole(record, "metrics_bytes")
        _check_tally(_mapping(record, "tally"))
        for name in ("rng_act", "rng_replay"):
            if name in record:
                np.random.PCG64(0).state = record[name]
        for name in _mapping(record, "started") if "started" in record else ():
            _whole(record["started"], name)
    except ConfigError as e:
        raise CheckpointError(f"{where}: the checkpoint's config cannot be used ({e})") from e
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as e:
        raise CheckpointError(f"{where}: the checkpoint is damaged ({_told(e)})", "nothing was changed") from e
    return config


def _check_tally(tally: Mapping[str, Any]) -> None:
    _number(tally, "wall_s")
    _whole(tally, "games")
    if not isinstance(tally["scores"], list):
        raise ValueError("scores is not a list")
    for score in tally["scores"]:
        _real({"score": score}, "score")
    for name in ("avg_reward", "avg_loss"):
        if tally[name] is not None:
            _real(tally, name)


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data[name]
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_short(value)}")
    return value


def _real(data: Mapping[str, Any], name: str) -> float:
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {_short(value)}")
    return value


def _number(data: Mapping[str, Any], name: str) -> None:
    if not 0 <= (value := _real(data, name)) < math.inf:
        raise ValueError(f"{name} is {_short(value)}")


def _whole(data: Mapping[str, Any], name: str) -> None:
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _told(e: BaseException) -> str:
    return f"{e.args[0]} is missing" if isinstance(e, KeyError) else f"{type(e).__name__}: {e}"
