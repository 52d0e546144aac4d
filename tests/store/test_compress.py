"""Compressed arrays come back bit for bit, and a forged manifest cannot make them allocate implausible memory."""

import json
import zlib

import numpy as np
import pytest
from safetensors.numpy import save_file

from dqnitro.errors import CheckpointError
from dqnitro.store import checkpoint
from dqnitro.store.compress import CHUNK_BYTES, MIN_BYTES, compress, decompress

RNG = np.random.default_rng(0)


def frames(n: int) -> np.ndarray:
    """Mostly background, as games are."""
    out = np.zeros((n, 84, 84), np.uint8)
    out[:, 10:12, :] = 236
    out[np.arange(n), RNG.integers(0, 84, n), RNG.integers(0, 84, n)] = 255
    return out


MADE = {
    "several chunks": frames(1500),
    "actions": RNG.integers(0, 6, (300, 1000)),
    "flags": RNG.random((1200, 1000)) < 0.01,
    "not in order": frames(400).transpose(2, 0, 1),
    "one byte over": np.zeros(CHUNK_BYTES + 1, np.uint8),
}


def test_arrays_come_back_as_they_were():
    stored, facts = compress(MADE)
    assert set(facts) == set(MADE), "all of these are worth it"
    assert len(facts["several chunks"]["sizes"]) == 3 and len(facts["one byte over"]["sizes"]) == 2
    assert stored["several chunks"].nbytes < MADE["several chunks"].nbytes / 20
    back = decompress(stored, json.loads(json.dumps(facts)))
    for name, array in MADE.items():
        assert back[name].dtype == array.dtype and np.array_equal(back[name], array), name


def test_what_does_not_shrink_is_left_alone():
    plain = {
        "noise": RNG.integers(0, 256, 2 * MIN_BYTES, dtype=np.uint8),
        "small": np.zeros(MIN_BYTES - 1, np.uint8),
        "floats": np.zeros(MIN_BYTES, np.float32),
        "none": np.zeros(0, np.uint8),
    }
    stored, facts = compress(plain)
    assert not facts and all(stored[k] is v for k, v in plain.items())
    assert all(np.array_equal(v, plain[k]) for k, v in decompress(stored, {}).items())


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"shape": [10**7, 84, 84]}, ValueError),  # more than zlib could make of it
        ({"shape": [1499, 84, 84]}, ValueError),
        ({"shape": [-1500, 84, 84]}, ValueError),
        ({"sizes": [1, 2, 3]}, ValueError),
        ({"piece": 0}, ValueError),
        ({"piece": CHUNK_BYTES // 2}, ValueError),
        ({"dtype": "object"}, ValueError),
        ({"dtype": "float32"}, ValueError),
    ],
)
def test_facts_that_do_not_fit_are_refused(wrong, error):
    stored, facts = compress({"x": MADE["several chunks"]})
    with pytest.raises(error):
        decompress(stored, {"x": facts["x"] | wrong})


def test_damaged_data_is_refused():
    stored, facts = compress({"x": MADE["several chunks"]})
    with pytest.raises(zlib.error):
        decompress({"x": stored["x"][::-1]}, facts)


def test_checkpoints_are_small_and_uncompressed_ones_can_be_read(tmp_path):
    arrays = {"replay": {"frames": MADE["several chunks"], "reward": np.ones(3, np.float32)}}
    path = checkpoint.save(tmp_path / "checkpoints", 7, arrays, {})
    assert (path / "replay.safetensors").stat().st_size < MADE["several chunks"].nbytes / 20
    back, _ = checkpoint.load(tmp_path)
    assert all(np.array_equal(back["replay"][k], v) for k, v in arrays["replay"].items())

    before = tmp_path / "before" / "checkpoints" / "000000000007"
    before.mkdir(parents=True)
    save_file(arrays["replay"], before / "replay.safetensors")
    size, digest = (before / "replay.safetensors").stat().st_size, checkpoint._digest(before / "replay.safetensors")
    manifest = {
        "magic": checkpoint.MAGIC,
        "format": 1,
        "files": {"replay.safetensors": {"bytes": size, "blake2b": digest}},
    }
    (before / "manifest.json").write_text(json.dumps(manifest))
    back, _ = checkpoint.load(tmp_path / "before")
    assert all(np.array_equal(back["replay"][k], v) for k, v in arrays["replay"].items())

    manifest["files"]["replay.safetensors"]["squeezed"] = {
        "frames": {"shape": [1], "dtype": "uint8", "piece": 4, "sizes": [1]}
    }
    (before / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(tmp_path / "before")
