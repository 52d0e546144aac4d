"""The network on two cores: the convolutions on the first, the hidden layer, which has nearly all parameters, on the second.

Threads that share every product send each other all they write, and where two cores share no cache that takes longer than the
work. Here each core keeps its own weights, gradients and moments, whoever's turn it is: what travels is the hidden layer's input and
the gradient there, 200 KB each for 32 samples. While one convolves the batch, the other convolves the target's; while the first
goes back through the convolutions, the second makes the hidden layer's gradient and steps its optimiser.

The slow twin is the passes of one thread, with the same numbers in the same order: results are equal bit for bit.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from dqnitro.dqn import ConvNetwork
from dqnitro.learn.cpu.bf16_shadow import Half
from dqnitro.learn.cpu.handwritten_passes import (
    Copies,
    WrittenOut,
    head_backward,
    hidden_gradients,
    put_in,
    run_head,
)
from dqnitro.learn.cpu.side_thread import Beside


class Split:
    """Passes of an update, divided between the caller and a second thread."""

    def __init__(self, by_hand: WrittenOut, beside: Beside) -> None:
        self._by_hand, self._passes, self._beside = by_hand, by_hand.passes, beside

    @torch.no_grad()
    def together(
        self, online: ConvNetwork, target: ConvNetwork, obs_tm1: Tensor, obs_t: Tensor, also: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        """What the target network says about `obs_t`, and the online network about `obs_tm1`, with gradients, and all others."""
        start, passes, obs = self._beside.start, self._passes, (obs_tm1, *also)
        # Both are brought up to date here, before anybody else reads them.
        copies, copies_t = self._by_hand.copies(online), self._by_hand.copies(target)
        convolved_t = start(passes.convolve, copies_t, (obs_t,))
        try:
            kept = passes.convolve(copies, obs)
        except BaseException:
            convolved_t()
            raise
        outputs = start(run_head, copies, kept)
        try:
            kept_t = convolved_t()
            out_t = target.head.combine(*run_head(copies_t, kept_t))
            passes.done(kept_t)
        finally:
            out = outputs()
        with torch.enable_grad():
            return out_t, self._by_hand.results(
                online, out, [len(x) for x in obs], lambda gradients: self._run_backward(copies, kept, gradients)
            )

    def _run_backward(self, copies: Copies, kept: Any, gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
        back = self._beside.start(head_backward, copies, kept, gradients)()
        halves = [half for s in copies.streams if (half := Half.of(s.hidden.weight)) is not None]
        made = self._beside.start(_hidden_gradients_and_step, copies, kept, back.hidden, halves)

        @functools.cache  # every half asks for it
        def finish() -> list[Tensor | None]:
            hidden = made()
            self._passes.done(kept)
            return hidden

        try:
            of_convolutions = self._passes.convolve_backward(copies, kept, back.flat)
        except BaseException:
            finish()
            raise
        if len(halves) < len(copies.streams):  # autograd has to be given what the optimiser does not take
            return of_convolutions + put_in(back.of_streams, finish())
        for half in halves:
            half.wait = finish
        return of_convolutions + put_in(back.of_streams, [None for _ in halves])


def _hidden_gradients_and_step(
    copies: Copies, kept: Any, hidden: list[Tensor], halves: list[Half]
) -> list[Tensor | None]:
    made = hidden_gradients(copies, kept, hidden)
    for half in halves:
        if half.step is not None:
            half.step()
    return made
