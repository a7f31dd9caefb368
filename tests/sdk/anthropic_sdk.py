"""The official `anthropic` package against `forge serve`."""

import json
import sys

import anthropic
import jsonschema

from server import CITY, KEY, MODEL, PERSON, Server, run

TOOLS = [
    {
        "name": "get_weather",
        "description": "Weather of a city",
        "input_schema": CITY,
    }
]
THINKING = {"type": "enabled", "budget_tokens": 100}


def ask(client, text, max_tokens=60, **more):
    messages = [{"role": "user", "content": text}]
    return client.messages.create(model=MODEL, messages=messages, max_tokens=max_tokens, **more)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def plain(client):
    reply = ask(client, "What is the capital of France?", system="Be brief.")
    assert "Paris" in text_of(reply), reply
    assert reply.stop_reason == "end_turn" and reply.model == MODEL and reply.role == "assistant"


def streamed(client):
    question = "Tell me a story about a fox."
    whole = ask(client, question, max_tokens=40)
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 40
    with client.messages.stream(
        model=MODEL, messages=[{"role": "user", "content": question}], max_tokens=40
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(whole)
    assert final.usage.output_tokens == 40 and final.usage.input_tokens + final.usage.cache_read_input_tokens > 0


def raw_events(client):
    events = [event.type for event in ask(client, "Hello!", stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"], events


def stops(client):
    whole = text_of(ask(client, "Tell me a story about a fox.", max_tokens=30))
    word = whole.split()[4]
    cut = ask(client, "Tell me a story about a fox.", max_tokens=30, stop_sequences=[word])
    assert text_of(cut) == whole.split(word)[0]
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word)


def thinking(client):
    reply = ask(client, "What is 12 + 31?", max_tokens=200, thinking=THINKING)
    assert [block.type for block in reply.content] == ["thinking", "text"], reply
    assert "think>" not in text_of(reply) and reply.content[0].signature
    messages = [
        {"role": "user", "content": "What is 12 + 31?"},
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": "Sure?"},
    ]
    client.messages.create(model=MODEL, messages=messages, max_tokens=5, thinking=THINKING)
    with client.messages.stream(
        model=MODEL, messages=messages[:1], max_tokens=200, thinking=THINKING
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert {"thinking", "signature", "text"} <= kinds, kinds
    assert final.content[0].thinking == reply.content[0].thinking


def tools(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    reply = client.messages.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=200)
    assert reply.stop_reason == "tool_use", reply
    call = reply.content[-1]
    jsonschema.validate(call.input, TOOLS[0]["input_schema"])
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "12 degrees"}]}
    messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    reply = client.messages.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=200)
    assert "12" in text_of(reply), reply
    result["is_error"], result["content"] = True, "no such city"
    client.messages.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=5)


def streamed_tools(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with client.messages.stream(model=MODEL, messages=messages, tools=TOOLS, max_tokens=200) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert "input_json" in kinds, kinds
    assert final.content[-1].input == {"city": "Oslo"} and final.stop_reason == "tool_use"


def forced_tools(client):
    for choice in [{"type": "any"}, {"type": "tool", "name": "get_weather"}]:
        choice["disable_parallel_tool_use"] = True
        reply = ask(client, "Hello!", tools=TOOLS, tool_choice=choice, max_tokens=120)
        assert [block.type for block in reply.content].count("tool_use") == 1, reply


def structured(client):
    form = {"format": {"type": "json_schema", "schema": PERSON}}
    reply = ask(client, "Describe a person.", output_config=form, max_tokens=150)
    jsonschema.validate(json.loads(text_of(reply)), PERSON)


def cached(client):
    filler = "You write short stories about animals. " * 12
    usages = []
    for value in ("1f0aa", "1f0aa", "b77c1"):
        header = f"x-anthropic-billing-header: cc_version=2.1; cch={value};"
        system = [
            {"type": "text", "text": header},
            {"type": "text", "text": filler, "cache_control": {"type": "ephemeral"}},
        ]
        usages.append(ask(client, "Hello!", max_tokens=2, system=system).usage)
    # Whatever the cache holds of the same request, it holds of one with another value.
    assert usages[1] == usages[2], usages


def count_tokens(client):
    messages = [{"role": "user", "content": "Hello!"}]
    counted = client.messages.count_tokens(model=MODEL, messages=messages, system="Be brief.", tools=TOOLS)
    usage = client.messages.create(
        model=MODEL, messages=messages, system="Be brief.", tools=TOOLS, max_tokens=2
    ).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def errors(client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    for error, kind, wrong in [
        (anthropic.NotFoundError, "not_found_error", {"model": "claude-9"}),
        (anthropic.BadRequestError, "invalid_request_error", {"max_tokens": 0}),
        (anthropic.BadRequestError, "invalid_request_error", {"messages": [{"role": "user", "content": [image]}]}),
        (anthropic.BadRequestError, "invalid_request_error", {"extra_body": {"no_such_field": 1}}),
        (anthropic.BadRequestError, "invalid_request_error", {"messages": [{"role": "user", "content": "word " * 5000}]}),
    ]:
        request = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 5, **wrong}
        for stream in (False, True):
            try:
                client.messages.create(**request, stream=stream)
            except error as found:
                assert found.body["error"]["type"] == kind, found
            else:
                raise AssertionError(wrong)
    try:
        ask(client.with_options(api_key="wrong"), "x")
    except anthropic.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "forge"
    with Server(program, "--ctx", "2048", "--slots", "2", "--api-key", KEY) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)
        checks = [
            plain, streamed, raw_events, stops, thinking, tools, streamed_tools, forced_tools, structured, cached,
            count_tokens, errors,
        ]
        run(checks, client)
        bearer = anthropic.Anthropic(base_url=server.url, auth_token=KEY, max_retries=0)
        run([plain], bearer)


if __name__ == "__main__":
    main()
