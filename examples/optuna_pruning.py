"""Search a learning rate with Optuna; trials that lag behind are pruned.

pip install -e '.[optuna]'
python examples/optuna_pruning.py
"""

import optuna

import dqnitro
from dqnitro.callbacks import OptunaPruning


def objective(trial: optuna.Trial, max_steps: int = 20_000) -> float:
    pruning = OptunaPruning(trial, every_steps=max_steps // 10)
    result = dqnitro.train(
        "CartPole-v1",
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        max_steps=max_steps,
        callbacks=[pruning],
        progress=False,
    )
    if pruning.pruned:
        raise optuna.TrialPruned
    return result.mean_score or 0.0


def search(trials: int = 20, max_steps: int = 20_000) -> optuna.Study:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.optimize(lambda trial: objective(trial, max_steps), n_trials=trials)
    return study


if __name__ == "__main__":
    found = search()
    print(found.best_params, found.best_value)
