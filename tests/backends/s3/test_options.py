"""An option with a wrong value is refused when the store is opened, by its name and without its value."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory
from tests.object_store.listeners import options
from tests.support.loops import looped

ENDPOINT = "http://127.0.0.1:1"
TEXTS = ("key", "secret", "token", "username", "password", "profile", "default_cache_type")
MAPPINGS = ("client_kwargs", "config_kwargs", "s3_additional_kwargs", "session_vars")
SWITCHES = ("anon", "use_ssl", "requester_pays", "version_aware", "cache_regions", "fixed_upload_size")
NUMBERS = ("max_concurrency", "default_block_size")
WRONG = [
    *((name, value, "a text") for name in TEXTS for value in (["hidden"], 5, b"hidden", {"hidden": 1})),
    *((name, value, "a mapping") for name in MAPPINGS for value in (["hidden"], 5, "hidden", True)),
    *((name, value, "true or false") for name in SWITCHES for value in (["hidden"], {"hidden": 1}, 0.5)),
    *((name, value, "a number") for name in NUMBERS for value in (["hidden"], "hidden", 0.5)),
    *(("session", value, "a session of aiobotocore") for value in (5, "hidden", {"hidden": 1})),
    *(("allow_single_writer", value, "true or false") for value in (["hidden"], 5, None)),
]


def refused(given: dict[str, object], kind: type[Exception] = TypeError) -> str:
    with pytest.raises(kind) as failed:
        AgentMemory.open("s3://bucket", storage_options={**options("s3fs", ENDPOINT), **given})
    assert "hidden" not in str(failed.value)
    return str(failed.value)


@looped(("name", "value", "allowed"), WRONG)
def test_a_value_of_another_type_is_refused(name: str, value: object, allowed: str) -> None:
    assert refused({name: value}) == f"option {name}: {allowed}, not {type(value).__name__}"


@looped("name", TEXTS)
def test_a_text_with_a_line_end_is_refused(name: str) -> None:
    assert refused({name: "a\nhidden"}, ValueError).startswith(f"option {name}: the text has a line end")


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"client_kwargs": {"no_such": 1}}, TypeError, "option client_kwargs: the client takes no no_such"),
        (
            {"config_kwargs": {"no_such": 1}},
            TypeError,
            "option config_kwargs: Got unexpected keyword",
        ),
        ({"config_kwargs": {"s3": {"addressing_style": "hidden"}}}, ValueError, "option config_kwargs: a value"),
        ({"config_kwargs": {"retries": 5}}, TypeError, "option config_kwargs: "),
        ({"username": "another"}, TypeError, "option username: it is another name of key; give one of them"),
    ],
)
def test_a_name_or_value_within_an_option_is_refused(
    given: dict[str, object], kind: type[Exception], message: str
) -> None:
    assert refused(given, kind).startswith(message)


@pytest.mark.parametrize("name", ["token", "profile", "client_kwargs", "config_kwargs", "session", "max_concurrency"])
def test_none_stands_for_the_default(name: str) -> None:
    AgentMemory.open("s3://bucket", storage_options={**options("s3fs", ENDPOINT), name: None}).close()


@pytest.mark.parametrize("value", [5, "hidden", ["hidden"]])
def test_obstore_names_its_option_too(value: object) -> None:
    given = {**options("obstore", ENDPOINT), "client_options": value}
    with pytest.raises(TypeError, match=f"^option client_options: a mapping, not {type(value).__name__}$"):
        AgentMemory.open("s3://bucket", storage_options=given)


def test_the_options_of_another_filesystem_are_named() -> None:
    with pytest.raises(TypeError, match=r"^ftp:// does not take these options \(options: port\): "):
        AgentMemory.open("ftp://127.0.0.1/x", storage_options={"port": ["hidden"]})
