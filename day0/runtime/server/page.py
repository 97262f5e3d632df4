"""GET /: a page for people, in one file that loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

PAGE = Path(__file__).parent / "page.html"
# Only what the file itself holds may run, and only this server may be asked; images are those dropped on the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def page_router(command: str | None) -> APIRouter:
    """The page, and what it cannot know by itself: the command, with every default spelled out, that started this."""
    router = APIRouter()
    content = PAGE.read_bytes()
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    @router.get("/plan", response_model=None)
    async def plan() -> Response:
        return JSONResponse({"command": command})

    return router
