import pytest
import torch

from day0.coverage import load_whitelist
from day0.errors import InputError
from day0.operators import OPERATORS
from day0.runtime.ops import registry
from day0.runtime.ops.registry import KERNELS, REFERENCE, TRITON, Kernel, accelerator_name, choose_operators

CPU = torch.device("cpu")


def test_every_kernel_is_of_an_operator_with_a_contract():
    assert KERNELS.keys() <= OPERATORS.keys()


def test_every_operator_ends_with_its_reference_and_no_provider_comes_twice():
    for name, kernels in KERNELS.items():
        assert kernels[-1].provider == REFERENCE, name
        assert kernels[-1].unmet(CPU, torch.float32) is None
        assert len({kernel.provider for kernel in kernels}) == len(kernels)


def test_unverified_kernels_are_passed_over_with_a_reason():
    choices = {choice.operator: choice for choice in choose_operators(CPU, torch.float32).choices}
    assert choices.keys() == KERNELS.keys()
    assert {choice.provider for choice in choices.values()} == {REFERENCE}
    assert choices["kda_chunk"].rejected == (("day0-chunked", "not verified on cpu"),)
    assert choices["l2_norm"].rejected == ()


def test_a_verified_kernel_is_preferred():
    ops = choose_operators(CPU, torch.float32, verified=[("kda_chunk", "day0-chunked"), ("l2_norm", "day0-chunked")])
    chosen = {choice.operator: choice.provider for choice in ops.choices}
    assert chosen["kda_chunk"] == "day0-chunked"
    assert chosen["paged_gqa_attention"] == REFERENCE
    assert ops["kda_chunk"] is KERNELS["kda_chunk"][0].function


def test_what_an_accelerator_calls_itself_leads_to_its_evidence(monkeypatch):
    class Properties:
        name = "NVIDIA H200"

    class Module:
        get_device_properties = staticmethod(lambda device: Properties)

    assert accelerator_name(CPU) == "cpu"
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module)
    verified = load_whitelist().verified_on(accelerator_name(torch.device("cuda", 0)))
    ops = choose_operators(torch.device("cuda", 0), torch.bfloat16, verified)
    chosen = {choice.operator: choice.provider for choice in ops.choices}
    assert {name for name, provider in verified if provider == TRITON and chosen[name] == TRITON} >= {
        "rms_norm", "kda_recurrent", "paged_mla_attention", "lightning_indexer_topk"
    }  # fmt: skip


def test_a_kernel_whose_needs_are_not_met_gives_its_reason(monkeypatch):
    picky = Kernel("picky", lambda *a: None, lambda device, dtype: "needs an accelerator")
    monkeypatch.setattr(registry, "KERNELS", {"l2_norm": (picky, KERNELS["l2_norm"][0])})
    choice = choose_operators(CPU, torch.float32, verified=[("l2_norm", "picky")]).choices[0]
    assert (choice.provider, choice.rejected) == (REFERENCE, (("picky", "needs an accelerator"),))
    with pytest.raises(InputError, match="cannot run here: needs an accelerator"):
        choose_operators(CPU, torch.float32, forced={"l2_norm": "picky"})


def test_a_forced_kernel_runs_without_evidence():
    ops = choose_operators(CPU, torch.float32, forced={"paged_gqa_attention": "torch-sdpa"})
    assert ops["paged_gqa_attention"] is KERNELS["paged_gqa_attention"][0].function


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="has no provider 'triton'") as caught:
        choose_operators(CPU, torch.float32, forced={"l2_norm": "triton"})
    assert REFERENCE in caught.value.hint
    with pytest.raises(InputError, match="no operator is called 'rmsnorm'"):
        choose_operators(CPU, torch.float32, forced={"rmsnorm": REFERENCE})


def test_replaced_is_a_copy():
    ops = choose_operators(CPU, torch.float32)
    other = ops.replaced("l2_norm", print)
    assert other["l2_norm"] is print
    assert ops["l2_norm"] is KERNELS["l2_norm"][0].function
    assert other["linear"] is ops["linear"]
    with pytest.raises(AssertionError, match="no operator"):
        ops.replaced("rmsnorm", print)


def test_a_form_that_moves_states_in_their_pool_goes_with_its_kernel(monkeypatch):
    moving = Kernel("moving", lambda *a: None, in_place=print)
    monkeypatch.setattr(registry, "KERNELS", {"kda_recurrent": (moving, KERNELS["kda_recurrent"][-1])})
    ops = choose_operators(CPU, torch.float32, verified=[("kda_recurrent", "moving")])
    assert ops.in_place == {"kda_recurrent": print}
    assert ops.replaced("kda_recurrent", print).in_place == {}
    assert choose_operators(CPU, torch.float32).in_place == {}


def test_triton_kernels_are_for_devices_that_triton_compiles_for():
    with pytest.raises(InputError, match="needs a device that Triton compiles for"):
        choose_operators(CPU, torch.float32, forced={"kda_recurrent": TRITON})
