# SPDX-License-Identifier: BSD-2-Clause
"""cocotb benches over the exported Verilog, and their runner."""
