"""`train`, `resume` and `load` for Python: any environment, any setting as a keyword, a result with the agent."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dqnitro import own, planning, session, trained
from dqnitro.callback import Callback, as_callbacks
from dqnitro.cli.terminal.flags import ELSEWHERE, note
from dqnitro.cli.terminal.live import make_sinks
from dqnitro.cli.terminal.training import afterwards, write_page
from dqnitro.config import FIELDS, Config
from dqnitro.envs.names import atari_game, with_kwargs
from dqnitro.errors import ConfigError
from dqnitro.events import Sink, close_all
from dqnitro.play import load_config
from dqnitro.python.notebook import NotebookSink, in_notebook
from dqnitro.python.python_words import OTHER_NAMES, in_python, python_errors
from dqnitro.store.run_folder import new_run_dir
from dqnitro.trained import TrainedAgent

if TYPE_CHECKING:
    import gymnasium as gym

__all__ = ["Result", "load", "resume", "train"]

Env = "str | Config | gym.Env | Callable[..., gym.Env]"


@dataclass(frozen=True)
class Result(session.Result):
    """How a run ended, and the trained agent."""

    agent: TrainedAgent = dataclasses.field(repr=False, compare=False)
    evaluation: Mapping[str, Any] | None = None  # scores of fresh games, their mean and interval, if it was solved
    video: pathlib.Path | None = None
    page: pathlib.Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        out = super().to_dict()
        return out | {name: str(out[name]) for name in ("video", "page") if out[name] is not None}


@python_errors
def train(
    env: str | Config | gym.Env | Callable[..., gym.Env],
    run_dir: str | os.PathLike[str] | None = None,
    *,
    recipe: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
    also: Sequence[str] = (),
    callbacks: Callback | Sequence[Callback] = (),
    progress: bool = True,
    page: bool = False,
    video: bool = False,
    eval_games: int = 0,
    rungs: Sequence[str] = (),
    sinks: Sequence[Sink] = (),
    **settings: Any,
) -> Result:
    """Train until the environment is solved, a limit is reached, or Ctrl-C.

    `env` is the name of an Atari game, a Gymnasium id, a whole `Config`, an environment (copies of it are played), or
    a function or class that makes one; `env_kwargs` are its arguments. A recipe (default: auto) gives the settings,
    keywords change them: `train("pong", recipe="fast", max_steps=10_000, n_envs=16)`.

    With `run_dir` the run is stored and can be resumed. `page` and `video` write those files and `eval_games` scores
    a solved agent over fresh games, as the command `dqnitro train` does; without a `run_dir` they choose one below
    runs/. `progress` shows the live block in a terminal or a notebook.
    """
    settings, callbacks = _settings(settings), as_callbacks(callbacks)
    if isinstance(env, Config):
        if without or also or env_kwargs:
            raise ConfigError("--without, --also and env_kwargs= go with a name, not with a Config")
        made = planning.Planned(env.replace(**settings), tuple(rungs))
    else:
        env_id = _env_id(env, env_kwargs)
        made = planning.planned(planning.Wish(env_id, recipe or "auto", without, also, settings))
    recipe = recipe or ("custom" if isinstance(env, Config) else "auto")
    config, rungs = made.config, made.rungs
    for text in made.notes if progress else ():
        note(in_python(text))
    if run_dir is None and (page or video):
        run_dir = new_run_dir(config, recipe, pathlib.Path("runs"))
    with _live(config, f"{config.env_id} · {recipe}", progress) as live:
        shown = [*sinks, *live]
        result = session.train(config, run_dir, recipe=recipe, rungs=rungs, sinks=shown, callbacks=callbacks)
    return _finished(result, eval_games, video, page)


@python_errors
def resume(
    run_dir: str | os.PathLike[str],
    *,
    env: gym.Env | Callable[..., gym.Env] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    trust: bool = False,
    progress: bool = True,
    page: bool = False,
    video: bool = False,
    eval_games: int = 0,
    sinks: Sequence[Sink] = (),
    **changes: Any,
) -> Result:
    """Continue a stored run from its newest checkpoint.

    Limits may change: `resume("runs/mine", max_steps=20_000)`. An environment, network, loss, optimiser or replay that
    was passed as an object without an importable name has to be passed again. `trust`: run the code that the files
    name (an environment `module:Id`, a network `module:function`), which may be another person's.
    """
    path = pathlib.Path(run_dir)
    config = load_config(path) if path.is_dir() else None
    changes, callbacks = _settings(changes), as_callbacks(callbacks)
    if config is not None:
        _pass_again(config, {"env": env, **{kind: changes.pop(kind, None) for kind in own.KINDS}})
    shown = _live(config, f"{config.env_id} · resumed", progress) if config else contextlib.nullcontext([])
    with shown as live:
        result = session.resume(path, sinks=[*sinks, *live], callbacks=callbacks, trust=trust, **changes)
    return _finished(result, eval_games, video, page)


load = python_errors(trained.load)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names in Config; pieces of the user's own become their names, NumPy numbers Python's."""
    out: dict[str, Any] = {}
    for given_name, value in given.items():
        name = OTHER_NAMES.get(given_name, given_name)
        if name not in FIELDS and (called := ELSEWHERE.get("--" + name.replace("_", "-"))):
            raise ConfigError(f"unknown setting {name!r}", f"did you mean {', '.join(map(in_python, called))}?")
        if name in own.KINDS and not isinstance(value, str):
            out[name] = own.name_of(name, value)
        else:
            out[name] = value.item() if isinstance(value, np.generic) else value
    return out


class _Copies:
    """Makes copies of one environment."""

    def __init__(self, env: gym.Env) -> None:
        self.env, self.reward_threshold = env, getattr(env.spec, "reward_threshold", None)
        self.__qualname__ = type(env.unwrapped).__name__

    def __call__(self) -> gym.Env:
        return copy.deepcopy(self.env)


def _env_id(env: Any, kwargs: Mapping[str, Any] | None) -> str:
    """The name by which a config holds this environment."""
    if isinstance(env, str):
        if kwargs and atari_game(env) is not None:
            raise ConfigError(f"{env} takes settings, not env_kwargs=", "frame_skip, sticky_actions, full_actions, ...")
        return _with_kwargs(env, kwargs or {})
    import gymnasium as gym

    if isinstance(env, gym.Env):
        if kwargs:
            raise ConfigError("env_kwargs= needs a function or a name to give them to, got an environment")
        try:
            copy.deepcopy(env)
        except Exception as e:
            raise ConfigError(
                f"{env} cannot be copied ({type(e).__name__}: {e})", "pass a function that makes one, or its id"
            ) from e
        return own.name_of("env", _Copies(env))
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError("a vector environment cannot be trained on", "pass a single one; n_envs= makes several")
    if not callable(env):
        raise ConfigError(
            f"cannot train on {env!r}", "pass a name, a Config, a Gymnasium environment or a function that makes one"
        )
    try:
        return _with_kwargs(own.name_of("env", env), kwargs or {})
    except TypeError:  # arguments that are not JSON
        return own.name_of("env", functools.partial(env, **(kwargs or {})))


def _with_kwargs(name: str, kwargs: Mapping[str, Any]) -> str:
    try:
        return with_kwargs(name, dict(kwargs))
    except TypeError as e:
        if ":" in name:
            raise
        raise ConfigError(
            f"env_kwargs= of {name} must be numbers, texts, lists or dicts ({e})", "pass a function that makes it"
        ) from e


def _pass_again(config: Config, pieces: Mapping[str, Any]) -> None:
    """Give pieces that are objects of this process the names that a stored config has for them."""
    import gymnasium as gym

    for kind, piece in pieces.items():
        if piece is None:
            continue
        name = config.env_id.partition("?")[0] if kind == "env" else getattr(config, kind)
        if own.name_of(kind, piece) == name:
            continue  # the same function: the user has named it, which is trust enough
        if not name.startswith(own.LOCAL):
            raise ConfigError(f"{kind}= cannot change on resume: the run has {name}", f"leave out {kind}=")
        own.put(kind, name, _Copies(piece) if isinstance(piece, gym.Env) else piece)


@contextlib.contextmanager
def _live(config: Config, title: str, progress: bool) -> Iterator[list[Sink]]:
    """What shows the run in a terminal, a log or a notebook; closed also if the run cannot start."""
    options = types.SimpleNamespace(quiet=not progress, json_lines=False, log_every=None)
    notebook = progress and in_notebook()
    shown: list[Sink] = [NotebookSink(config, title)] if notebook else [*make_sinks(config, title, options)]
    try:
        yield shown
    finally:
        close_all(shown)


def _finished(result: session.Result, eval_games: int, video: bool, page: bool) -> Result:
    """The result with its agent and the files that were asked for."""
    facts: dict[str, Any] = {"agent": trained.from_run(result.agent)}
    if result.run_dir is not None and result.exit_code == 0 and (video or eval_games):
        more = afterwards(result, eval_games, video)
        facts["evaluation"] = more.get("evaluation")
        facts["video"] = pathlib.Path(more["video"]["path"]) if "video" in more else None
    if result.run_dir is not None and page:
        facts["page"] = pathlib.Path(str(write_page(result.run_dir)))
    same = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    return Result(**same | facts)
