# SPDX-License-Identifier: BSD-2-Clause
"""The engine: link, controller, units, drain, results. Bytes in, bytes out."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .answers import AnswerSender
from .controller import Controller
from .counters import Counters
from .formats import Identity
from .layouts import select_layer
from .loader import Loader
from .packets import FrameReceiver, FrameTransmitter
from .results import ResultBuffer
from .runs import RunQueue
from .scan import Scanner
from .sequencer import Sequencer
from .sparse_array import SparseArray
from .store import ActivationStore
from .tile import TensorTile

__all__ = ["Engine"]


class Engine(wiring.Component):
    """A whole engine behind a byte link (docs/protocol.md).

    Parameters
    ----------
    identity : Identity
        Config of the engine, and what its ROM says.

    Members
    -------
    i, o : In(stream of 8), Out(stream of 8)
        Bytes from and to the host.
    link_errors : In(2)
        Pulses from a UART: bit 0 framing error, bit 1 overrun. They show in STATUS.
    """

    i: stream.Interface
    o: stream.Interface
    link_errors: Signal

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "link_errors": In(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the blocks; what computes is reset by COMMIT and ABORT."""
        m = Module()
        config = self._identity.config
        m.submodules.receiver = receiver = FrameReceiver(
            rx_bytes=config.rx_bytes, max_payload=config.max_payload
        )
        m.submodules.transmitter = transmitter = FrameTransmitter()
        m.submodules.sender = sender = AnswerSender(self._identity)
        m.submodules.controller = controller = Controller(config)
        m.submodules.loader = loader = Loader(config)

        reset = ResetInserter(controller.reset_engine)
        runs, sequencer = RunQueue(config), Sequencer(config)
        store, scanner = ActivationStore(config), Scanner(config)
        array, results, counters = SparseArray(config), ResultBuffer(config), Counters(config)
        m.submodules.runs = reset(runs)
        m.submodules.sequencer = reset(sequencer)
        m.submodules.scanner = reset(scanner)
        m.submodules.store = store
        m.submodules.array = reset(array)
        m.submodules.results = reset(results)
        m.submodules.counters = reset(counters)

        connect(m, flipped(self.i), receiver.i)
        connect(m, receiver.o, controller.i)
        connect(m, sender.o, transmitter.i)
        connect(m, transmitter.o, flipped(self.o))
        connect(m, controller.o_image, loader.i)
        connect(m, loader.write, array.write)
        connect(m, scanner.o, sequencer.i_store)
        connect(m, sequencer.o_array, array.i)
        connect(m, array.o, sequencer.i_merge)
        connect(m, sequencer.o_results, results.i)
        m.d.comb += [
            sequencer.write.en.eq(loader.write.en),
            sequencer.write.kind.eq(loader.write.kind),
            sequencer.write.address.eq(loader.write.address),
            sequencer.write.data.eq(loader.write.data),
            # controller <-> link
            sender.send.eq(controller.answer),
            controller.answered.eq(sender.sent),
            sender.type.eq(controller.type),
            sender.seq.eq(controller.seq),
            sender.status.eq(controller.status),
            sender.state.eq(controller.state),
            sender.loaded.eq(controller.loaded),
            sender.errors.eq(
                Cat(
                    receiver.errors[0],
                    self.link_errors[0],
                    receiver.errors[1] | self.link_errors[1],
                )
            ),
            # controller <-> loader and store
            loader.restart.eq(controller.image_restart),
            controller.image_busy.eq(loader.busy),
            controller.image_complete.eq(loader.complete),
            store.write.eq(controller.store_write),
            store.write_slot.eq(controller.store_slot),
            store.write_image.eq(controller.store_image),
            store.write_group.eq(controller.store_group),
            store.write_data.eq(controller.store_data),
            # controller <-> runs
            runs.request.eq(controller.request),
            runs.request_slot.eq(controller.request_slot),
            runs.request_images.eq(controller.request_images),
            runs.request_seq.eq(controller.seq),
            controller.pending.eq(runs.pending),
            controller.pending_slot.eq(runs.pending_slot),
            controller.current_slot.eq(runs.current_slot),
            controller.known.eq(runs.known),
            controller.occupied.eq(runs.occupied),
            controller.holds_input.eq(sequencer.holds_input),
            controller.cleared.eq(array.cleared),
            # runs <-> sequencer
            sequencer.start.eq(runs.start),
            sequencer.slot.eq(runs.pending_slot),
            sequencer.images.eq(runs.pending_images),
            runs.idle.eq(sequencer.idle),
            runs.computing.eq(sequencer.computing),
            runs.running.eq(sequencer.running),
            runs.computed.eq(sequencer.computed),
            runs.results_ready.eq(results.ready),
            # sequencer <-> units
            array.layers.eq(sequencer.layers),
            array.parity.eq(sequencer.parity),
            sequencer.drained.eq(array.drained),
            scanner.start.eq(sequencer.scan),
            scanner.last_input.eq(sequencer.last_input),
            scanner.data.eq(store.words[sequencer.image] if config.batch > 1 else store.words[0]),
            store.read.eq(scanner.read),
            store.group.eq(scanner.group),
            store.from_bank.eq(sequencer.from_bank),
            store.source.eq(sequencer.source),
            # results
            controller.result_waiting.eq(runs.result_waiting),
            controller.result_seq.eq(runs.result_seq),
            runs.result_sent.eq(controller.result_sent),
            results.collected.eq(sequencer.collected),
            results.sent.eq(controller.result_sent),
            results.image.eq(sender.result_image),
            results.address.eq(sender.result_address),
            sender.result_data.eq(results.data),
            sender.result_count.eq(sequencer.result_slots),
            sender.result_images.eq(runs.result_images),
            sender.counts.eq(counters.counts),
            # counters
            counters.clear.eq(runs.start),
            counters.running.eq(sequencer.computing),
            counters.save.eq(runs.save),
            counters.activities.eq(array.activities),
            counters.blocked.eq(array.blocked),
            counters.broadcasting.eq(array.broadcasting),
        ]
        if config.tile_rows:
            m.submodules.tile = tile = reset(TensorTile(config))
            connect(m, loader.write, tile.write)
            m.d.comb += [
                tile.layer.eq(select_layer(sequencer.layers, sequencer.parity)),
                tile.images.eq(sequencer.tile_images),
                tile.start.eq(sequencer.tile_start),
                tile.data.eq(store.words),
                sequencer.tile_done.eq(tile.done),
                sequencer.tile_valid.eq(tile.o_valid),
                sequencer.tile_vector.eq(tile.o),
                store.bank_write.eq(sequencer.bank_write),
                store.bank.eq(sequencer.bank),
                store.vector.eq(sequencer.o_results.p),
                counters.tile.eq(tile.activity),
            ]
            # The tile runs alone: while it does, nothing is scanned.
            with m.If(tile.busy):
                m.d.comb += [store.read.eq(tile.read), store.group.eq(tile.group)]
        return m
