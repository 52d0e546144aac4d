"""The learner on CPU cores: passes written out by hand in bfloat16, and an optimiser that shares their memory.

torch's own way through an update is good for large batches. A DQN update has 32 samples and two million parameters:
most of its time goes into conversions between float32 and bfloat16, into autograd's bookkeeping, into threads that wake
each other for small products, and into convolutions over the same background again and again. Each rung in this table
saves one of these.

| module | rung | what it does |
| --- | --- | --- |
| `handwritten_passes` | `written-out` | forward and backward passes in bfloat16, one node of autograd's graph |
| `patch_dedup`, `patch_kernels` | `distinct-patches` | convolutions that compute every distinct patch of a batch once |
| `one_pass_adam` | `one-pass-adam` | Adam that reads bfloat16 gradients and writes bfloat16 weights |
| `bf16_shadow` | | the table of weights and gradients that the optimiser and the passes share |
| `side_thread` | `side-by-side` | the target network's pass in a second thread |
| `split_network` | `split-network` | the hidden layer, its gradient and its optimiser in that thread |
| `vector_update`, `vector_kernels` | `few-calls` | the whole update of a network for vectors, which is all overhead |

An update with all of them but the last:

1. `Bf16Weights.refresh` converts the weights that changed; the large ones the optimiser has written already.
2. `PatchDedup.forward` numbers the patches of the batch and convolves the distinct ones, while the side thread does the
   same for the target network and its observations (`SplitNetwork.together`).
3. `head_forward` computes hidden and output layers: the online network's in the side thread, the target's in the
   caller's.
4. `HandwrittenPasses.results` puts the outputs into autograd's graph as one node. The learner computes the loss.
5. `OnePassStep` forgets old gradients, asks for early steps (without clipping), and calls `loss.backward()`.
6. `head_backward` goes back to the hidden layers' input, in the side thread.
7. There `hidden_gradients` writes the large gradients into their `Bf16Shadow`s, and `OnePassAdam` steps these
   parameters at once.
8. Meanwhile `PatchDedup.backward` computes the gradients of the convolutions in the caller's thread.
9. `OnePassAdam.step` steps the small parameters, waits for the side thread, and steps what is left.
10. Every step counts up the versions of the parameters that it wrote, by which 1. knows what to convert.

The reference implementation that tests compare a module with is named in its docstring.
"""
