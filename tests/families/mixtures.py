"""A mixture of experts beside transformers': who was chosen, with what weight, and what may differ in 16 bits."""

from typing import Any

import torch
from against import (
    EXACT,
    _copy_as,
    check_family,
    gap,
    ids_for,
    patterns,
    random_reference,
    run_reference,
    saved,
    states,
)
from torch import Tensor

from engine import Model, Trace, load_model, trace

SIXTEEN_BITS = 0.25
"""bfloat16 beside bfloat16: more roundings than elsewhere, of which transformers' own are the larger part."""


def routers(reference: Any) -> dict[int, Any]:
    """transformers' router of each layer that has one."""
    found = {
        i: getattr(layer.mlp, "gate", getattr(layer.mlp, "router", None))
        for i, layer in enumerate(reference.model.layers)
    }
    return {i: router for i, router in found.items() if router is not None}


@torch.no_grad()
def assert_same_choices(t: Trace, reference: Any) -> None:
    """transformers' routers, given what ours read, choose the same experts with the same weights.

    Their scores are the model's dtype, and equal; their weights are float32, and so are also taken here anew.
    """
    gates = routers(reference)
    assert list(gates) == [layer for layer in range(t.config.n_layers) if t.config.is_sparse(layer)]
    for layer, gate in gates.items():
        at = f"blocks.{layer}"
        scores, weights, chosen = gate(t[f"{at}.ln2.normalized"].flatten(0, 1))
        ours = [t[f"{at}.mlp.{site}"].flatten(0, 1) for site in ("router", "expert_indices", "expert_weights")]
        assert gap(ours[0], scores) <= EXACT
        assert torch.equal(ours[1], chosen)
        assert gap(ours[2], weights) <= 1e-6
        exact = scores.softmax(-1).gather(-1, chosen)  # [position choice]
        assert gap(ours[2], exact / exact.sum(-1, keepdim=True) if t.config.experts.normalised else exact) <= EXACT


def assert_close_in_bfloat16_where_the_same_experts_ran(folder: Any, reference: Any, ids: list[int]) -> None:
    """16-bit router scores can be as good as equal, and another expert is another answer: up to there all is close."""
    t = trace(load_model(folder, device="cpu", dtype="bfloat16"), ids)
    theirs = _copy_as(reference, torch.bfloat16)
    heard: dict[int, tuple[Tensor, ...]] = {}
    hooks = [
        gate.register_forward_hook(lambda _, __, out, layer=layer: heard.update({layer: out}))
        for layer, gate in routers(theirs).items()
    ]
    out = run_reference(theirs, ids)
    for hook in hooks:
        hook.remove()
    for layer in range(t.config.n_layers):
        assert gap(states(t)[layer], out.hidden_states[layer]) <= SIXTEEN_BITS
        assert gap(patterns(t)[layer], out.attentions[layer]) <= SIXTEEN_BITS
        if layer in heard:
            scores, _, chosen = heard[layer]
            ours = t[f"blocks.{layer}.mlp.expert_indices"].flatten(0, 1)
            if not torch.equal(ours.sort().values, chosen.sort().values):
                assert_as_good_as_equal(scores.float(), ours, chosen)
                return
    assert gap(t["logits"], out.logits) <= SIXTEEN_BITS


def assert_as_good_as_equal(scores: Tensor, ours: Tensor, theirs: Tensor) -> None:
    """The worst that we chose is about as good as the worst that they chose."""
    worst = [scores.gather(-1, chosen).amin(-1) for chosen in (ours, theirs)]  # [position]
    assert gap(*worst) <= SIXTEEN_BITS


def check_mixture(config: Any, seed: int, dtype: torch.dtype, positions: list[int] | None) -> Model:
    """``check_family``, with the routers, and with the bfloat16 of a mixture."""
    config._experts_implementation = "eager"  # the others have no float64
    model = check_family(config, seed=seed, dtype=dtype, positions=positions, bfloat16=float("inf"))
    reference, ids = random_reference(config, seed=seed), ids_for(config, 9, seed)
    assert_same_choices(trace(model, ids), reference)
    with saved(reference, dtype) as folder:
        assert_close_in_bfloat16_where_the_same_experts_ran(folder, reference, ids)
    return model


def assert_experts_in_one_tensor_are_the_same(config: Any) -> None:
    """Both layouts that transformers writes: a tensor for each expert, as published, and one for all."""
    reference = random_reference(config).float()
    with saved(reference) as folder:
        apart = {name: weight.clone() for name, weight in load_model(folder).weights.items()}
        reference.save_pretrained(folder, save_original_format=False)
        together = load_model(folder).weights
        assert apart.keys() == together.keys()
        assert all(torch.equal(apart[name], together[name]) for name in apart)
