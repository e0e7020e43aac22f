"""The OpenAPI description of the explorer, and that every call keeps to it."""

import explorers
import pytest
import schemathesis
from explorers import HERE
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from treevae.serve.app import create_app
from treevae.serve.guard import Door
from treevae.serve.site import Ready, Site
from treevae.serve.workers import Workers


@pytest.fixture(scope="module")
def ready() -> Ready:
    return explorers.ready()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


def test_every_call_is_described(client):
    described = client.get("/api/openapi.json").json()
    calls = ("bundle", "status", "generate", "walk", "place", "place/image", "interpolate")
    assert set(described["paths"]) == {f"/api/{call}" for call in calls}
    for path, methods in described["paths"].items():
        for call in methods.values():
            assert call["description"], path
            failures = {code: of for code, of in call["responses"].items() if code != "200"}
            assert {"401", "421"} <= set(failures)
            for failure in failures.values():
                assert failure["content"]["application/json"]["schema"]["$ref"].endswith("/Failure"), path
    for name in ("Generate", "Walk", "Place", "Interpolate"):
        assert described["components"]["schemas"][name]["examples"]
    assert client.get("/docs").status_code == 404  # its scripts would come from the network


CALLED = ("GET /api/bundle", "GET /api/status", "POST /api/generate", "POST /api/walk", "POST /api/place")
CALLED += ("POST /api/place/image", "POST /api/interpolate")


@pytest.fixture(scope="module")
def described(ready) -> dict[str, schemathesis.APIOperation]:
    """The calls as schemathesis reads them from the description."""
    app = create_app(Site(ready, ready.status), Workers(1), Door("127.0.0.1"))

    async def at_home(scope, receive, send):  # schemathesis asks for a host called testserver
        headers = [(name, b"127.0.0.1" if name == b"host" else value) for name, value in scope.get("headers", [])]
        await app(scope | {"headers": headers}, receive, send)

    refusals = {"negative_data_rejection": {"expected-statuses": ["400", "413", "415", "422"]}}  # 413: a long text
    config = schemathesis.Config.from_dict({"checks": refusals})
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", at_home, config=config)
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", CALLED)
def test_calls_keep_to_their_description(described, name, mode):
    """Answers have the documented form and status, and what the description forbids is refused."""
    call = described[name]
    if mode is schemathesis.GenerationMode.NEGATIVE and name.startswith("GET"):
        pytest.skip("there is nothing in it that could be wrong")

    @settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=call.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        # a number of a node or a sample may be in the described range and yet not be in this tree
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    assert set(described) == set(CALLED)
    ask()
