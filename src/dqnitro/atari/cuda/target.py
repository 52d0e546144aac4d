"""The console's functions for CUDA: the same decorators and accessors as `jit/target.py`, for one GPU thread per
console.

Consoles lie in groups of 32, one warp. Within a group the k-th numbers of all consoles lie side by side (``state`` and,
byte by byte, ``ram``), so a warp that reads the same register of its consoles reads one piece of memory. An address is
that of the console's first number; the accessors know the stride. The ``log`` of each console lies alone: consoles of a
warp are at different places of theirs, and the next entry of each shall be near.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.core import cgutils
from numba.cuda import libdevice, types
from numba.cuda.extending import intrinsic

from ..chips.layout import ROWS, S_MASK_P0, S_SIZE, WORDS
from .rewrite_branches import as_trees
from .rewrite_int32 import as_narrow
from .rewrite_ptx import global_memory

LANES = 32  # consoles in a group
WORDS_OF_MASKS = 18  # three for each of six objects: their upper halves follow the state
STATE_ROWS = S_SIZE + WORDS_OF_MASKS
# Modules whose numbers have 32 bits here, as a GPU's registers have. The others run once a frame, or work on masks.
NARROW = {
    "cpu_fast", "cpu_warp", "tia", "tia_apart", "tia_changes", "tia_motion", "tia_store", "cpu_reference", "bus",
    "cartridge", "observation",
}  # fmt: skip


def _rewritten(function: Any) -> Any:
    function = as_trees(function)
    if function.__module__.rpartition(".")[2] in NARROW:
        return as_narrow(function, types.int32)
    return function


def compiled(function: Any) -> Any:
    return cuda.jit(device=True)(_rewritten(function))


def spliced(function: Any) -> Any:
    return compiled(function)


def inlined(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(_rewritten(function))


def wide(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(function)


UNITS: dict[str, str] = {}  # PTX of each unit and kernel, by its name in the linked program
CAPABILITY = (9, 0)  # of the GPU to compile for; `cuda/build.py` sets it before anything is compiled


def _ptx(function: Any, signature: Any, **options: Any) -> str:
    text, _ = cuda.compile(function, signature, cc=CAPABILITY, output="ptx", **options)
    return global_memory(text)


def unit(function: Any) -> Any:
    """Compile now, as a function of its own that is called, not copied into its callers; all numbers are int64."""
    name = f"dqnitro_{function.__name__}"
    signature = types.int64(*(types.int64,) * function.__code__.co_argcount)
    UNITS[name] = _ptx(_rewritten(function), signature, device=True, abi="c", abi_info={"abi_name": name})
    return cuda.declare_device(name, signature, abi="c")


def kernel(**argument_types: Any) -> Any:
    """Compile a kernel; arguments are int64 unless said otherwise."""

    def compile_it(function: Any) -> Any:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        signature = tuple(argument_types.get(n, types.int64) for n in names)
        UNITS[function.__name__] = _ptx(function, signature, device=False, abi="numba")
        return function

    return compile_it


def _array(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], layout: str) -> Any:
    """An intrinsic that turns an address into an array of constant strides, which the compiler folds into offsets."""
    kind = types.Array(dtype, len(shape), layout)

    def typed(typing_context: Any, at: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(kind)(context, builder)
            item = context.get_abi_sizeof(context.get_data_type(dtype))
            size = context.get_constant(types.intp, item)

            def numbers(values: tuple[int, ...]) -> Any:
                return cgutils.pack_array(builder, [context.get_constant(types.intp, v) for v in values])

            total = 1
            for n in shape:
                total *= n
            context.populate_array(
                array,
                data=builder.inttoptr(arguments[0], array.data.type),
                shape=numbers(shape),
                strides=numbers(strides),
                itemsize=size,
                meminfo=None,
            )
            return array._getvalue()

        return kind(types.int64), build

    return intrinsic(typed)


def _table_typed(typing_context: Any, at: Any, columns: Any) -> Any:
    kind = types.Array(types.float32, 2, "C")

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        four = context.get_constant(types.intp, 4)
        row = builder.mul(arguments[1], four)
        context.populate_array(
            array,
            data=builder.inttoptr(arguments[0], array.data.type),
            shape=cgutils.pack_array(builder, [context.get_constant(types.intp, 16), arguments[1]]),
            strides=cgutils.pack_array(builder, [row, four]),
            itemsize=four,
            meminfo=None,
        )
        return array._getvalue()

    return kind(types.int64, types.int64), build


def _address_typed(typing_context: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(struct.data, context.get_value_type(types.int64))

    return types.int64(array), build


@inlined
def mul32(a, b):
    return libdevice.fmul_rn(a, b)  # never part of an FMA


@inlined
def add32(a, b):
    return libdevice.fadd_rn(a, b)


MEETS = True
TRANSLATES, call_program = False, None  # as on a CPU, that is; a GPU has its own way:
# The translated program of the game (`cuda/program.py`), linked with the units.
call_translated = cuda.declare_device("dqnitro_program", types.int64(*(types.int64,) * 6), abi="c")


@wide
def together():
    return cuda.activemask()


@wide
def meet(lanes):
    cuda.syncwarp(lanes)


@wide
def get_word(s_at, at):
    s = as_state(s_at)
    return types.uint64(types.uint32(s[at])) | (types.uint64(types.uint32(s[at + UPPER])) << types.uint64(32))


@wide
def put_word(s_at, at, word):
    s = as_state(s_at)
    s[at] = types.int32(word)
    s[at + UPPER] = types.int32(word >> types.uint64(32))


UPPER = S_SIZE - S_MASK_P0
address = intrinsic(_address_typed)
as_table = intrinsic(_table_typed)
as_state = _array(types.int32, (1024,), (4 * LANES,), "A")
as_log = _array(types.int64, (1024,), (8,), "C")
as_ram = _array(types.uint8, (256,), (LANES,), "A")
as_bytes = _array(types.uint8, (65536,), (1,), "C")
as_words = _array(types.uint32, (65536,), (4,), "C")
as_int32 = _array(types.int32, (1024,), (4,), "C")
as_float32 = _array(types.float32, (65536,), (4,), "C")
plain_int64 = _array(types.int64, (65536,), (8,), "C")
as_screen = _array(types.uint64, (2, ROWS, WORDS), (8 * ROWS * WORDS, 8 * WORDS, 8), "C")
