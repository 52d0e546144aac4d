"""A trained agent to take away: a folder that plays with DQNitro, and that torch and onnxruntime load without it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import pathlib
import shutil
import statistics
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from dqnitro import protocol
from dqnitro.common.files import replacing, write_json, writing
from dqnitro.common.host import provenance
from dqnitro.common.parsing import read_object
from dqnitro.config import Config
from dqnitro.envs import env_kind
from dqnitro.errors import ConfigError, StorageError
from dqnitro.play import weights_file
from dqnitro.store.run_folder import RunFolder
from dqnitro.trained import TrainedAgent, load

WEIGHTS, SETTINGS, CARD, FACTS = "model.safetensors", "config.json", "README.md", "agent.json"
PROGRAM, ONNX, VIDEO = "model.pt2", "model.onnx", "game.mp4"
FILES = (WEIGHTS, SETTINGS, CARD, FACTS, PROGRAM, ONNX, VIDEO)
NEEDS_ONNX = "model.onnx needs the extra `export` (pip install 'dqnitro[export]')"


@dataclass(frozen=True)
class Wanted:
    """What to put beside the weights."""

    games: int = 30  # fresh games to score; 0: none
    envs: str = ""  # the environment backend that scores them; empty: the run's
    video: bool = True
    onnx: bool = True
    trust: bool = False
    say: Callable[[str], None] = lambda text: None
    best: bool = False  # the weights of the best evaluation, not the last ones


class Exported(NamedTuple):
    """What was written."""

    folder: pathlib.Path
    files: tuple[str, ...]
    facts: dict[str, Any]
    left_out: dict[str, str]  # file -> why


def export(run_dir: pathlib.Path, folder: pathlib.Path, wanted: Wanted = Wanted()) -> Exported:  # noqa: B008
    """Write the agent of a run, or of another export, into a new folder."""
    agent = load(run_dir, trust=wanted.trust, best=wanted.best)
    if wanted.envs:
        agent.config.replace(envs=wanted.envs)  # says what is wrong with it before anything is written
    with _new_folder(folder):
        return _write(agent, run_dir, folder, wanted)


@contextlib.contextmanager
def _new_folder(folder: pathlib.Path) -> Iterator[None]:
    """A folder with all that belongs in it, or none: what was begun goes again."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not an empty folder", "give another one with --out")
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            yield
    except BaseException:
        for name in FILES:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _write(agent: TrainedAgent, run_dir: pathlib.Path, folder: pathlib.Path, wanted: Wanted) -> Exported:
    left_out: dict[str, str] = {}
    for name, source in ((SETTINGS, run_dir / SETTINGS), (WEIGHTS, weights_file(run_dir, wanted.best))):
        with replacing(folder / name) as tmp:
            shutil.copyfile(source, tmp)
    wanted.say("exporting the network")
    try:
        program = write_program(agent, folder / PROGRAM)
        if wanted.onnx and (why := write_onnx(program, folder / ONNX)):
            left_out[ONNX] = why
    except (StorageError, OSError):
        raise
    except Exception as e:  # the user's own network, in which torch's tracer may meet anything
        why = f"torch cannot export this network ({type(e).__name__}: {' '.join(str(e).split())[:200]})"
        left_out |= {name: why for name in (PROGRAM, ONNX) if not (folder / name).is_file()}
    facts = describe(agent, run_dir, wanted)
    if wanted.video:
        wanted.say("recording one game")
        try:
            end = agent.record(folder / VIDEO)
            facts["video"] = {"score": end.score, "steps": end.steps}
        except (RuntimeError, ValueError, OSError) as e:  # an environment may be unable to render
            left_out[VIDEO] = str(e)
    write_json(folder / FACTS, facts)
    with replacing(folder / CARD) as tmp:
        tmp.write_text(card(agent.config, facts, {p.name for p in folder.iterdir()}), "utf-8")
    return Exported(folder, tuple(sorted(p.name for p in folder.iterdir())), facts, left_out)


def write_program(agent: TrainedAgent, path: pathlib.Path) -> Any:
    """The network as a program that torch loads without our code: observations (batch, ...) in, values out."""
    obs = torch.zeros((2, *agent.spec.obs_shape), dtype=agent.obs_dtype)
    batch = torch.export.Dim("batch", min=1, max=65_536)
    program = torch.export.export(agent.network.cpu().eval(), (obs,), dynamic_shapes={"obs": {0: batch}})
    with replacing(path) as tmp:
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        tmp.write_bytes(buffer.getvalue())
    return program


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """The exporter tells its progress and what it does not need; our users cannot do anything about either."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def write_onnx(program: Any, path: pathlib.Path) -> str | None:
    """The same program as ONNX; returns why it could not be written."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        return NEEDS_ONNX
    with _silent():
        made = torch.onnx.export(program, dynamo=True, input_names=["obs"], output_names=["values"], verbose=False)
    assert made is not None
    with replacing(path) as tmp:
        tmp.write_bytes(made.model_proto.SerializeToString())
    return None


def describe(agent: TrainedAgent, run_dir: pathlib.Path, wanted: Wanted) -> dict[str, Any]:
    """What one has to know to use the agent: what it sees, what it does, how well, under which rules."""
    config, spec = agent.config, agent.spec
    facts: dict[str, Any] = {
        "format": 1,
        "env_id": config.env_id,
        "recipe": read_object(run_dir / SETTINGS).get("recipe", ""),
        "observations": {"shape": list(spec.obs_shape), "dtype": str(spec.obs_dtype)},
        "actions": _actions(config, spec.n_actions),
        **provenance(),
    }
    if told := RunFolder(run_dir).read_summary():
        facts["training"] = {k: told[k] for k in ("steps", "updates", "games", "wall_s", "mean_score") if k in told}
    elif before := read_object(run_dir / FACTS):  # of an export that is exported again
        facts["training"] = before.get("training", {})
    if wanted.games:
        wanted.say(f"playing {wanted.games} fresh games")
        scored = agent.score(wanted.games, envs=wanted.envs)
        facts["scores"] = scored._asdict()
        facts["protocol"] = protocol.of(config, "fresh games", wanted.games, 0.01, wanted.envs).to_dict()
    return facts


def _actions(config: Config, n: int) -> list[str]:
    if env_kind(config.env_id) != "atari":
        return [str(i) for i in range(n)]
    from dqnitro.envs.atari import make_atari_env

    env = make_atari_env(config.env_id, config)
    try:
        return list(env.get_wrapper_attr("get_action_meanings")())
    finally:
        env.close()


def card(config: Config, facts: dict[str, Any], files: Collection[str]) -> str:
    """The model card, with the head that model hubs read."""
    shape = ", ".join(map(str, facts["observations"]["shape"]))
    pixels = env_kind(config.env_id) == "atari"
    lines = ["---", "library_name: dqnitro", "tags: [reinforcement-learning, deep-reinforcement-learning, dqn, atari]"]
    scores = facts.get("scores")
    if scores:
        spread = statistics.pstdev(scores["scores"])
        lines += [
            "model-index:", f"- name: DQN on {config.env_id}", "  results:",
            "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
            f"    dataset: {{name: {config.env_id}, type: {config.env_id}}}",
            "    metrics:", "    - type: mean_reward", f'      value: "{scores["mean"]:.2f} +/- {spread:.2f}"',
            "      name: mean_reward", "      verified: false",
        ]  # fmt: skip
    lines += ["---", "", f"# DQN on {config.env_id}", "", f"Trained by DQNitro {facts['versions'].get('dqnitro', '')}."]
    if facts.get("training"):
        told = facts["training"]
        minutes = told.get("wall_s", 0) / 60
        lines += ["", f"Training: {told.get('steps', 0):,} steps in {minutes:.1f} minutes, recipe `{facts['recipe']}`."]
    if scores:
        rules = facts["protocol"]
        lines += [
            "",
            f"**Score {scores['mean']:.2f}** over {len(scores['scores'])} fresh games (95% interval "
            f"{scores['low']:.2f} to {scores['high']:.2f}), protocol `{rules['name']}`: sticky actions "
            f"{rules['sticky_actions']:g}, lives {'told' if rules['lives_told'] else 'not told'} while training, "
            f"epsilon {rules['epsilon']:g}, played by `{rules['backend']}`.",
        ]  # fmt: skip
    if VIDEO in files:
        lines += ["", f"`{VIDEO}` shows one game."]
    lines += ["", "## Observations", "", f"`{facts['observations']['dtype']}` of shape (batch, {shape})."]
    if pixels:
        pool = "the maximum of the last two frames of a step, " if config.max_pool else ""
        lines += [
            f"The last {config.frame_stack} screens, newest last, one every {config.frame_skip} frames: {pool}grey, "
            f"shrunk to {config.screen_size}x{config.screen_size} pixels by area. The network scales them itself.",
            "", f"Actions: {', '.join(f'{i} {a}' for i, a in enumerate(facts['actions']))}.",
        ]  # fmt: skip
    example = f"np.zeros((1, {shape}), np.{facts['observations']['dtype']})"
    lines += ["", "## Use", "", "With DQNitro:", "", "```sh", "dqnitro play FOLDER --watch", "```", ""]
    if PROGRAM in files:
        lines += ["With plain torch:", "", "```python", "import numpy as np", "import torch", ""]
        lines += [f'network = torch.export.load("{PROGRAM}").module()']
        lines += [f"values = network(torch.from_numpy({example}))", "action = values.argmax(1)", "```"]
    if ONNX in files:
        lines += ["", "With onnxruntime:", "", "```python", "import numpy as np", "import onnxruntime", ""]
        lines += [f'session = onnxruntime.InferenceSession("{ONNX}")']
        lines += [f'values = session.run(None, {{"obs": {example}}})[0]', "action = values.argmax(1)", "```"]
    return "\n".join([*lines, ""])


def check_push(repo: str) -> None:
    """ConfigError if nothing could be uploaded there, before minutes of work."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError("--push needs huggingface_hub", "pip install 'dqnitro[export]'")
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as e:
        raise ConfigError(f"--push {repo!a} does not name a repository ({e})", "--push NAME/REPO") from e


def push(folder: pathlib.Path, repo: str) -> str:
    """Upload an exported folder to a model hub; returns its address."""
    check_push(repo)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    try:
        api.create_repo(repo, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Add a trained agent")
    except LocalTokenNotFoundError as e:
        raise ConfigError("--push needs a token of the model hub", "`hf auth login`, or set HF_TOKEN") from e
    except (HfHubHTTPError, ValueError, OSError) as e:
        raise ConfigError(f"--push {repo}: {str(e).strip().splitlines()[0]}") from e
    return f"{api.endpoint}/{repo}"
