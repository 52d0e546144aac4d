"""PTX that says where its numbers lie: what is rewritten, and what must stay."""

from __future__ import annotations

from dqnitro.atari.cuda.rewrite_ptx import global_memory

UNIT = """
.const .align 8 .b8 table[16];
ld.param.u64 %rd1, [a];
cvta.const.u64 %rd2, %rd2;
ld.const.u32 %r1, [table+4];
ld.u32 %r2, [%rd1+128];
ld.v2.u64 {%rd3, %rd4}, [%rd1];
st.u8 [%rd1], %r2;
st.param.b64 [b], %rd1;
"""


def test_tables_are_read_as_what_nobody_writes_and_the_rest_is_global():
    assert (
        global_memory(UNIT)
        == """
.global .align 8 .b8 table[16];
ld.param.u64 %rd1, [a];
cvta.global.u64 %rd2, %rd2;
ld.global.nc.u32 %r1, [table+4];
ld.global.u32 %r2, [%rd1+128];
ld.global.v2.u64 {%rd3, %rd4}, [%rd1];
st.global.u8 [%rd1], %r2;
st.param.b64 [b], %rd1;
"""
    )


def test_addresses_stay_open_where_some_are_of_a_threads_own_memory():
    for own in (".local .align 8 .b8 depot[64];\n", ".shared .align 1 .b8 gray[160];\n"):
        text = global_memory(own + UNIT)
        assert "ld.u32 %r2, [%rd1+128];" in text and "st.u8 [%rd1], %r2;" in text
        assert "ld.global.nc.u32 %r1, [table+4];" in text, "a table is one all the same"
