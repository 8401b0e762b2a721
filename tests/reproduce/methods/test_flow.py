"""The flow: invertible, a density, and one that maximum likelihood brings to the true one."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from reproduce.methods.base import Method, record
from reproduce.methods.embedding import Embedding
from reproduce.methods.flow import DensityFlow, Flow, FlowSettings, fit_flow
from scd_core.corpus import Corpus
from tests.conftest import WORDS

SMALL = FlowSettings(couplings=4, width=16, epochs=12, batch_size=64, lr=5e-3)
MIXING = np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, -1.0, 3.0]])


def gaussian(rows: int) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(rows, 3))
    return (noise @ MIXING.T + [5.0, 0.0, -2.0]).astype(np.float32)


@pytest.fixture(scope="module")
def fitted() -> tuple[DensityFlow, list[float]]:
    return fit_flow(gaussian(4000), SMALL)


def test_density_of_a_known_gaussian(fitted: tuple[DensityFlow, list[float]]) -> None:
    """Pointwise, and its mean is minus the entropy: log sqrt((2 pi e)^3 det Sigma)."""
    sigma = MIXING @ MIXING.T
    entropy = 0.5 * (3 * math.log(2 * math.pi * math.e) + np.linalg.slogdet(sigma)[1])
    flow, history = fitted
    assert history[-1] == pytest.approx(-entropy, abs=0.1)
    points = torch.from_numpy(gaussian(300))
    mean = torch.tensor([5.0, 0.0, -2.0])
    true = torch.distributions.MultivariateNormal(
        mean, torch.tensor(sigma, dtype=torch.float32)
    ).log_prob(points)
    assert float((flow.log_prob(points) - true).abs().mean()) < 0.15


def test_log_likelihood_rises(fitted: tuple[DensityFlow, list[float]]) -> None:
    _, history = fitted
    assert len(history) == SMALL.epochs + 1
    assert history[-1] > history[3] > history[1] > history[0]


def test_inverse_of_forward_is_the_identity(fitted: tuple[DensityFlow, list[float]]) -> None:
    points = torch.from_numpy(gaussian(100))
    flow, _ = fitted
    assert not torch.allclose(flow(points), points, atol=0.5)
    torch.testing.assert_close(flow.inverse(flow(points)), points, atol=1e-3, rtol=1e-3)


def test_density_is_the_change_of_variables(fitted: tuple[DensityFlow, list[float]]) -> None:
    """log N(f(u)) + log |det df/du|, the Jacobian by autograd."""
    flow, _ = fitted
    for point in torch.from_numpy(gaussian(5)):
        jacobian = torch.autograd.functional.jacobian(lambda u: flow(u[None])[0], point)
        normal = -0.5 * (flow(point[None]).square().sum() + 3 * math.log(2 * math.pi))
        expected = normal + torch.linalg.slogdet(jacobian)[1]
        torch.testing.assert_close(flow.log_prob(point[None])[0], expected, atol=1e-4, rtol=1e-4)


def test_same_seed_same_flow_and_no_draw_from_outside() -> None:
    short = dataclasses.replace(SMALL, epochs=1)
    data = gaussian(200)
    before = torch.get_rng_state()
    first = fit_flow(data, short)[1]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    assert fit_flow(data, short)[1] == first
    assert fit_flow(data, dataclasses.replace(short, seed=1))[1] != first


def test_what_a_flow_cannot_be_fitted_to_is_refused() -> None:
    data = gaussian(50)
    with pytest.raises(ValueError, match=r"found \(1, 3\)"):
        fit_flow(data[:1], SMALL)
    data[:, 1] = 7
    with pytest.raises(ValueError, match=r"dimensions \[1\] are the same in all 50"):
        fit_flow(data, SMALL)


def test_flow_over_an_encoder(tiny_models: dict[str, Path]) -> None:
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 6)) for _ in range(100)]
    corpus = Corpus("toy", [*lines, *lines], 0)
    base = Embedding(tiny_models["bert"], "first_last")
    method: Method = Flow(base, dataclasses.replace(SMALL, epochs=1))
    found = method.fit(corpus)(lines)
    expected, _ = fit_flow(base.fit()(lines), dataclasses.replace(SMALL, epochs=1))
    with torch.no_grad():
        latent = expected(torch.from_numpy(base.fit()(lines)))
    np.testing.assert_allclose(found, latent.numpy(), atol=1e-5)
    told = record(method, corpus)
    assert (told["method"], told["couplings"], told["base.pooling"]) == ("flow", 4, "first_last")
    assert told["fit.fingerprint"] == corpus.fingerprint
    with pytest.raises(ValueError, match="flow is fitted on sentences"):
        method.fit(None)
