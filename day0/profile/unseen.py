"""A model_type that no table has: which known family its config and tensors fit, and how well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from day0.errors import CannotSay, Finding, InputError
from day0.profile.families.family import Family
from day0.profile.families.table import FAMILIES
from day0.profile.likeness import Likeness
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensor_patterns import patterns_of
from day0.profile.tensors import TensorComparison, compare_tensors
from day0.source.model_files import ModelFiles

ReadAs = Callable[[Family], ArchitectureProfile]
"""Reads the config at hand with a family's table; raises InputError where that is impossible."""

_TRIED = 0.7
"""Families are tried that know this share of the names that the best one knows."""
_COMPARED = 4
"""Of these, the families whose tensors are compared one by one."""
_MANY_TENSORS = 50_000
_LIKE = 0.3
"""Less than this share of the names in common is no likeness."""
_LEAVES = (
    *("weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "input_scale"),
    *("input_global_scale", "weight_shape", "weight_zero_point", "weight_g_idx", "weight_blocks", "weight_scales"),
    *("qweight", "qzeros", "scales", "g_idx", "scale", "activation_scale", "pre_quant_scale"),
)
"""What packing makes of a leaf "weight"."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Fit:
    """How one family fits. `share` is that of the stored names it knows; `failure` why its reader gave up."""

    family: Family
    share: float
    named_alike: float
    profile: ArchitectureProfile | None = None
    failure: str = ""
    comparison: TensorComparison | None = None

    @property
    def complete(self) -> bool:
        """All that the family asks for is there, as it asks for it."""
        compared = self.comparison
        return compared is None or (not compared.missing and not any(f.severity == "error" for f in compared.findings))

    @property
    def whole(self) -> bool:
        """Nothing is left over either."""
        left_over = self.comparison is not None and self.comparison.unexpected
        return self.profile is not None and self.complete and not left_over and not self.profile.unused_config_keys

    @property
    def rank(self) -> tuple[float, ...]:
        """Larger is nearer: readable, complete, little left over; of equals what our runtime has, then few defaults."""
        if self.profile is None:
            return (0, self.share, self.named_alike)
        missing = len(self.comparison.missing) if self.comparison else 0
        unexpected = len(self.comparison.unexpected) if self.comparison else 0
        unused, assumed = len(self.profile.unused_config_keys), len(self.profile.defaulted_config_keys)
        compared = self.comparison is not None
        left_over = (-missing, -unexpected, self.share, -unused)
        return (1, compared, self.complete, *left_over, self.named_alike, self.family.native, -assumed)


def read_unseen(
    files: ModelFiles, model_type: str, architectures: Sequence[str], read_as: ReadAs
) -> tuple[ArchitectureProfile | None, Likeness | None]:
    """The profile by the table of the nearest family where all that it asks for is there, and that family.

    None, None where no family resembles the model at all.
    """
    fits = _candidates(files, model_type, architectures)
    fits = sorted((_read(fit, read_as) for fit in fits), key=lambda fit: fit.rank, reverse=True)
    if files.tensors is not None:
        fits = _compare(fits, files)
    if not fits:
        return None, None
    best = fits[0]
    readable = best.profile is not None and best.complete and _says_enough(best, files)
    others = tuple(
        fit.family.name
        for fit in fits[1:]
        if readable and fit.profile is not None and fit.rank[:7] == best.rank[:7] and _differ(fit.profile, best.profile)
    )
    likeness = Likeness(
        best.family.name,
        read=readable,
        whole=readable and best.whole and best.comparison is not None,
        agrees=tuple(_agreements(best, files)),
        differs=tuple(_differences(best, files)),
        others=others[:_SHOWN],
    )
    if not readable or best.profile is None:
        return None, likeness if best.profile is not None or best.share >= _LIKE or best.named_alike else None
    profile = replace(
        best.profile,
        native=best.profile.native and likeness.whole,
        likeness=likeness,
        findings=(*best.profile.findings, unseen_finding(files, model_type, likeness)),
    )
    return profile, likeness


def unseen_finding(files: ModelFiles, model_type: str, likeness: Likeness | None) -> Finding:
    """What became of a model_type that is in no table."""
    where = f"{files.config_name}: model_type"
    unknown = f"no family table has model_type {model_type!r}"
    if likeness is None:
        known = f"known families: {', '.join(FAMILIES)}"
        return Finding("unknown-family", "error", where, f"{unknown}, and none resembles it", known)
    others = f"; {', '.join(likeness.others)} would fit as well, with other layers" if likeness.others else ""
    if likeness.whole:
        text = f"{unknown}; read as {likeness.family}: {', '.join(likeness.agrees)}{others}"
        return Finding("read-as-family", "warning", where, text, "what tensors do not show is assumed")
    sentences = "; ".join([*likeness.agrees, *likeness.differs])
    if likeness.read:
        return Finding("unknown-family", "error", where, f"{unknown}; read as {likeness.family}: {sentences}{others}")
    return Finding("unknown-family", "error", where, f"{unknown}; the nearest is {likeness.family}: {sentences}")


def _candidates(files: ModelFiles, model_type: str, architectures: Sequence[str]) -> list[_Fit]:
    """The families by how many of the stored names they know; all of them where there are no headers."""
    stored = _stems(patterns_of(list(files.tensors))) if files.tensors is not None else frozenset()
    fits = []
    for family in FAMILIES.values():
        known = _stems(name.replace("{l}", "0").replace("{expert}", "0") for name in family.names.values())
        share = len(stored & known) / len(stored) if stored else 0.0
        fits.append(_Fit(family, share, _named_alike(family, model_type, architectures)))
    if files.tensors is None:
        return fits
    nearest = max((fit.share for fit in fits), default=0.0)
    return [fit for fit in fits if fit.share >= nearest * _TRIED]


def _stems(names: Iterable[str]) -> frozenset[str]:
    """Names inside a layer, whatever the outer prefix and number; packed leaves as the plain ones."""
    stems = set()
    for name in names:
        _, found, inside = name.replace(".0.", ".*.").partition("layers.*.")
        stem, _, leaf = (inside if found else name).rpartition(".")
        stems.add(f"{stem}.weight" if leaf in _LEAVES else f"{stem}.{leaf}" if stem else leaf)
    return frozenset(stems)


def _named_alike(family: Family, model_type: str, architectures: Sequence[str]) -> float:
    """From 0 to 2: a known architecture counts most, then a model type spelled almost alike."""
    import difflib  # for unknown models only

    same_class = 1.0 if set(architectures) & set(family.architectures) else 0.0
    close = difflib.get_close_matches(model_type, family.model_types, n=1, cutoff=0.6) if model_type else []
    ratio = difflib.SequenceMatcher(None, model_type, close[0]).ratio() if close else 0.0
    return same_class + ratio


def _read(fit: _Fit, read_as: ReadAs) -> _Fit:
    try:
        return replace(fit, profile=read_as(fit.family))
    except (InputError, CannotSay) as error:
        return replace(fit, failure=str(error))
    except ArithmeticError as error:  # sizes of another family may divide by nothing here
        return replace(fit, failure=f"sizes that it cannot work with ({error})")


def _compare(fits: Sequence[_Fit], files: ModelFiles) -> list[_Fit]:
    """The nearest few compared tensor by tensor, nearest first; of a very large model only until one fits."""
    compared: list[_Fit] = []
    assert files.tensors is not None
    for fit in fits:
        enough = len(files.tensors) > _MANY_TENSORS and any(done.complete for done in compared)
        if fit.profile is not None and len(compared) < _COMPARED and not enough:
            compared.append(replace(fit, comparison=compare_tensors(fit.profile, files)))
    rest = [fit for fit in fits if all(fit.family is not done.family for done in compared)]
    return sorted([*compared, *rest], key=lambda fit: fit.rank, reverse=True)


def _says_enough(fit: _Fit, files: ModelFiles) -> bool:
    """Whether the config's own keys are mostly those of the family: without headers nothing else speaks for it."""
    assert fit.profile is not None
    if files.tensors is not None:
        return fit.comparison is not None
    return len(fit.profile.unused_config_keys) * 2 <= len(files.config)


def _differ(one: ArchitectureProfile, other: ArchitectureProfile | None) -> bool:
    return other is not None and (one.layers, one.ends, one.norm_kind) != (other.layers, other.ends, other.norm_kind)


def _agreements(fit: _Fit, files: ModelFiles) -> Iterable[str]:
    if fit.profile is None:
        if fit.share:
            yield f"{fit.share:.0%} of the patterns of tensor names are its own"
        return
    yield f"its config keys describe {fit.profile.num_layers} layers"
    if fit.comparison is not None and files.tensors is not None:
        left_over = len(fit.comparison.unexpected)
        yield f"{len(files.tensors) - left_over:,} of {len(files.tensors):,} tensors are those it asks for"


def _differences(fit: _Fit, files: ModelFiles) -> Iterable[str]:
    if fit.failure:
        yield f"its reader refuses the config ({fit.failure})"
    if fit.profile is None:
        return
    if files.tensors is None:
        yield "there are no headers to confirm it"
    if unused := fit.profile.unused_config_keys:
        yield f"{len(unused)} config keys are not its own ({_some(unused)})"
    if fit.comparison is None:
        return
    for names, text in ((fit.comparison.missing, "are missing"), (fit.comparison.unexpected, "are not its own")):
        if names:
            yield f"{len(names):,} tensors {text} ({_some(names)})"
    errors = [finding for finding in fit.comparison.findings if finding.severity == "error"]
    if errors:
        yield f"{errors[0].where} {errors[0].message}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
