# SPDX-License-Identifier: BSD-2-Clause
"""An engine behind a port: ports, link, images sent, inference."""
