# SPDX-License-Identifier: BSD-2-Clause
"""Networks of PyTorch modules compute what the modules compute; state dicts are read unexecuted."""

import numpy as np
import pytest
from gossamer.host.errors import FormatError, InputError
from gossamer.host.importers import from_torch, load_network

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
prune = pytest.importorskip("torch.nn.utils.prune")

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse", "ignore:.*jit", "ignore:Implicit dimension"
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def outputs(module, x):
    with torch.no_grad():
        return module.eval()(x).numpy()


def assert_same(module, network, width):
    x = torch.randn(30, width)
    y = outputs(module, x)
    assert np.abs(network.run(x.numpy()) - y).max() <= 1e-5 * np.abs(y).max()


def trained(*modules):
    """A Sequential whose batch normalizations have seen data."""
    module = nn.Sequential(*modules)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 3)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return module


def test_sequential():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False))
    network = from_torch(module)
    assert [layer.name for layer in network.layers] == ["0", "2"]
    assert [layer.activation for layer in network.layers] == ["relu", "none"]
    assert np.array_equal(network.layers[0].weight, module[0].weight.detach().numpy())
    assert not network.layers[1].bias.any()
    assert network.final == "none"
    assert network.notes == ()
    assert_same(module, network, 6)


@pytest.mark.parametrize(
    "parts",
    [
        (nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
        (nn.BatchNorm1d(6), nn.Linear(6, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 3)),
        (nn.Linear(6, 5), nn.ReLU(), nn.BatchNorm1d(5, affine=False)),
        (nn.Linear(6, 5), nn.ReLU6(), nn.Linear(5, 3), nn.Hardtanh(-0.3, 0.2)),
        (nn.Flatten(), nn.Linear(6, 5), nn.Dropout(0.9), nn.Identity(), nn.ReLU(), nn.Linear(5, 3)),
        (nn.Linear(6, 5), nn.Linear(5, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3))),
        (nn.Linear(6, 1),),
        (nn.Linear(6, 4), nn.Softmax(dim=1), nn.Dropout()),
        (nn.Linear(6, 4), nn.Sigmoid()),
    ],
    ids=lambda parts: "-".join(type(part).__name__ for part in parts),
)
def test_modules(parts):
    module = trained(*parts)
    assert_same(module, from_torch(module), 6)


class Functional(nn.Module):
    """The usual net of a tutorial, in functions and methods."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 9), nn.Linear(9, 8), nn.Linear(8, 4)
        self.register_buffer("fixed", torch.randn(8, 8))

    def forward(self, x):
        x = x.view(x.size(0), -1)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
        x = torch.clamp(self.fc2(x), min=-0.1, max=0.4)
        x = F.linear(x, self.fixed).relu_().reshape(-1, 8)
        return F.softmax(self.fc3(torch.flatten(x, 1)), dim=-1)


def test_functions_and_methods():
    module = Functional().train()
    network = from_torch(module)
    assert module.training
    assert module.fc1.training
    assert [layer.name for layer in network.layers] == ["fc1", "fc2", "linear", "fc3"]
    assert [layer.activation for layer in network.layers] == ["relu", "clip", "relu", "none"]
    assert network.final == "softmax"
    assert_same(module, network, 12)


def test_example_input_of_more_dimensions():
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(24, 3))

        def forward(self, x):
            return self.net(x)

    module, images = Images(), torch.randn(5, 2, 3, 4)
    network = from_torch(module, images)
    assert network.layers[0].name == "net.1"
    assert np.allclose(network.run(images.numpy().reshape(5, -1)), outputs(module, images), 1e-4)
    with pytest.raises(
        InputError, match=r"weights take 24 inputs, but a sample has shape \(5, 5\)"
    ):
        from_torch(nn.Sequential(nn.Linear(24, 3)), torch.randn(2, 5, 5))


def test_final_steps():
    class Best(nn.Module):
        def forward(self, x):
            return torch.argmax(x, dim=1)

    module = nn.Sequential(nn.Linear(6, 5), Best())
    network = from_torch(module)
    assert network.final == "argmax"
    x = torch.randn(40, 6)
    assert np.array_equal(network.run(x.numpy())[:, 0], outputs(module, x))
    module = nn.Sequential(nn.Linear(6, 5), nn.LogSoftmax(dim=1))
    network = from_torch(module)
    assert network.final == "softmax"
    assert "1: outputs are probabilities, not their logarithms" in network.notes
    assert np.allclose(np.log(network.run(x.numpy())), outputs(module, x), atol=1e-4)


def test_types():
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).to(dtype)
        weight = from_torch(module).layers[0].weight
        assert np.array_equal(weight, module[0].weight.detach().float().numpy())


def pruned_module():
    module = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4))
    prune.l1_unstructured(module[0], "weight", amount=0.8)
    prune.random_unstructured(module[0], "bias", amount=0.5)
    prune.ln_structured(module[2], "weight", amount=0.5, n=2, dim=1)
    return module


def removed(module):
    prune.remove(module[0], "weight")
    prune.remove(module[0], "bias")
    prune.remove(module[2], "weight")
    return module


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_leftovers_of_pruning_equal_their_removal(tmp_path, suffix):
    module = pruned_module()
    path = tmp_path / f"net{suffix}"
    torch.save(module.state_dict(), path)
    networks = from_torch(module), load_network(path)
    assert "mask applied, 120 of 600 weights kept" in networks[0].notes[0]
    assert "layer '0': mask applied, 120 of 600 weights kept" in networks[1].notes[0]
    with torch.no_grad():
        module[0].weight_orig.add_(1.0)  # the module's own product is now out of date
        torch.save(module.state_dict(), path)
    networks += (from_torch(module), load_network(path))
    stale = {name: value + 0 for name, value in removed(module).state_dict().items()}
    torch.save(stale, path)
    fresh = load_network(path)
    for network in networks[2:]:
        for layer, expected in zip(network.layers, fresh.layers, strict=True):
            assert np.array_equal(layer.weight, expected.weight)
            assert np.array_equal(layer.bias, expected.bias)


def test_one_layer_and_parametrized_weights():
    module = nn.Linear(6, 4)
    assert_same(module, from_torch(module), 6)
    prune.l1_unstructured(module, "weight", amount=0.5)
    with torch.no_grad():
        module.weight_orig.mul_(2.0)
    assert_same(module, from_torch(module), 6)
    module = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.ReLU())
    with torch.no_grad():
        module[0].parametrizations.weight.original0.mul_(3.0)
    assert_same(module, from_torch(module), 6)


def test_one_layer_used_twice():
    class Twice(Residual):
        def forward(self, x):
            return self.fc1(F.relu(self.fc1(x)))

    network = from_torch(Twice())
    assert [layer.name for layer in network.layers] == ["fc1", "fc1_2"]


def test_state_dict_order_masks_and_checkpoints(tmp_path):
    path, masks = tmp_path / "net.pt", tmp_path / "masks.pt"
    state = {"zeta.weight": torch.ones(3, 2), "zeta.bias": torch.ones(3), "b.weight": torch.eye(3)}
    torch.save(state, path)
    assert [layer.name for layer in load_network(path).layers] == ["zeta", "b"]
    torch.save({"zeta.weight": torch.tensor([[1, 0], [0, 1], [1, 1]])}, masks)
    layer = load_network(path, masks=masks).layers[0]
    assert layer.weight.tolist() == [[1, 0], [0, 1], [1, 1]]
    checkpoint = {"epoch": 3, "model": state, "optimizer": {"state": {0: {"step": torch.ones(1)}}}}
    torch.save(checkpoint, path)
    assert [layer.name for layer in load_network(path).layers] == ["zeta", "b"]
    torch.save({"model": state, "ema": state}, path)
    with pytest.raises(InputError, match=r"net\.pt: found state dicts model, ema, expected one"):
        load_network(path)
    for other in ({"epoch": 3}, [1, 2], torch.ones(2)):
        torch.save(other, path)
        with pytest.raises(
            InputError, match=r"found a \w+ without tensors, expected one state dict"
        ):
            load_network(path)


def test_sparse_tensors(tmp_path):
    path = tmp_path / "net.pt"
    dense = torch.randn(8, 12) * (torch.rand(8, 12) < 0.3)
    two_of_four = torch.randn(8, 12) * torch.tensor([1, 0, 0, 1]).repeat(8, 3)
    tensors = {
        "coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(),
        "uncoalesced": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (8, 12)),
    }  # fmt: skip
    for name, tensor in tensors.items():
        torch.save({"fc.weight": tensor, "fc.bias": torch.zeros(8)}, path)
        (layer,) = load_network(path).layers
        assert np.array_equal(layer.weight, tensor.to_dense().numpy()), name
    torch.save({"fc.weight": two_of_four}, path)
    assert np.array_equal(load_network(path).layers[0].weight, two_of_four.numpy())
    module = nn.Sequential(nn.Linear(12, 8))
    module[0].weight = nn.Parameter(dense.to_sparse_csr())
    assert np.array_equal(from_torch(module).layers[0].weight, dense.numpy())


def test_pickled_objects_are_never_loaded(tmp_path):
    path = tmp_path / "net.pt"
    for legacy in (False, True):
        module = nn.Sequential(nn.Linear(3, 2))
        torch.save(module, path, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(FormatError, match=r"net\.pt: holds pickled Python objects.*from_torch"):
            load_network(path)


def test_damaged_files_never_crash(tmp_path):
    path = tmp_path / "net.pt"
    rng = np.random.default_rng(0)
    failures = 0
    for legacy in (False, True):
        state = nn.Linear(3, 2).state_dict()
        torch.save({f"fc.{k}": v for k, v in state.items()}, path,
                   _use_new_zipfile_serialization=not legacy)  # fmt: skip
        whole = path.read_bytes()
        for content in (b"hello", b"PK\x03\x04" + bytes(40), whole[:300], whole[: len(whole) // 2]):
            path.write_bytes(content)
            with pytest.raises(FormatError, match=r"net\.pt: (not a whole file|holds pickled)"):
                load_network(path)
        for _ in range(150):
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            try:
                load_network(path)
            except (FormatError, InputError):
                failures += 1
    assert failures > 60
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="the file is empty"):
        load_network(path)


def test_batch_normalization_in_a_state_dict(tmp_path):
    path = tmp_path / "net.pt"
    torch.save(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).state_dict(), path)
    with pytest.raises(
        InputError, match=r"'1' is a batch normalization.*hand the module to from_t"
    ):
        load_network(path)


def test_what_is_unsupported_is_listed_all_at_once():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 4), nn.GELU())
    with pytest.raises(InputError, match="cannot import 3 steps of the module's forward") as caught:
        from_torch(module)
    text = str(caught.value)
    assert "0 (Conv2d): only fully connected layers run on the engine" in text
    assert "1 (Tanh): train with ReLU" in text
    assert "4 (GELU): train with ReLU" in text


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.fc2(self.fc1(x)) + x


class TwoInputs(Residual):
    def forward(self, x, y):
        return self.fc1(x) + self.fc2(y)


class Branch(Residual):
    def forward(self, x):
        first = F.relu(self.fc1(x))
        self.fc2(first)
        return first


class Decides(Residual):
    def forward(self, x):
        return self.fc1(x) if x.sum() > 0 else self.fc2(x)


class AlwaysDrops(Residual):
    def forward(self, x):
        return F.dropout(self.fc1(x))


class Views(Residual):
    def forward(self, x):
        return self.fc1(x.view(2, 2, -1))


def hooked():
    module = nn.Sequential(nn.Linear(4, 4))
    module.register_forward_hook(lambda module, x, y: y + 1)
    return module


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Linear(3, 2).state_dict(), "module is a OrderedDict, expected a torch.nn.Module"),
        (Residual(), r"cannot import 1 steps .* add \(add\): leave it out"),
        (TwoInputs(), "y: a second input; expected one"),
        (Branch(), "output: not the last result alone"),
        (Decides(), "forward of Decides cannot be traced .* without decisions"),
        (AlwaysDrops(), "dropout drops features at all times.*training=self.training"),
        (Views(), r"view makes a tensor of 3 dimensions, expected \(batch, features\)"),
        (hooked(), "the network differs from Sequential by up to 1.*in hooks"),
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(1), nn.Linear(2, 2)), "2 follows softmax"),
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(0)), "1 works along dimension 0, expected 1"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(4, 2)), "0 flattens dimensions 0 to -1"),
        (nn.Tanh(), r"0 \(Tanh\): train with ReLU"),
        (nn.DataParallel(nn.Linear(4, 2)), r"0 \(DataParallel\): leave it out"),
        (nn.Sequential(nn.LSTM(4, 4)), r"0 \(LSTM\): the engine runs layers one after the other"),
        (nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)), r"1 \(LayerNorm\): .*BatchNorm1d"),
        (
            nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False)),
            "1 normalizes by the statistics of each batch.*track_running_stats=True",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_modules_that_are_no_chain_of_layers(module, text):
    with pytest.raises(InputError, match=text):
        from_torch(module)


def test_an_example_the_module_does_not_take():
    text = r"Sequential fails on inputs of shape \(3, 4\) .* hand over an example_input"
    with pytest.raises(InputError, match=text):
        from_torch(nn.Sequential(nn.Linear(4, 2)), torch.ones(3, 4, dtype=torch.int64))
