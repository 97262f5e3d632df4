"""GET /health, /metrics, /version and /v1/models: what a load balancer, a scraper and a client ask first."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

import day0
from day0.runtime.server.answer import json_response
from day0.runtime.server.errors import ApiError
from day0.runtime.server.schema import HealthResponse, ModelCard, ModelList, VersionResponse
from day0.runtime.server.service import Service


def status_router(service: Service) -> APIRouter:
    router = APIRouter()

    def card() -> ModelCard:
        length = service.worker.max_model_len or None
        return ModelCard(service.served_name, int(service.started), service.served_name, length)

    @router.get("/health", response_model=None)
    async def health() -> Response:
        reason = service.unavailable()
        response = json_response(HealthResponse(reason or "ready"))
        response.status_code = 503 if reason else 200
        return response

    @router.get("/metrics", response_model=None, response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/version", response_model=None)
    async def version() -> Response:
        return json_response(VersionResponse(day0.__version__))

    @router.get("/v1/models", response_model=None)
    async def models() -> Response:
        return json_response(ModelList([card()]))

    @router.get("/v1/models/{name:path}", response_model=None)
    async def model(name: str) -> Response:
        if name != service.served_name:
            raise ApiError(404, f"the model '{name}' does not exist", param="model", code="model_not_found")
        return json_response(card())

    return router
