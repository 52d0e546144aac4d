"""The rungs as data, in the order in which they are climbed. tests/promises checks what they promise.

First come rungs that only cost time, then rungs that leave learning unchanged, then rungs that change it. "The book" is
Maxim Lapan, "Deep Reinforcement Learning Hands-On", 2nd edition (Packt, 2020), chapter 9, "Ways to Speed up RL". "The
notes" are readers' notes on that chapter and Lapan's own log. `notes_say` gives their figures: steps per second on
their machines (a GTX 1080 Ti where they name one) and minutes until Pong was solved.
"""

from __future__ import annotations

from dqnitro.ladder.rung import (
    Rung,
    all_on_gpu,
    distinct,
    envs_and_batch,
    games_on_host,
    in_processes,
    one_thread_each,
    setting,
    split_in_two,
    with_gpu_replay,
    with_wrapper,
    without_wrapper,
)
from dqnitro.requirements import (
    atari_only,
    few_calls_need,
    first_reason,
    gpu_replay_needs,
    needs_bfloat16,
    needs_compiler,
    needs_console,
    needs_cpu,
    needs_cpu_bfloat16,
    needs_cuda_console,
    needs_float16,
    needs_gpu,
    needs_grey_frames,
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
    needs_vectors,
)

ENVS = ("two-envs", "three-envs", "four-envs", "six-envs", "eight-envs")
STEPS = ("two-steps-per-update", "four-steps-per-update", "eight-steps-per-update", "sixteen-steps-per-update")
ACTING = ("play-on-cpu", "play-on-second-gpu", "play-on-second-gpu-every-4", "play-on-second-gpu-every-10")
# Passes that draw no random numbers.
NO_DRAWS = (
    "own-kernels", "gpu-replay", "torchscript", "written-out", "distinct-patches", "split-network", "one-pass-acting",
)  # fmt: skip
LIGHTER = (
    "No figure of its own: lighter wrappers took 395 to 448 steps/s with three environments, and 36.0 to 47.4 minutes."
)

SAME_RUN = (
    Rung(
        "gradients-everywhere", "exact", without_wrapper("no-grad"),
        "Also builds autograd graphs in the target and acting passes. The notes warn of it, so it is a rung, too.",
        "Always: it only costs time and memory.",
        notes_say="229 to 219 steps/s (-4.3%); solved in 51.0 instead of 52.2 minutes.",
        detour=True,
    ),
    Rung(
        "pinned-copies", "exact", with_wrapper("pinned-copies"),
        "Copies batches and observations to the GPU through page-locked memory while the CPU continues.",
        "Small tensors, and a replay on the GPU: there is little to copy.", needs_gpu,
        notes_say="370 to 384 steps/s.",
    ),
    Rung(
        "play-on-cpu", "close", setting(act_device="cpu", act_sync_updates=1),
        "Chooses actions on the CPU with a copy of the network and learns on the GPU: observations stay on the host.",
        "Nearly always: after every update all weights are copied back.", needs_gpu,
        notes_say="159 to 120 steps/s; also much slower with acting in a separate process.",
        replaces=ACTING, detour=True,
    ),
    Rung(
        "play-on-second-gpu", "close", setting(act_device="cuda:1", act_sync_updates=1),
        "Chooses actions on a second GPU with a copy of the network, refreshed after every update.",
        "Nearly always: the weights are copied between the GPUs after every update.", needs_two_gpus,
        notes_say="445 to 430 steps/s.",
        replaces=ACTING, detour=True,
    ),
    Rung(
        "frame-replay", "exact", setting(replay="frames"),
        "Stores every frame once, as bytes, in ring buffers that are allocated before the first step.",
        "Never; it saves less if observations are not stacked.",
        notes_say="Preallocated contiguous arrays are recommended to avoid allocations; no figure.",
    ),
    Rung(
        "gym-async", "exact", setting(envs="gym-async"),
        "Runs each environment in its own process, with Gymnasium's AsyncVectorEnv.",
        "Fast environments: sending a frame between processes costs more than making it.",
        notes_say="Vectorised environments are advised to keep CPU and GPU busy; no figure.",
        replaces=("ale-vector", "console"), detour=True,
    ),
    Rung(
        "ale-vector", "exact", setting(envs="ale"),
        "Plays in ale-py's C++ vector environment, which emulates and resizes in threads outside Python.",
        "A single environment: there is nothing to run in parallel.", atari_only,
        notes_say="Vectorised environments are advised to keep CPU and GPU busy; no figure.",
        replaces=("gym-async", "console"),
    ),
    Rung(
        "console", "exact", setting(envs="console"),
        "Plays in DQNitro's own console: an Atari 2600 compiled from Python, exact to ALE, in threads.",
        "Its first start compiles; later starts load from a cache.", needs_console,
        replaces=("gym-async", "ale-vector"),
    ),
    Rung(
        "fused-adam", "close", with_wrapper("fused-adam"),
        "Updates all parameters with one kernel.",
        "Very small networks, for which the optimiser hardly matters.",
    ),
    Rung(
        "inplace-relu", "exact", with_wrapper("inplace-relu"),
        "Activations overwrite their inputs instead of allocating their own memory.",
        "Never; it saves little if convolutions take most of the time.",
        notes_say="Recommended to save memory; no figure.",
    ),
    Rung(
        "channels-last", "close", with_wrapper("channels-last"),
        "Stores images with the channels innermost, the order that convolution kernels prefer, from the replay on.",
        "Tiny batches, for which reordering the input costs what it saves.", needs_images,
    ),
    Rung(
        "torchscript", "exact", with_wrapper("torchscript"),
        "Runs the network as a traced TorchScript graph, without Python between its layers.",
        "Large layers, next to which Python's overhead is negligible. Deprecated by torch in favour of torch.compile.",
        needs_torchscript,
        notes_say="Recommended for networks and inputs of fixed shape; no figure.",
        replaces=("compile", "float16", "bfloat16", "written-out", "distinct-patches"), detour=True,
    ),
    Rung(
        "float16", "close", with_wrapper("float16"),
        "Computes convolutions and matrix products in float16; the loss is scaled up so that small gradients survive.",
        "CPUs without float16 arithmetic. An update whose gradients overflow is skipped.", needs_float16,
        notes_say="Recommended on GPUs that support it, with a warning about stability; no figure.",
        replaces=("torchscript", "bfloat16", "written-out", "distinct-patches", "one-pass-adam"), detour=True,
    ),
    Rung(
        "bfloat16", "close", with_wrapper("bfloat16"),
        "Computes convolutions and matrix products in bfloat16; parameters and optimiser stay float32.",
        "CPUs without bfloat16 instructions.", needs_bfloat16,
        replaces=("torchscript", "float16"),
    ),
    Rung(
        "compile", "close", with_wrapper("compile"),
        "Fuses the forward and backward pass into a few kernels with torch.compile.",
        "Short runs: compiling takes tens of seconds before the first step.", needs_compiler,
        replaces=("torchscript",), detour=True,  # every later rung would have to compile again
    ),
    Rung(
        "written-out", "close", with_wrapper("written-out"),
        "Hand-written forward and backward passes in bfloat16. Weights are converted once per update, also for acting, "
        "and autograd sees one operation instead of thirty.",
        "Large batches, next to which this overhead is negligible.",
        first_reason(needs_images, needs_grey_frames, needs_cpu_bfloat16),
        replaces=("torchscript", "float16", "compile"),
    ),
    Rung(
        "distinct-patches", "close", distinct,
        "Convolves every distinct patch of a batch once: most of an Atari screen is background, and moving objects "
        "look the same in many samples. Otherwise it uses the passes of written-out.",
        "Images in which nothing repeats: for them it is slower than written-out.",
        first_reason(needs_images, needs_stack_of_four, needs_cpu_bfloat16),
        replaces=("torchscript", "float16", "compile", "written-out"),
    ),
    Rung(
        "one-pass-adam", "close", with_wrapper("one-pass-adam"),
        "The optimiser reads and writes the memory once. With written-out or distinct-patches it reads gradients and "
        "writes weights in bfloat16, so nothing is converted.",
        "Many cores, and cores without a shared cache: it uses one core, and the others have to fetch what it writes; "
        "fused-adam uses all.",
        needs_cpu,
        replaces=("fused-adam", "float16"),
    ),
    Rung(
        "side-by-side", "close", one_thread_each("side-by-side"),
        "Runs the passes of the two networks in one thread each, instead of every product in two threads: neither core "
        "has to fetch what the other writes.",
        "Many cores, cores with a shared cache, and large batches, whose products keep all cores busy anyway.",
        first_reason(needs_cpu, needs_two_cores),
        replaces=("compile",),
    ),
    Rung(
        "split-network", "close", split_in_two,
        "The second core owns the hidden layer, which has nearly all parameters: its pass, its gradient, its "
        "optimiser. The first core computes the convolutions, and only 200 KB per direction are exchanged.",
        "Networks with a small hidden layer: the exchange takes longer than the work. Many cores: it uses two.",
        first_reason(needs_images, needs_grey_frames, needs_cpu_bfloat16, needs_two_cores),
        replaces=("torchscript", "float16", "compile"),
    ),
    Rung(
        "one-pass-acting", "close", with_wrapper("one-pass-acting"),
        "Chooses actions in the forward pass of the update that is due anyway, as additional samples: both use the "
        "same weights. The online pass of double DQN is included as well.",
        "While nearly all actions are random, the values computed for them are wasted. With several updates per step, "
        "only the first one can be used.",
        first_reason(needs_cpu, needs_own_acting),
        replaces=("compile",),
    ),
    Rung(
        "few-calls", "close", with_wrapper("few-calls"),
        "Makes the update of a network for vectors in a dozen calls of compiled code instead of some hundred of torch: "
        "such a network is computed in less time than it takes to call its operations.",
        "Its first start compiles; later starts load from a cache.",
        first_reason(needs_vectors, few_calls_need),
        replaces=("fused-adam", "one-pass-adam", "inplace-relu", "torchscript", "float16", "bfloat16", "compile",
                  "side-by-side", "one-pass-acting"),
    ),
    Rung(
        "cuda-graphs", "close", with_wrapper("cuda-graphs"),
        "Records the update and the acting pass as CUDA graphs: the host launches one graph instead of many kernels.",
        "Large batches, whose kernels run longer than it takes to launch them.",
        first_reason(needs_host_loop, needs_gpu),
        replaces=("torchscript", "float16"),
    ),
    Rung(
        "gpu-replay", "exact", with_gpu_replay,
        "A sample is a list of positions in the replay on the GPU, from which the update gathers its batch. "
        "The host starts the updates before it waits for the actions, so that the GPU learns while the game goes on.",
        "Without cuda-graphs it saves little: then the kernels of an update take longer to launch.",
        first_reason(needs_host_loop, needs_gpu, gpu_replay_needs),
        replaces=("prioritized",),
    ),
)  # fmt: skip

# These downscale in Python, so they come before the backends that do it elsewhere.
OTHER_RESIZE = (
    Rung(
        "linear-resize", "learning", setting(resize="linear"),
        "Downscales the screen with OpenCV's bilinear filter of four pixels instead of averaging all covered pixels.",
        "Small objects can fall between the four pixels; thin lines flicker.",
        first_reason(needs_images, needs_python_resize),
        notes_say="They recommend trying other methods; no figure.",
        replaces=("pillow-resize", "ale-vector", "console"), detour=True,
    ),
    Rung(
        "pillow-resize", "learning", setting(resize="pillow"),
        "Downscales the screen with Pillow instead of OpenCV.",
        "OpenCV has caught up, so expect Pillow to be slower.",
        first_reason(needs_images, needs_python_resize, needs_pillow),
        notes_say="Its SIMD build was once faster than OpenCV, which is now optimised as well; no figure.",
        replaces=("linear-resize", "ale-vector", "console"), detour=True,
    ),
)  # fmt: skip

OTHER_LEARNING = (
    Rung(
        "play-on-second-gpu-every-4", "learning", setting(act_device="cuda:1", act_sync_updates=4),
        "Chooses actions on a second GPU with weights that are up to four updates old.",
        "Nearly always: acting is seldom the bottleneck, and a second GPU gains a few per cent.", needs_two_gpus,
        notes_say="445 to 455 steps/s; judged not worth it.",
        replaces=ACTING, detour=True,
    ),
    Rung(
        "play-on-second-gpu-every-10", "learning", setting(act_device="cuda:1", act_sync_updates=10),
        "Chooses actions on a second GPU with weights that are up to ten updates old.",
        "Nearly always: acting is seldom the bottleneck, and a second GPU gains a few per cent.", needs_two_gpus,
        notes_say="445 to 457 steps/s; judged not worth it.",
        replaces=ACTING, detour=True,
    ),
    Rung(
        "kaiming-init", "learning", setting(init="kaiming"),
        "Initial weights for ReLU layers (He and others, 2015). Steps are not faster, but fewer may be needed.",
        "Initial Q-values are larger and have to be unlearned.",
        notes_say="Recommended together with in-place ReLU as the optimised network; no figure.",
        detour=True,
    ),
    Rung(
        "no-noop-reset", "learning", setting(noop_max=0),
        "Starts every game without no-op frames.",
        "Deterministic games: they always start the same, and the agent may memorise one game.", atari_only,
        notes_say=LIGHTER,
        detour=True,
    ),
    Rung(
        "no-episodic-life", "learning", setting(episodic_life=False),
        "Losing a life no longer ends the episode for learning.",
        "Games with several lives: the agent learns more slowly that losing one is bad.",
        notes_say="445 to 450 steps/s; 440 if clipping is off, too.",
        detour=True,
    ),
    Rung(
        "no-clipping", "learning", setting(clip_rewards=False),
        "Learns from unclipped rewards. Nothing gets faster; Pong's rewards are 1 and -1 anyway.",
        "Games with large rewards: one learning rate does not fit all of them.",
        notes_say="445 to 445 steps/s; 440 if episodic life is off, too.",
        detour=True,
    ),
    Rung(
        "skip-without-max", "learning", setting(max_pool=False),
        "Observes only the last frame of a step instead of the maximum of the last two: one frame less to render.",
        "Games that draw some objects only in every second frame: those objects disappear.", atari_only,
        notes_say=LIGHTER,
        detour=True,
    ),
    Rung(
        "stack-of-two", "learning", setting(frame_stack=2),
        "Stacks two frames instead of four: half the pixels to convolve and to copy.",
        "Games in which acceleration matters or objects flicker.", needs_images,
        notes_say=LIGHTER,
        detour=True,
    ),
    Rung(
        "tuned-wrappers", "learning", setting(noop_max=0, max_pool=False, frame_stack=2),
        "The three rungs before it together: no no-op frames, no maximum over frames, stacks of two.",
        "Games that need any of the three.", first_reason(atari_only, needs_images),
        notes_say="395 to 448 steps/s with three environments, 36.0 to 47.4 minutes; 290 to 325 with acting in a "
        "separate process, 31.2 to 30.0 minutes.",
        replaces=("no-noop-reset", "skip-without-max", "stack-of-two"), detour=True,
    ),
    Rung(
        "two-envs", "learning", envs_and_batch(2),
        "Plays two games in parallel and learns once for both, with a batch twice as large: the same samples per step.",
        "Fewer, larger updates: what a step teaches can fall.",
        notes_say="Faster, and converges sooner, than one environment; figures are given for three.",
        replaces=ENVS, detour=True,
    ),
    Rung(
        "three-envs", "learning", envs_and_batch(3),
        "Plays three games in parallel and learns once for all, with a batch three times as large. Best in the notes.",
        "Fewer, larger updates: what a step teaches can fall.",
        notes_say="229 to 395 steps/s (+72.5%); solved in 36.0 instead of 52.2 minutes.",
        replaces=ENVS, detour=True,
    ),
    Rung(
        "four-envs", "learning", envs_and_batch(4),
        "Plays four games in parallel and learns once for all, with a batch four times as large.",
        "More than three environments slowed convergence down in the notes.",
        notes_say="More steps a second than three, but slower to converge; no figure.",
        replaces=ENVS, detour=True,
    ),
    Rung(
        "six-envs", "learning", envs_and_batch(6),
        "Plays six games in parallel and learns once for all, with a batch six times as large.",
        "More than three environments slowed convergence down in the notes.",
        notes_say="More steps a second than three, but slower to converge; no figure.",
        replaces=ENVS, detour=True,
    ),
    Rung(
        "eight-envs", "learning", setting(n_envs=8),
        "Plays eight games in parallel with an unchanged batch: one pass chooses eight actions; experience is varied.",
        "More games than cores gain nothing once the environments are no longer the bottleneck.",
        replaces=ENVS,
    ),
    Rung(
        "two-steps-per-update", "learning", setting(steps_per_update=2.0),
        "Learns once every two steps: nearly twice the steps per second. The notes found two the best compromise.",
        "Every step teaches less.",
        notes_say="159 to 202 steps/s; 221 to 315 with acting in a separate process. Judged the best number.",
        replaces=STEPS, detour=True,
    ),
    Rung(
        "four-steps-per-update", "learning", setting(steps_per_update=4.0),
        "Learns once every four steps, as in the Nature paper: almost four times as fast if learning dominates.",
        "Every step teaches less: with too few updates the score rises later, although steps are faster.",
        notes_say="159 to 232 steps/s; 221 to 393 with acting in a separate process. Convergence slowed down.",
        replaces=STEPS,
    ),
    Rung(
        "eight-steps-per-update", "learning", setting(steps_per_update=8.0),
        "Learns once every eight steps: playing, not learning, becomes the bottleneck.",
        "With an eighth of the updates, the score needs many more steps to rise.",
        notes_say="159 to 246 steps/s.",
        replaces=STEPS, detour=True,
    ),
    Rung(
        "sixteen-steps-per-update", "learning", setting(steps_per_update=16.0),
        "Learns once every sixteen steps. It shows how fast playing by itself is.",
        "Always: the run of the notes did not converge.",
        notes_say="159 to 254 steps/s; did not converge.",
        replaces=STEPS, detour=True,
    ),
    Rung(
        "processes", "learning", in_processes,
        "Plays in one process, a few steps ahead, and learns in another; they share memory. Steps per update do not "
        "change, but the weights that choose actions are older by exactly the slack (with slack 0 the run is exact, "
        "unless it used one-pass-acting before).",
        "A learner that could use every core, with cheap environments: half of the cores then wait for the other half.",
        needs_two_cores,
        notes_say="229 to 290 steps/s (+26.6%), solved in 31.2 instead of 52.2 minutes; elsewhere 159 to 221. "
        "Their ratio of steps to updates was not fixed.",
        replaces=ACTING, detour=True,
    ),
    Rung(
        "hybrid", "learning", games_on_host,
        "The cores play 64 consoles while replay and learner run on the GPU, in CUDA graphs of several updates. The "
        "number of samples per step is unchanged, in batches of 256.",
        "Few cores: they cannot keep a GPU busy.",
        first_reason(needs_images, needs_grey_frames, needs_gpu),
        replaces=(*ENVS, *STEPS, *ACTING, "processes", "linear-resize", "pillow-resize", "pinned-copies",
                  "torchscript", "float16", "cuda-graphs", "gpu-replay"),
        detour=True,
    ),
    Rung(
        "all-on-gpu", "learning", all_on_gpu,
        "256 consoles, the replay and the learner run on one GPU, in CUDA graphs of many steps and updates, without "
        "the host. The number of samples per step is unchanged, in batches of 512.",
        "Few environments: one console on a GPU is far slower than on a core. The first start compiles for a minute or "
        "two.",
        first_reason(atari_only, needs_gpu, needs_cuda_console),
        notes_say="CuLE, an emulator in CUDA, is mentioned only in a heading; no figure.",
        replaces=(*ENVS, *STEPS, *ACTING, "processes", "hybrid", "gym-async", "ale-vector", "console",
                  "linear-resize", "pillow-resize", "pinned-copies", "torchscript", "float16", "cuda-graphs",
                  "gpu-replay"),
    ),
    Rung(
        "own-kernels", "close", with_wrapper("own-kernels"),
        "Fourteen Triton kernels compute the passes, gradients and Adam of the Nature network. They read frames from "
        "the replay as bytes and write bfloat16 weights for the next update; acting uses them as well.",
        "Other networks, which they do not support.",
        first_reason(needs_gpu, needs_ring, needs_bfloat16, needs_nature_network, needs_compiler, needs_triton),
        replaces=("torchscript", "float16", "compile", "cuda-graphs", "gpu-replay"),
        detour=True,  # the next rungs change the network
    ),
    Rung(
        "small-frame", "learning", setting(screen_size=60),
        "Observes 60x60 pixels instead of 84x84: half of the pixels to convolve, copy and store.",
        "Games with small objects: an object two pixels wide on the console is less than one pixel here.", needs_images,
    ),
    Rung(
        "small-network", "learning", setting(network="small", hidden_units=256),
        "The network of the 2013 paper: two convolutions instead of three, a third of the arithmetic.",
        "Games that are visually more complex than Pong.", needs_images,
    ),
    Rung(
        "three-step", "learning", setting(n_step=3),
        "Sums three rewards before bootstrapping, so that a reward reaches earlier decisions sooner.",
        "Very random rewards.",
    ),
    Rung(
        "double", "learning", setting(double=True, munchausen=False),
        "The online network selects the next action and the target network evaluates it: less overestimation.",
        "Always a little: it costs one more forward pass.",
    ),
    Rung(
        "quick-rate", "learning", setting(learning_rate=2.5e-4, adam_epsilon=1.5e-4, loss="huber"),
        "Two and a half times the learning rate of the book, stabilised by the Huber loss and a larger epsilon of "
        "Adam. Steps are not faster; fewer are needed.",
        "Higher rates: with 5e-4, most runs did not learn Pong at all.",
    ),
    Rung(
        "prioritized", "learning", setting(prioritized=True, replay="frames"),
        "Prioritised replay: transitions with a large error are drawn more often, and count for less.",
        "Always a little: priorities are looked up and written back in every update.",
        replaces=("gpu-replay",), detour=True,
    ),
    Rung(
        "quantiles", "learning", setting(quantiles=64, categorical=False),
        "QR-DQN: the network predicts 64 quantiles of the return instead of its mean, and acts by their mean.",
        "Many actions and small batches: the output layer is 64 times as wide.",
        detour=True,
    ),
    Rung(
        "implicit-quantiles", "learning", setting(implicit_quantiles=8, quantiles=0, categorical=False),
        "IQN: the network is asked for 8 random quantiles of the return of every sample, and acts by the mean of 32.",
        "CPUs: the last hidden layer is computed 8 times when learning and 32 times when acting.",
        replaces=("quantiles", *NO_DRAWS), detour=True,
    ),
    Rung(
        "noisy", "learning", setting(noisy_sigma=0.5),
        "Noisy networks: random changes of the last layers' weights explore, and learning decides how large they are.",
        "Always a little: the last layers have twice the weights.", replaces=NO_DRAWS, detour=True,
    ),
    Rung(
        "munchausen", "learning", setting(munchausen=True, double=False),
        "Munchausen targets: a softmax policy in place of the maximum, and a bonus for actions that it was sure of.",
        "It costs another pass of the target network.",
        replaces=("double",), detour=True,
    ),
    Rung(
        "impala", "learning", setting(network="impala", impala_width=2, impala_norm="layer"),
        "The residual network of IMPALA at twice its width, with LayerNorm: twenty times the arithmetic of the Nature "
        "network, and far better scores on most games for as many frames.",
        "Games that a small network plays well, and CPUs.", needs_images,
        replaces=("small-network", "own-kernels", "torchscript"), detour=True,
    ),
    Rung(
        "spectral", "learning", setting(network="impala", impala_width=2, impala_norm="spectral"),
        "The network of IMPALA at twice its width with spectral normalisation in place of LayerNorm: no convolution of "
        "a residual block stretches its input much.",
        "Games that a small network plays well, and CPUs.", needs_images,
        replaces=("small-network", "own-kernels", "torchscript", "impala"), detour=True,
    ),
)  # fmt: skip

_BEFORE_ENVS = tuple(r.name for r in SAME_RUN).index("gym-async")
RUNGS: dict[str, Rung] = {
    r.name: r for r in (*SAME_RUN[:_BEFORE_ENVS], *OTHER_RESIZE, *SAME_RUN[_BEFORE_ENVS:], *OTHER_LEARNING)
}
