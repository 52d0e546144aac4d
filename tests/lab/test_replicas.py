"""The cost of averaging gradients: a small measurement in one process, and the model that it feeds."""

from __future__ import annotations

import json
import pathlib

import pytest

from dqnitro.lab import replicas


def test_one_rank_is_measured_and_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MASTER_PORT", "29541")
    out = tmp_path / "r.json"
    assert replicas.main(["--ranks", "1", "--batch", "2", "--rounds", "2", "--updates", "1", "--out", str(out)]) == 0
    stored = json.loads(out.read_text())
    assert stored["what"] == "replicas" and stored["backend"] == "gloo" and stored["bytes"] == 4 * 1_687_206
    assert stored["seconds"]["alone"] > 0 and set(stored["table"]) == set(stored["seconds"])
    assert '"ratio"' in capsys.readouterr().out
    assert replicas.main(["predict", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["predicted"] is True


def test_the_model_counts_what_cannot_be_hidden():
    measured = {"seconds": {"alone": 200e-6, "averaged": 220e-6}, "bytes": 8_000_000, "own_kernels": True,
                "batch_of_a_rank": 512}  # fmt: skip
    found = replicas.predicted(measured, {"gpus": 8, "bytes_per_s": 100e9, "latency_s": 10e-6})
    sent = 10e-6 + 1.75 * 4e6 / 100e9
    assert found["all_reduce_s"] == pytest.approx(sent + 10e-6)
    assert found["efficiency_of_updates"]["overlapped"] == pytest.approx(200 / 230)
    assert found["efficiency_of_updates"]["not overlapped"] == pytest.approx(200e-6 / (220e-6 + sent + 10e-6))
    step, more = 0.107, 256 * 30e-6
    assert found["efficiency_of_a_run"]["overlapped"] == pytest.approx(step / (step + more))


def test_two_ranks_check_the_model_with_what_they_measured_themselves(tmp_path, capsys):
    sizes = {4 << 10: 1e-4, 256 << 10: 2e-4, 4 << 20: 3e-3, 7 << 20: 6e-3}
    seconds = {"alone": 2e-3, "averaged": 4.5e-3, **{f"all-reduce of {n} bytes": s for n, s in sizes.items()}}
    measured = {"what": "replicas", "ranks": 2, "backend": "gloo", "bytes": 6_748_824, "own_kernels": True}
    (tmp_path / "two.json").write_text(json.dumps({**measured, "seconds": seconds}))
    assert replicas.main(["predict", str(tmp_path / "two.json")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured_s"] == 4.5e-3
    assert told["predicted_s"] == pytest.approx({"not overlapped": 5.2e-3, "overlapped": 4.2e-3})


def test_ratios_of_updates_are_put_to_times_that_were_measured_elsewhere(tmp_path, capsys):
    learner = {"table": {f"learner, batch {n}, DQN, own kernels": {"ms": n / 1_000} for n in (256, 512)}}
    ways = "1 rank, NCCL", "2 ranks sharing the GPU, gloo"
    ratios = {"ratios": {f"{way}, batch {n}": {"median": 1.1} for way in ways for n in (256, 512)}}
    for name, what in (("learner", learner), ("ratios", ratios)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"what": "bench", **what}))
    assert replicas.main(["predict", str(tmp_path / "learner.json"), str(tmp_path / "ratios.json")]) == 0
    small, large = json.loads(capsys.readouterr().out)
    assert (small["batch_of_a_rank"], large["batch_of_a_rank"]) == (256, 512)
    assert large["update_averaged_s"] == pytest.approx(512e-6 * 1.1)
    assert small["efficiency_of_a_run"] is None and large["efficiency_of_a_run"]["overlapped"] < 1
    with pytest.raises(SystemExit):
        replicas.main(["predicted", "a", "b"])


def test_the_predictions_of_the_documents_are_the_model_s(capsys):
    results = pathlib.Path(__file__).resolve().parents[2] / "results"
    names = "learner-h200.json", "replicas-ratios-h200.json"
    assert replicas.main(["predict", *(str(results / name) for name in names)]) == 0
    small, large = json.loads(capsys.readouterr().out)
    told = " ".join((results.parent / "docs" / "replicas.md").read_text().split())
    run, updates = small["efficiency_of_a_run"], small["efficiency_of_updates"]
    assert f"{updates['overlapped']:.0%} efficiency of updates, {run['overlapped']:.0%} of a run" in told
    assert f"({updates['not overlapped']:.0%} and {run['not overlapped']:.0%} if nothing overlaps)" in told
    assert f"batch 2,048 for each: {large['efficiency_of_updates']['overlapped']:.0%} of updates" in told
