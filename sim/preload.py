# SPDX-License-Identifier: BSD-2-Clause
"""Large images behind the engine's back, for benches of which loading is no part.

Weights and column records go straight into the simulator's memories; what is left of the image, a
few hundred bytes of program and codebooks, is loaded over the link.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..host.compiler.compiler import Image
from ..rtl.config import EngineConfig
from ..rtl.formats import SECTION_HEADER, Section, bytes_per_word
from .board import SimulatedBoard

__all__ = ["ImageSection", "memory_bits", "preload", "sections", "small_image"]

_LARGE = (Section.WEIGHTS, Section.COLUMNS)
_COLUMNS = "array.columns.records"

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ImageSection:
    """A section of an image: which memory, from which address, and its words.

    Parameters
    ----------
    kind : Section
    pe, address : int
    words : (n, bytes per word) uint8
        Lowest byte first.
    raw : bytes
        All of it, with its header.
    """

    kind: Section
    pe: int
    address: int
    words: Bytes
    raw: bytes


def sections(image: Image) -> Iterator[ImageSection]:
    """Sections of an image, in order."""
    data, at = image.data, 0
    while at < len(data):
        kind, pe, address, count = SECTION_HEADER.unpack_from(data, at)
        start = at + SECTION_HEADER.size
        size = bytes_per_word(Section(kind), image.config)
        words = np.frombuffer(data, np.uint8, count * size, start).reshape(count, size)
        end = start + count * size
        yield ImageSection(Section(kind), pe, address, words, data[at:end])
        at = end


def small_image(image: Image) -> Image:
    """What `preload` leaves over, to be loaded before it: COMMIT makes the engine ready."""
    small = [part.raw for part in sections(image) if part.kind not in _LARGE]
    return replace(image, data=b"".join(small))


def preload(board: SimulatedBoard, image: Image) -> None:
    """Write an image's weights and column records into a simulated board's memories.

    Parameters
    ----------
    board : SimulatedBoard
    image : Image
        With plain sections only: compiled for the board's config without a decoder.
    """
    config = image.config
    depth = config.column_words
    records = np.zeros((depth, config.n_pes, config.column_bits), dtype=np.uint8)
    weights = {pe: _empty(board, _weights(pe)) for pe in range(config.n_pes)}
    for part in sections(image):
        end = part.address + len(part.words)
        if part.kind == Section.WEIGHTS:
            weights[part.pe][part.address : end, : part.words.shape[1]] = part.words
        elif part.kind == Section.COLUMNS:
            bits = np.unpackbits(part.words, axis=1, bitorder="little")
            records[part.address : end, part.pe] = bits[:, : config.column_bits]
    for pe, words in weights.items():
        board.poke_memory(_weights(pe), words.tobytes())
    packed = np.packbits(records.reshape(depth, -1), axis=1, bitorder="little")
    words = _empty(board, _COLUMNS)
    words[:, : packed.shape[1]] = packed
    board.poke_memory(_COLUMNS, words.tobytes())


def memory_bits(image: Image) -> int:
    """Bits of all memory words that an image fills, unused bits of the words included."""
    config = image.config
    return sum(len(part.words) * _word_bits(part.kind, config) for part in sections(image))


def _word_bits(kind: Section, config: EngineConfig) -> int:
    """Bits of a word in all memories that hold it: every PE has a copy of the codebooks."""
    return {
        Section.WEIGHTS: config.entry_bits,
        Section.COLUMNS: config.column_bits,
        Section.CODEBOOK: 16 * config.n_pes,
        Section.PROGRAM: 16,
    }[kind]


def _weights(pe: int) -> str:
    return f"array.pe_{pe}.weights.words"


def _empty(board: SimulatedBoard, name: str) -> Bytes:
    memory = board.memories[name]
    return np.zeros((memory.depth, memory.stride), dtype=np.uint8)
