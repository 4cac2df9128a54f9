// SPDX-License-Identifier: BSD-2-Clause
// A simulated engine behind a C interface: clock, reset, the link, memories and waveforms.
// Verilator writes __ in a port's name as ___05F.
// GOSSAMER_UART: the top has pins rx and tx instead of the byte streams i and o.
// GOSSAMER_TRACE: waveforms can be written.
// memories.inc, made for each design, lists its memories: MEMORY(name, member, width, depth).
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vtop.h"
#include "Vtop___024root.h"
#include "verilated.h"
#ifdef GOSSAMER_TRACE
#include "verilated_fst_c.h"
#endif

#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

constexpr int RESET_CYCLES = 4;
constexpr uint64_t QUIET_CYCLES = 16;  // an answer has ended when no byte came for this long

struct Transfer {  // the same in verilator.py
    const uint8_t* in;
    uint64_t n_in;
    uint8_t* out;
    uint64_t room;
    uint64_t max_cycles;
    uint64_t enough;       // stop once so many bytes came out and the output is quiet
    uint64_t until_taken;  // nonzero: stop once all of `in` was taken
    uint64_t taken;
    uint64_t produced;
};

struct Memory {
    const char* name;
    uint8_t* words;
    uint32_t width;
    uint64_t depth;
    uint32_t stride;
};

struct Engine {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;
    uint64_t cycles = 0;
    uint64_t period_ps;
    uint64_t divisor;
    uint64_t framing_errors = 0;
    // UART: bits still to send, bits received; countdowns to the next edge and to the next sample
    uint32_t send_bits = 1, receive_bits = 0;
    uint64_t send_left = 0, sample_left = 0;
    int send_count = 0, receive_count = 0;
#ifdef GOSSAMER_TRACE
    std::unique_ptr<VerilatedFstC> trace;
#endif

    Engine(uint64_t period, uint64_t uart_divisor, const char* waves)
        : period_ps(period), divisor(uart_divisor) {
        context.traceEverOn(waves != nullptr);
        top = std::make_unique<Vtop>(&context, "");
#ifdef GOSSAMER_TRACE
        if (waves) {
            trace = std::make_unique<VerilatedFstC>();
            top->trace(trace.get(), 99);
            trace->open(waves);
        }
#endif
        top->clk = 0;
        top->rst = 1;
#ifdef GOSSAMER_UART
        top->rx = 1;
#else
        top->i___05Fvalid = 0;
        top->o___05Fready = 0;
        top->link_errors = 0;
#endif
        for (int k = 0; k <= RESET_CYCLES; ++k) {
            if (k == RESET_CYCLES) top->rst = 0;  // a cycle more: the wrapper registers it
            settle();
            edge();
        }
    }

    ~Engine() {
#ifdef GOSSAMER_TRACE
        if (trace) trace->close();
#endif
        top->final();
    }

    void dump(uint64_t offset) {
#ifdef GOSSAMER_TRACE
        if (trace) trace->dump(cycles * period_ps + offset);
#else
        (void)offset;
#endif
    }

    void settle() {
        top->clk = 0;
        top->eval();
        dump(0);
    }

    void edge() {
        top->clk = 1;
        top->eval();
        dump(period_ps / 2);
        ++cycles;
    }

#ifdef GOSSAMER_UART
    bool cycle(Transfer& t) {
        if (send_left == 0 && send_count > 0) {
            send_bits >>= 1;
            --send_count;
            send_left = divisor;
        }
        if (send_left == 0 && t.taken < t.n_in) {
            send_bits = (0x100U | t.in[t.taken++]) << 1;  // start, eight data bits, stop
            send_count = 9;
            send_left = divisor;
        }
        top->rx = send_bits & 1;
        if (send_left > 0) --send_left;
        settle();
        const bool got = receive(t);
        edge();
        return got;
    }

    bool receive(Transfer& t) {
        if (receive_count == 0) {
            if (top->tx) return false;
            receive_count = 9;
            sample_left = divisor + divisor / 2;
        }
        if (--sample_left > 0) return false;
        sample_left = divisor;
        receive_bits = receive_bits >> 1 | static_cast<uint32_t>(top->tx) << 8;
        if (--receive_count > 0) return false;
        if (!(receive_bits & 0x100)) {
            ++framing_errors;
            return false;
        }
        t.out[t.produced++] = receive_bits & 0xFF;
        return true;
    }

    bool sending() const { return send_left > 0 || send_count > 0; }
    bool receiving() const { return receive_count > 0; }
#else
    bool cycle(Transfer& t) {
        const bool offered = t.taken < t.n_in;
        top->i___05Fvalid = offered;
        if (offered) top->i___05Fpayload = t.in[t.taken];
        top->o___05Fready = 1;
        settle();
        if (offered && top->i___05Fready) ++t.taken;
        const bool got = top->o___05Fvalid;
        if (got) t.out[t.produced++] = top->o___05Fpayload;
        edge();
        return got;
    }

    bool sending() const { return false; }
    bool receiving() const { return false; }
#endif

    uint64_t run(Transfer& t) {
        uint64_t quiet = 0, done = 0;
        const uint64_t pause = QUIET_CYCLES + 2 * divisor;
        while (done < t.max_cycles && t.produced < t.room) {
            quiet = cycle(t) ? 0 : quiet + 1;
            ++done;
            if (t.produced >= t.enough && quiet >= pause && !receiving()) break;
            if (t.until_taken && t.taken == t.n_in && !sending()) break;
        }
        return done;
    }
};

template <typename Array>
Memory memory(const char* name, Array& array, uint32_t width, uint64_t depth) {
    return {name, reinterpret_cast<uint8_t*>(&array), width, depth,
            static_cast<uint32_t>(sizeof(array) / depth)};
}

}  // namespace

// `waves`: file for waveforms, or null. Ignored by a library built without them.
EXPORT Engine* gossamer_create(uint64_t period_ps, uint64_t divisor, const char* waves) {
    return new Engine(period_ps, divisor, waves);
}

EXPORT void gossamer_destroy(Engine* engine) { delete engine; }

EXPORT uint64_t gossamer_run(Engine* engine, Transfer* transfer) { return engine->run(*transfer); }

EXPORT uint64_t gossamer_framing_errors(Engine* engine) { return engine->framing_errors; }

// The memory number `index`, or an entry without a name behind the last one.
EXPORT Memory gossamer_memory(Engine* engine, uint64_t index) {
    Vtop___024root& root = *engine->top->rootp;
    (void)root;
    const Memory all[] = {
#define MEMORY(name, member, width, depth) memory(name, root.member, width, depth),
#include "memories.inc"
        {nullptr, nullptr, 0, 0, 0}};
    const uint64_t count = sizeof(all) / sizeof(all[0]) - 1;
    return all[index < count ? index : count];
}
