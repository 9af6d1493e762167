"""How the made part of the corpus was made: two conversations, and every slip in them with the right answer beside it.

    python -m tests.corpus.build > tests/corpus/made.jsonl

The file is the truth, written before the parser was tuned to it; this only shows where its rows come from. `expect` is what a
careful reader makes of the text: the messages, or None where it has no single reading. Form alone counts, not sense.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

Messages = list[dict[str, Any]]

SHOP: Messages = [
    {"role": "user", "content": "Hi, it's me again: where is order ORD-20417? I'm zoë.o'neil@example.com."},
    {
        "role": "assistant",
        "reasoning": "I need the order.",
        "calls": [{"name": "get_order", "arguments": {"order_id": "ORD-20417", "email": "zoë.o'neil@example.com"}}],
    },
    {
        "role": "tool",
        "content": {
            "order_id": "ORD-20417",
            "status": "shipped",
            "total": 31.5,
            "items": [{"id": 7, "gift": True, "note": None}],
        },
    },
    {"role": "assistant", "content": "It's on its way; the total was €31.50."},
]
OFFICE: Messages = [
    {"role": "user", "content": "Please do two things:\n1. tell Ana about the review\n2. find a room for 10:30"},
    {
        "role": "assistant",
        "calls": [
            {
                "name": "send_mail",
                "arguments": {
                    "to": ["ana@example.com"],
                    "subject": "Review, Friday",
                    "body": "Hello Ana,\n\nthe review is on Friday.\nBest, Tom",
                },
            },
            {"name": "find_room", "arguments": {"time": "10:30", "people": 4, "video": False, "wishes": {"floor": 2}}},
        ],
    },
    {"role": "tool", "content": {"mail_id": "MAIL-88", "sent": True}},
    {"role": "tool", "content": {"rooms": ["Maple", "Oak"], "free": 2}},
    {"role": "assistant", "content": "Done: Ana has the mail, and Maple is free at 10:30."},
]
# What stands around a conversation is the same whatever is in it: once is enough.
AROUND = {
    *("fence", "fence without a name", "fence never closed", "fence after a remark", "fence before a remark"),
    *("remark before", "remark after", "byte order mark", "blank lines around", "own thought before", "capital tags"),
    *("a bare list", "conversation for messages", "a title beside", "wrapped once more", "one brace too many"),
}
BASES = {"shop": SHOP, "office": OFFICE}


def dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **options)


def as_json(messages: Messages) -> str:
    return dumps({"messages": messages}, separators=(",", ":"))


def as_pretty(messages: Messages) -> str:
    return dumps({"messages": messages}, indent=2)


def as_tagged(messages: Messages) -> str:
    lines = []
    for message in messages:
        lines.append(f"<{message['role']}>")
        if message.get("reasoning"):
            lines.append(f"<think>{message['reasoning']}</think>")
        content = message.get("content")
        if content is not None:
            lines.append(content if isinstance(content, str) else dumps(content, separators=(",", ":")))
        lines += [f"<tool_call>{dumps(call)}</tool_call>" for call in message.get("calls", [])]
        lines.append(f"</{message['role']}>")
    return "\n".join(lines)


def openai_shape(messages: Messages) -> str:
    rows, number = [], 0
    for message in messages:
        row = {"role": message["role"], "content": message.get("content")}
        if message.get("calls"):
            row["tool_calls"] = []
            for call in message["calls"]:
                number += 1
                function = {"name": call["name"], "arguments": dumps(call["arguments"])}
                row["tool_calls"].append({"id": f"c{number}", "type": "function", "function": function})
            ids = [call["id"] for call in row["tool_calls"]]
        if message["role"] == "tool":
            row = {"role": "tool", "tool_call_id": ids.pop(0), "content": dumps(message["content"])}
        if message.get("reasoning"):
            row["reasoning_content"] = message["reasoning"]
        rows.append(row)
    return dumps({"messages": rows})


def sharegpt(messages: Messages) -> str:
    rows = []
    for message in messages:
        if message.get("calls"):
            if message.get("reasoning"):
                return ""
            calls = message["calls"]
            rows.append({"from": "function_call", "value": dumps(calls if len(calls) > 1 else calls[0])})
        elif message["role"] == "tool":
            rows.append({"from": "observation", "value": dumps(message["content"])})
        else:
            rows.append({"from": {"user": "human", "assistant": "gpt"}[message["role"]], "value": message["content"]})
    return dumps({"conversations": rows})


def changed(messages: Messages, at: int, **fields: Any) -> Messages:
    rows = json.loads(json.dumps(messages))
    rows[at] |= fields
    return [{key: value for key, value in row.items() if value is not ...} for row in rows]


def python_repr(value: Any) -> str:
    return repr(value)


# (kind, text → text); what it stands for is the conversation itself.
JSON_SLIPS: list[tuple[str, Callable[[str], str]]] = [
    (
        "trailing comma after the last message",
        lambda t: t.replace("}]}", "},]}", 1) if t.endswith("}]}") and t.count("}]}") == 1 else t[:-2] + ",]}",
    ),
    (
        "trailing comma after a member",
        lambda t: t.replace("31.5,", "31.5,,"[:5], 1).replace('"role":"user",', '"role":"user",', 1)[:-1] + ",}",
    ),
    ("trailing comma in arguments", lambda t: re.sub(r'("arguments":\{.*?)\}', r"\1,}", t, count=1)),
    ("missing last brace", lambda t: t[:-1]),
    ("missing last two closers", lambda t: t[:-2]),
    ("missing all closers after the last string", lambda t: t[:-3]),
    ("one brace too many", lambda t: t + "}"),
    ("fence", lambda t: f"```json\n{t}\n```"),
    ("fence without a name", lambda t: f"```\n{t}\n```"),
    ("fence never closed", lambda t: f"```json\n{t}"),
    ("fence after a remark", lambda t: f"Here is the conversation:\n\n```json\n{t}\n```"),
    ("fence before a remark", lambda t: f"```json\n{t}\n```\n\nI hope this helps!"),
    ("remark before", lambda t: f"Sure! Here is a new conversation:\n{t}"),
    ("remark after", lambda t: f"{t}\n\nThis conversation follows the policy."),
    ("raw line breaks in strings", lambda t: t.replace("\\n", "\n")),
    ("missing comma between messages", lambda t: t.replace("},{", "} {", 1) if '},{"role"' in t else t),
    ("line comment", lambda t: t.replace('{"messages":[', '{"messages":[ // the conversation\n', 1)),
    ("block comment", lambda t: t.replace('{"messages":[', '{"messages":[/* it begins */', 1)),
    ("keys without quotes", lambda t: re.sub(r'([{,])"(role|content|calls|name|arguments)":', r"\1\2:", t)),
    ("Python's literals", lambda t: t.replace(":true", ":True").replace(":false", ":False").replace(":null", ":None")),
    ("byte order mark", lambda t: "\ufeff" + t),
    ("carriage returns", lambda t: t.replace(',"', ',\r\n"')),
    ("blank lines around", lambda t: f"\n\n  {t}  \n\n"),
    ("own thought before", lambda t: f"<think>\nI write about an order.\n</think>\n{t}"),
    ("escaped apostrophes", lambda t: t.replace("'", "\\'")),
    ("escaped unicode", lambda t: t.replace("ë", "\\u00eb").replace("€", "\\u20ac")),
    (
        "arguments as text",
        lambda t: re.sub(r'"arguments":(\{[^{}]*\})\}', lambda m: f'"arguments":{json.dumps(m[1])}}}', t, count=1),
    ),
    (
        "arguments as text, twice",
        lambda t: re.sub(
            r'"arguments":(\{[^{}]*\})\}', lambda m: f'"arguments":{json.dumps(json.dumps(m[1]))}}}', t, count=1
        ),
    ),
    ("parameters for arguments", lambda t: t.replace('"arguments":', '"parameters":')),
    ("args for arguments", lambda t: t.replace('"arguments":', '"args":')),
    ("tool_calls for calls", lambda t: t.replace('"calls":', '"tool_calls":')),
    ("a bare list", lambda t: t.removeprefix('{"messages":').removesuffix("}")),
    ("conversation for messages", lambda t: t.replace('{"messages":', '{"conversation":', 1)),
    ("a title beside", lambda t: t.replace("{", '{"title":"An order","pass":1,', 1)),
    ("wrapped once more", lambda t: f'{{"conversation":{t}}}'),
    ("typographic quotes as delimiters", lambda t: t.replace('"role"', "“role”").replace('"user"', "“user”")),
]
ROLE_WORDS = [
    ("human and gpt", {"user": "human", "assistant": "gpt"}),
    ("observation", {"tool": "observation"}),
    ("function", {"tool": "function"}),
    ("User and Assistant", {"user": "User", "assistant": "Assistant"}),
]

TAGGED_SLIPS: list[tuple[str, Callable[[str], str]]] = [
    ("as asked", lambda t: t),
    ("fence", lambda t: f"```\n{t}\n```"),
    ("fence after a remark", lambda t: f"Here is it:\n```xml\n{t}\n```"),
    ("remark before", lambda t: f"Here is the new conversation:\n\n{t}"),
    ("remark after", lambda t: f"{t}\n\nLet me know if you want another one."),
    ("one closing tag missing in the middle", lambda t: t.replace("</user>\n", "", 1)),
    ("last closing tag missing", lambda t: t.removesuffix("\n</assistant>")),
    ("capital tags", lambda t: re.sub(r"</?(user|assistant|tool)>", lambda m: m[0].upper(), t)),
    (
        "human and gpt",
        lambda t: (
            t.replace("<user>", "<human>")
            .replace("</user>", "</human>")
            .replace("<assistant>", "<gpt>")
            .replace("</assistant>", "</gpt>")
        ),
    ),
    ("observation", lambda t: t.replace("<tool>", "<observation>").replace("</tool>", "</observation>")),
    ("blank lines between", lambda t: re.sub(r"(</\w+>)\n<", r"\1\n\n\n<", t)),
    ("carriage returns", lambda t: t.replace("\n", "\r\n")),
    ("byte order mark", lambda t: "\ufeff" + t),
    ("indented tags", lambda t: "\n".join("  " + line for line in t.split("\n")) if "1." not in t else ""),
    ("spaces in tags", lambda t: t.replace("<user>", "<user >").replace("</user>", "</user >")),
    (
        "tool_response inside",
        lambda t: re.sub(
            r"<tool>\n(.*?)\n</tool>", r"<tool>\n<tool_response>\n\1\n</tool_response>\n</tool>", t, flags=re.S
        ),
    ),
    ("trailing comma in a call", lambda t: re.sub(r"\}\}</tool_call>", "},}</tool_call>", t, count=1)),
    ("call without its last brace", lambda t: re.sub(r"\}\}</tool_call>", "}</tool_call>", t, count=1)),
    (
        "call in a fence",
        lambda t: re.sub(r"<tool_call>(.*?)</tool_call>", r"<tool_call>\n```json\n\1\n```\n</tool_call>", t, count=1),
    ),
    (
        "call over several lines",
        lambda t: re.sub(
            r"<tool_call>(.*?)</tool_call>",
            lambda m: f"<tool_call>\n{json.dumps(json.loads(m[1]), indent=2, ensure_ascii=False)}\n</tool_call>",
            t,
        ),
    ),
    (
        "arguments as text",
        lambda t: re.sub(
            r'"arguments": (\{[^{}]*\})\}</tool_call>',
            lambda m: f'"arguments": {json.dumps(m[1])}}}</tool_call>',
            t,
            count=1,
        ),
    ),
    ("function_call for tool_call", lambda t: t.replace("tool_call>", "function_call>")),
    ("thinking for think", lambda t: t.replace("think>", "thinking>")),
    ("own thought before", lambda t: f"<think>Another order, then.</think>\n\n{t}"),
    (
        "result over several lines",
        lambda t: re.sub(
            r"<tool>\n(\{.*?\})\n</tool>",
            lambda m: f"<tool>\n{json.dumps(json.loads(m[1]), indent=2, ensure_ascii=False)}\n</tool>",
            t,
            count=1,
        ),
    ),
]


def one_each(messages: Messages) -> Iterator[tuple[str, str, Messages | None]]:
    """(kind, text, expected) of JSON replies that stand for something else than the conversation, or for nothing."""
    text = as_json(messages)
    tabbed = changed(messages, 0, content="Name\tCount, Maple\t2")
    yield "raw tabs in a text", as_json(tabbed).replace("\\t", "\t"), tabbed
    yield (
        "quotes in a text, escaped",
        as_json(changed(messages, 0, content='I said "no", twice.')),
        changed(messages, 0, content='I said "no", twice.'),
    )
    yield (
        "typographic quotes in a text",
        as_json(changed(messages, 0, content="“No”, she said, ‘never’ – it’s mine.")),
        changed(messages, 0, content="“No”, she said, ‘never’ – it’s mine."),
    )
    lines = "User: how are you?\nA: fine\n\n  - indented\n**HUMAN:** no\nassistant: nor this"
    yield "role words in a text", as_json(changed(messages, 0, content=lines)), changed(messages, 0, content=lines)
    code = 'Run this:\n```json\n{"a": [1, 2],}\n```\nand <b>tell</b> me; {"messages": []} is not it.'
    yield "code in a text", as_json(changed(messages, 0, content=code)), changed(messages, 0, content=code)
    yield (
        "tags in a text",
        as_json(changed(messages, 0, content="What does </user> mean?\n<assistant>\nhi")),
        changed(messages, 0, content="What does </user> mean?\n<assistant>\nhi"),
    )
    yield (
        "a backslash that escapes nothing",
        text.replace("Hi, it", "C:\\\\Users, it", 1)
        .replace("C:\\\\U", "C:\\U")
        .replace("Please do", "C:\\Users do", 1),
        changed(
            messages,
            0,
            content=messages[0]["content"]
            .replace("Hi, it", "C:\\Users, it", 1)
            .replace("Please do", "C:\\Users do", 1),
        ),
    )
    yield "the same key twice, same value", text.replace('"role":"user"', '"role":"user","role":"user"', 1), messages
    yield (
        "the same key twice, another value",
        text.replace('"role":"user"', '"role":"user","role":"assistant"', 1),
        None,
    )
    yield (
        "an argument twice, another value",
        re.sub(r'("arguments":\{)("\w+":)', r'\1\2"OTHER",\2', text, count=1),
        None,
    )
    yield "cut in a string", text[: text.index("?") if "?" in text else 60], None
    yield "cut after a comma", text[: text.rindex(',"content"') + 1], None
    yield "cut in a key", text[: text.rindex('"content"') + 4], None
    yield "cut after a colon", text[: text.rindex('"content":') + 10], None
    yield "cut in the last text", text[:-20], None
    yield "two conversations", f"{text}\n{text.replace('20417', '99999').replace('10:30', '11:45')}", None
    yield (
        "two conversations, parted by words",
        f"{text}\n\nAnd another one:\n\n{text.replace('20417', '99999').replace('10:30', '11:45')}",
        None,
    )
    yield "an ellipsis for messages", text.replace("},{", "}, ..., {", 1), None
    yield "not a number", re.sub(r'("content":\{)', r'\1"score":NaN,', text, count=1), None
    yield "a role that nobody knows", text.replace('"role":"user"', '"role":"narrator"', 1), None
    yield "a message without a role", text.replace('"role":"user",', "", 1), None
    yield "a call without a name", re.sub(r'"name":"\w+",', "", text, count=1), None
    yield "a thought that never ends", f"<think>I should write a conversation {text}", None
    yield "empty", "", None
    yield "white space", " \n\t\n", None
    yield "a refusal", "I'm sorry, but I can't help with writing this conversation.", None
    yield (
        "an answer instead of a conversation",
        "The order ORD-20417 has been shipped and should arrive on Friday.",
        None,
    )
    yield "an empty list", '{"messages":[]}', None
    yield "an empty object", "{}", None
    yield (
        "a result as text",
        as_json(changed(messages, 2, content="Error: the service is down")),
        changed(messages, 2, content="Error: the service is down"),
    )
    yield "an empty result", as_json(changed(messages, 2, content="")), changed(messages, 2, content="")
    yield "no result", as_json([*messages[:2], messages[-1]]), None
    yield "one message a line", "\n".join(dumps(message) for message in messages), messages
    yield "OpenAI's shape", openai_shape(messages), messages
    yield "ShareGPT's shape", sharegpt(messages), messages
    yield "pretty printed", as_pretty(messages), messages
    yield "pretty printed, trailing commas", re.sub(r"\n(\s*[\]}])", r",\n\1", as_pretty(messages)), messages
    plain = changed(messages, 0, content="Where is it? I am Zoe.")
    yield (
        "single quotes",
        python_repr(
            {
                "messages": [
                    {**m, **({"content": m["content"].replace("'", "")} if isinstance(m.get("content"), str) else {})}
                    for m in json.loads(json.dumps(plain).replace("o'neil", "oneil"))
                ]
            }
        ),
        [
            {**m, **({"content": m["content"].replace("'", "")} if isinstance(m.get("content"), str) else {})}
            for m in json.loads(json.dumps(plain).replace("o'neil", "oneil"))
        ],
    )
    yield (
        "a quote that is not escaped",
        text.replace("Hi, it's me", 'Hi, "Zoe" here, it\'s me', 1)
        .replace("Please do two", 'Please do "two', 1)
        .replace("things:", 'things":', 1)
        if "Please" in text
        else text.replace("it's me again", 'it\'s "me" again', 1),
        changed(
            messages,
            0,
            content=messages[0]["content"].replace("Please do two things:", 'Please do "two things":')
            if "Please" in text
            else messages[0]["content"].replace("it's me again", 'it\'s "me" again'),
        ),
    )


def tagged_each(messages: Messages) -> Iterator[tuple[str, str, Messages | None]]:
    text = as_tagged(messages)
    lines = "User: how are you?\nA: fine\n\n  - indented\n\n**HUMAN:** no"
    yield "role words in a text", as_tagged(changed(messages, 0, content=lines)), changed(messages, 0, content=lines)
    yield (
        "markup in a text",
        as_tagged(changed(messages, 0, content="Is <b>this</b> & <order id=3> fine?")),
        changed(messages, 0, content="Is <b>this</b> & <order id=3> fine?"),
    )
    yield (
        "code in a text",
        as_tagged(changed(messages, 0, content="Run\n```\nls -l\n```\nplease")),
        changed(messages, 0, content="Run\n```\nls -l\n```\nplease"),
    )
    yield "wrong closing tag", text.replace("</user>", "</assistant>", 1), None
    yield "a tag within a turn", text.replace("<assistant>", "<assistant>\n<user>\nwait\n</user>", 1), None
    yield "text between turns", text.replace("</user>\n", "</user>\nThe assistant looks it up.\n", 1), None
    yield (
        "a thought that never ends",
        text.replace("<assistant>\n", "<assistant>\n<think>let me see\n", 1).replace("</think>", ""),
        # Before a call it has one end; two of them begun and none ended have none.
        None if "<think>" in text else changed(messages, 1, reasoning="let me see"),
    )
    yield "cut in a call", text[: text.index("</tool_call>") - 12], None
    yield (
        "cut in a result",
        text[: text.index("</tool>") - 8] if "ORD" in text else text[: text.rindex("</tool>") - 8],
        None,
    )
    yield "a call without a name", re.sub(r'"name": "\w+", ', "", text, count=1), None
    yield (
        "a call in Python's words",
        re.sub(r"<tool_call>.*?</tool_call>", '<tool_call>get_order(order_id="X", 5)</tool_call>', text, count=1),
        None,
    )
    yield (
        "all on the tags' lines",
        re.sub(r"<(user|assistant|tool)>\n(.*?)\n</\1>", r"<\1>\2</\1>", text, flags=re.S),
        messages,
    )
    yield (
        "a name in the tool tag",
        text.replace("<tool>", f'<tool name="{messages[1]["calls"][0]["name"]}">', 1),
        messages,
    )
    yield (
        "calls as a list in one tag",
        re.sub(
            r"<tool_call>.*</tool_call>",
            lambda _: f"<tool_call>{dumps(messages[1]['calls'])}</tool_call>",
            text,
            count=1,
            flags=re.S,
        ),
        messages,
    )
    yield (
        "a result as text",
        as_tagged(changed(messages, 2, content="No such thing.")),
        changed(messages, 2, content="No such thing."),
    )
    yield "no tags and no roles", re.sub(r"</?(user|assistant|tool|think|tool_call)>\n?", "", text), None


def rows() -> Iterator[dict[str, Any]]:
    number = 0

    def row(kind: str, form: str, text: str, expect: Messages | None) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"id": f"made-{number:03}", "kind": kind, "form": form, "source": "made", "text": text, "expect": expect}

    for name, base in BASES.items():
        text, tagged = as_json(base), as_tagged(base)
        for kind, slip in JSON_SLIPS:
            broken = slip(text)
            if broken not in (text, "") and (name == "shop" or kind not in AROUND):
                yield row(kind, "json", broken, base)
        for kind, words in ROLE_WORDS:
            yield row(
                kind,
                "json",
                re.sub(r'"role":"(\w+)"', lambda m, words=words: f'"role":"{words.get(m[1], m[1])}"', text),
                base,
            )
        for kind, broken, expect in one_each(base):
            if broken or kind == "empty":
                yield row(kind, "json", broken, expect)
        for kind, slip in TAGGED_SLIPS:
            broken = slip(tagged)
            if broken and (name == "shop" or kind not in AROUND):
                yield row(kind, "tagged", broken, base)
        for kind, broken, expect in tagged_each(base):
            yield row(kind, "tagged", broken, expect)


if __name__ == "__main__":
    for each in rows():
        sys.stdout.write(dumps(each) + "\n")
