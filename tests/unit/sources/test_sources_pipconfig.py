from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubuild.sources.pipconfig import (
    PipConfig,
    has_secret,
    local_path,
    parse_pip_config_list,
    pip_config_from,
    redact,
    uv_arguments,
    uv_environment,
    uv_overrides,
)

RECORDED = """\
:env:.cert='/etc/ssl/bundle.crt'
:env:.default-timeout='180'
:env:.disable-pip-version-check='1'
:env:.find-links='/srv/wheels'
global.constraint='/etc/pip/constraints.txt\\n/etc/pip/more.txt'
global.extra-index-url='file:///srv/simple\\nhttps://user:pa55@mirror.example/simple'
global.find-links='/elsewhere'
global.index-url='https://mirror.example/root/simple'
global.trusted-host='mirror.example other.example:8443'
install.retries='2'
install.no-binary='xformers,flash-attn'
"""


def test_a_whole_configuration_is_read():
    config = pip_config_from(RECORDED)
    assert config.index_url == "https://mirror.example/root/simple"
    assert config.extra_index_urls == (
        "file:///srv/simple",
        "https://user:pa55@mirror.example/simple",
    )
    assert config.constraints == ("/etc/pip/constraints.txt", "/etc/pip/more.txt")
    assert config.trusted_hosts == ("mirror.example", "other.example:8443")
    assert config.timeout == 180
    assert config.retries == 2
    assert config.cert == "/etc/ssl/bundle.crt"
    assert config.no_binary == ("xformers", "flash-attn")
    assert config.unused == ()


def test_the_environment_replaces_what_files_say():
    assert pip_config_from(RECORDED).find_links == ("/srv/wheels",)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("global.index-url='g'", "g"),
        ("global.index-url='g'\ndownload.index-url='d'", "d"),
        ("install.index-url='i'\nglobal.index-url='g'\ndownload.index-url='d'", "i"),
        (":env:.index-url='e'\ninstall.index-url='i'", "e"),
        ("global.index-url='g'\n:env:.index-url=''", "g"),
        ("list.index-url='l'", None),
    ],
)
def test_sections_rank_as_in_pip(lines, expected):
    assert pip_config_from(lines).index_url == expected


def test_keys_without_effect_here_are_named_and_redacted():
    config = pip_config_from("global.keyring-provider='import'\nglobal.src='https://a:b@h/x'")
    assert config.unused == (("keyring-provider", "import"), ("src", "https://***@h/x"))


def test_find_links_that_are_gone_are_left_out_with_a_note():
    text = "global.find-links='/here /gone https://mirror.example/links'"
    config = pip_config_from(text, exists=["/here"])
    assert config.find_links == ("/here", "https://mirror.example/links")
    assert config.notes == ("find-links /gone does not exist and is left out",)


def test_numbers_that_are_none_are_left_out_with_a_note():
    config = pip_config_from("global.timeout='soon'")
    assert config.timeout is None
    assert "'soon'" in config.notes[0]


def test_the_hosts_certificate_and_uvs_index_fill_gaps():
    environ = {
        "REQUESTS_CA_BUNDLE": "/r.pem",
        "SSL_CERT_FILE": "/s.pem",
        "UV_INDEX_URL": "https://u",
    }
    config = pip_config_from("", environ=environ)
    assert (config.cert, config.index_url) == ("/r.pem", "https://u")
    assert config.notes
    named = pip_config_from("global.cert='/p.pem'\nglobal.index-url='https://p'", environ=environ)
    assert (named.cert, named.index_url, named.notes) == ("/p.pem", "https://p", ())


@pytest.mark.parametrize("line", ["nonsense", "global.x=unquoted", "x='1'", "global.a=5"])
def test_a_line_of_another_shape_is_named(line):
    with pytest.raises(ValueError, match="line 2"):
        parse_pip_config_list("global.a='1'\n" + line)


@given(st.dictionaries(st.sampled_from(["index-url", "proxy", "cert"]), st.text(max_size=40)))
def test_any_value_survives_pips_quoting(values):
    text = "\n".join(f"global.{k}={v!r}" for k, v in values.items())
    assert parse_pip_config_list(text) == {f"global.{k}": v for k, v in values.items()}


def test_uv_gets_everything_and_no_secret_on_its_command_line():
    config = pip_config_from(RECORDED)
    args, env = uv_arguments(config), uv_environment(config)
    assert "pa55" not in " ".join(args)
    assert env["UV_INDEX"].split() == list(config.extra_index_urls)
    assert args[:2] == ("--default-index", "https://mirror.example/root/simple")
    assert args.count("--constraint") == 2
    assert args[args.index("--index-strategy") + 1] == "unsafe-best-match"
    assert ("--allow-insecure-host", "other.example:8443") in set(pairwise(args))
    assert env["SSL_CERT_FILE"] == "/etc/ssl/bundle.crt"
    assert env["UV_HTTP_TIMEOUT"] == "180"
    assert env["UV_HTTP_RETRIES"] == "2"


def test_uv_gets_nothing_when_pip_is_not_configured():
    assert uv_arguments(PipConfig()) == ()
    assert uv_environment(PipConfig()) == {}


def test_no_index_reaches_uv_and_empties_the_indexes():
    config = pip_config_from("global.no-index='true'\nglobal.extra-index-url='https://x'")
    assert "--no-index" in uv_arguments(config)
    assert config.index_urls == ()


def test_a_secret_default_index_goes_by_the_environment():
    config = PipConfig(index_url="https://token@h/simple", proxy="http://p:3128")
    assert uv_arguments(config) == ("--index-strategy", "unsafe-best-match")
    env = uv_environment(config)
    assert env["UV_DEFAULT_INDEX"] == "https://token@h/simple"
    assert env["HTTPS_PROXY"] == "http://p:3128"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://u:p@w@host/simple", "https://***@host/simple"),
        ("a http://tok@h/ b", "a http://***@h/ b"),
        ("file:///a@b", "file:///a@b"),
        ("https://h/pkg@1.0", "https://h/pkg@1.0"),
    ],
)
def test_credentials_are_never_shown(text, expected):
    assert redact(text) == expected


def test_local_and_remote_locations_are_told_apart():
    assert str(local_path("file:///a%20b")) == "/a b"
    assert str(local_path("/wheels")) == "/wheels"
    assert local_path("https://h/x") is None
    assert has_secret("https://u@h/")
    assert not has_secret("https://h/a@b")


def test_variables_that_change_uvs_answer_are_reported():
    found = uv_overrides(
        {"UV_TORCH_BACKEND": "cu128", "UV_INDEX": "https://u:p@h", "UV_CACHE_DIR": "x"}
    )
    assert [(name, value) for name, value, _ in found] == [
        ("UV_TORCH_BACKEND", "cu128"),
        ("UV_INDEX", "https://***@h"),
    ]
