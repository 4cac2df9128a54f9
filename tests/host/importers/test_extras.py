# SPDX-License-Identifier: BSD-2-Clause
import sys

import pytest
from gossamer.host.errors import ToolError
from gossamer.host.importers.extras import import_extra


def test_modules_that_are_there():
    assert import_extra("json", "this") is sys.modules["json"]
    assert import_extra("x", "this", "os.path") is sys.modules["os.path"]


def test_missing_module_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.fx", None)
    text = r"net\.pt needs the Python module torch, .*; pip install 'gossamer\[torch\]'"
    with pytest.raises(ToolError, match=text):
        import_extra("torch", "net.pt")
    with pytest.raises(ToolError, match=text):
        import_extra("torch", "net.pt", "torch.fx")
