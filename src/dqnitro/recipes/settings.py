"""The settings and rungs of the recipes, with what each was measured on."""

from __future__ import annotations

from typing import Any

SEEN_SMALL = {"pong"}  # games known to be learned with fewer pixels and a smaller network (results/)
SMALL_RUNGS = ("small-frame", "small-network")
OTHER_RUNGS = ("eight-envs", "three-step")
# Settings of `auto` for those games on a CPU; they replace OTHER_RUNGS (results/pong-auto-2-cores.json).
SMALL_ON_CPU: dict[str, Any] = {"n_envs": 16, "n_step": 5, "replay_capacity": 50_000}
# ... and what it changes for all other games, where OTHER_RUNGS stay: after as many minutes Breakout was further with
# quantiles than with values and double DQN, and further still with Munchausen targets (LOG.md, "other games").
# Exploration is short, because a CPU makes no more than some hundred thousand steps in ten minutes.
UNSEEN_ON_CPU: dict[str, Any] = {
    "quantiles": 32, "munchausen": True, "double": False, "epsilon_decay_steps": 25_000, "epsilon_end": 0.01,
}  # fmt: skip
# Lapan's book calls Pong solved at this mean score; Gymnasium environments declare their own `spec.reward_threshold`.
SOLVED_AT = {"pong": 17.0}

# All settings of `auto` for Atari games on a machine with a GPU.
ON_GPU: dict[str, Any] = {
    "n_envs": 64,
    "batch_size": 256,
    "steps_per_update": 12.8,
    "n_step": 5,
    "double": True,
    "dueling": True,
    "loss": "huber",
    "learning_rate": 5e-4,
    "adam_epsilon": 1.5e-4,
    "target_sync_steps": 4_096,
    "first_fill_steps": 10_000,
    "replay_capacity": 100_000,
    "epsilon_decay_steps": 100_000,
    "epsilon_end": 0.01,
}
# ON_GPU was measured on Pong alone (results/pong-h200.json). With its values and half its rate Name This Game stood
# still and fell (results/atari5-auto-h200-trial.json); with a lower rate Q*bert and Double Dunk hardly learned
# (results/atari5-calm-h200-trial.json). With quantiles, Munchausen targets and Adam's epsilon as in "Beyond The
# Rainbow" each of the five games was further after as many minutes than with that lower rate; only in Double Dunk was
# the higher rate better (results/atari5-h200.json).
UNSEEN_ON_GPU: dict[str, Any] = {
    "quantiles": 32,
    "munchausen": True,
    "double": False,  # Munchausen targets have no maximum that it could choose
    "learning_rate": 1e-4,
    "adam_epsilon": 2e-5,
    "steps_per_update": 16.0,
    "n_step": 3,
    "target_sync_steps": 8_000,
    "first_fill_steps": 20_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 500_000,
}
SMALL_GPU_REPLAY = 400_000  # transitions on a GPU with less than LARGE_GPU_GIB: 2.8 GiB instead of 7
# In games other than Pong half a minute without a reward is idling: an agent that does not serve, or has found nothing.
IDLE_FRAMES = 1_800
# Overrides when the GPU also runs the emulator: emulating many environments costs no more than a few.
ON_DEVICE: dict[str, Any] = {"n_envs": 256}
# The DQN of 2015, for comparing scores: its replay ratio (8 samples per step) and the settings of Dopamine's published
# curve of DQN with Adam and the squared loss, in steps of four frames.
CLASSIC: dict[str, Any] = {
    "n_envs": 8,
    "batch_size": 32,
    "steps_per_update": 4.0,
    "loss": "mse",
    "learning_rate": 6.25e-5,
    "adam_epsilon": 1.5e-4,
    "target_sync_steps": 8_000,
    "first_fill_steps": 20_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 250_000,
    "epsilon_end": 0.01,
    "sticky_actions": 0.25,
    "noop_max": 0,
    "fire_reset": False,
}
CLASSIC_ON_GPU: dict[str, Any] = {"n_envs": 64}
# When the GPU also runs the emulator: it plays 16,384 consoles in little more time than 4,096, so the batch is 16 times
# as large. Exploration and target period count as many updates as published (results/breakout-200m-h200.json).
CLASSIC_ON_DEVICE: dict[str, Any] = {
    "n_envs": 16_384,
    "batch_size": 512,
    "steps_per_update": 64.0,
    "learning_rate": 2.5e-4,
    "target_sync_steps": 131_072,
    "first_fill_steps": 262_144,
    "replay_capacity": 2_097_152,
    "epsilon_decay_steps": 4_000_000,
}
LARGE_GPU_GIB = 32.0  # CLASSIC_ON_DEVICE keeps some 15 GiB of frames and consoles, and updates need room as well
CLASSIC_ON_SMALL_DEVICE: dict[str, Any] = {
    "n_envs": 1024,
    "batch_size": 128,
    "steps_per_update": 16.0,
    "learning_rate": 1.25e-4,
}
# The strongest agent: the settings of "Beyond The Rainbow" (Clark et al. 2024) with quantiles in place of its implicit
# ones, LayerNorm in place of spectral normalisation, and exploration that fits runs of minutes. 4 samples per step. Not
# tuned here yet.
STRONG: dict[str, Any] = {
    "n_envs": 64,
    "batch_size": 256,
    "steps_per_update": 64.0,
    "network": "impala",
    "impala_width": 2,
    "impala_norm": "layer",
    "quantiles": 64,
    "munchausen": True,
    "dueling": True,
    "prioritized": True,
    "priority_alpha": 0.2,
    "priority_beta": 0.2,
    "priority_beta_steps": 50_000_000,
    "n_step": 3,
    "gamma": 0.997,
    "learning_rate": 1e-4,
    "adam_epsilon": 2e-5,
    "grad_clip": 10.0,
    "target_sync_steps": 32_000,
    "first_fill_steps": 80_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 500_000,
    "epsilon_end": 0.01,
    "sticky_actions": 0.25,
}
STRONG_ON_DEVICE: dict[str, Any] = {"n_envs": 256}
STRONG_RUNGS = ("frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "compile")
ON_GPU_RUNGS = ("frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "compile", "own-kernels")
FEW_CORES_RUNGS = ("one-pass-adam", "side-by-side", "one-pass-acting")
LARGE_LAYER_RUNGS = ("split-network",)  # with few cores and the hidden layer of the Nature network
GPU_RUNNERS = ("device", "hybrid")
VECTOR_RUNGS = ("frame-replay", "fused-adam", "few-calls")  # for environments that are vectors or boards
MANY_CORES = 8  # with at least this many cores the CPU can keep up with the GPU learner, so use the hybrid runner

# Settings for environments that are not Atari: small networks, which learn in seconds, and rewards of any size.
NOT_ATARI: dict[str, Any] = {
    "clip_rewards": False,
    "hidden_units": 128,
    "learning_rate": 5e-4,
    "batch_size": 64,
    "target_sync_steps": 500,
    "double": True,
    "loss": "huber",
    "grad_clip": 10.0,
}
# What `auto` changes of these where observations are vectors: one pass acts for eight environments; large batches and a
# rate that falls keep an agent good once it is (LOG.md, LunarLander lands).
VECTORS: dict[str, Any] = {
    "n_envs": 8,
    "batch_size": 128,
    "steps_per_update": 2.0,
    "n_step": 3,
    "learning_rate": 1e-3,
    "learning_rate_end": 2e-5,
    "epsilon_end": 0.01,
}
# ... and what those with large images have of Atari's.
LARGE_IMAGES: dict[str, Any] = {
    "hidden_units": 512, "learning_rate": 1e-4, "batch_size": 32, "target_sync_steps": 1_000,
}  # fmt: skip
