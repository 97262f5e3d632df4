"""Whether llguidance can compile a grammar, found out in bounded time.

Its limits do not cover the intersection of patterns: the time for that doubles with each, and nothing can end the call
from within. What could take so long is compiled in a process of its own first, which can be ended.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

from llguidance import LLMatcher

from day0.runtime.server.errors import ApiError

CHECK_SECONDS = 5.0
"""For a grammar that is checked apart, with the start of its process."""
_FEW = 8
_COSTLY = re.compile(r'"(?:allOf|pattern|patternProperties|format|multipleOf|\$ref)"\s*:')
_CHILD = """
import json, sys
from llguidance import LLMatcher
json.dump(LLMatcher.validate_grammar_with_warnings(sys.stdin.read()), sys.stdout)
"""


def complaint(grammar: str, *, param: str) -> str | None:
    """What llguidance has against `grammar`; None where it compiles.

    Raises ApiError where it does not come to an end within CHECK_SECONDS.
    """
    if sum(1 for _ in _COSTLY.finditer(grammar)) <= _FEW:
        failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
        return messages[0] if failed else None
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD],
            check=False,
            input=grammar,
            capture_output=True,
            encoding="utf-8",
            timeout=CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        message = (
            f"the schema did not compile within {CHECK_SECONDS:g} seconds; make it simpler, intersect fewer patterns"
        )
        raise ApiError(400, message, param=param, code="invalid_schema") from error
    if child.returncode != 0:
        return "its compiler failed"
    failed, messages = json.loads(child.stdout)
    return messages[0] if failed else None
