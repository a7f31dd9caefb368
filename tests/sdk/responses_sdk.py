"""The Responses API of the official `openai` package against `forge serve`."""

import json
import sys

import jsonschema
import openai

from server import CITY, KEY, MODEL, PERSON, Server, run

TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Weather of a city",
        "strict": True,
        "parameters": CITY,
    }
]


def ask(client, question, **more):
    return client.responses.create(model=MODEL, input=question, **more)


def plain(client):
    reply = ask(client, "What is the capital of France?", max_output_tokens=20)
    assert "Paris" in reply.output_text, reply
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.model == MODEL and reply.error is None


def streamed(client):
    question = "Tell me a story about a fox."
    whole = ask(client, question, max_output_tokens=40)
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    events = list(ask(client, question, max_output_tokens=40, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens == 40


def stream_helper(client):
    with client.responses.stream(model=MODEL, input="What is 12 + 31?", reasoning={"effort": "high"}) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.reasoning_text.delta", "response.output_text.done", "response.completed"} <= kinds, kinds
    assert [item.type for item in final.output] == ["reasoning", "message"], final
    assert final.usage.output_tokens_details.reasoning_tokens > 0 and "think>" not in final.output_text


def summaries(client):
    reply = ask(
        client,
        "What is 12 + 31?",
        reasoning={"effort": "high", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
    )
    item = reply.output[0]
    assert item.type == "reasoning" and item.summary[0].text and item.encrypted_content, reply
    again = client.responses.create(
        model=MODEL,
        input=[{"role": "user", "content": "What is 12 + 31?"}, *reply.output, {"role": "user", "content": "Sure?"}],
        max_output_tokens=5,
    )
    assert again.usage.input_tokens > reply.usage.input_tokens


def tools(client):
    question = "What is the weather in Oslo?"
    reply = ask(client, question, tools=TOOLS)
    call = reply.output[-1]
    assert call.type == "function_call", reply
    jsonschema.validate(json.loads(call.arguments), TOOLS[0]["parameters"])
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"}
    chained = client.responses.create(model=MODEL, input=[result], previous_response_id=reply.id, tools=TOOLS)
    assert "12" in chained.output_text, chained
    history = [{"role": "user", "content": question}, *reply.output, result]
    explicit = client.responses.create(model=MODEL, input=history, tools=TOOLS, store=False)
    assert explicit.output_text == chained.output_text
    assert explicit.usage.input_tokens_details.cached_tokens >= 0


def streamed_tools(client):
    with client.responses.stream(model=MODEL, input="What is the weather in Oslo?", tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds, kinds
    assert json.loads(final.output[-1].arguments) == {"city": "Oslo"}


def forced_tools(client):
    for choice in ["required", {"type": "function", "name": "get_weather"}]:
        reply = ask(client, "Hello!", tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_output_tokens=120)
        calls = [item for item in reply.output if item.type == "function_call"]
        assert len(calls) == 1, reply


def custom_tools(client):
    tool = {"type": "custom", "name": "note", "description": "Writes a note"}
    reply = ask(
        client,
        "Hello!",
        tools=[tool],
        tool_choice={"type": "custom", "name": "note"},
        parallel_tool_calls=False,
        max_output_tokens=300,
    )
    assert reply.output[0].type == "custom_tool_call" and reply.output[0].name == "note", reply


def structured(client):
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    for effort in ("none", "minimal"):
        reply = ask(client, "Describe a person.", text=form, max_output_tokens=700, reasoning={"effort": effort})
        jsonschema.validate(json.loads(reply.output_text), PERSON)


def chain(client):
    first = ask(client, "What is the capital of France?", max_output_tokens=20, instructions="Be brief.")
    second = ask(client, "And of Norway?", previous_response_id=first.id, max_output_tokens=20)
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.output_tokens
    again = client.responses.retrieve(second.id)
    assert again.output_text == second.output_text
    replayed = list(client.responses.retrieve(second.id, stream=True))
    assert replayed[-1].response.output_text == second.output_text
    items = client.responses.input_items.list(second.id)
    assert items.data[0].content[0].text == "And of Norway?"
    client.responses.delete(first.id)
    for gone in (
        lambda: client.responses.retrieve(first.id),
        lambda: ask(client, "x", previous_response_id=second.id),
    ):
        try:
            gone()
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("a deleted response")


def count_tokens(client):
    counted = client.responses.input_tokens.count(model=MODEL, input="Hello!", instructions="Be brief.", tools=TOOLS)
    reply = ask(client, "Hello!", instructions="Be brief.", tools=TOOLS, max_output_tokens=2)
    assert counted.input_tokens == reply.usage.input_tokens


def errors(client):
    for error, wrong in [
        (openai.NotFoundError, {"model": "gpt-9"}),
        (openai.BadRequestError, {"max_output_tokens": 0}),
        (openai.BadRequestError, {"truncation": "auto"}),
        (openai.BadRequestError, {"background": True}),
        (openai.BadRequestError, {"tools": [{"type": "file_search", "vector_store_ids": ["x"]}]}),
        (openai.BadRequestError, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]}),
    ]:
        try:
            client.responses.create(**{"model": MODEL, "input": "x", **wrong})
        except error as found:
            assert found.body["message"] and found.param, found
        else:
            raise AssertionError(wrong)
    for stream in (False, True):
        try:
            ask(client, "word " * 5000, stream=stream)
        except openai.BadRequestError as found:
            assert found.code == "context_length_exceeded", found
        else:
            raise AssertionError("a prompt that is too long")
    try:
        ask(client.with_options(api_key="wrong"), "x")
    except openai.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "forge"
    with Server(program, "--ctx", "2048", "--slots", "2", "--api-key", KEY) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        checks = [
            plain, streamed, stream_helper, summaries, tools, streamed_tools, forced_tools, custom_tools, structured,
            chain, count_tokens, errors,
        ]
        run(checks, client)


if __name__ == "__main__":
    main()
