# ruff: noqa: F403, F405
"""Functions in LLVM IR that translated programs call: a read port of the TIA, and decimal arithmetic."""

from __future__ import annotations

from ..chips.layout import *
from ..chips.tia_registers import CXBLPF, CXPPMM, INPT0, INPT4, INPT5
from .writer import Layout


def port_function(layout: Layout) -> str:
    """`@port`: what a read port of the TIA shows, apart from the bus latch."""
    kind, step = layout.number, layout.state

    def number(name: str, at: str) -> str:
        """A number of the state into %name; `at` is its address."""
        widened = f"add i64 %{name}_, 0" if kind == "i64" else f"sext i32 %{name}_ to i64"
        return f"  %{name}_ = load {kind}, ptr {at}\n  %{name} = {widened}"

    return f"""
define internal i32 @port(ptr %s, i32 %port, i64 %cycles) noinline {{
  %collision = icmp ult i32 %port, {INPT0}
  br i1 %collision, label %latches, label %inputs
latches:
  %at0 = getelementptr i8, ptr %s, i64 {step * S_COLLISION}
{number("all", "%at0")}
  %wide = zext i32 %port to i64
  %twice = shl i64 %wide, 1
  %last = icmp eq i32 %port, {CXPPMM}
  %by = select i1 %last, i64 13, i64 %twice
  %pair = lshr i64 %all, %by
  %p32 = trunc i64 %pair to i32
  %one = and i32 %p32, 1
  %bit7 = shl i32 %one, 7
  %two = and i32 %p32, 2
  %bit6 = shl i32 %two, 5
  %single = icmp eq i32 %port, {CXBLPF}
  %bit6or0 = select i1 %single, i32 0, i32 %bit6
  %value = or i32 %bit7, %bit6or0
  ret i32 %value
inputs:
  %none = icmp ugt i32 %port, {INPT5}
  br i1 %none, label %nothing, label %some
nothing:
  ret i32 0
some:
  %button = icmp uge i32 %port, {INPT4}
  %number = zext i32 %port to i64
  %offset = mul i64 %number, {step}
  br i1 %button, label %fire, label %paddle
fire:
  %k = add i64 %offset, {step * (S_FIRE0 - INPT4)}
  %at1 = getelementptr i8, ptr %s, i64 %k
{number("f", "%at1")}
  %f32 = trunc i64 %f to i32
  ret i32 %f32
paddle:
  %j = add i64 %offset, {step * (S_POT0 - INPT0)}
  %at2 = getelementptr i8, ptr %s, i64 %j
{number("need", "%at2")}
  %at3 = getelementptr i8, ptr %s, i64 {step * S_DUMP_STAMP}
{number("stamp", "%at3")}
  %sum = add i64 %stamp, %need
  %when = and i64 %sum, 4294967295
  %past = icmp sgt i64 %cycles, %when
  %at4 = getelementptr i8, ptr %s, i64 {step * S_DUMP}
{number("dump", "%at4")}
  %free = icmp eq i64 %dump, 0
  %charged = and i1 %past, %free
  %fixed = icmp slt i64 %need, 0
  %always = icmp eq i64 %need, -1
  %on = select i1 %fixed, i1 %always, i1 %charged
  %bit = select i1 %on, i32 128, i32 0
  ret i32 %bit
}}
"""


DECIMAL = """
define internal i32 @digits(i32 %b) {
  %h = lshr i32 %b, 4
  %t = mul i32 %h, 10
  %l = and i32 %b, 15
  %r = add i32 %t, %l
  ret i32 %r
}

define internal i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry) {
  %x = xor i32 %a, %result
  %y = xor i32 %result, %v
  %z = and i32 %x, %y
  %o = shl i32 %z, 2
  %o9 = and i32 %o, 512
  %c8 = shl i32 %carry, 8
  %r = or i32 %result, %c8
  %p = or i32 %r, %o9
  ret i32 %p
}

define internal i32 @bytes(i32 %total) {
  %m = urem i32 %total, 100
  %h = udiv i32 %m, 10
  %h4 = shl i32 %h, 4
  %l = urem i32 %total, 10
  %r = or i32 %h4, %l
  ret i32 %r
}

define internal i32 @decimal_add(i32 %a, i32 %v, i32 %c) noinline {
  %da = call i32 @digits(i32 %a)
  %dv = call i32 @digits(i32 %v)
  %s = add i32 %da, %dv
  %total = add i32 %s, %c
  %over = icmp sgt i32 %total, 99
  %carry = zext i1 %over to i32
  %low = and i32 %total, 255
  %result = call i32 @bytes(i32 %low)
  %r = call i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry)
  ret i32 %r
}

define internal i32 @decimal_subtract(i32 %a, i32 %v, i32 %c) noinline {
  %da = call i32 @digits(i32 %a)
  %dv = call i32 @digits(i32 %v)
  %d = sub i32 %da, %dv
  %d1 = sub i32 %d, 1
  %first = add i32 %d1, %c
  %below = icmp slt i32 %first, 0
  %more = add i32 %first, 100
  %total = select i1 %below, i32 %more, i32 %first
  %still = icmp slt i32 %total, 0
  %low = and i32 %total, 255
  %odd = call i32 @digits(i32 %low)
  %odd8 = and i32 %odd, 255
  %even = call i32 @bytes(i32 %total)
  %result = select i1 %still, i32 %odd8, i32 %even
  %v1 = add i32 %v, 1
  %least = sub i32 %v1, %c
  %enough = icmp sge i32 %a, %least
  %carry = zext i1 %enough to i32
  %r = call i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry)
  ret i32 %r
}
"""
