"""Between the layers of a decoder, by hooks: the model's own forward runs, whatever its architecture does around them.

Hidden states are the outputs of the layers themselves. (`hidden_states[-1]` of a Hugging Face model is after the final
norm in some families, which would be another quantity than the rows before it.)

Legend: B rows of the batch, T tokens, D width, K layers, Q chosen places of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from openbook.base.errors import InputError
from openbook.training.models import examined
from openbook.training.targets import gathered


def decoder_layers(model: Any) -> list[nn.Module]:
    """The layers of a causal LM: the outermost module list that is as long as its config says."""
    shape = getattr(model, "config", None)
    count = getattr(shape.get_text_config(), "num_hidden_layers", None) if shape is not None else None
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise InputError(f"{type(model).__name__} has no list of {count} layers: probes need a decoder that keeps one")


def tensor_of(output: Any) -> Tensor:
    """The hidden states in what a layer returns: some return a tensor, some a tuple that starts with it."""
    return output if isinstance(output, Tensor) else output[0]


def with_tensor(output: Any, hidden: Tensor) -> Any:
    """The same output with other hidden states."""
    return hidden if isinstance(output, Tensor) else (hidden, *output[1:])


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states that a layer is called with."""
    return args[0] if args else kwargs["hidden_states"]


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """No dropout and no gradients within; afterwards every model is in the mode in which it was."""
    with torch.inference_mode(), ExitStack() as modes:
        for model in models:
            modes.enter_context(examined(model))
        yield


@contextmanager
def recorded(layers: Sequence[nn.Module], keep: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
    """Collects `keep(states)` of the input of the first layer and of the output of every layer: K + 1 tensors."""
    states: list[Tensor] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(keep(hidden_of(args, kwargs)))

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        states.append(keep(tensor_of(output)))

    with ExitStack() as hooks:
        handles = [layers[0].register_forward_pre_hook(before, with_kwargs=True)]
        handles += [layer.register_forward_hook(after) for layer in layers]
        for handle in handles:
            hooks.callback(handle.remove)
        yield states


def states_at(model: Any, ids: Tensor, places: Tensor) -> Tensor:
    """The embedding and every layer's output at chosen places: [K + 1, B, Q, D], in float32.

    Rows are padded on the right, which needs no mask in a causal model. `places` [B, Q] are numbers of tokens.
    """
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    with recorded(decoder_layers(model), lambda hidden: hidden[rows, places].float()) as states:
        model(input_ids=ids, use_cache=False)
    return torch.stack(states)


def lens_at(model: Any, ids: Tensor, places: Tensor) -> Tensor:
    """The logit lens: what the model's own norm and head make of every layer's output: [K, B, Q, vocabulary].

    The last layer hands on the outputs of all layers instead of its own, so that one forward pass gives them all.
    """
    layers = decoder_layers(model)
    outputs: list[Tensor] = []

    def collect(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        outputs.append(tensor_of(output))
        return with_tensor(output, torch.cat(outputs)) if len(outputs) == len(layers) else None

    rows = torch.arange(len(layers) * len(ids), device=ids.device)[:, None]
    index = (rows * ids.shape[1] + places.repeat(len(layers), 1)).reshape(-1)
    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(collect).remove)
        hooks.enter_context(gathered(model, index))
        logits = model(input_ids=ids, use_cache=False).logits[0]
    return logits.reshape(len(layers), *places.shape, -1)
