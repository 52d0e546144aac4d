"""When the gradients of a rank are on their way to the others."""

from collections import OrderedDict

import pytest
import torch

from dqnitro.learn import averaging
from dqnitro.learn.averaging import AveragedStep

SIZES = {"first": (4, 4), "second": (4, 4), "hidden": (4, 400), "outputs": (400, 2)}  # the hidden layer has the bytes


class Told:
    """A rank that notes what it is asked for."""

    rank, size = 0, 2

    def __init__(self, events: list[str]) -> None:
        self.events, self.started = events, 0

    def start_mean_(self, x):
        n = self.started
        self.started += 1
        self.events.append(f"start {n}")
        return lambda: self.events.append(f"wait {n}")


@pytest.mark.parametrize(
    ("most_bytes", "expected"),
    [
        # The last layers first: a mean is on its way while the pass goes on below them, and is awaited at the end.
        (3300, "outputs start 0, hidden start 1, second, first start 2, wait 0, wait 1, wait 2"),
        (1 << 20, "outputs, hidden, second, first start 0, wait 0"),
    ],
)
def test_means_travel_while_the_backward_pass_goes_on(most_bytes, expected, monkeypatch):
    monkeypatch.setattr(averaging, "MOST_BYTES", most_bytes)
    layers = OrderedDict((name, torch.nn.Linear(*size, bias=False)) for name, size in SIZES.items())
    network, events = torch.nn.Sequential(layers), []
    for name, layer in layers.items():  # before the hooks of AveragedStep, which are called in order
        layer.weight.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    step = AveragedStep(network, Told(events))  # pyright: ignore
    loss = network(torch.ones(3, 4)).square().mean()
    step(loss, network, torch.optim.SGD(network.parameters(), 0.1), 0.0)
    assert ", ".join(events).replace(", start", " start") == expected
