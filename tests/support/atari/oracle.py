"""The reference implementation of `AtariVec`: the rules of ale-py's `AtariVectorEnv` in plain Python over
`ALEInterface`.

It exists to be read. What it says was found by stepping it beside `AtariVectorEnv` (`vector/test_vec.py` does that
again); `AtariVec` follows the same rules in compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ale_py
import cv2
import numpy as np
from ale_py import ALEInterface, roms

FIRE, NOOP = 1, 0
# A frame of these games may be left unfinished and go on later, over what an older one left.
KEEPERS = {"entombed", "koolaid", "qbert", "tetris", "tic_tac_toe_3d", "trondead", "video_checkers", "video_chess"}


@dataclass
class Options:
    frameskip: int = 4
    stack_num: int = 4
    img_height: int = 84
    img_width: int = 84
    grayscale: bool = True
    maxpool: bool = True
    noop_max: int = 30
    use_fire_reset: bool = True
    episodic_life: bool = False
    life_loss_info: bool = False
    reward_clipping: bool = True
    max_num_frames_per_episode: int = 108000
    repeat_action_probability: float = 0.0
    full_action_space: bool = False


@dataclass
class Result:
    obs: np.ndarray
    reward: int = 0
    terminated: bool = False
    truncated: bool = False
    lives: int = 0
    frame_number: int = 0
    episode_frame_number: int = 0


class OneEnv:
    """One machine of a vector environment."""

    def __init__(self, game: str, options: Options) -> None:
        ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.o, self.rom = options, str(roms.get_rom_path(game))
        self.ale = ALEInterface()
        self.draws = np.random.RandomState(0)
        self.over = False

    def load(self, seed: int) -> None:
        self.draws = np.random.RandomState(seed)
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", self.o.repeat_action_probability)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(self.rom)
        self.actions = self.ale.getLegalActionSet() if self.o.full_action_space else self.ale.getMinimalActionSet()

    def below(self, n: int) -> int:
        raw = lambda: int(self.draws.randint(0, 2**32, dtype=np.uint64))  # noqa: E731
        product = raw() * n
        while product % 2**32 < (2**32 - n) % n:
            product = raw() * n
        return product >> 32

    def screen(self) -> np.ndarray:
        return self.ale.getScreenGrayscale() if self.o.grayscale else self.ale.getScreenRGB()

    def push(self) -> None:
        if self.o.maxpool:
            self.raw[0] = np.maximum(self.raw[0], self.raw[1])
        size = (self.o.img_width, self.o.img_height)
        small = cv2.resize(self.raw[0], size, interpolation=cv2.INTER_AREA)
        self.stack = np.concatenate([self.stack[1:], small[None]])

    def result(self, reward: int = 0, terminated: bool = False, truncated: bool = False) -> Result:
        a = self.ale
        frames = a.getFrameNumber(), a.getEpisodeFrameNumber()
        return Result(self.stack.copy(), reward, terminated, truncated, a.lives(), *frames)

    def reset(self, seed: int = -1) -> Result:
        if seed >= 0:
            self.load(seed)
        self.ale.reset_game()
        self.elapsed = 0
        noops = self.below(self.o.noop_max) if self.o.noop_max > 0 else 0
        if self.o.use_fire_reset and any(a.value == FIRE for a in self.actions):
            self.ale.act(FIRE)
            noops -= 1
        for _ in range(noops):
            self.ale.act(NOOP)
            if self.ale.game_over():
                self.ale.reset_game()
        now = self.screen()
        self.raw = [now, np.zeros_like(now)]
        self.stack = np.zeros((self.o.stack_num, self.o.img_height, self.o.img_width, *now.shape[2:]), np.uint8)
        self.push()
        self.lives, self.over = self.ale.lives(), False
        return self.result()

    def step(self, action: int) -> Result:
        o, a = self.o, self.ale
        reward, over, lost = 0, False, False
        for left in range(o.frameskip, 0, -1):
            reward += a.act(self.actions[action].value)
            self.elapsed += 1
            over = a.game_over()
            lost = 0 < a.lives() < self.lives
            if over or self.elapsed >= o.max_num_frames_per_episode or (o.episodic_life and lost):
                break
            if left == 2:
                self.raw[1] = self.screen()
            elif left == 1:
                self.raw[0] = self.screen()
        self.push()
        self.lives = a.lives()
        terminated = over or ((o.life_loss_info or o.episodic_life) and lost)
        time_up = self.elapsed >= o.max_num_frames_per_episode
        truncated = time_up and not terminated
        self.over = over or time_up or (o.episodic_life and lost)
        if o.reward_clipping:
            reward = max(-1, min(1, reward))
        return self.result(reward, terminated, truncated)


@dataclass
class Oracle:
    """`num_envs` of them, with both ways of starting anew."""

    game: str
    num_envs: int
    autoreset_mode: str = "NextStep"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.envs = [OneEnv(self.game, self.options) for _ in range(self.num_envs)]

    def gather(self, results: list[Result]):  # type: ignore[no-untyped-def]
        pick = lambda name, kind: np.array([getattr(r, name) for r in results], kind)  # noqa: E731
        info = {"env_id": np.arange(self.num_envs, dtype=np.int32)}
        info |= {k: pick(k, np.int32) for k in ("lives", "frame_number", "episode_frame_number")}
        flags = pick("reward", np.int32), pick("terminated", np.bool_), pick("truncated", np.bool_)
        return np.stack([r.obs for r in results]), *flags, info

    def reset(self, seed: int):  # type: ignore[no-untyped-def]
        obs, _, _, _, info = self.gather([e.reset(seed + k) for k, e in enumerate(self.envs)])
        return obs, info

    def step(self, actions: np.ndarray):  # type: ignore[no-untyped-def]
        results, finals = [], []
        for env, action in zip(self.envs, actions, strict=True):
            if self.autoreset_mode == "NextStep" and env.over:
                results.append(env.reset())
                continue
            r = env.step(int(action))
            finals.append(r.obs)
            if self.autoreset_mode == "SameStep" and env.over:
                fresh = env.reset()
                fresh.reward, fresh.terminated, fresh.truncated = r.reward, r.terminated, r.truncated
                r = fresh
            results.append(r)
        out = self.gather(results)
        if self.autoreset_mode == "SameStep":
            out[4]["final_obs"] = np.stack(finals)
        return out
