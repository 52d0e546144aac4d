"""The network on two cores: the convolutions on one, the hidden layer, which has nearly all parameters, on the other.

Threads that share every matrix product send each other all that they write, and where two cores share no cache that
takes longer than the work. Here each core keeps its own weights, gradients and moments in every phase of an update.
Only the hidden layer's input and the gradient there travel, 200 KB each for 32 samples.

    caller's thread                                 side thread
    convolutions of the online network              convolutions of the target network
    head of the target network                      head of the online network
    (loss)                                          head backwards, to the hidden layer's input
    convolutions backwards, their optimiser step    hidden layer's gradient, its optimiser step

The reference implementation is the passes of one thread (`handwritten_passes`), with the same numbers in the same
order: results are equal bit for bit.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from dqnitro.dqn import ConvNetwork
from dqnitro.learn.cpu.handwritten_passes import (
    Bf16Weights,
    HandwrittenPasses,
    head_backward,
    head_forward,
    hidden_gradients,
    join_head_gradients,
)
from dqnitro.learn.cpu.side_thread import SideThread


class SplitNetwork:
    """The passes of an update, divided between the caller's thread and a side thread."""

    def __init__(self, passes: HandwrittenPasses, side_thread: SideThread) -> None:
        self._passes = passes
        self._convs = passes.convs
        self._side_thread = side_thread

    @torch.no_grad()
    def together(
        self, online: ConvNetwork, target: ConvNetwork, obs_tm1: Tensor, obs_t: Tensor, also: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        """The target network's outputs for `obs_t`, and the online network's for `obs_tm1`, with gradients, and for
        each of `also`, without.
        """
        start = self._side_thread.start
        obs = (obs_tm1, *also)
        # Both are brought up to date here, before the other thread reads them.
        weights = self._passes.weights(online)
        weights_t = self._passes.weights(target)
        convolved_t = start(self._convs.forward, weights_t, (obs_t,))
        try:
            kept = self._convs.forward(weights, obs)
        except BaseException:
            convolved_t()
            raise
        outputs = start(head_forward, weights, kept)
        try:
            kept_t = convolved_t()
            out_t = target.head.combine(*head_forward(weights_t, kept_t))
            self._convs.release(kept_t)
        finally:
            out = outputs()
        with torch.enable_grad():
            return out_t, self._passes.results(
                online, out, [len(x) for x in obs], lambda gradients: self._backward(weights, kept, gradients)
            )

    def _backward(self, weights: Bf16Weights, kept: Any, gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
        start = self._side_thread.start
        head = start(head_backward, weights, kept, gradients)()
        made = start(_hidden_gradients_and_step, weights, kept, head.hidden)

        @functools.cache  # what a pass keeps is released once
        def finish() -> list[Tensor | None]:
            hidden = made()
            self._convs.release(kept)
            return hidden

        try:
            of_convs = self._convs.backward(weights, kept, head.flat)
        except BaseException:
            finish()
            raise
        if not weights.hidden_have_shadows:  # autograd has to be given what the optimiser does not take from a shadow
            return of_convs + join_head_gradients(head, finish())
        weights.shadows.expect(finish)
        return of_convs + join_head_gradients(head, [None for _ in head.hidden])


def _hidden_gradients_and_step(weights: Bf16Weights, kept: Any, hidden: list[Tensor]) -> list[Tensor | None]:
    made = hidden_gradients(weights, kept, hidden)
    if weights.shadows.when_made is not None:
        weights.shadows.when_made()
    return made
