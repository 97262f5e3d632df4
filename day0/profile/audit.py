"""What is wrong, or a trap, in a model as published: from its headers, config and small files, before any weight."""

from __future__ import annotations

from day0.errors import Finding
from day0.profile.audit_config import audit_config
from day0.profile.audit_processor import audit_processor
from day0.profile.audit_samples import audit_samples
from day0.profile.audit_tensors import audit_tensors
from day0.profile.audit_tokens import audit_tokens
from day0.profile.profile import ArchitectureProfile
from day0.profile.tensors import TensorComparison
from day0.source.model_files import ModelFiles
from day0.source.tokenizer_file import TokenizerFacts


def audit(
    files: ModelFiles,
    profile: ArchitectureProfile,
    comparison: TensorComparison | None,
    tokenizer: TokenizerFacts | None = None,
) -> tuple[Finding, ...]:
    """One finding for each fault, beside those that reading and comparing gave already.

    Index, shards and headers are held against each other when they are read (day0/source), tensors against the
    profile when they are compared; here are tokens, context, rotation, windows, processors, heads, experts and scales.
    """
    return (
        *audit_tensors(files, profile, comparison),
        *audit_config(files, profile),
        *audit_tokens(files, profile, tokenizer),
        *audit_processor(files, profile),
        *audit_samples(files, profile),
    )
