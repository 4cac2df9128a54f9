# SPDX-License-Identifier: BSD-2-Clause
"""Imported ONNX models on the simulated RTL: a sample of onnx's node tests, golden's integers."""

import numpy as np
import pytest
from gossamer.host.compression.compress import compress
from gossamer.host.importers import load_network
from gossamer.host.session import Session
from onnx_nodes import node_tests, write_test

SAMPLE = (
    "test_gemm_all_attributes", "test_gemm_transposeA", "test_matmul_2d", "test_batchnorm_example",
    "test_clip", "test_relu", "test_softmax_example", "test_argmax_keepdims_example",
    "test_quantizelinear", "test_dequantizelinear_int4",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.xdist_group("default-engine")
def test_sample_of_node_tests(tmp_path):
    for name in SAMPLE:
        test = node_tests()[name]
        model = compress(load_network(write_test(test, tmp_path)), None, test.samples())
        with Session(model) as golden, Session(model, "sim") as simulated:
            q = golden.quantize(test.samples())
            assert np.array_equal(simulated.run_quantized(q), golden.run_quantized(q)), name
            assert np.array_equal(simulated.run(test.samples()), golden.run(test.samples())), name
