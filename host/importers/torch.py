# SPDX-License-Identifier: BSD-2-Clause
"""Networks from PyTorch modules: traced by torch.fx, folded into layers, compared with the module.

The forward method has to be a chain: each step takes the result of the one before and constants.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import InputError
from ..network import Network
from .chain import Chain
from .extras import import_extra
from .torch_operators import ADVICE, DEFAULT_ADVICE, HARMLESS, OPERATORS, Call

__all__ = ["from_torch"]

TOLERANCE = 1e-4
"""Largest difference between network and module, of the largest output."""
SAMPLES = 4
LOGARITHMS = ("LogSoftmax", "log_softmax")
SIZES = ("size", "getattr", "getitem", "dim")
"""What reads shapes only."""


def from_torch(module: Any, example_input: Any = None) -> Network:
    """Turn a module into a network, as it computes in evaluation mode.

    Linear layers with ReLU, ReLU6, Hardtanh or clamp between, BatchNorm1d (folded into weights),
    Dropout, Flatten and the like; at the end also Softmax, Sigmoid or argmax. Modules, functions
    and methods will do. Leftovers of `torch.nn.utils.prune` are applied, sparse weights are read.
    The network's outputs are compared with the module's on the example or on random inputs.

    Parameters
    ----------
    module : torch.nn.Module
        Not changed.
    example_input : tensor (n, ...), optional
        Needed where a sample is no plain vector; the network takes its elements in order.

    Raises
    ------
    InputError
        The forward is no chain, has parts that cannot be imported (all are listed, with what to
        do), fails on the input, or computes something else than the network.
    ToolError
        PyTorch is not installed.
    """
    torch = import_extra("torch", "from_torch")
    fx = import_extra("torch", "from_torch", "torch.fx")
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"module is a {type(module).__name__}, expected a torch.nn.Module; a file of a state "
            "dict is read by load_network"
        )
    bare = fx.Tracer().is_leaf_module(module, "")  # which is traced as a part only
    with _evaluating(module), torch.no_grad():
        try:
            traced = fx.symbolic_trace(torch.nn.Sequential(module) if bare else module)
        except Exception as error:  # whatever the module's forward makes of a symbol
            raise InputError(
                f"forward of {type(module).__name__} cannot be traced ({error}); expected a chain "
                "of layers, without decisions that depend on values"
            ) from None
        steps = _chain_of(traced)
        shape = None if example_input is None else tuple(example_input.shape[1:])
        chain = Chain(shape)
        for operator, call in steps:
            if chain.final != "none" and operator not in HARMLESS:
                raise InputError(
                    f"{call.name} follows {chain.final}, expected nothing after it; leave out one"
                )
            OPERATORS[operator](chain, call)
        network = chain.finish()
        _compare(torch, module, network, example_input, any(o in LOGARITHMS for o, _ in steps))
    return network


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode for a while."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _chain_of(traced: Any) -> list[tuple[str, Call]]:
    """Operators in order, from input to output."""
    steps: list[tuple[str, Call]] = []
    problems: list[str] = []
    constants: dict[Any, Any] = {}
    sizes: set[Any] = set()
    current = None
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if current is not None and node.users:
                problems.append(f"{node.name}: a second input; expected one")
            current = current or node
        elif node.op == "get_attr":
            constants[node] = _attribute(traced, node.target)
        elif node.op == "output":
            if node.args[0] is not current:
                problems.append("output: not the last result alone; return that only")
        elif _kind(traced, node) in SIZES:
            sizes.add(node)
        else:
            operator, module = _kind(traced, node), None
            if node.op == "call_module":
                module = traced.get_submodule(node.target)
            name = str(node.target if module is not None else node.name)
            inputs = [n for n in node.all_input_nodes if n not in constants and n not in sizes]
            if operator not in OPERATORS:
                problems.append(f"{name} ({operator}): {ADVICE.get(operator, DEFAULT_ADVICE)}")
            elif inputs != [current] or node.args[:1] != (current,):
                problems.append(
                    f"{name} ({operator}): takes more than the result before it; "
                    "only a chain of layers can be imported"
                )
            else:
                arguments = tuple(_plain(one, constants) for one in node.args[1:])
                keywords = {key: _plain(one, constants) for key, one in node.kwargs.items()}
                steps.append((operator, Call(name, module, arguments, keywords)))
            current = node
    if problems:
        raise InputError(
            f"cannot import {len(problems)} steps of the module's forward: {'; '.join(problems)}"
        )
    return steps


def _kind(traced: Any, node: Any) -> str:
    """Name of the operator: class of a module of PyTorch, name of a function or method."""
    if node.op != "call_module":
        return node.target if isinstance(node.target, str) else node.target.__name__
    classes = type(traced.get_submodule(node.target)).__mro__
    if not classes[0].__module__.startswith("torch.nn."):  # e.g. torch.ao, with rounding of its own
        return f"{classes[0].__module__}.{classes[0].__name__}"
    names = [one.__name__ for one in classes]
    return next((name for name in names if name in OPERATORS or name in ADVICE), names[0])


def _attribute(traced: Any, target: str) -> Any:
    value = traced
    for name in target.split("."):
        value = getattr(value, name)
    return value


def _plain(argument: Any, constants: dict[Any, Any]) -> Any:
    """An argument, or the constant for which it stands."""
    return next((value for node, value in constants.items() if node is argument), argument)


def _compare(torch: Any, module: Any, network: Network, example: Any, logarithms: bool) -> None:
    """Check that network and module compute the same."""
    if example is None:
        first = next(iter(module.parameters()), torch.zeros(1))
        generator = torch.Generator().manual_seed(0)
        example = torch.randn(SAMPLES, network.n_inputs, generator=generator)
        example = example.to(first.device, first.dtype)
    try:
        result = module(example)
    except Exception as error:  # whatever is wrong with the shape or type of the input
        raise InputError(
            f"{type(module).__name__} fails on inputs of shape {tuple(example.shape)} ({error}); "
            "hand over an example_input that it takes"
        ) from None
    rounding = torch.finfo(result.dtype).eps if result.is_floating_point() else 0.0
    expected = result.double().cpu().numpy().reshape(len(example), -1)
    expected = np.exp(expected) if logarithms else expected
    found = network.run(example.float().cpu().numpy().reshape(len(example), -1))
    error = float(np.abs(found - expected).max())
    allowed = max(TOLERANCE, 8 * rounding) * float(np.abs(expected).max())
    if error > allowed:
        raise InputError(
            f"the network differs from {type(module).__name__} by up to {error:.3g} (allowed "
            f"{allowed:.3g}): its forward does more than its layers, e.g. in hooks; write it as a "
            "chain of layers"
        )
