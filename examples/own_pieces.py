"""A network, a loss and a callback of your own, in one run.

python examples/own_pieces.py
"""

import torch
from torch import nn

import dqnitro


def dueling(obs_shape: tuple[int, ...], n_actions: int) -> nn.Module:
    """From observations to the value of every action, (batch, actions)."""
    return Dueling(obs_shape[0], n_actions)


class Dueling(nn.Module):
    """The value of the state, and what each action adds to it."""

    def __init__(self, n_inputs: int, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_inputs, 64), nn.ReLU())
        self.state, self.gain = nn.Linear(64, 1), nn.Linear(64, n_actions)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        hidden = self.body(obs)
        gain = self.gain(hidden)
        return self.state(hidden) + gain - gain.mean(1, keepdim=True)


def log_cosh(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of each sample, (batch,): squared where it is small, straight where it is large."""
    return torch.log(torch.cosh(values - targets))


class Lengths(dqnitro.Callback):
    """Logs the length of games, and stops a run that lasts long enough."""

    def __init__(self, enough: float) -> None:
        self.enough = enough

    def on_game(self, run: dqnitro.Training, game) -> None:
        run.log({"game_length_steps": game.steps})
        if run.games >= 20 and run.mean_score is not None and run.mean_score >= self.enough:
            run.stop(f"mean score {run.mean_score:.0f}")


def main(max_steps: int = 20_000, enough: float = 100.0) -> dqnitro.Result:
    result = dqnitro.train(
        "CartPole-v1", network=dueling, loss=log_cosh, callbacks=[Lengths(enough)], max_steps=max_steps,
        learning_rate=1e-3, progress=False,
    )  # fmt: skip
    print(f"{result.ended} ({result.reason or 'a limit'}) after {result.steps:,} steps, {result.games} games")
    return result


if __name__ == "__main__":
    main()
