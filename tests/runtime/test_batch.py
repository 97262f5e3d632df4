import math

import pytest

from day0.errors import InputError
from day0.runtime.batch import SamplingParams

BAD = {
    "max_tokens": [0, -1],
    "temperature": [-0.1, 100.1, math.nan, math.inf],
    "top_p": [0.0, -1.0, 1.01, math.nan],
    "top_k": [-1],
    "min_p": [-0.1, 1.1, math.nan],
    "presence_penalty": [-2.1, 2.1, math.nan],
    "frequency_penalty": [-2.1, 2.1, math.nan],
    "repetition_penalty": [0.0, -1.0, 10.1, math.nan],
    "logprobs": [-1, 21],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_parameters_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(InputError, match=f"{name} must be") as caught:
        SamplingParams(**{name: value})
    assert caught.value.where == name


def test_the_ends_of_the_ranges_are_allowed():
    SamplingParams(max_tokens=1, temperature=100.0, top_p=1.0, min_p=1.0, logprobs=20)
    SamplingParams(temperature=0.0, top_p=1e-9, presence_penalty=-2.0, frequency_penalty=2.0, logprobs=0)
