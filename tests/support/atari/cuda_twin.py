"""A GPU's translated program on a CPU: the same LLVM IR, in the memory of consoles on CUDA, between two copies.

It is called as a CPU's program is: the state, RAM and log go into arrays of a GPU's layout, the program runs on those,
and what it changed comes back. The same happens around the TIA, which is the CPU's own. Masks have 64 bits and no
program touches them, so they stay where they are. So the console's frame and all its tests run what a GPU would run,
apart from the compiler and from what lanes of a warp do to one another.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from dqnitro.atari.chips.cpu_run import STEP, T_PROGRAM, T_REPLAY, T_SIZE
from dqnitro.atari.chips.layout import LOG_SIZE, S_LOGGED, S_MASK_P0, S_PADDLE0, S_SIZE, S_TOUCH
from dqnitro.atari.cuda import program as on_cuda
from dqnitro.atari.games.roms import Rom
from dqnitro.atari.jit.target import unit_address
from dqnitro.atari.translate import program

ARGUMENTS = "ptr %table, ptr %s, ptr %ram, ptr %rom, ptr %prop, ptr %writes, ptr %screen"
_count = 0


def _loop(end: str, body: str, first: str = "0") -> str:
    """Text of a loop over %kN; `body` has # for N."""
    global _count
    _count += 1
    n = str(_count)
    return f"""
  br label %before{n}
before{n}:
  br label %head{n}
head{n}:
  %k{n} = phi i64 [{first}, %before{n}], [%next{n}, %body{n}]
  %more{n} = icmp slt i64 %k{n}, {end}
  br i1 %more{n}, label %body{n}, label %end{n}
body{n}:
{body.replace("#", n)}
  %next{n} = add i64 %k{n}, 1
  br label %head{n}
end{n}:"""


def _copies(to_gpu: bool, kind: str, wide: str, array: str, host: str, end: str, first: str = "0") -> str:
    item = {"i64": 8, "i32": 4, "i8": 1}
    size, here = item[kind], item[wide]
    addresses = f"""  %o# = mul i64 %k#, {size if array == "glog" else 32 * size}
  %g# = getelementptr i8, ptr @{array}, i64 %o#
  %p# = mul i64 %k#, {here}
  %h# = getelementptr i8, ptr {host}, i64 %p#
"""
    to, back = ("trunc", "sext") if kind != wide else ("", "")
    if to_gpu:
        value = f"  %c# = {to} {wide} %x# to {kind}\n" if to else f"  %c# = add {kind} %x#, 0\n"
        return _loop(end, f"{addresses}  %x# = load {wide}, ptr %h#\n{value}  store {kind} %c#, ptr %g#", first)
    value = f"  %c# = {back} {kind} %x# to {wide}\n" if back else f"  %c# = add {kind} %x#, 0\n"
    return _loop(end, f"{addresses}  %x# = load {kind}, ptr %g#\n{value}  store {wide} %c#, ptr %h#", first)


def _copy(to_gpu: bool) -> str:
    name = "copy_in" if to_gpu else "copy_out"
    at = f"getelementptr i64, ptr {'%s' if to_gpu else '@gs'}, i64 {S_LOGGED if to_gpu else 16 * S_LOGGED}"
    kind = "i64" if to_gpu else "i32"
    logged = f"  %n_ = load {kind}, ptr %at\n  %n = {'add i64 %n_, 0' if to_gpu else 'zext i32 %n_ to i64'}\n"
    return f"""
define internal void @{name}(ptr %s, ptr %ram, ptr %writes) {{
  %at = {at}
{logged}{_copies(to_gpu, "i32", "i64", "gs", "%s", str(S_MASK_P0))}
{_copies(to_gpu, "i32", "i64", "gs", "%s", str(S_SIZE), str(S_PADDLE0))}
{_copies(to_gpu, "i8", "i8", "gram", "%ram", "256")}
{_copies(to_gpu, "i64", "i64", "glog", "%writes", "%n")}
  ret void
}}
"""


def shim() -> str:
    names = ["table", "s", "ram", "prop", "writes", "screen"]
    stores = "\n".join(f"  store ptr %{n}, ptr @kept_{n}" for n in names)
    loads = "\n".join(f"  %{n} = load ptr, ptr @kept_{n}" for n in names)
    return f"""
@gs = internal global [{32 * 4 * (S_SIZE + 18)} x i8] zeroinitializer
@gram = internal global [{32 * 256} x i8] zeroinitializer
@glog = internal global [{8 * LOG_SIZE} x i8] zeroinitializer
{chr(10).join(f"@kept_{n} = internal global ptr null" for n in names)}
{_copy(True)}
{_copy(False)}
define i64 @{on_cuda.REPLAY}(i64 %a, i64 %b, i64 %c, i64 %until, i64 %d) {{
{loads}
  %at = getelementptr i64, ptr %table, i64 {T_REPLAY}
  %replay = load ptr, ptr %at
  call void @copy_out(ptr %s, ptr %ram, ptr %writes)
  %r = call i64 %replay(ptr %s, ptr %prop, ptr %writes, i64 %until, ptr %screen)
  call void @copy_in(ptr %s, ptr %ram, ptr %writes)
  ret i64 0
}}
define i64 @program({ARGUMENTS}) {{
{stores}
  call void @copy_in(ptr %s, ptr %ram, ptr %writes)
  %rom1 = addrspacecast ptr %rom to ptr addrspace(1)
  %gs1 = addrspacecast ptr @gs to ptr addrspace(1)
  %gram1 = addrspacecast ptr @gram to ptr addrspace(1)
  %glog1 = addrspacecast ptr @glog to ptr addrspace(1)
  %code = call i64 @{on_cuda.NAME}(ptr addrspace(1) %gs1, ptr addrspace(1) %gram1, ptr addrspace(1) %rom1,
    ptr addrspace(1) null, ptr addrspace(1) %glog1, ptr addrspace(1) null)
  call void @copy_out(ptr %s, ptr %ram, ptr %writes)
  %late = icmp eq i64 %code, {on_cuda.LATE}
  br i1 %late, label %replays, label %leave
replays:
  %at = getelementptr i64, ptr %table, i64 {T_REPLAY}
  %replay = load ptr, ptr %at
  %touch_at = getelementptr i64, ptr %s, i64 {S_TOUCH}
  %touch = load i64, ptr %touch_at
  %until = mul i64 %touch, 3
  %r = call i64 %replay(ptr %s, ptr %prop, ptr %writes, i64 %until, ptr %screen)
  ret i64 {STEP}
leave:
  ret i64 %code
}}
"""


class Twin(program.Program):
    """A GPU's program that consoles on a CPU can be given."""

    def __init__(self, rom: Rom, together: bool, most: int) -> None:
        text, entries = on_cuda.written(rom, together, most)
        declared = f"declare i64 @{on_cuda.REPLAY}(i64, i64, i64, i64, i64)"
        assert declared in text
        module = llvm.parse_assembly(text.replace(declared, "") + shim())
        machine = program._machine()
        program.optimise(module, machine)
        super().__init__(machine.emit_object(module), entries)
        assert (
            self.table.size == T_SIZE and self.table[T_PROGRAM] and self.table[T_REPLAY] == unit_address("replay_unit")
        )


def made(rom: Rom, together: bool, most: int = 6000) -> Twin:
    return Twin(rom, together, most)
