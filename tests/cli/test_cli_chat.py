"""`--chat`: the same tokens from the command line, from Python and from the app's engine."""

import json
import shutil
from pathlib import Path

import pytest
from calls import Call

from engine import load_model, trace
from engine.browse import Session
from engine.errors import PromptError, TokenizerError

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' and loop.index > 1 %}"
    "{{ raise_exception('a system speaks first') }}{% endif %}"
    "[{{ message.role }}] {{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why was the disk full"}]


@pytest.fixture(scope="session")
def speaking(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a chat template."""
    folder = shutil.copytree(tiny, tmp_path_factory.mktemp("models") / "speaking")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def tokens_shown(call: Call, *args: object) -> list[tuple[int, str]]:
    done = call("show", *args, "--json")
    assert done.code == 0, done.err
    [row] = done.json["tokens"]
    return [(token["id"], token["origin"]) for token in row]


def test_a_prompt_is_one_message_of_the_user(call: Call, speaking: Path) -> None:
    shown = tokens_shown(call, "the disk", "--chat", "--model", speaking)
    model = load_model(speaking)
    assert model.tokenizer is not None
    assert shown == [(token.id, token.origin) for token in model.tokenizer.chat("the disk")]
    assert model.tokenizer.decode(id for id, _ in shown) == "[user] the disk\n[assistant]"
    assert model.tokenizer.decode(id for id, origin in shown if origin == "text").strip() == "the disk"


def test_a_json_list_is_messages(call: Call, speaking: Path) -> None:
    shown = tokens_shown(call, json.dumps(MESSAGES), "--chat", "--model", speaking)
    recorded = trace(load_model(speaking), MESSAGES)
    assert [id for id, _ in shown] == [token.id for token in recorded.tokens[0]]
    assert recorded.prompt == "[system] be brief\n[user] why was the disk full\n[assistant]"


@pytest.mark.parametrize("prompt", ["[1, 2]", "[", "[]", '{"role": "user"}', "[the disk]"])
def test_other_text_in_brackets_is_text(call: Call, speaking: Path, prompt: str) -> None:
    shown = tokens_shown(call, prompt, "--chat", "--model", speaking)
    assert len(shown) == len(trace(load_model(speaking), prompt, chat=True).tokens[0])


@pytest.mark.parametrize(
    "prompt", ['[{"rol": "user", "content": "hi"}]', '[{"role": "user", "content": "hi"},]', " [{"]
)
def test_a_mistyped_list_of_messages_is_said_to_be_text(call: Call, speaking: Path, prompt: str) -> None:
    done = call("show", prompt, "--chat", "--model", speaking, "--json")
    assert done.code == 0
    assert "begins as a JSON list of messages and is none" in done.err
    assert done.json["prompt"] == f"[user] {prompt.strip()}\n[assistant]"
    for right in (json.dumps(MESSAGES), "[the disk]"):
        assert "JSON" not in call("show", right, "--chat", "--model", speaking).err


def test_every_entry_point_gives_equal_ids(call: Call, speaking: Path) -> None:
    """T4: one switch."""
    text = "why was the disk full"
    shown = [id for id, _ in tokens_shown(call, text, "--chat", "--model", speaking)]
    opened = Session().open({"model": str(speaking), "prompt": text, "chat": "yes"}, lambda *_: None)
    assert [token["id"] for token in opened["tokens"][0]] == shown
    assert [token.id for token in trace(load_model(speaking), text, chat=True).tokens[0]] == shown


def test_words_say_where_a_token_is_from(call: Call, speaking: Path) -> None:
    lines = call("show", "the disk", "--chat", "--model", speaking).out.splitlines()
    assert any("added by template" in line for line in lines)


def test_several_chats_at_once(speaking: Path) -> None:
    model = load_model(speaking)
    t = trace(model, ["the disk", "dog bites man and man bites dog"], chat=True)
    for row, text in zip(t.tokens, ("the disk", "dog bites man and man bites dog"), strict=True):
        alone = trace(model, text, chat=True).tokens[0]
        assert [token.id for token in row if token.origin != "padding"] == [token.id for token in alone]


def test_a_model_without_a_template_says_so(call: Call, tiny: Path) -> None:
    done = call("show", "hi", "--chat", "--model", tiny)
    assert (done.code, done.out) == (1, "")
    assert (
        done.err == "layerstep: this model has no chat template; give the prompt as plain text, without chat (--chat)\n"
    )
    with pytest.raises(TokenizerError, match="no chat template"):
        trace(load_model(tiny), "hi", chat=True)


def test_a_template_that_refuses_says_why(call: Call, speaking: Path) -> None:
    done = call("show", json.dumps(MESSAGES[::-1]), "--chat", "--model", speaking)
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("refuses these messages: a system speaks first")


@pytest.mark.parametrize("args", [["5 6", "--ids", "--chat"], ["a.safetensors", "--chat"]])
def test_chat_does_not_go_with_ids_or_a_file(call: Call, args: list[str]) -> None:
    assert call("show", *args).code == 2


def test_ids_are_no_chat(speaking: Path) -> None:
    with pytest.raises(PromptError, match="token ids are no chat"):
        trace(load_model(speaking), [1, 2], chat=True)


def test_the_app_is_told(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("engine.cli.walk.open_app", lambda *what: calls.append(what) or 0)
    assert call("hi", "--chat").code == 0
    assert calls == [("hi", None, None, None, True, None, False)]
