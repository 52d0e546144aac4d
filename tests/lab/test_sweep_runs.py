"""Sweeps whose runs have folders: the same result as in one process, and resumed where they were."""

import json
import pathlib

import pytest

from dqnitro.cli import main
from dqnitro.cli.ablate import without
from dqnitro.cli.terminal import launching
from dqnitro.cli.terminal.launching import Job, Place
from dqnitro.cluster.nodes import Need, Node
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.ablate import merged
from dqnitro.lab.sweep import sweep, turns
from dqnitro.lab.sweep_runs import Asked, jobs_of, open_folders, points_of
from dqnitro.seeds.allocation import Share

SMALL = {
    "hidden_units": 8, "batch_size": 4, "first_fill_steps": 20, "replay_capacity": 200, "max_steps": 120,
    "torch_threads": 1, "env_threads": 1,
}  # fmt: skip
ASKED = Asked("CartPole-v1", "n_envs", (1, 2, 400), "baseline", (5,), SMALL)


def whole_machine(config, n_runs, at_once):
    return Share(1, 1, 1, "a test")


def test_every_value_has_a_folder_of_seeds_and_what_cannot_run_has_a_reason(tmp_path):
    folders, skipped, _ = open_folders(tmp_path, ASKED, whole_machine, 1)
    assert list(folders) == [1, 2] and "replay_capacity 200 leaves only" in skipped[400]
    assert [(j.value, j.seed) for j in jobs_of(ASKED, folders)] == [(1, 5), (2, 5)]
    more = ASKED._replace(seeds=(5, 6))
    folders, _, _ = open_folders(tmp_path, more, whole_machine, 1)
    assert [(j.value, j.seed) for j in jobs_of(more, folders)] == [(1, 5), (2, 5), (2, 6), (1, 6)]
    with pytest.raises(ConfigError, match="was begun with other options; hint: give another --state"):
        open_folders(tmp_path, ASKED._replace(recipe="fast"), whole_machine, 1)
    with pytest.raises(ConfigError, match="no value of n_envs can run"):
        open_folders(tmp_path / "b", ASKED._replace(values=(400,)), whole_machine, 1)


def test_values_take_turns():
    assert list(turns("ab", (1, 2))) == [(1, "a"), (1, "b"), (2, "b"), (2, "a")]


@pytest.mark.parametrize("state", ["st", "local://{}/far/st"])
def test_the_result_is_that_of_one_process(state, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    where = state.format(tmp_path)
    settings = [w for name, v in SMALL.items() for w in (f"--{name.replace('_', '-')}", str(v)) if name != "max_steps"]
    words = ["sweep", "envs", "1", "--game", "CartPole-v1", "--seed", "5", "--seeds", "1", "--steps", "120", *settings]
    for _ in range(2):  # the second time nothing is left to do
        assert main([*words, "--state", where, "--quiet", "--json", "--out", "x.json"]) == 0
    assert "0 runs to do" in capsys.readouterr().err
    mine = json.loads((tmp_path / "x.json").read_text())
    theirs = sweep("CartPole-v1", "n_envs", (1,), seeds=(5,), changes=SMALL)
    a, b = (r["curves"][0]["points"][-1] for r in (mine, theirs))
    assert all(a[k] == b[k] for k in ("steps", "updates", "games", "score")) and a["games"] > 2
    assert mine["rows"][0]["samples_per_step"] == theirs["rows"][0]["samples_per_step"]
    place = tmp_path / where.removeprefix(f"local://{tmp_path}/")
    assert json.loads((place / "n_envs-1" / "s5" / "summary.json").read_text())["run_dir"].endswith(
        where + "/n_envs-1/s5"
    )
    assert sorted(p.name for p in place.iterdir() if p.name[0] != ".") == ["n_envs-1", "sweep.json"]
    assert list((tmp_path / "tmp").glob("dqnitro-*")) == []


def test_a_curve_forgets_what_a_crash_took_back(tmp_path):
    lines = [{"event": "progress", "steps": s, "wall_s": w, "mean_score": 1.0} for s, w in ((1, 1), (9, 2), (5, 3))]
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(x) for x in lines) + '\n{"event": "prog')
    assert [p["steps"] for p in points_of(tmp_path)] == [1, 5]


# ---- the launcher that seeds, games, values and rounds share


def test_on_a_cluster_nodes_are_looked_at_before_anything_starts(tmp_path, monkeypatch):
    from dqnitro.cluster import nodes, team

    asked, made = [], []
    monkeypatch.setattr(nodes, "alive", lambda cluster: [Node("a", "a", 4, 0, 8e9), Node("b", "b", 0, 0, 8e9)])
    monkeypatch.setattr(
        nodes, "check_nodes", lambda cluster, found, shared: asked.append(([n.id for n in found], shared))
    )
    monkeypatch.setattr(team, "RayTeam", lambda *args: made.append(args) or "team")
    here = Place("cluster")
    assert here.share(Config(env_id="CartPole-v1"), 8, 0).why == "2 nodes, 1 CPU and 1.0 GiB per run"
    jobs = {7: Job(lambda: ["python", "-m", "x"], tmp_path / "log", tmp_path, "game 7")}
    assert here.team(jobs, 2, 3, Need(2, 0, 1 << 30), tmp_path / "f") == "team"
    assert asked == [(["a"], tmp_path / "f")]
    _, need, order, todo, at_once, _, name, served, capacity = made[0]
    assert order(7).away is None and served is None
    assert (need.cpus, todo, at_once, name(7)) == (2, [7], 0, "game 7") and capacity.need is need
    assert order(7).arguments == ("-m", "x") and order(7).environment["OMP_NUM_THREADS"] == "3"
    with pytest.raises(ConfigError, match="no node of the cluster has that"):
        here.team(jobs, 2, 3, Need(5, 0, 1 << 30), tmp_path / "f")


def test_files_travel_where_a_node_does_not_see_the_folder(tmp_path, monkeypatch, capsys):
    from dqnitro.cluster import nodes, team

    made, a, b = [], Node("a", "a", 4, 0, 8e9), Node("b", "b", 4, 0, 8e9)
    monkeypatch.setattr(nodes, "alive", lambda cluster: [a, b])
    monkeypatch.setattr(nodes, "check_nodes", lambda cluster, found, shared: [b])
    monkeypatch.setattr(team, "RayTeam", lambda *args: made.append(args))
    (tmp_path / "seeds.json").write_text("{}")
    words = ["python", "-m", "x", str(tmp_path), "7", f"{tmp_path}/part.json", f"{tmp_path}s", "--y"]
    Place("cluster").team(
        {7: Job(lambda: words, tmp_path / "s7.log", tmp_path / "s7", "game 7")}, 2, 3, Need(2, 0, 1 << 30),
        tmp_path / "seeds.json",
    )  # fmt: skip
    assert f"node b does not see {tmp_path}: files of runs travel through Ray" in capsys.readouterr().err
    order, served = made[0][2](7), made[0][7]
    assert order.away.tops == ("s7", "s7.log") and order.away.inputs == {"seeds.json": b"{}"} and not order.away.url
    assert served(7).root == tmp_path
    there = order.moved(pathlib.Path("/scratch"))
    assert there.arguments == ("-m", "x", "/scratch", "7", "/scratch/part.json", f"{tmp_path}s", "--y")
    assert (there.log, there.folder) == ("/scratch/s7.log", "/scratch/s7")


REFUSED = {
    "no package": ("sweep", "s3://bucket/x", "s3://bucket/x cannot be used (ImportError: Install s3fs"),
    "put together here": ("ablate", "s3://bucket/x", "--state s3://bucket/x is a URL, expected a folder; hint: "),
    "no such system": ("atari", "nothing://x", "nothing://x cannot be used (ValueError: Protocol not known"),
    "something else there": ("atari", "local://{}/full", "/full is not empty and has no atari.json; hint: give a new"),
    "in memory, without a cluster": ("sweep", "memory://x", "what is in memory:// ends with its process; hint: give a"),
}
WORDS = {"sweep": ["sweep", "envs", "--game", "CartPole-v1", "--steps", "9"], "atari": ["atari", "pong"]}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_cannot_be_used_is_one_line(name, tmp_path, monkeypatch, capsys):
    command, where, message = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    words = [*WORDS.get(command, ["ablate"]), "--state", where.format(tmp_path)]
    assert main([*words, *(["--on", "ray"] if command == "ablate" else [])]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("; hint: ") == 1 and "Traceback" not in err
    assert [p.name for p in tmp_path.rglob("*")] == ["full", "notes.txt"]


@pytest.mark.parametrize("words", [["sweep", "envs", "--steps", "9"], ["ablate"], ["atari", "pong"]])
def test_a_bad_address_is_one_line_for_every_command(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--on", "nonsense"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "--on nonsense: not the address of a cluster" in err and "Traceback" not in err
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_without_on_nothing_of_ray_is_imported(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with launching.place(None) as here:
        assert here.cluster is None


# ---- rounds of several nodes


def part(rates, whole, state="measured", why=None):
    rows = [{"without": None, "rates": whole, "state": "measured", "promise": None}]
    rows += [{"without": "console", "rates": rates, "state": state, "why": why, "promise": "exact"}]
    return {
        "what": "ablate", "game": "pong", "minutes": 1, "recipe": "fast", "seconds": 1.0, "rows": rows, "notes": {},
        "machine": {"cpu": "x"}, "interrupted": None,
    }  # fmt: skip


def test_rounds_of_a_fast_and_a_slow_node_give_one_ratio():
    result = merged([part([50.0, 52.0], [100.0, 104.0]), part([5.0, 5.5], [10.0, 11.0])])
    assert result["rounds"] == 4 and result["rows"][1]["ratio"].mean == pytest.approx(0.5)
    assert result["rows"][1]["ratio"].high - result["rows"][1]["ratio"].low < 0.01  # machines do not mix
    assert len(result["notes"]["machines"]) == 2
    result = merged([part([50.0], [100.0]), part([], [10.0], "skipped", "no compiler")])
    assert result["rows"][1]["state"] == "skipped" and result["rows"][1]["why"] == "no compiler"


def test_a_part_gets_the_words_of_the_command_but_for_where_it_goes():
    words = ["auto", "--on", "ray", "--rounds=9", "--json", "--game", "pong", "--out", "x", "--double"]
    assert without(words, ("--on", "--out", "--rounds"), ("--json",)) == ["auto", "--game", "pong", "--double"]
