"""A server made with the official SDK that does everything a server may do while a tool runs."""

from __future__ import annotations

import os
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("everything")


def log(what: str) -> None:
    with open(os.environ["SERVER_LOG"], "a", encoding="utf-8") as file:
        file.write(what + "\n")


class Size(BaseModel):
    size: int


@server.tool()
async def report(steps: int, ctx: Context[Any, Any]) -> str:
    log("call report")
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    await ctx.info("half way")
    return f"{steps} steps"


@server.tool()
async def ask_model(question: str, ctx: Context[Any, Any]) -> str:
    log("call ask_model")
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    answer = await ctx.session.create_message([message], max_tokens=10)
    return f"the model says {getattr(answer.content, 'text', '')}"


@server.tool()
async def ask_person(ctx: Context[Any, Any]) -> str:
    log("call ask_person")
    answer = await ctx.elicit("Which size?", Size)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
async def book(room: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
    log(f"call book {'again' if ctx.input_responses else 'first'}")
    if not ctx.input_responses:
        question = ElicitRequestFormParams(message="Which size?", requested_schema=Size.model_json_schema())
        return InputRequiredResult(
            input_requests={"size": ElicitRequest(params=question)}, request_state=f"room {room}"
        )
    return f"{room} {ctx.input_responses['size'].content}"  # type: ignore[union-attr]


@server.tool()
async def touch(ctx: Context[Any, Any]) -> str:
    log("call touch")
    await ctx.notify_tools_changed()
    return "touched"


@server.tool()
async def wait(ctx: Context[Any, Any]) -> str:
    log("call wait")
    try:
        await anyio.sleep(60)
    except BaseException:
        log("cancelled wait")
        raise
    return "waited"


if __name__ == "__main__":
    server.run("stdio")
