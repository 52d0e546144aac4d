"""Small messages between the ranks, as JSON: rank 0 tells all others, and hears from all of them."""

from __future__ import annotations

import json
from typing import Any

from dqnitro.errors import RankLost


class Messages:
    """Over the group of `world.joined`. Every rank makes the same calls in the same order."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def tell(self, message: Any = None) -> Any:
        """What rank 0 says; the others' own is not sent."""
        import torch

        data = _bytes(message) if self.rank == 0 else None
        length = torch.tensor([0 if data is None else len(data)])
        try:
            self._dist.broadcast(length, 0)
            room = torch.empty(int(length), dtype=torch.uint8) if data is None else data
            self._dist.broadcast(room, 0)
        except RuntimeError as e:
            raise RankLost.because(e) from e
        return json.loads(bytes(room.numpy()))

    def gather(self, message: Any) -> list[Any]:
        """What all ranks say, in their order."""
        import torch

        data = _bytes(message)
        try:
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            self._dist.all_gather(lengths, torch.tensor([len(data)]))
            longest = max(int(n) for n in lengths)
            rooms = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
            self._dist.all_gather(rooms, torch.nn.functional.pad(data, (0, longest - len(data))))
        except RuntimeError as e:
            raise RankLost.because(e) from e
        return [json.loads(bytes(room[: int(n)].numpy())) for room, n in zip(rooms, lengths, strict=True)]


def _bytes(message: Any) -> Any:
    import torch

    return torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
