# SPDX-License-Identifier: BSD-2-Clause
"""From a compressed model to integers, and to the image that an engine of some config loads."""
