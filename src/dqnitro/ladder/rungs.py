"""The rungs as data, in the order in which they are climbed. tests/promises keeps what they promise.

First what only costs time, then what leaves learning as it is, then what changes it. `notes_say` gives the figures of the
notes: steps a second on their machines (a GTX 1080 Ti where they name one) and minutes until Pong was solved.
"""

from __future__ import annotations

from dqnitro.ladder.rung import (
    Rung,
    atari_only,
    envs_and_batch,
    needs_bfloat16,
    needs_compiler,
    needs_console,
    needs_images,
    setting,
    with_wrapper,
    without_wrapper,
)

ENVS = ("two-envs", "three-envs", "four-envs", "six-envs", "eight-envs")
STEPS = (
    "two-steps-per-update",
    "four-steps-per-update",
    "eight-steps-per-update",
    "sixteen-steps-per-update",
)

SAME_RUN = (
    Rung(
        "gradients-everywhere", "exact", without_wrapper("no-grad"),
        "Builds a graph in the target and acting passes, too. The notes' warning, kept as a rung below the baseline.",
        "Always: it only costs time and memory.",
        notes_say="229 to 219 steps/s (-4.3%); solved in 51.0 instead of 52.2 minutes.",
        aside=True,
    ),
    Rung(
        "frame-replay", "exact", setting(replay="frames"),
        "Keeps every frame once, as bytes, in rings that are allocated before the first step.",
        "Never; for observations that are not stacked it saves less.",
        notes_say="Preallocated contiguous arrays are advised against the cost of allocating; no figure.",
    ),
    Rung(
        "gym-async", "exact", setting(envs="gym-async"),
        "Plays each environment in a process of its own, through Gymnasium's AsyncVectorEnv.",
        "Quick environments: sending a picture between processes costs more than making it.",
        notes_say="Vectorised environments are advised to keep CPU and GPU busy; no figure.",
        replaces=("ale-vector", "console"), aside=True,
    ),
    Rung(
        "ale-vector", "exact", setting(envs="ale"),
        "Plays in ale-py's C++ vector environment: emulation and resizing outside Python, on threads.",
        "With one environment there is little to run side by side.", atari_only,
        notes_say="Vectorised environments are advised to keep CPU and GPU busy; no figure.",
        replaces=("gym-async", "console"),
    ),
    Rung(
        "console", "exact", setting(envs="console"),
        "Plays in the native console: the Atari 2600 compiled from Python, exact to ALE, on threads.",
        "Its first start compiles; later ones load from a cache.", needs_console,
        replaces=("gym-async", "ale-vector"),
    ),
    Rung(
        "fused-adam", "close", with_wrapper("fused-adam"),
        "One kernel updates all parameters at once.",
        "Networks so small that nothing matters.",
    ),
    Rung(
        "channels-last", "close", with_wrapper("channels-last"),
        "Stores images with channels innermost, the order convolution kernels want.",
        "Tiny batches, where reordering the input costs what it saves.", needs_images,
    ),
    Rung(
        "bfloat16", "close", with_wrapper("bfloat16"),
        "Convolutions and matrix products in bfloat16; parameters and optimiser stay float32.",
        "CPUs without bfloat16 instructions.", needs_bfloat16,
    ),
    Rung(
        "compile", "close", with_wrapper("compile"),
        "torch.compile fuses the forward and backward pass into a few kernels.",
        "Short runs: compiling takes tens of seconds before the first step.", needs_compiler,
        aside=True,  # every rung after it would have to compile again
    ),
)  # fmt: skip

OTHER_LEARNING = (
    Rung(
        "two-envs", "learning", envs_and_batch(2),
        "Plays two games side by side and learns once for both, from a batch twice as large. As many samples are trained a step as before.",
        "Fewer, larger updates: what a step teaches can fall.",
        notes_say="Faster, and quicker to converge, than one environment; figures are given for three.",
        replaces=ENVS, aside=True,
    ),
    Rung(
        "three-envs", "learning", envs_and_batch(3),
        "Plays three games side by side and learns once for all, from a batch three times as large. The notes' best number of environments.",
        "Fewer, larger updates: what a step teaches can fall.",
        notes_say="229 to 395 steps/s (+72.5%); solved in 36.0 instead of 52.2 minutes.",
        replaces=ENVS, aside=True,
    ),
    Rung(
        "four-envs", "learning", envs_and_batch(4),
        "Plays four games side by side and learns once for all, from a batch four times as large.",
        "More than three environments slowed the notes' convergence down.",
        notes_say="More steps a second than three, but slower to converge; no figure.",
        replaces=ENVS, aside=True,
    ),
    Rung(
        "six-envs", "learning", envs_and_batch(6),
        "Plays six games side by side and learns once for all, from a batch six times as large.",
        "More than three environments slowed the notes' convergence down.",
        notes_say="More steps a second than three, but slower to converge; no figure.",
        replaces=ENVS, aside=True,
    ),
    Rung(
        "eight-envs", "learning", setting(n_envs=8),
        "Plays eight games side by side with the batch as it is: one network pass chooses eight actions, and experience is more varied.",
        "More games than cores bring nothing once the environments are no longer the bottleneck.",
        replaces=ENVS,
    ),
    Rung(
        "two-steps-per-update", "learning", setting(steps_per_update=2.0),
        "Learns once every two steps. The notes found two the best compromise: nearly twice the steps a second.",
        "Every step teaches less.",
        notes_say="159 to 202 steps/s; 221 to 315 with play in a process of its own. Judged the best number.",
        replaces=STEPS,
    ),
    Rung(
        "four-steps-per-update", "learning", setting(steps_per_update=4.0),
        "Learns once every four steps, as the Nature paper did. The learner is the bottleneck, so this is nearly four times the speed.",
        "Every step teaches less; too few updates and the score rises later although steps fly by.",
        notes_say="159 to 232 steps/s; 221 to 393 with play in a process of its own. Convergence slowed down.",
        replaces=STEPS, aside=True,
    ),
    Rung(
        "eight-steps-per-update", "learning", setting(steps_per_update=8.0),
        "Learns once every eight steps: playing, not learning, begins to set the pace.",
        "An eighth of the updates: the score rises much later in steps.",
        notes_say="159 to 246 steps/s.",
        replaces=STEPS, aside=True,
    ),
    Rung(
        "sixteen-steps-per-update", "learning", setting(steps_per_update=16.0),
        "Learns once every sixteen steps. It shows how fast playing alone is.",
        "Learning: the notes' run did not converge.",
        notes_say="159 to 254 steps/s; did not converge.",
        replaces=STEPS, aside=True,
    ),
    Rung(
        "small-frame", "learning", setting(screen_size=42),
        "Observes 42x42 pixels instead of 84x84: a quarter of the pixels to convolve, copy and store.",
        "Games with small objects: what is two pixels wide on the console is half a pixel here.", needs_images,
        aside=True,  # Pong was not learned with it (LOG.md)
    ),
    Rung(
        "small-network", "learning", setting(network="small", hidden_units=256),
        "The network of the 2013 paper: two convolutions instead of three, a third of the arithmetic.",
        "Games that need to see more than Pong does.", needs_images,
    ),
    Rung(
        "three-step", "learning", setting(n_step=3),
        "Looks three rewards ahead before bootstrapping, so that a point scored reaches earlier decisions sooner.",
        "Very random rewards.",
    ),
    Rung(
        "double", "learning", setting(double=True),
        "The online network picks the next action and the target network values it: less over-estimation.",
        "Costs one more forward pass.",
    ),
)  # fmt: skip

RUNGS: dict[str, Rung] = {r.name: r for r in (*SAME_RUN, *OTHER_LEARNING)}
