# SPDX-License-Identifier: BSD-2-Clause
"""One simulated engine: the ctypes side of `harness.cpp`."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

from ..host.errors import ToolError

__all__ = ["MemoryInfo", "Ran", "Simulation"]


class _Transfer(ctypes.Structure):
    _fields_ = [
        ("input", ctypes.c_char_p),
        ("n_in", ctypes.c_uint64),
        ("output", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
        ("max_cycles", ctypes.c_uint64),
        ("enough", ctypes.c_uint64),
        ("until_taken", ctypes.c_uint64),
        ("taken", ctypes.c_uint64),
        ("produced", ctypes.c_uint64),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("words", ctypes.c_void_p),
        ("width", ctypes.c_uint32),
        ("depth", ctypes.c_uint64),
        ("stride", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class MemoryInfo:
    """Where a memory of the design lies: word width in bits, words, address, bytes per word."""

    width: int
    depth: int
    address: int
    stride: int


@dataclass(frozen=True)
class Ran:
    """Result of a run: bytes that the engine took, bytes that came out, cycles spent."""

    taken: int
    output: bytes
    cycles: int


class Simulation:
    """A simulated engine after reset.

    Parameters
    ----------
    library : Path
        From `build_library`.
    clock_hz : int
        Clock for the time axis of waveforms.
    divisor : int
        Cycles per bit of a UART; 0 for the byte link.
    waves : Path, optional
        File for waveforms (FST); the library must be built for it.

    Raises
    ------
    ToolError
        The library cannot be loaded or the waveform file not be written.
    """

    MAX_OUTPUT = 65536

    def __init__(
        self, library: Path, *, clock_hz: int, divisor: int = 0, waves: Path | None = None
    ) -> None:
        self._handle: int | None = None
        try:
            code = ctypes.CDLL(str(library))
        except OSError as error:
            raise ToolError(
                f"{library}: cannot be loaded ({error}); expected a library built here; delete it"
            ) from error
        if waves is not None:
            try:
                waves.touch()
            except OSError as error:
                raise ToolError(
                    f"{waves}: cannot be written ({error.strerror}); expected a path for the "
                    "waveforms; choose another"
                ) from error
        code.gossamer_create.restype = ctypes.c_void_p
        code.gossamer_create.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p]
        code.gossamer_destroy.argtypes = [ctypes.c_void_p]
        code.gossamer_run.restype = ctypes.c_uint64
        code.gossamer_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Transfer)]
        code.gossamer_framing_errors.restype = ctypes.c_uint64
        code.gossamer_framing_errors.argtypes = [ctypes.c_void_p]
        code.gossamer_memory.restype = _Memory
        code.gossamer_memory.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._code = code
        path = None if waves is None else str(waves).encode()
        self._handle = code.gossamer_create(10**12 // clock_hz, divisor, path)
        self._output = ctypes.create_string_buffer(self.MAX_OUTPUT)
        self._memories = self._list_memories()
        self.cycles = 0

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Free the engine and finish the waveforms. Can be called twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._code.gossamer_destroy(handle)

    def run(
        self, data: bytes, *, max_cycles: int, enough: int = 1, until_taken: bool = False
    ) -> Ran:
        """Run until `enough` bytes came out and no more follow, or `max_cycles` are over.

        With `until_taken`, also stop as soon as the engine has taken all of `data`.
        """
        transfer = _Transfer(
            data, len(data), ctypes.addressof(self._output), self.MAX_OUTPUT, max_cycles, enough,
            until_taken,
        )  # fmt: skip
        cycles = self._code.gossamer_run(self._open(), ctypes.byref(transfer))
        self.cycles += cycles
        return Ran(transfer.taken, ctypes.string_at(self._output, transfer.produced), cycles)

    @property
    def framing_errors(self) -> int:
        """Bytes from the engine's UART without a stop bit, so far."""
        return self._code.gossamer_framing_errors(self._open())

    @property
    def memories(self) -> dict[str, MemoryInfo]:
        """Memories of the design by hierarchical name, `pe0.weights.words`."""
        return self._memories

    def peek(self, name: str, address: int) -> int:
        """Word of a memory."""
        memory, at = self._word(name, address)
        return int.from_bytes(ctypes.string_at(at, memory.stride), "little")

    def poke(self, name: str, address: int, value: int) -> None:
        """Change a word of a memory behind the engine's back."""
        memory, at = self._word(name, address)
        if not 0 <= value < 1 << memory.width:
            raise ValueError(f"value must fit {memory.width} bits, not {value!r}")
        ctypes.memmove(at, value.to_bytes(memory.stride, "little"), memory.stride)

    def poke_all(self, name: str, words: bytes) -> None:
        """Overwrite a memory; each word fills `MemoryInfo.stride` bytes, lowest byte first."""
        self._open()
        memory = self._memories[name]
        size = memory.depth * memory.stride
        if len(words) != size:
            raise ValueError(f"words must have {size} bytes, not {len(words)}")
        ctypes.memmove(memory.address, words, size)

    def _word(self, name: str, address: int) -> tuple[MemoryInfo, int]:
        self._open()
        memory = self._memories[name]
        if not 0 <= address < memory.depth:
            raise ValueError(f"address must be in 0..{memory.depth - 1}, not {address!r}")
        return memory, memory.address + address * memory.stride

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError("the simulation is closed")
        return self._handle

    def _list_memories(self) -> dict[str, MemoryInfo]:
        found: dict[str, MemoryInfo] = {}
        while (entry := self._code.gossamer_memory(self._handle, len(found))).name is not None:
            found[entry.name.decode()] = MemoryInfo(
                entry.width, entry.depth, entry.words, entry.stride
            )
        return found
