"""The suite finds what only two settings together bring out, and says which two, which prompt, which tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from day0.checklist import probe_faults_roads as faults
from day0.checklist.checklist import Measured
from day0.checklist.probe_invariance import SCOPES, Scope, invariance
from day0.checklist.target import CheckContext
from day0.errors import InputError

Contexts = Callable[[str], CheckContext]


def run(monkeypatch: pytest.MonkeyPatch, context: CheckContext, **axes: tuple[object, ...]) -> Measured:
    """The suite over these axes alone, few prompts."""
    monkeypatch.setitem(SCOPES, "own", Scope(axes, 40, 6, (1,), sweep=False))  # type: ignore[arg-type]
    found = invariance(context, scope="own", max_tokens=4)
    assert isinstance(found, Measured)
    return found


def test_a_chunk_that_reads_the_page_before(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.page_before(llama) as broken:
        found = run(monkeypatch, broken, chunk=(0, 7), batch=(1, 3))
    assert found.values["settings"] == {"chunk": 7}
    assert found.where is not None and found.where.tensor == "layers.0.mixer.attention"
    # Chunks of 7 begin inside the second page for the first time at token 21, and a chunk of one token is decoding.
    assert found.where.length == 23


def test_a_preempted_sequence_that_comes_back_elsewhere(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.restart_off_by_one(llama) as broken:
        found = run(monkeypatch, broken, room=("ample", "tight"), batch=(1, 3))
    assert found.values["settings"] == {"room": "tight"}
    assert found.where is not None and found.where.layer == 0


def test_a_prefix_with_another_page(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.other_page(llama) as broken:
        found = run(monkeypatch, broken, prefix=("cold", "warm"), order=("listed", "reversed"))
    assert found.values["settings"] == {"prefix": "warm"}
    assert "prefix warm" in found.message


@pytest.mark.slow
def test_a_state_kept_after_an_abort(kimi_k3: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.state_kept(kimi_k3) as broken:
        found = run(monkeypatch, broken, memory=("fresh", "reused"))
    assert found.values["settings"] == {"memory": "reused"}
    assert found.where is not None and found.where.operator == "kda"


@pytest.mark.slow
def test_a_prefix_with_another_snapshot(kimi_k3: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.other_snapshot(kimi_k3) as broken:
        found = run(monkeypatch, broken, prefix=("cold", "warm"))
    assert found.values["settings"] == {"prefix": "warm"}
    assert found.where is not None and found.where.operator == "kda"


@pytest.mark.slow
def test_a_sound_model_passes_on_every_road(kimi_k3: CheckContext) -> None:
    found = invariance(kimi_k3, scope="short", budget_s=600)
    assert isinstance(found, Measured)
    assert found.values["different"] == 0 and found.values["roads_not_run"] == 0, found.message
    assert found.values["error_over_tolerance"] < 1.0
    assert {"ranks tp"} >= set(found.values["left_out"])


def test_what_this_machine_cannot_have_is_told(llama: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, llama, weights=("resident", "host", "disk"))
    assert found.values["left_out"] == {"weights host": "the device is the host already"}
    assert found.values["roads"] == 1 and found.values["different"] == 0


def test_names_that_are_not_known_are_refused(llama: CheckContext) -> None:
    with pytest.raises(InputError, match="no scope 'long'"):
        invariance(llama, scope="long")
    with pytest.raises(InputError, match="no axis 'weather'"):
        invariance(llama, axes=["weather"])
