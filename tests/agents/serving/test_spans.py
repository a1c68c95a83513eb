"""Spans of a served request, as a tracer is given them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import toolorchestra as to
from toolorchestra.agents.commands.serve import ServeOptions, service_of
from toolorchestra.envs.money.prices import NANO

QUESTION = list(to.make("HLE-v0").unwrapped.factory.source.askable)[2]  # type: ignore[attr-defined]


def test_a_request_is_an_agent_with_its_tools_and_models(tmp_path: Path) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.trace import set_tracer_provider

    from toolorchestra.agents.serving.spans import Spans

    kept, provider = memory.InMemorySpanExporter(), trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    set_tracer_provider(provider)
    made = service_of(ServeOptions(policy=("cascade",), sim=True), tmp_path)
    made.on_end.append(Spans())
    asked = {"model": "cascade", "messages": [{"role": "user", "content": QUESTION}]}

    async def ask() -> None:
        await made.reply(await made.begin(asked, "-"))

    asyncio.run(ask())
    (ended,) = made.latest
    spans = {span.name: span for span in kept.get_finished_spans()}
    root = spans["invoke_agent cascade"]
    assert root.attributes["toolorchestra.cost_usd"] == ended.usd
    assert spans["execute_tool search-3"].parent.span_id == root.context.span_id
    assert spans["execute_tool answer-math-2"].end_time <= root.end_time
    chats = [span for span in kept.get_finished_spans() if span.name.startswith("chat ")]
    told = sum(round(span.attributes["toolorchestra.cost_usd"] * NANO) for span in chats)
    tools = sum(c["nano_usd"] for c in ended.trajectory["charges"] if not any(c["tokens"].values()))
    assert told + tools == round(ended.usd * NANO)
    assert not any(QUESTION in str(dict(span.attributes)) for span in kept.get_finished_spans())
