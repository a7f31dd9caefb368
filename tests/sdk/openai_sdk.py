"""The official `openai` package against `forge serve`."""

import json
import sys

import jsonschema
import openai

from server import CITY, KEY, MODEL, PERSON, Server, run

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": CITY,
        },
    }
]


def ask(client, text, **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, messages=messages, **more)


def models(client):
    names = [model.id for model in client.models.list()]
    assert MODEL in names, names
    assert client.models.retrieve(MODEL).id == MODEL


def plain(client):
    reply = ask(client, "What is the capital of France?", max_completion_tokens=20)
    assert "Paris" in reply.choices[0].message.content, reply
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.model == MODEL


def streamed(client):
    question = "Tell me a story about a fox."
    whole = ask(client, question, max_tokens=40)
    stream = ask(client, question, max_tokens=40, stream=True, stream_options={"include_usage": True})
    text, usage = "", None
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content
    assert usage.completion_tokens == whole.usage.completion_tokens == 40


def stop_and_seed(client):
    whole = ask(client, "Tell me a story about a fox.", max_tokens=30).choices[0].message.content
    word = whole.split()[4]
    cut = ask(client, "Tell me a story about a fox.", max_tokens=30, stop=[word]).choices[0]
    assert cut.message.content == whole.split(word)[0] and cut.finish_reason == "stop"
    drawn = [
        ask(client, "Tell me a story.", max_tokens=12, temperature=1.0, seed=7).choices[0].message.content
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


def several(client):
    reply = ask(client, "Tell me a story.", max_tokens=8, n=3, temperature=1.0, seed=1)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]


def probabilities(client):
    reply = ask(client, "Hello!", max_tokens=4, logprobs=True, top_logprobs=2)
    entries = reply.choices[0].logprobs.content
    assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in entries)
    assert "".join(entry.token for entry in entries) == reply.choices[0].message.content


def tools(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    assert reply.choices[0].finish_reason == "tool_calls", reply
    call = reply.choices[0].message.tool_calls[0]
    jsonschema.validate(json.loads(call.function.arguments), TOOLS[0]["function"]["parameters"])
    messages += [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}]
    reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    assert "12" in reply.choices[0].message.content, reply


def streamed_tools(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds, kinds
    call = final.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Oslo"}


def forced_tools(client):
    for choice in ["required", {"type": "function", "function": {"name": "get_weather"}}]:
        reply = ask(client, "Hello!", tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=120)
        calls = reply.choices[0].message.tool_calls
        assert len(calls) == 1
        jsonschema.validate(json.loads(calls[0].function.arguments), TOOLS[0]["function"]["parameters"])


def structured(client):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for thinking in (False, True):
        extra = {"enable_thinking": thinking, "thinking_budget": 20}
        reply = ask(client, "Describe a person.", response_format=form, max_tokens=150, extra_body=extra)
        jsonschema.validate(json.loads(reply.choices[0].message.content), PERSON)


def reasoning(client):
    reply = ask(client, "What is 12 + 31?", max_tokens=150, reasoning_effort="high")
    message = reply.choices[0].message
    assert message.reasoning_content and "think>" not in message.content, message
    assert reply.usage.completion_tokens_details.reasoning_tokens > 0


def completions(client):
    reply = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8)
    text = "".join(
        chunk.choices[0].text
        for chunk in client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8, stream=True)
    )
    assert text == reply.choices[0].text


def errors(client):
    for error, wrong in [
        (openai.NotFoundError, {"model": "gpt-9"}),
        (openai.BadRequestError, {"max_tokens": 0}),
        (openai.BadRequestError, {"audio": {"voice": "alloy", "format": "wav"}}),
    ]:
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": [{"role": "user", "content": "x"}], **wrong})
        except error as found:
            assert found.body["message"], found
        else:
            raise AssertionError(wrong)
    try:
        ask(client, "word " * 5000)
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
            models, plain, streamed, stop_and_seed, several, probabilities, tools, streamed_tools, forced_tools,
            structured, reasoning, completions, errors,
        ]
        run(checks, client)


if __name__ == "__main__":
    main()
