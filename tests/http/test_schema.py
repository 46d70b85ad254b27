"""Whatever the OpenAPI document allows, and much that it does not, meets no server error and no undocumented answer."""

from __future__ import annotations

import os

import pytest

from tests.http.api import Api

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install schemathesis")

EXAMPLES = int(os.environ.get("DOVETAIL_FUZZ_EXAMPLES", "4"))
NOT_CALLED = ("/admin/shutdown", "/admin/maintenance", "/admin/readonly")
"""They change what every other request meets."""


def test_generated_requests_are_answered_as_the_document_says(api: Api) -> None:
    from hypothesis import HealthCheck, given, settings

    api.join("billing", "orders")
    api.publish("orders", "x")
    schema = schemathesis.openapi.from_url(f"{api.base}/openapi.json")
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in NOT_CALLED:
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def check(case: schemathesis.Case) -> None:
            if case.query and "timeout" in case.query:
                case.query["timeout"] = "0s"
            if isinstance(case.body, dict) and "timeout" in case.body:
                case.body["timeout"] = "0s"
            response = case.call(base_url=api.base, timeout=30)
            assert response.status_code < 500, (case.method, case.formatted_path, response.text)
            case.validate_response(
                response,
                checks=[
                    schemathesis.checks.not_a_server_error,
                    schemathesis.checks.status_code_conformance,
                    schemathesis.checks.content_type_conformance,
                    schemathesis.checks.response_schema_conformance,
                ],
            )

        check()
        count += 1
    assert count > 30
