"""The server's calls: fixed routes, JSON in and out, described by OpenAPI. What they answer is in answers.py."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .. import __version__
from .answers import Explorer, RefusedError
from .guard import Door, Guard
from .messages import (
    Failure,
    Generate,
    Generated,
    Interpolate,
    Interpolated,
    Place,
    Placed,
    Status,
    Walk,
    Walked,
    documented,
)
from .site import Packed, Site
from .uploads import PictureError
from .workers import BusyError, ClientGoneError, Workers

log = logging.getLogger("treevae")
SHOWN = 60  # characters of a value in a message
PIECE = 1 << 16  # bytes sent at once, so that a slow reader holds little memory
READING = documented(401, 421)
ASKING = documented(400, 401, 403, 408, 409, 413, 421, 422, 503)
UPLOADING = documented(400, 401, 403, 408, 409, 413, 415, 421, 422, 503)
ABOUT = """The calls behind the page of a fitted Tree Variational Autoencoder.

Nodes are named by their numbers in the tree, samples by their numbers in the bundle. The same question always has the
same answer. A failure is `{"error": …}` and says which field is wrong and what is allowed."""
UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "additionalProperties": False,
                    "properties": {
                        "image": {"type": "string", "format": "binary", "description": "PNG, JPEG, GIF, BMP or WebP."},
                        "invert": {
                            "type": "string",
                            "enum": ["true", "false"],
                            "description": "Exchange black and white.",
                        },
                    },
                }
            }
        },
    }
}


def create_app(site: Site, workers: Workers, door: Door) -> Guard:
    """The whole server as an ASGI application."""
    app = FastAPI(
        title="treevae explorer",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # their scripts would come from the network
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    _add_pages(app, site)
    _add_calls(app, site, workers)
    return Guard(app, door)


def _add_pages(app: FastAPI, site: Site) -> None:
    """What is there to be read."""

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return Sent(site.page, request)

    @app.get("/api/bundle", responses={200: {"model": dict[str, Any]}, **READING, **documented(409)})
    async def bundle(request: Request) -> Response:
        """All that the page shows: tree, samples, map, generated samples, history."""
        return _failure(409, still_training(site)) if site.ready is None else Sent(site.ready.bundle, request)

    @app.get("/api/status", response_model=Status, responses=READING)
    async def status() -> Response:
        """What there is to see: a run in training and how far it has come, or the whole explorer."""
        return _json(site.status)


def _add_calls(app: FastAPI, site: Site, workers: Workers) -> None:
    """What is asked of the model."""

    async def answer(request: Request, ask: Callable[[Explorer], BaseModel]) -> Response:
        if site.ready is None:
            return _failure(409, still_training(site))
        explorer = site.ready.explorer
        try:
            body = await workers.run(
                lambda: ask(explorer).model_dump_json(exclude_none=True).encode(), partial(_gone, request)
            )
        except (RefusedError, PictureError) as error:
            return _failure(422, str(error))
        except BusyError:
            return _failure(503, "too many questions wait already; try again in a moment", {"retry-after": "1"})
        except ClientGoneError:
            return Response(status_code=400)  # nobody reads it
        return Response(body, media_type="application/json")

    @app.post("/api/generate", response_model=Generated, responses=ASKING)
    async def generate(ask: Generate, request: Request) -> Response:
        """New samples that pass through a node, or end in it."""
        return await answer(request, lambda explorer: explorer.generate(ask))

    @app.post("/api/walk", response_model=Walked, responses=ASKING)
    async def walk(ask: Walk, request: Request) -> Response:
        """What every leaf makes of a sample (as it would reconstruct it), or of a draw of the root."""
        return await answer(request, lambda explorer: explorer.walk(ask))

    @app.post("/api/place", response_model=Placed, responses=ASKING)
    async def place(ask: Place, request: Request) -> Response:
        """Where a row of numbers or a text belongs: its path with probabilities, and its reconstruction."""
        return await answer(request, lambda explorer: explorer.place(ask))

    @app.post("/api/place/image", response_model=Placed, responses=UPLOADING, openapi_extra=UPLOAD)
    async def place_image(request: Request) -> Response:
        """Where a picture belongs. It is cropped and resized to the samples' size, and made grey where they are."""
        form = await _upload(request)
        if isinstance(form, Response):
            return form
        data, invert = form
        return await answer(request, lambda explorer: explorer.place_image(data, invert))

    @app.post("/api/interpolate", response_model=Interpolated, responses=ASKING)
    async def interpolate(ask: Interpolate, request: Request) -> Response:
        """The way from one sample of the bundle to another: latents and decisions go in straight lines."""
        return await answer(request, lambda explorer: explorer.interpolate(ask))


def still_training(site: Site) -> str:
    """Why the model cannot be asked yet."""
    return f"the model cannot be asked yet, the run is {site.status.state}; see /api/status"


async def _upload(request: Request) -> tuple[bytes, bool] | Response:
    """The picture in a form, and whether to invert it; or what is wrong with the form."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return _failure(415, f"Content-Type: {kind[:SHOWN]!r} is not allowed; send a form, multipart/form-data")
    async with request.form(max_files=1, max_fields=2, max_part_size=1024) as form:
        image, invert = form.get("image"), form.get("invert", "false")
        if extra := sorted(set(form) - {"image", "invert"}):
            return _failure(422, f"{extra[0][:SHOWN]}: there is no such field; allowed are image and invert")
        if not isinstance(image, UploadFile):
            return _failure(422, "image: it is missing, or is no file; send one picture under this name")
        if invert not in ("true", "false"):
            return _failure(422, f"invert: {_shown(invert)} is not allowed; give true or false")
        return await image.read(), invert == "true"


async def _gone(request: Request) -> None:
    """Ends when the client has left; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# -- answers ----------------------------------------------------------------------------------------------------


class Sent(Response):
    """A packed answer, sent piece by piece."""

    def __init__(self, what: Packed, request: Request) -> None:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"vary": "accept-encoding", **({"content-encoding": "gzip"} if packed else {})}
        if what.policy is not None:
            headers["content-security-policy"] = what.policy
        super().__init__(what.packed if packed else what.body, headers=headers, media_type=what.media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; between pieces the server waits for the client."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for start in range(0, len(body), PIECE):
            more = start + PIECE < len(body)
            piece = bytes(body[start : start + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": more})


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


def _failure(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(Failure(error=why).model_dump())  # escapes what no text should hold, such as half characters
    return Response(body, status, headers, "application/json")


def _invalid(request: Request, error: Exception) -> Response:
    """A field is wrong: which, what it held, what is allowed."""
    assert isinstance(error, RequestValidationError)
    said = [_complaint(one) for one in error.errors()[:5]]
    broken = any(one["type"] == "json_invalid" for one in error.errors())
    return _failure(400 if broken else 422, "; ".join(said))


def _complaint(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"] if part != "body") or "body"
    if error["type"] == "json_invalid":
        return f"body: it is no JSON, at character {where}: {error.get('ctx', {}).get('error', '')}"
    if error["type"] == "missing":
        return f"{where[:SHOWN]}: it is missing"
    if error["type"] == "extra_forbidden":
        return f"{where[:SHOWN]}: there is no such field"
    allowed = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{where[:SHOWN]}: {_shown(error['input'])} is not allowed, it {allowed}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _refused(request: Request, error: Exception) -> Response:
    """No such route, no such method, or a body that cannot be read."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:SHOWN]
    why = {
        404: f"there is nothing at {path!r}; the calls are listed in /api/openapi.json",
        405: f"{request.method[:20]} is not allowed at {path!r}; the calls are listed in /api/openapi.json",
    }.get(error.status_code, str(error.detail))
    return _failure(error.status_code, why, dict(error.headers or {}))


def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours; the traceback stays here."""
    return _failure(500, "something went wrong in the server, which has noted it; the question was not answered")
