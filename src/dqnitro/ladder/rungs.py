"""The rungs as data, in the order in which they are climbed. tests/promises keeps what they promise.

First what only costs time, then what leaves learning as it is, then what changes it. `notes_say` gives the figures of the
notes: steps a second on their machines (a GTX 1080 Ti where they name one) and minutes until Pong was solved.
"""

from __future__ import annotations

from dqnitro.ladder.rung import (
    Rung,
    all_on_gpu,
    distinct,
    envs_and_batch,
    in_processes,
    one_thread_each,
    setting,
    split_in_two,
    with_wrapper,
    without_wrapper,
)
from dqnitro.requirements import (
    atari_only,
    first_reason,
    needs_bfloat16,
    needs_compiler,
    needs_console,
    needs_cpu,
    needs_cpu_bfloat16,
    needs_cuda_console,
    needs_float16,
    needs_gpu,
    needs_host_loop,
    needs_images,
    needs_nature_network,
    needs_own_acting,
    needs_pillow,
    needs_python_resize,
    needs_ring,
    needs_stack_of_four,
    needs_torchscript,
    needs_triton,
    needs_two_cores,
    needs_two_gpus,
    needs_uniform_samples,
)

ENVS = ("two-envs", "three-envs", "four-envs", "six-envs", "eight-envs")
STEPS = (
    "two-steps-per-update",
    "four-steps-per-update",
    "eight-steps-per-update",
    "sixteen-steps-per-update",
)
ACTING = ("play-on-cpu", "play-on-second-gpu", "play-on-second-gpu-every-4", "play-on-second-gpu-every-10")
LIGHTER = (
    "No figure of its own: lighter wrappers took 395 to 448 steps/s with three environments, and 36.0 to 47.4 minutes."
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
        "pinned-copies", "exact", with_wrapper("pinned-copies"),
        "Copies batches and observations to the GPU through page-locked memory, while the CPU goes on.",
        "Small tensors, and a replay that lives on the GPU: there is little left to copy.", needs_gpu,
        notes_say="370 to 384 steps/s.",
    ),
    Rung(
        "play-on-cpu", "close", setting(act_device="cpu", act_sync_updates=1),
        "Chooses actions on the CPU with a copy of the network, and trains on the GPU: single observations are not sent to it.",
        "Nearly always: after every update all weights have to come back.", needs_gpu,
        notes_say="159 to 120 steps/s; much slower as well with play in a process of its own.",
        replaces=ACTING, aside=True,
    ),
    Rung(
        "play-on-second-gpu", "close", setting(act_device="cuda:1", act_sync_updates=1),
        "Chooses actions on a second GPU with a copy of the network, refreshed after every update.",
        "Nearly always: the weights travel between the GPUs at every update.", needs_two_gpus,
        notes_say="445 to 430 steps/s.",
        replaces=ACTING, aside=True,
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
        "inplace-relu", "exact", with_wrapper("inplace-relu"),
        "Activations overwrite their input instead of filling memory of their own.",
        "Never; it saves little where convolutions take the time.",
        notes_say="Advised for less memory and better use of it; no figure.",
    ),
    Rung(
        "channels-last", "close", with_wrapper("channels-last"),
        "Stores images with channels innermost, the order convolution kernels want; the frame replay gathers them so.",
        "Tiny batches, where reordering the input costs what it saves.", needs_images,
    ),
    Rung(
        "torchscript", "exact", with_wrapper("torchscript"),
        "Runs the network as a traced TorchScript graph, without Python between its layers.",
        "Large layers, beside which Python's time does not show. torch has deprecated it in favour of torch.compile.", needs_torchscript,
        notes_say="Advised for networks and inputs of fixed shape; no figure.",
        replaces=("compile", "float16", "bfloat16", "written-out", "distinct-patches"), aside=True,
    ),
    Rung(
        "float16", "close", with_wrapper("float16"),
        "Convolutions and matrix products in float16, with the loss scaled up so that small gradients survive.",
        "CPUs without float16 arithmetic. An update whose gradients overflow is lost.", needs_float16,
        notes_say="Advised on GPUs that support it, with a warning about stability; no figure.",
        replaces=("torchscript", "bfloat16", "written-out", "distinct-patches", "one-pass-adam"), aside=True,
    ),
    Rung(
        "bfloat16", "close", with_wrapper("bfloat16"),
        "Convolutions and matrix products in bfloat16; parameters and optimiser stay float32.",
        "CPUs without bfloat16 instructions.", needs_bfloat16,
        replaces=("torchscript", "float16"),
    ),
    Rung(
        "compile", "close", with_wrapper("compile"),
        "torch.compile fuses the forward and backward pass into a few kernels.",
        "Short runs: compiling takes tens of seconds before the first step.", needs_compiler,
        replaces=("torchscript",), aside=True,  # every rung after it would have to compile again
    ),
    Rung(
        "written-out", "close", with_wrapper("written-out"),
        "The passes of bfloat16 written out by hand. Weights are converted once an update, which serves acting as well, and autograd sees one step instead of thirty.",
        "Large batches, beside which bookkeeping does not show.", first_reason(needs_images, needs_cpu_bfloat16),
        replaces=("torchscript", "float16", "compile"),
    ),
    Rung(
        "distinct-patches", "close", distinct,
        "Convolves every distinct patch of a batch once: most of an Atari picture is background, and what moves looks the same in many samples. "
        "Otherwise the passes of written-out.",
        "Pictures in which nothing repeats: there it is slower than written-out.",
        first_reason(needs_images, needs_stack_of_four, needs_cpu_bfloat16),
        replaces=("torchscript", "float16", "compile", "written-out"),
    ),
    Rung(
        "one-pass-adam", "close", with_wrapper("one-pass-adam"),
        "The optimiser goes through the memory once. Above written-out and distinct-patches it reads gradients and writes weights in bfloat16, so nothing is converted.",
        "Cores that share no cache, and many of them: it uses one, and what it writes the others have to fetch; fused-adam uses all.", needs_cpu,
        replaces=("fused-adam", "float16"),
    ),
    Rung(
        "side-by-side", "close", one_thread_each("side-by-side"),
        "One thread for each of the two networks' passes instead of two threads for every product: what one core writes the other need not fetch.",
        "Many cores, cores that share a cache, and large batches, whose products keep all cores busy by themselves.", first_reason(needs_cpu, needs_two_cores),
        replaces=("compile",),
    ),
    Rung(
        "split-network", "close", split_in_two,
        "The second core keeps the hidden layer, which has nearly all parameters: its pass, its gradient, its optimiser. The first does the convolutions, and only "
        "200 KB travel between them each way.",
        "Networks whose hidden layer is small: handing over takes longer than the work. Many cores: it uses two.",
        first_reason(needs_images, needs_cpu_bfloat16, needs_two_cores),
        replaces=("torchscript", "float16", "compile"),
    ),
    Rung(
        "one-pass-acting", "close", with_wrapper("one-pass-acting"),
        "Chooses actions in the pass of the update that is owed anyway, as one more sample: both come before the step, with the same weights. "
        "What double DQN asks the online network goes along.",
        "While nearly all actions are random: nobody reads what was computed for them. With several updates a step only the first can serve.",
        first_reason(needs_cpu, needs_own_acting),
        replaces=("compile",),
    ),
    Rung(
        "cuda-graphs", "close", with_wrapper("cuda-graphs"),
        "Records the update and the acting pass as CUDA graphs: the host starts one graph instead of some hundred small kernels.",
        "Large batches, whose kernels take longer than starting them.", first_reason(needs_host_loop, needs_gpu),
        replaces=("torchscript", "float16"),
    ),
)  # fmt: skip

# These scale pictures in Python, so they stand before the environments that do not.
OTHER_RESIZE = (
    Rung(
        "linear-resize", "learning", setting(resize="linear"),
        "Shrinks the screen by OpenCV's bilinear rule, which looks at four pixels, instead of averaging all that are covered.",
        "Small objects can fall between the four pixels; thin lines flicker.",
        first_reason(needs_images, needs_python_resize),
        notes_say="Other methods are advised to be tried; no figure.",
        replaces=("pillow-resize", "ale-vector", "console"), aside=True,
    ),
    Rung(
        "pillow-resize", "learning", setting(resize="pillow"),
        "Shrinks the screen with Pillow instead of OpenCV.",
        "OpenCV has caught up: expect it to be slower.",
        first_reason(needs_images, needs_python_resize, needs_pillow),
        notes_say="Its SIMD build was once quicker than OpenCV, which is now optimised as well; no figure.",
        replaces=("linear-resize", "ale-vector", "console"), aside=True,
    ),
)  # fmt: skip

OTHER_LEARNING = (
    Rung(
        "play-on-second-gpu-every-4", "learning", setting(act_device="cuda:1", act_sync_updates=4),
        "Chooses actions on a second GPU with weights that are up to four updates old.",
        "Acting is seldom the bottleneck: two GPUs for a few per cent.", needs_two_gpus,
        notes_say="445 to 455 steps/s; judged not worth it.",
        replaces=ACTING, aside=True,
    ),
    Rung(
        "play-on-second-gpu-every-10", "learning", setting(act_device="cuda:1", act_sync_updates=10),
        "Chooses actions on a second GPU with weights that are up to ten updates old.",
        "Acting is seldom the bottleneck: two GPUs for a few per cent.", needs_two_gpus,
        notes_say="445 to 457 steps/s; judged not worth it.",
        replaces=ACTING, aside=True,
    ),
    Rung(
        "kaiming-init", "learning", setting(init="kaiming"),
        "First weights by the rule made for ReLU layers (He and others, 2015). No step is faster; the question is whether fewer are needed.",
        "First values are larger and have to be unlearned.",
        notes_say="Advised together with in-place ReLU as the optimised network; no figure.",
        aside=True,
    ),
    Rung(
        "no-noop-reset", "learning", setting(noop_max=0),
        "Begins every game at once, without idle frames.",
        "Games without chance: they always begin the same, and the agent may learn one game by heart.", atari_only,
        notes_say=LIGHTER,
        aside=True,
    ),
    Rung(
        "no-episodic-life", "learning", setting(episodic_life=False),
        "A lost life is no end any more: the game goes on, and the return with it.",
        "Games with several lives, where the agent learns later that losing one is bad.",
        notes_say="445 to 450 steps/s; 440 without clipping as well.",
        aside=True,
    ),
    Rung(
        "no-clipping", "learning", setting(clip_rewards=False),
        "Learns from rewards as the game gives them. It makes nothing faster; Pong's rewards are 1 and -1 anyway.",
        "Games with large rewards: one learning rate does not fit all of them.",
        notes_say="445 to 445 steps/s; 440 without episodic life as well.",
        aside=True,
    ),
    Rung(
        "skip-without-max", "learning", setting(max_pool=False),
        "Observes the last frame of a step alone instead of the maximum of the last two: one picture less to draw.",
        "Games that draw some objects in every second frame only: those disappear.", atari_only,
        notes_say=LIGHTER,
        aside=True,
    ),
    Rung(
        "stack-of-two", "learning", setting(frame_stack=2),
        "Stacks two frames instead of four: half the pixels to convolve and to copy.",
        "Games in which acceleration matters, or objects flicker.", needs_images,
        notes_say=LIGHTER,
        aside=True,
    ),
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
        replaces=STEPS, aside=True,
    ),
    Rung(
        "four-steps-per-update", "learning", setting(steps_per_update=4.0),
        "Learns once every four steps, as the Nature paper did. The learner is the bottleneck, so this is nearly four times the speed.",
        "Every step teaches less; too few updates and the score rises later although steps fly by.",
        notes_say="159 to 232 steps/s; 221 to 393 with play in a process of its own. Convergence slowed down.",
        replaces=STEPS,
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
        "processes", "learning", in_processes,
        "Plays in one process and learns in another, through shared memory, a few steps ahead. Steps per update stay what they are; only the "
        "weights that choose actions are older, by exactly the slack (with slack 0 the run is exact, unless actions were chosen in the update's pass).",
        "A learner that could use every core, and environments that are no work: half the cores then wait for the other half.",
        needs_two_cores,
        notes_say="229 to 290 steps/s (+26.6%), solved in 31.2 instead of 52.2 minutes; elsewhere 159 to 221. "
        "Their ratio of steps to updates floated.",
        replaces=ACTING, aside=True,
    ),
    Rung(
        "all-on-gpu", "learning", all_on_gpu,
        "256 machines, the replay and the learner live on one card, and CUDA graphs of many steps and updates run there without the host. "
        "As many samples are trained a step as before, in batches of 512.",
        "One machine on a card is far slower than on a core: it takes hundreds. The first start compiles for a minute or two.",
        first_reason(atari_only, needs_uniform_samples, needs_gpu, needs_cuda_console),
        notes_say="CuLE, an emulator in CUDA, is a heading there; no figure.",
        replaces=(*ENVS, *STEPS, *ACTING, "processes", "gym-async", "ale-vector", "console", "linear-resize",
                  "pillow-resize", "pinned-copies", "torchscript", "float16", "cuda-graphs"),
    ),
    Rung(
        "own-kernels", "close", with_wrapper("own-kernels"),
        "Passes, gradients and Adam of the Nature network as fourteen kernels of our own. They read frames out of the replay as bytes and leave bfloat16 weights for "
        "the next update behind; acting uses them as well.",
        "Other networks, for which they are not written.",
        first_reason(needs_gpu, needs_ring, needs_bfloat16, needs_nature_network, needs_compiler, needs_triton),
        replaces=("torchscript", "float16", "compile", "cuda-graphs"), aside=True,  # the next rungs are another network's
    ),
    Rung(
        "small-frame", "learning", setting(screen_size=60),
        "Observes 60x60 pixels instead of 84x84: half of the pixels to convolve, copy and store.",
        "Games with small objects: what is two pixels wide on the console is less than one here.", needs_images,
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
    Rung(
        "quick-rate", "learning", setting(learning_rate=2.5e-4, adam_epsilon=1.5e-4, loss="huber"),
        "Two and a half times the book's learning rate, held steady by the Huber loss and a larger epsilon in Adam. No step is faster; fewer are needed.",
        "Twice as much again: with 5e-4 Pong was mostly not learned at all.",
    ),
)  # fmt: skip

_BEFORE_ENVS = tuple(r.name for r in SAME_RUN).index("gym-async")
RUNGS: dict[str, Rung] = {
    r.name: r for r in (*SAME_RUN[:_BEFORE_ENVS], *OTHER_RESIZE, *SAME_RUN[_BEFORE_ENVS:], *OTHER_LEARNING)
}
