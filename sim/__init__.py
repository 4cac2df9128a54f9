# SPDX-License-Identifier: BSD-2-Clause
"""Simulation: the Verilator-compiled board and the cocotb benches."""
