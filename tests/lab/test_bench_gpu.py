"""`bench gpu` without a GPU: reasons instead of figures; and its arithmetic, on stand-ins that a CPU can run."""

import itertools
import json
import math
from types import SimpleNamespace

import pytest
import torch

from dqnitro.cli import main
from dqnitro.cli.terminal.tables import names_of
from dqnitro.common.files import plain
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.bench import gpu, gpu_training, gpu_work
from dqnitro.lab.bench.contest import CannotRun, Options
from dqnitro.replay.gpu_ring import Ring
from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import read_sources

CPU = torch.device("cpu")
TWO = Options(rounds=2, seconds=0.001)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gpu_work, "SCATTER_STEPS", 50)
    monkeypatch.setattr(gpu_work, "FEWEST_STEPS", 45)


class Machines:
    """`n` consoles: a game lasts 30 steps and its start 5, as long as nobody else begins one."""

    n_actions, game, start = 3, 30, 5

    def __init__(self, n: int) -> None:
        self.actions = torch.full((n,), -1)
        self.resetting = torch.zeros(n, dtype=torch.int32)
        self.left = torch.full((n,), self.game)
        self.over = torch.zeros(n, dtype=torch.bool)
        self.steps = self.frames = self.ends = self.restarts = 0

    def restart(self, which):
        self.restarts += int(which.sum())
        self.resetting[which] = self.start

    def step(self):
        assert int(self.actions.min()) >= 0 and int(self.actions.max()) < 3
        playing = self.resetting == 0
        self.steps += 1
        self.frames += 4 * int(playing.sum())
        self.left = torch.where(self.resetting == 1, self.game, self.left - playing.long())
        self.over = (self.left == 0) & playing
        self.resetting = torch.where(self.over, self.start, (self.resetting - 1).clamp(min=0)).int()
        self.ends += int(self.over.sum())

    def ended(self):
        return self.over


def made(game, n, device):
    if n > 64:
        raise CannotRun("the GPU is full")
    return Machines(n)


def small(batch: int, double: bool, how: str, head: str = "") -> Config:
    config = gpu.learner_config(batch, double, "eager", head)
    return config.replace(
        batch_size=batch // 256, n_envs=2, screen_size=36, network="small", hidden_units=8, replay_capacity=200,
        first_fill_steps=64, wrappers=("no-grad", "fused-adam"),
    )  # fmt: skip


def trainer(config: Config):
    """A run that learns from its third graph on; a graph is sixteen steps of every console that plays."""
    ring, player = Ring(40, 2, 8, 4, CPU, deep=False), Machines(config.n_envs)
    agent = SimpleNamespace(
        ring=ring, player=player, clock=SimpleNamespace(steps=0, updates=0), age=torch.zeros(4), config=config
    )

    def graphs():
        for k in itertools.count():
            before, ends = player.frames, player.ends
            for _ in range(16):
                player.actions.zero_()
                player.step()
            agent.clock.steps += (player.frames - before) // 4
            agent.clock.updates += 2 * (k >= 2)
            yield SimpleNamespace(ends=(None,) * (player.ends - ends))

    agent.run = graphs()
    trainer.made.append(agent)
    return agent, agent.run


trainer.made = []
TRAINING = {"make": trainer, "config": lambda game, n, batch: gpu_training.training_config(game, n // 64, batch // 64)}


def test_training_counts_the_frames_of_graphs_that_learned():
    took = []
    config = gpu_training.training_config("qbert", 1024, 256)
    assert config.runner == "device" and config.batch_size / config.steps_per_update == gpu_training.SAMPLES_A_STEP
    assert not config.double and not config.dueling and config.n_step == 1 and config.network == "nature"
    assert config.env_id == "qbert"
    timed = gpu_training.training_rate(config.replace(n_envs=40), CPU, took, trainer)
    agent = trainer.made[-1]
    assert agent.clock.updates >= 2 and int(agent.ring.filled) == 40, "it learned before the clock ran"
    assert bool((agent.age == 4).all()), "no frame of a stack is from before its game"
    before, ends = agent.clock.steps, agent.player.ends
    value = timed.rate(0.001)
    graphs = timed.games._steps - 2  # two of them to learn how long one takes
    assert graphs >= 1 and value == pytest.approx(4 * (agent.clock.steps - before) / (took[0] * graphs))
    # 40 consoles that play 30 of 35 steps
    columns = timed.games.columns(1, took[0])
    assert columns["share_resetting"] == pytest.approx(5 / 35, abs=0.06)
    assert columns["games_per_s"] * took[0] == pytest.approx(16 * 40 / 35, rel=0.4) and agent.player.ends > ends


def test_consoles_are_scattered_over_their_games(monkeypatch):
    """All of them began in the same step; after it every step has about as many ends as every other."""
    monkeypatch.setattr(gpu_work, "SCATTER_STEPS", 512)
    machines = Machines(700)
    assert gpu_work.scatter(machines, 700, CPU) == gpu_work.SCATTER_STEPS
    assert machines.restarts == 700, "each console began one more game"
    together, ends = Machines(700), []
    for some in (machines, together):
        each = []
        for _ in range(35):
            before = some.ends
            gpu_work.random_step(some, 700, CPU)
            each.append(some.ends - before)
        ends.append(max(each))
    assert ends[0] < 60 < ends[1] == 700


def test_few_steps_scatter_very_many_consoles(monkeypatch):
    monkeypatch.setattr(gpu_work, "SCATTER_S", 0.0)
    assert gpu_work.scatter(Machines(4), 4, CPU) == gpu_work.FEWEST_STEPS


def test_a_real_run_stands_beside_the_rate(monkeypatch):
    """Both figures and their ratio, for every game and size that was asked for."""
    trained = []

    def real(config, minutes):
        trained.append((config.env_id, config.n_envs, minutes))
        return 1000.0

    only = Options(rounds=2, seconds=0.001, only=("4,096 machines",))
    more = TRAINING | {"train_minutes": 3.0, "real": real}
    result = gpu.bench(only, ["pong", "qbert"], [8], lambda: "cpu", made, small, more, ["pong", "qbert"])
    assert trained == [("pong", 64, 3.0), ("qbert", 64, 3.0)]
    assert list(result["table"]) == [
        f"training, classic DQN, {g}, 4,096 machines, batch 512" for g in ("pong", "qbert")
    ]
    for row in result["table"].values():
        assert row["train_rate"] == 1000.0 and row["to_train"] == row["rate"] / 1000.0 and row["train_minutes"] == 3.0
        assert row["games_per_s"] > 0 and 0 < row["share_resetting"] < 0.5
    assert {"games_per_s", "share_resetting", "train_rate", "to_train"} <= set(result["columns"])


def test_a_real_run_is_one_of_train(monkeypatch):
    seen = {}

    def train(config, *rest, **more):
        seen.update(config=config, rest=rest, more=more)
        return SimpleNamespace(frames_per_s=77.0)

    monkeypatch.setattr("dqnitro.session.train", train)
    config = gpu_training.training_config("pong", 1024, 256)
    assert gpu_training.real_rate(config, 3.0) == 77.0 and not seen["rest"] and not seen["more"]
    same = config.replace(max_minutes=3.0, stop_at_score=math.inf, checkpoint_every_s=0.0)
    assert seen["config"] == same, "nothing else differs from what was measured"


def test_without_a_gpu_there_is_a_reason_for_every_row():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    result = gpu.bench(TWO, ["pong", "breakout"], [256, 1024])
    assert result["table"] == {} and result["verdict"] == "Nothing could be measured here."
    assert len(result["skipped"]) == 3 + len(gpu.BATCHES) * len(gpu.KINDS) + len(gpu_training.SIZES)
    assert {"sees no CUDA device" in why for why in result["skipped"].values()} == {True}


def test_frames_are_those_of_machines_that_play():
    machines, took = Machines(8), []
    timed = gpu.console_rate(machines, 8, 4, CPU, took)
    steps, frames = machines.steps, machines.frames
    value = timed.rate(0.001)
    calls = (machines.steps - steps) // gpu.STEPS_TOGETHER
    assert calls >= 1 and value == pytest.approx((machines.frames - frames) / (took[0] * calls))
    assert timed.games.columns(gpu.STEPS_TOGETHER, took[0])["games_per_s"] > 0


def test_the_clock_counts_what_was_done_between_its_two_readings():
    done, took = [0.0], []

    def work() -> None:
        done[0] += 5.0

    rate = gpu.clocked(work, lambda: done[0], CPU, took)
    before = done[0]
    value = rate(0.001)
    n = (done[0] - before) / 5.0
    assert n >= 1 and value == pytest.approx(5.0 * n / (took[0] * n))


def test_a_rate_of_learning_is_of_real_updates(monkeypatch):
    from dqnitro.run.gpu.device import DeviceAgent

    agents = []
    original = DeviceAgent.__init__

    def init(self, *args):
        original(self, *args)
        agents.append((self, [p.detach().clone() for p in self.learner.online.parameters()]))

    monkeypatch.setattr(DeviceAgent, "__init__", init)
    rate = gpu.learner_rate(small(512, True, False), CPU)
    value = rate(0.01)
    ((agent, before),) = agents
    updates, loss = int(agent.report[1]), float(agent.report[3])
    assert value > 0 and updates >= 3 and loss > 0 and int(agent.report[4]) < 0
    assert not any(torch.equal(a, b) for a, b in zip(before, agent.learner.online.parameters(), strict=True))
    assert bool((agent.ring.frames.float().std() > 50).all()) and int(agent.groups[0].filled) == agent.ring.slots


def test_the_whole_table_and_the_page_that_shows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "BATCHES", (512, 1024))
    result = gpu.bench(
        TWO,
        ["pong", "breakout", "alien"],
        [8, 4, 128, 64],
        device=lambda: "cpu",
        make=made,
        config=small,
        training=TRAINING,
    )
    names = list(result["table"])
    assert names[:3] == [f"console, pong, {n} machines" for n in (4, 8, 64)]
    # the others play with the most machines, which did not fit
    assert set(result["skipped"]) == {f"console, {g}, 128 machines" for g in ("pong", "breakout", "alien")}
    assert sum(n.startswith("learner") for n in names) == 2 * (6 + 4) and "51 atoms" in str(names)
    assert sum(n.startswith("training") for n in names) == 4
    for name, row in result["table"].items():
        assert row["to"] in result["table"] and row["ms"] > 0 and " to " in row["interval"], name
    assert "console frames/s of pong" in result["verdict"] and "at batch 1024" in result["verdict"]
    assert "console frames/s while learning 8 samples a step" in result["verdict"]
    path = tmp_path / "gpu.json"
    path.write_text(
        json.dumps(plain({"what": "gpu", "format": 1, "game": "pong", "rounds": 2, "seconds": 0.001, **result}))
    )
    page = render_lab(*read_sources([path]), tmp_path / "page.html")
    assert "The console and the learner on a GPU" in page and "console, pong, 64 machines" in page


def test_a_mean_over_games_has_an_interval_of_its_own():
    result = gpu.bench(TWO, ["pong", "breakout"], [8, 16], lambda: "cpu", made, small, TRAINING)
    name = "console, geometric mean of 2 games, 16 machines"
    one, other = (result["rates"][f"console, {g}, 16 machines"] for g in ("pong", "breakout"))
    assert result["rates"][name] == pytest.approx([(a * b) ** 0.5 for a, b in zip(one, other, strict=True)])
    assert (
        " to " in result["table"][name]["interval"]
        and "over the games (geometric mean of 2 games)" in result["verdict"]
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["gpu", "--machines", "0,4"], "--machines must be numbers like 1,2, each at most 1,048,576, got '0,4'"),
        (["gpu", "--machines", "many"], "--machines must be numbers like 1,2, each at most 1,048,576, got 'many'"),
        (["gpu", "--games", "pong,CartPole-v1"], "--games 'CartPole-v1': not an Atari game"),
        (["device", "--machines", "4"], "bench device does not take --machines"),
        (["device", "--train-minutes", "3"], "bench device does not take --train-minutes"),
        (["gpu", "--train-minutes", "-1"], "--train-minutes must be at least 0, got -1"),
        (["console", "--threads", "x"], "--threads must be numbers like 1,2, each at most 1,048,576, got 'x'"),
    ],
)
def test_bad_input_is_one_line(args, says, capsys):
    assert main(["bench", *args]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_games_that_are_compared_with_nobody_are_shown_by_their_rates(tmp_path):
    only = Options(rounds=2, seconds=0.001, only=("console",))
    games = ["pong", "breakout", "alien"]
    result = gpu.bench(only, games, [8], lambda: "cpu", made, small, TRAINING)
    path = tmp_path / "gpu.json"
    path.write_text(
        json.dumps(plain({"what": "gpu", "format": 1, "game": "pong", "rounds": 2, "seconds": 1, **result}))
    )
    page = render_lab(*read_sources([path]), tmp_path / "page.html")
    assert "Frames or samples/s" in page and "Ratio to" not in page
    row = result["table"]["console, pong, 8 machines"]
    assert row["rate_low"] <= row["rate"] <= row["rate_high"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("console,1,024 machines,4,096 machines", ("console", "1,024 machines", "4,096 machines")),
        ("pong,256", ("pong", "256")),
        (" a , b,", ("a", "b")),
        ('"16,384 machines, batch 512",console', ("16,384 machines, batch 512", "console")),
        ('pong "a, b"', ("pong a, b",)),
        ("", ()),
    ],
)
def test_the_words_of_only(text, words):
    assert tuple(names_of(text) or ()) == words


def test_only_names_what_is_built():
    only = Options(rounds=1, seconds=0.001, only=("double",))
    result = gpu.bench(only, ["pong"], [4], lambda: "cpu", made, small, TRAINING)
    assert all("learner" in n for n in result["table"]) and len(result["table"]) == 2 * (
        3 + 4 + 1
    )  # and their references
    with pytest.raises(ConfigError, match="--only tripple"):
        gpu.bench(Options(only=("tripple",)), ["pong"], [4], lambda: "cpu", made, small, TRAINING)
