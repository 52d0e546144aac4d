"""Say in a unit's PTX where its numbers lie, so that the assembler can move loads past stores."""

from __future__ import annotations

import re


def global_memory(text: str) -> str:
    """The same PTX with tables in global memory, and with all other addresses as global ones where that is known.

    Numba puts every table into constant memory, which is small, and slow when threads read different addresses; nobody
    writes to a table (`.nc`). A unit without anything in a thread's or a block's own memory has only global addresses.
    """
    text = re.sub(r"^\.const ", ".global ", text, flags=re.MULTILINE)
    text = text.replace("cvta.const", "cvta.global").replace("ld.const", "ld.global.nc")
    if re.search(r"\.(local|shared)\b", text):
        return text
    return re.sub(r"\b(ld|st)\.((?:v[24]\.)?[subf]\d)", r"\1.global.\2", text)
