# SPDX-License-Identifier: BSD-2-Clause
"""Exported Verilog: reproducible, free of paths, memories initialised compactly."""

import os
import subprocess
import sys

import pytest
from amaranth import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from gossamer.rtl.export import export_verilog

DEPTH = 3000


class Table(wiring.Component):
    """A memory of zeros and one with contents, read at the same address."""

    def __init__(self):
        super().__init__({"address": In(12), "write": In(1), "zero": Out(18), "rom": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.zeros = zeros = memory.Memory(shape=18, depth=DEPTH, init=[])
        m.submodules.contents = contents = memory.Memory(shape=8, depth=4, init=[1, 2, 3, 0x7E])
        read, write, rom = zeros.read_port(), zeros.write_port(), contents.read_port()
        m.d.comb += [
            read.addr.eq(self.address),
            self.zero.eq(read.data),
            write.addr.eq(self.address),
            write.data.eq(self.address),
            write.en.eq(self.write),
            rom.addr.eq(self.address),
            self.rom.eq(rom.data),
        ]
        return m


def test_memories_are_initialised_compactly_and_paths_left_out():
    text = export_verilog(Table(), name="table_top")
    assert "module table_top(" in text
    assert len(text) < 8000
    assert f"index <= {DEPTH - 1}" in text
    assert "zeros[0] = " not in text
    assert "contents[3] = 8'h7e" in text
    assert "src =" not in text
    assert ".py" not in text


@pytest.mark.slow
def test_same_bytes_whatever_the_hash_seed():
    code = (
        "from gossamer.rtl.config import EngineConfig\n"
        "from gossamer.rtl.engine import Engine\n"
        "from gossamer.rtl.export import export_verilog\n"
        "from gossamer.rtl.formats import Identity\n"
        "c = EngineConfig(n_pes=3, weight_depth=64, input_depth=64, output_depth=16)\n"
        "print(export_verilog(Engine(Identity(c, 1, bytes(8)))))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(texts) == 1
    assert "module top(" in texts.pop()


BROKEN = """
from amaranth import Module
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import Out
from gossamer.rtl.export import export_verilog

class Broken(wiring.Component):
    a: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = fifo.SyncFIFO(width=8, depth=4)
        raise RuntimeError("broken on purpose")

class Top(wiring.Component):
    a: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.whole = fifo.SyncFIFO(width=8, depth=4)
        m.submodules.broken = Broken()
        return m

try:
    export_verilog(Top())
except RuntimeError as error:
    print(error)
"""


def test_a_failure_is_not_buried_under_warnings():
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", BROKEN], capture_output=True, check=True, text=True
    )
    assert done.stdout == "broken on purpose\n"
    assert done.stderr == ""
