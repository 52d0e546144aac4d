"""What can be known of the console on CUDA without a GPU: its errors, its sources, the order of its arrays."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dqnitro.atari import AtariVec
from dqnitro.atari.chips import layout
from dqnitro.atari.chips.cpu_run import MOST_STEPS, REST
from dqnitro.atari.cuda import build, link, placement, program
from dqnitro.atari.cuda import vec as vec_cuda
from dqnitro.atari.cuda.build import CudaUnavailable
from dqnitro.atari.cuda.start_phases import T_SIZE, before_a_start
from dqnitro.atari.cuda.vec import ARRAYS, CudaVec
from dqnitro.atari.games import roms
from dqnitro.atari.jit import code_cache
from dqnitro.atari.vector import agent_step
from dqnitro.atari.vector.joystick import STICK, from_stick, stick_space

FOLDER = Path(build.__file__).parents[1]


def one_line(error: pytest.ExceptionInfo[Any]) -> str:
    text = str(error.value)
    assert "\n" not in text and "hint:" in text
    return text


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that torch sees, as far as questions about it go."""
    about = SimpleNamespace(count=1, capability=(9, 0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: about.count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: about.count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: about.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Old GPU 9")
    return about


# ---- what is missing


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CudaUnavailable, match="pip install torch") as e:
        AtariVec("pong", 2, device="cuda")
    one_line(e)


def test_without_a_gpu(gpu):
    gpu.count = 0
    with pytest.raises(CudaUnavailable, match="sees no CUDA device.*device='cpu' works everywhere") as e:
        AtariVec("pong", 2, device="cuda")
    one_line(e)


def test_a_gpu_that_is_too_old(gpu):
    gpu.capability = (6, 1)
    with pytest.raises(CudaUnavailable, match=r"Old GPU 9 is too old: .* 6\.1, 7\.5 or newer") as e:
        AtariVec("pong", 2, device="cuda:0")
    one_line(e)


def test_a_gpu_that_is_not_there(gpu):
    with pytest.raises(CudaUnavailable, match="no GPU number 3, the last one is 0") as e:
        AtariVec("pong", 2, device="cuda:3")
    one_line(e)


def missing(monkeypatch, name: str, error: Exception) -> None:
    real = importlib.import_module

    def fake(wanted: str, package: str | None = None) -> Any:
        if wanted == name:
            raise error
        return SimpleNamespace() if wanted in ("numba_cuda", "numba.cuda.extending") else real(wanted, package)

    monkeypatch.setattr(build.importlib, "import_module", fake)


def test_numba_cuda_is_not_installed(monkeypatch):
    missing(monkeypatch, "numba_cuda", ModuleNotFoundError("No module named 'numba_cuda'"))
    with pytest.raises(CudaUnavailable, match=r"needs numba-cuda \(No module.*pip install 'dqnitro\[cuda\]'") as e:
        build.compile_units((9, 0))
    one_line(e)


def test_the_driver_interface_is_not_installed(gpu, monkeypatch):
    missing(monkeypatch, "cuda.bindings.driver", ModuleNotFoundError("No module named 'cuda'"))
    with pytest.raises(CudaUnavailable, match="No module named 'cuda'") as e:
        build.Kernels(0)
    one_line(e)


def test_a_numba_cuda_that_does_not_fit_numpy(monkeypatch):
    missing(monkeypatch, "numba.cuda.extending", AttributeError("module 'numpy' has no attribute 'row_stack'"))
    with pytest.raises(CudaUnavailable, match=r"does not work with NumPy .*numpy<2\.5") as e:
        build.compile_units((9, 0))
    one_line(e)


def test_row_stack_is_lent_to_numba_cuda_and_taken_back(monkeypatch):
    """NumPy 2.5 removed it; older ones have it."""
    monkeypatch.delattr(np, "row_stack", raising=False)
    if hasattr(np, "row_stack"):
        pytest.skip("this NumPy makes the name up when it is asked for")
    with build._row_stack():
        assert vars(np)["row_stack"] is np.vstack
    assert not hasattr(np, "row_stack")


def test_out_of_gpu_memory_says_how_many_would_fit():
    build.check_memory(2**30, 2**30, 1000)
    with pytest.raises(CudaUnavailable, match=r"1000 consoles need 4\.0 GiB .* 1\.0 GiB are free.*250 would fit") as e:
        build.check_memory(2**32, 2**30, 1000)
    one_line(e)


# ---- what it does not do


def test_what_a_gpu_does_not_do_is_refused_before_anything_is_compiled(gpu):
    with pytest.raises(NotImplementedError, match="no batches of 2 out of 4") as e:
        AtariVec("pong", 4, device="cuda", batch_size=2)
    assert "device='cpu'" in one_line(e)
    with pytest.raises(ValueError, match="resets_aside cannot be used with autoreset_mode SAME_STEP") as e:
        AtariVec("pong", 4, device="cuda", autoreset_mode="SameStep", resets_aside=True)  # type: ignore[call-arg]
    one_line(e)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CUDA", ""])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match="device must be cpu, cuda or cuda:N") as e:
        AtariVec("pong", 4, device=device)
    one_line(e)


def test_arguments_are_checked_as_on_the_cpu():
    with pytest.raises(Exception, match="frameskip must be a positive int"):
        AtariVec("pong", 4, frameskip=0, device="cuda")
    with pytest.raises(ValueError, match="num_envs must be a whole number from 1"):
        AtariVec("pong", 0, device="cuda")


def test_arguments_reach_the_vector_on_the_card(monkeypatch):
    seen = {}

    class Fake:
        def __init__(self, game: str, num_envs: int, **options: Any) -> None:
            seen.update(options, game=game, num_envs=num_envs)

    monkeypatch.setattr(vec_cuda, "CudaVec", Fake)
    made = AtariVec("pong", num_envs=4, num_threads=2, batch_size=4, stack_num=2, resets_aside=True, device="cuda:1")
    assert isinstance(made, Fake)
    own = {"resets_aside": True, "machines_per_warp": 0, "device": "cuda:1"}
    assert seen == {"game": "pong", "num_envs": 4, "stack_num": 2} | own


def bare(n: int = 3, n_actions: int = 6) -> CudaVec:
    """A vector without a GPU behind it, to ask what it refuses."""
    vec = object.__new__(CudaVec)
    vec._torch, vec.num_envs, vec._began, vec._sent = torch, n, True, False
    vec.continuous, vec._same_step, vec.resets_aside = False, False, False
    vec._tensors = {"actions": torch.zeros(n, dtype=torch.int64), "action_set": torch.arange(n_actions)}
    return vec


class Toy(CudaVec):
    """Kernels in a few lines of Python: a game lasts as many steps as its number, and shows how many were made.

    Commands, flags and results are carried out as `step_kernel` and `show_kernel` do it.
    """

    def __init__(self, n: int = 4, same_step: bool = False) -> None:
        self._torch, self._index, self.device, self.num_envs = torch, 0, torch.device("cpu"), n
        self._began, self._sent, self.resets_aside, self._same_step = False, False, False, same_step
        self.continuous, self.continuous_action_threshold = False, 0.5
        made = {"seeds": 0, "actions": 0, "number": 0, "age": 0}
        self._tensors = {k: torch.full((n,), v) for k, v in made.items()}
        self._tensors |= {
            "commands": torch.zeros(n, dtype=torch.int32), "away": torch.zeros(n, dtype=torch.int32),
            "episode": torch.zeros((n, agent_step.E_SIZE), dtype=torch.int64),
            "obs": torch.zeros((n, 2, 1, 1), dtype=torch.uint8),
            "final_obs": torch.zeros((n, 2, 1, 1), dtype=torch.uint8),
            "results": torch.zeros((agent_step.R_SIZE, n), dtype=torch.int32),
            "terminated": torch.zeros(n, dtype=torch.bool), "truncated": torch.zeros(n, dtype=torch.bool),
            "strengths": torch.ones(n), "action_set": torch.arange(18),
        }  # fmt: skip

    def _play(self) -> None:
        t = self._tensors
        for m in range(self.num_envs):
            command, ended = int(t["commands"][m]), False
            t["results"][agent_step.R_REWARD, m] = 0
            if command == agent_step.STEP and t["episode"][m, agent_step.E_RESET]:
                command = agent_step.RESET
            if command == agent_step.STEP:
                t["age"][m] += 1
                t["obs"][m] = torch.stack([t["obs"][m, 1], torch.full((1, 1), 10 * t["number"][m] + t["age"][m])])
                t["results"][agent_step.R_REWARD, m] = t["actions"][m]
                ended = bool(t["age"][m] >= t["number"][m])
                t["episode"][m, agent_step.E_RESET] = int(ended)
            if command in (agent_step.RESET, agent_step.SEEDED_RESET):
                seeded = command == agent_step.SEEDED_RESET and t["seeds"][m] >= 0
                t["number"][m] = t["seeds"][m] if seeded else t["number"][m] + 1
                t["age"][m], t["episode"][m, agent_step.E_RESET] = 0, 0
                t["obs"][m] = torch.tensor([0, 10 * int(t["number"][m])], dtype=torch.uint8).view(2, 1, 1)
            t["results"][agent_step.R_LIVES, m] = t["number"][m]
            t["terminated"][m] = ended


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())


def test_a_new_game_in_the_same_step_is_the_one_that_the_next_step_would_begin(no_card):
    """One vector with either mode: the same observations, rewards and ends,
    but for the step that only begins a game.
    """
    later, at_once = Toy(), Toy(same_step=True)
    for vec in (later, at_once):
        vec.reset(seed=1)
    stories: list[list[list[Any]]] = [[[] for _ in range(4)] for _ in range(2)]
    for k in range(40):
        over = later._tensors["episode"][:, agent_step.E_RESET].bool().tolist()
        obs, reward, terminated, _, info = later.step(torch.full((4,), k % 5))
        assert "final_obs" not in info
        for m in range(4):
            if over[m]:  # what it shows is the first observation of the new game, which belongs to the end before
                stories[0][m][-1] += (obs[m].flatten().tolist(),)
            else:
                stories[0][m].append((int(terminated[m]), obs[m].flatten().tolist()))
        assert all(int(r) == (0 if o else k % 5) for r, o in zip(reward, over, strict=True))
    for k in range(40):
        obs, reward, terminated, _, info = at_once.step(torch.full((4,), k % 5))
        assert reward.tolist() == [k % 5] * 4, "no step is spent on a new game"
        for m in range(4):
            last, now = info["final_obs"][m].flatten().tolist(), obs[m].flatten().tolist()
            assert (last == [0, 0]) is not bool(terminated[m])
            stories[1][m].append((1, last, now) if terminated[m] else (0, now))
    for m in range(4):
        n = len(stories[0][m]) - 1
        assert stories[0][m][:n] == stories[1][m][:n] and sum(s[0] for s in stories[0][m][:n]) >= 3
    assert int(at_once._tensors["commands"].abs().sum()) == 0, "afterwards every machine is told to step"


def test_some_environments_can_be_reset(no_card):
    vec = Toy()
    mask = np.array([True, False, True, False])
    with pytest.raises(RuntimeError, match="must reset every environment"):
        vec.reset(options={"reset_mask": mask})
    vec.reset(seed=3)
    for _ in range(2):
        vec.step(torch.ones(4, dtype=torch.int64))
    before = vec.obs.clone()
    obs, info = vec.reset(seed=np.array([7, 9]), options={"reset_mask": mask})
    assert vec._tensors["number"].tolist() == [7, 4, 9, 6] and vec._tensors["age"].tolist() == [0, 2, 0, 2]
    assert torch.equal(obs[1::2], before[1::2]) and obs[0].flatten().tolist() == [0, 70]
    assert info["lives"].tolist() == [7, 4, 9, 6]
    vec.step(torch.ones(4, dtype=torch.int64))
    assert vec._tensors["age"].tolist() == [1, 3, 1, 3]
    for wrong in (np.ones(4), np.ones(3, bool), [True] * 4):
        with pytest.raises((TypeError, ValueError), match="reset_mask"):
            vec.reset(options={"reset_mask": wrong})
    vec.resets_aside = True
    with pytest.raises(RuntimeError, match="between two games") as e:
        vec.reset(options={"reset_mask": mask})
    one_line(e)


def test_send_and_recv_are_the_two_halves_of_a_step(no_card):
    one, other = Toy(), Toy()
    for vec in (one, other):
        vec.reset(seed=1)
    for k in range(6):
        actions = torch.full((4,), k)
        one.send(actions)
        for a, b in zip(one.recv()[:4], other.step(actions)[:4], strict=True):
            assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match=r"recv\(\) without a send") as e:
        one.recv()
    one_line(e)
    one.send(actions)
    with pytest.raises(RuntimeError, match="would overwrite") as e:
        one.send(actions)
    one_line(e)
    one.reset(seed=1)  # drops what was under way
    one.send(actions)


def test_sticks_become_the_actions_that_the_cpu_makes_of_them(no_card):
    vec = Toy(n=200)
    vec.continuous = True
    vec.reset(seed=np.full(200, 5))
    low, high = stick_space().low, stick_space().high
    sticks = (low + (high - low) * np.random.default_rng(0).random((200, 3))).astype(np.float32)
    vec.step(sticks)
    expected, strengths = from_stick(sticks, 0.5)
    assert vec.actions.tolist() == expected.tolist() and len(set(expected.tolist())) > 12
    assert np.array_equal(vec._tensors["strengths"].numpy(), strengths)
    # the same rule in torch, for sticks that lie on a GPU
    chosen, radius = from_stick(torch.from_numpy(sticks), 0.5, torch, torch.from_numpy(STICK))
    assert (chosen.numpy() == expected).mean() > 0.98 and np.array_equal(radius.numpy(), strengths)
    with pytest.raises(ValueError, match=r"shape \(200, 3\), got \(200,\)"):
        vec.step(sticks[:, 0])


def test_wrong_actions_from_the_host_are_refused():
    vec = bare()
    for wrong in ([0, 1, 6], [-1, 0, 0]):
        with pytest.raises(ValueError, match=r"actions must be in 0\.\.5") as e:
            vec.step(np.array(wrong))
        one_line(e)
    for wrong in ([0], 0, [[0, 1, 2]]):
        with pytest.raises(ValueError, match=r"actions must have shape \(3,\)") as e:
            vec.step(np.array(wrong))
        one_line(e)
    vec._copy_actions(torch.tensor([5, 0, 2]))
    assert vec.actions.tolist() == [5, 0, 2]
    vec._began = False
    with pytest.raises(RuntimeError, match=r"reset\(\) first"):
        vec.step(np.array([0, 0, 0]))


def test_a_state_of_other_environments_is_refused(monkeypatch):
    monkeypatch.setattr(vec_cuda, "check_values", lambda *_: None)  # tests/atari/cuda/test_cuda_state_check.py
    vec = bare()
    vec._tensors |= {k: torch.zeros(3, 2) for k in (*vec_cuda.KEPT, "rom")} | {"options": torch.arange(12)}
    state = vec.get_state()
    vec.set_state({**state, "obs": np.ones((3, 2), np.float32)})
    assert vec.obs.tolist() == [[1, 1]] * 3
    with pytest.raises(ValueError, match="arguments it was saved with"):
        vec.set_state({**state, "options": np.zeros(12)})
    with pytest.raises(ValueError, match="is num_envs the same"):
        vec.set_state({**state, "ram": np.zeros((4, 2))})


def test_a_state_of_an_older_version_has_no_starts_in_it(monkeypatch):
    """There a console that was to begin a game waited for it; here it plays the first frame of the start."""
    monkeypatch.setattr(vec_cuda, "check_values", lambda *_: None)  # tests/atari/cuda/test_cuda_state_check.py
    vec = bare()
    shape = {"away": (3,), "starts": (3, T_SIZE)}
    vec._tensors |= {k: torch.zeros(shape.get(k, (3, 2)), dtype=torch.int64) for k in (*vec_cuda.KEPT, "rom")}
    vec._tensors["options"] = torch.arange(12)
    state = vec.get_state()
    del state["starts"]
    vec.set_state({**state, "away": np.array([0, 1, 3])})
    assert vec.away.tolist() == [0, 1, 3]
    assert vec._tensors["starts"].tolist() == [[0] * T_SIZE, before_a_start(1)[0].tolist(), [0] * T_SIZE]


# ---- what is compiled


def test_the_arrays_stand_in_the_order_that_the_kernels_expect():
    """kernels.py can only be imported where numba-cuda is; its text can be read anywhere."""
    block = re.search(
        r"# fmt: off\n\((.*?)\) = range\((\d+)\)", (FOLDER / "cuda" / "kernels.py").read_text(), re.DOTALL
    )
    assert block
    names = re.findall(r"\b(A_\w+|_\d)\b", re.sub(r"#.*", "", block[1]))
    assert len(names) == int(block[2]) == len(ARRAYS) + 1 and names[-1] == "A_SIZE"
    other = {"A_MT": "rng_actions", "A_MT_SYSTEM": "rng_machine", "A_MT_NOOPS": "rng_noops"}
    first = names.index("A_PLAN")
    assert [other.get(n, n[2:].lower()) for n in names[:first]] == list(ARRAYS[:first])
    plan = ["x_first", "x_taps", "x_weight", "x_units", "y_first", "y_taps", "y_weight", "y_units"]
    assert list(ARRAYS[first:]) == plan


def test_every_array_that_a_kernel_reads_has_a_name():
    text = (FOLDER / "cuda" / "kernels.py").read_text()
    declared = set(re.findall(r"A_\w+", text.split(") = range(")[0]))
    assert set(re.findall(r"at\[(A_\w+)", text)) <= declared
    assert declared - set(re.findall(r"at\[(A_\w+)", text)) == {"A_SIZE"}, "an array that no kernel reads"


def test_constants_that_only_a_card_can_import_agree():
    text = (FOLDER / "cuda" / "target.py").read_text()
    words = re.search(r"^WORDS_OF_MASKS = (\d+)", text, re.MULTILINE)
    assert words and int(words[1]) == vec_cuda.WORDS_OF_MASKS == layout.S_PADDLE0 - layout.S_MASK_P0
    assert f"LANES = {vec_cuda.LANES} " in text


def test_the_kept_program_depends_on_all_that_is_compiled_into_it():
    """The modules that importing the kernels' closure brings in, found without the regular expression."""
    names = {".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in build._sources()}
    on_gpu = (
        "kernels",
        "target",
        "rewrite_branches",
        "rewrite_int32",
        "cpu_dispatch",
        "cpu_warp",
        "microcode",
        "observation",
    )
    assert {f"cuda.{name}" for name in on_gpu} <= names
    assert {"chips.cpu_fast", "chips.tia", "chips.layout", "vector.agent_step", "observation.resize_plan"} <= names
    assert not names & {"jit.target", "vec", "cuda.vec", "vector.batch", "cuda.build", "vector.thread_pool"}
    code = (
        "import sys, dqnitro.atari.vector.agent_step, dqnitro.atari.observation.resize_opencv\n"
        "prefix = 'dqnitro.atari.'\n"
        "print(*[n.removeprefix(prefix) for n, m in sys.modules.items() if n.startswith(prefix) and not "
        "hasattr(m, '__path__')])"
    )
    env = {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(FOLDER.parents[1]), "PATH": ""}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert set(out.split()) - {"jit.target", "jit.dependencies", "jit.code_cache", "registration"} <= names


def test_the_cache_follows_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("DQNITRO_CACHE", str(tmp_path))
    compiled = []
    monkeypatch.setattr(build, "compile_units", lambda c: compiled.append(c) or {"k": ".visible .entry k_1(\n)"})
    monkeypatch.setattr(build, "link", lambda units, c, registers: b"code%d" % registers)
    monkeypatch.setattr(build, "all_assembled", lambda units, c, registers: None)
    source = tmp_path / "source.py"
    source.write_text("1")
    monkeypatch.setattr(build, "_sources", lambda: [source])
    assert build.build((9, 0)) == build.build((9, 0)) == (b"code%d" % build.FEW_REGISTERS, {"k": "k_1"})
    assert build.build((9, 0), build.MANY_REGISTERS) == (b"code%d" % build.MANY_REGISTERS, {"k": "k_1"}), (
        "kept with the other one"
    )
    assert compiled == [(9, 0)]
    build.build((8, 0))
    source.write_text("2")
    build.build((9, 0))
    assert compiled == [(9, 0), (8, 0), (9, 0)]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DQNITRO_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(build, "compile_units", lambda c: {"k": ".entry k_1()"})
    monkeypatch.setattr(build, "link", lambda units, c, registers: b"code%d" % registers)
    monkeypatch.setattr(build, "all_assembled", lambda units, c, registers: None)
    assert build.build((9, 0)) == (b"code%d" % build.FEW_REGISTERS, {"k": "k_1"})
    assert build.build((9, 0), build.MANY_REGISTERS) == (b"code%d" % build.MANY_REGISTERS, {"k": "k_1"})


@pytest.fixture
def fake_build(tmp_path, monkeypatch):
    """A build whose parts only say what they are made of; `made` counts."""
    made: list[Any] = []
    monkeypatch.setenv("DQNITRO_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "compile_units", lambda c: made.append("units") or {"k": ".visible .entry k_1(\n)"})
    monkeypatch.setattr(
        build, "all_assembled", lambda units, c, r: made.append("objects") or dict.fromkeys(units, b"o")
    )
    monkeypatch.setattr(build, "assembled", lambda text, c, r: text.encode())
    monkeypatch.setattr(build, "link", lambda parts, c, r: b"|".join(v for v in parts.values() if v != b"o"))
    monkeypatch.setattr(build, "ptx", lambda rom, c, together: made.append(rom.name) or f"{rom.name} {together}")
    code_cache.say_once.cache_clear()
    return made


def small(name: str, first: int) -> roms.Rom:
    return roms.build(name, bytes((first,)) + bytes(0xFFB) + bytes((0x00, 0xF0, 0x00, 0xF0)), "4K")


def test_a_game_is_translated_once_for_each_way_and_kept(fake_build, capsys):
    one, other = small("one", 0xEA), small("other", 0xE8)
    for _ in range(2):
        assert build.build((9, 0), 64, one, together=True) == (b"one True", {"k": "k_1"})
        assert build.build((9, 0), 64, one) == (b"one False", {"k": "k_1"})
        assert build.build((9, 0), 64, other) == (b"other False", {"k": "k_1"})
    assert fake_build == ["units", "one", "objects", "one", "other"]
    said = capsys.readouterr().err
    assert "translating one to machine code for this GPU, once" in said and "translated one for this GPU in" in said
    assert build.build((9, 0), 128, one) == (b"one False", {"k": "k_1"})
    assert fake_build[5:] == ["one", "objects"], "the units are kept"


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:60] + b"?" + b[61:]])
def test_a_damaged_file_of_a_game_is_made_again(fake_build, tmp_path, capsys, damage):
    rom = small("one", 0xEA)
    first = build.build((9, 0), 64, rom)
    (path,) = (p for p in tmp_path.iterdir() if p.name.endswith(".cubin"))
    path.write_bytes(damage(path.read_bytes()))
    assert build.build((9, 0), 64, rom) == first
    assert fake_build.count("one") == 2 and "is of no use" in capsys.readouterr().err


def test_without_an_assembler_the_linker_does_all(fake_build, monkeypatch):
    monkeypatch.setattr(build, "assembled", lambda text, c, r: None)
    monkeypatch.setattr(build, "link", lambda parts, c, r: "|".join(parts.values()).encode())
    code, _ = build.build((9, 0), 64, small("one", 0xEA))
    assert code.endswith(b"|one False") and code.startswith(b".visible .entry")


def test_an_assembler_of_another_version_is_passed_over(tmp_path, monkeypatch):
    """The first that can do it does it; where none can, nothing is assembled."""
    texts = {"old": "exit 1", "good": 'while [ "$1" != -o ]; do shift; done; echo -n object > "$2"', "gone": ""}
    paths = {name: tmp_path / name for name in texts}
    for name in ("old", "good"):
        paths[name].write_text(f"#!/bin/sh\n{texts[name]}\n")
        paths[name].chmod(0o755)
    for names, made in ((["old", "good"], b"object"), (["old"], None), (["gone"], None), ([], None)):
        monkeypatch.setattr(link, "assemblers", lambda names=names: [str(paths[name]) for name in names])
        assert link.assembled("", (9, 0), 64) == made
        assert link.all_assembled({"k": ""}, (9, 0), 64) == (made and {"k": made})


def test_a_game_that_cannot_be_translated_is_interpreted(fake_build, monkeypatch, capsys):
    class Loaded:
        def __init__(self, device: int, registers: int, rom: Any = None, together: bool = False) -> None:
            self.code = build.build((9, 0), registers, rom, together)[0]

    monkeypatch.setattr(vec_cuda, "kernels", Loaded)
    vec: Any = bare()
    vec._index = 0
    vec._load_kernels(small("one", 0xEA), 0, 64, 132)
    assert vec.translated and vec._kernels.code == b"one False"
    monkeypatch.setattr(build, "ptx", lambda *a: 1 / 0)
    vec._load_kernels(small("two", 0xE8), 0, 64, 132)
    assert not vec.translated and b".func" in vec._kernels.code  # the one that says REST
    assert "cannot translate two for this GPU" in capsys.readouterr().err
    vec._load_kernels(None, 0, 64, 132)
    assert not vec.translated


def test_how_many_consoles_share_a_warp():
    """An H200 has 132 processors."""
    alone, last, more = (placement.sharing(n, 132, translated=True) for n in (1, 2112, 2113))
    assert (alone, last, more) == ((1, 128), (1, 128), (32, 64))
    shares = [placement.sharing(n, 132, translated=False) for n in (1, 1056, 1057, 8192, 10**6)]
    assert shares == [(1, 128), (1, 128), (2, 128), (8, 64), (32, 64)]


def test_blocks_hold_all_consoles_in_as_many_warps_as_they_may():
    place = placement.Placement(warps_alone=8, warps_together=4)
    assert place.grid(256, 1) == (32, 256) and place.grid(257, 1) == (33, 256)
    assert place.grid(8192, 32) == (64, 128) and place.grid(33, 32) == (1, 64)
    assert place.grid(5, 2) == (1, 96), "three warps are one small block"


def test_the_split_of_memory_is_asked_for_at_the_driver():
    asked = []
    driver = SimpleNamespace(
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT="split"),
        cuFuncSetAttribute=lambda *what: asked.append(what) or (0,),
    )
    kernels = object.__new__(build.Kernels)
    kernels._driver, kernels._functions = driver, {"step_kernel": "the step"}  # type: ignore[assignment]
    kernels.prefer_shared("step_kernel", 50)
    assert asked == [("the step", "split", 50)]


def test_both_sides_agree_on_what_a_program_returns():
    text = (FOLDER / "cuda" / "cpu_dispatch.py").read_text()
    assert f"REST, LATE = {REST}, {program.LATE} " in text and f"MOST_STEPS = {MOST_STEPS} " in text


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_everything_compiles_without_a_card(monkeypatch):
    """Takes a minute or two. The current GPU is only asked for its capability, so an answer is all it takes."""
    with build._row_stack():
        dispatcher = importlib.import_module("numba.cuda.dispatcher")
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(9, 0)))
    units = build.compile_units((9, 0))
    assert {"step_kernel", "show_kernel", "shrink_kernel"} <= set(units)
    assert all(".target sm_90" in text for text in units.values())
    # Consoles of a warp that play and consoles that start meet in one call: two would run one after the other.
    assert len(re.findall(r"call[^;]*dqnitro_any_frame_unit", units["step_kernel"])) == 1
    for registers in (build.FEW_REGISTERS, build.MANY_REGISTERS):
        assert b"step_kernel" in build.link(units | {program.NAME: program.nothing()}, (9, 0), registers)
