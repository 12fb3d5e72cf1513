"""A web application that submits jobs, and streams their progress as server-sent events.

    URL=ws://127.0.0.1:7480 uvicorn fastapi_app:app
    curl -X POST 'http://127.0.0.1:8000/speak?language=de' -H 'Content-Type: application/json' -d '{"text":"Guten Tag."}'
    curl -N http://127.0.0.1:8000/jobs/JOB/events
"""

import json
import os
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from freeslot import Client, Error, Handle

client = Client(os.environ.get("URL", "ws://127.0.0.1:7480"), token=os.environ.get("TOKEN", ""))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with client:  # one connection for all requests
        yield


app = FastAPI()
app.router.lifespan_context = lifespan  # from FastAPI 0.93 on: FastAPI(lifespan=lifespan)

STATUS = {"invalid_argument": 400, "not_found": 404, "no_matching_node": 422, "overloaded": 429, "rate_limited": 429}


def refused(err: Error) -> HTTPException:
    headers = {"Retry-After": str(round(err.retry_after + 0.5))} if err.retry_after else None
    return HTTPException(STATUS.get(err.code, 503), err.message, headers)


@app.post("/speak", status_code=202)
async def speak(body: dict[str, Any], language: str = "en") -> dict[str, str]:
    try:
        handle = await client.submit("speak", body, target_language=language)
    except Error as err:
        raise refused(err) from None
    return {"job_id": handle.job_id}


@app.get("/jobs/{job_id}/events")
async def events(job_id: str) -> StreamingResponse:
    """Several processes of this application can serve it: attach finds a job that another one submitted."""
    try:
        handle = await client.attach(job_id)
    except Error as err:
        raise refused(err) from None
    return StreamingResponse(stream(handle), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def stream(handle: Handle) -> AsyncIterator[str]:
    async for progress in handle.progress():
        yield event("progress", progress.value)
    try:
        yield event("result", dict((await handle).raw))
    except Error as err:  # another process attached to the job
        yield event("error", {"code": err.code, "message": err.message})


def event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
