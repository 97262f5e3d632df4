import numpy as np
import pytest
import torch

from day0.runtime.ops import hyper_connections as ops

NORM_EPS, EPS = 1e-6, 1e-3


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def balanced(logits, iterations):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    matrix = shifted / shifted.sum(axis=1, keepdims=True) + EPS
    for step in range(iterations):
        if step:
            matrix = matrix / (matrix.sum(axis=1, keepdims=True) + EPS)
        matrix = matrix / (matrix.sum(axis=0, keepdims=True) + EPS)
    return matrix


def inputs(rng, tokens, streams, width, weights, scales):
    arrays = (
        rng.standard_normal((tokens, streams, width)),
        rng.standard_normal((weights, streams * width)) / (streams * width) ** 0.5,
        rng.standard_normal(weights),
        1 + rng.standard_normal(scales),
    )
    return arrays, [torch.tensor(array).float() for array in arrays]


def raw_weights(stream, fn):
    flat = stream.reshape(-1)
    return fn @ (flat / np.sqrt((flat**2).mean() + NORM_EPS))


@pytest.mark.parametrize("iterations", [None, 1, 2, 20])
@pytest.mark.parametrize(("tokens", "streams", "width"), [(1, 1, 1), (5, 4, 7), (3, 2, 64)])
def test_read_and_write(agrees, rng, tokens, streams, width, iterations):
    mixing = 0 if iterations is None else streams**2
    arrays, tensors = inputs(rng, tokens, streams, width, 2 * streams + mixing, 2 if iterations is None else 3)
    x, fn, base, scale = arrays
    branch = rng.standard_normal((tokens, width))
    mixed, weights, written = [], [], []
    for token in range(tokens):
        raw = raw_weights(x[token], fn)
        own = raw * np.repeat(scale, [streams, streams, mixing][: len(scale)]) + base
        read, write = sigmoid(own[:streams]) + EPS, 2.5 * sigmoid(own[streams : 2 * streams])
        matrix = np.eye(streams)
        if iterations is not None:
            matrix = balanced(own[2 * streams :].reshape(streams, streams), iterations)
        mixed.append(read @ x[token])
        weights.append(np.concatenate((read, write, matrix.reshape(-1) if iterations is not None else [])))
        written.append(matrix.T @ x[token] + np.outer(write, branch[token]))
    y, found = ops.hyper_connection_read(*tensors, NORM_EPS, EPS, iterations, 2.5)
    agrees("hyper_connection_read", y, np.stack(mixed))
    agrees("hyper_connection_read", found, np.stack(weights), output=1)
    after = ops.hyper_connection_write(tensors[0], torch.tensor(branch).float(), found, iterations)
    agrees("hyper_connection_write", after, np.stack(written))


def test_mixing_is_nearly_doubly_stochastic(rng):
    _, tensors = inputs(rng, 9, 4, 8, 24, 3)
    _, weights = ops.hyper_connection_read(*tensors, NORM_EPS, 1e-6, 20, 2.0)
    matrix = weights[:, 8:].unflatten(-1, (4, 4))
    for axis in (1, 2):
        torch.testing.assert_close(matrix.sum(axis), torch.ones(9, 4), rtol=0, atol=1e-3)


def test_join(agrees, rng):
    (x, fn, base, scale), tensors = inputs(rng, 5, 4, 7, 4, 1)
    wanted = np.stack([(sigmoid(raw_weights(one, fn) * scale + base) + EPS) @ one for one in x])
    agrees("hyper_connection_join", ops.hyper_connection_join(*tensors, NORM_EPS, EPS), wanted)
    mean = ops.hyper_connection_join(tensors[0], None, None, None, NORM_EPS, EPS)
    agrees("hyper_connection_join", mean, x.mean(axis=1))
