"""A model's shape from its configuration and the headers of its weights."""

from __future__ import annotations

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.tune.shape import quantisation, read_shape


def test_weights_are_counted_in_the_type_they_will_run_in(make_model):
    shape = read_shape(make_model())
    assert shape.weights("bfloat16") == 2_000_000
    assert shape.weights("float32") == 4_000_000
    assert shape.token("bfloat16") == 2 * 2 * 2 * 16 * 2


def test_packed_weights_keep_their_size_whatever_the_type(make_model):
    tensors = {"packed": ("I32", (100, 100)), "scales": ("F16", (10, 10))}
    shape = read_shape(make_model(tensors=tensors))
    assert shape.weights("bfloat16") == 40_000 + 200
    assert shape.weights("float32") == 40_000 + 400


def test_a_tied_output_layer_is_packed_once_more(make_model):
    plain, tied = make_model("a"), make_model("b", tie_word_embeddings=True)
    more = read_shape(tied).weights("bfloat16") - read_shape(plain).weights("bfloat16")
    assert more == 320 * 64 * 2


def test_the_head_dimension_may_be_told(make_model):
    assert read_shape(make_model(head_dim=32)).head_dim == 32


def test_a_model_with_a_nested_text_model(make_model):
    inner = {"num_hidden_layers": 7, "hidden_size": 32}
    shape = read_shape(make_model(text_config=inner))
    assert (shape.layers, shape.hidden) == (7, 32)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"torch_dtype": "float8"}, "its type is float8"),
        ({"num_attention_heads": "many"}, "num_attention_heads is missing"),
    ],
)
def test_a_configuration_that_does_not_tell_is_an_error(make_model, changes, said):
    with pytest.raises(CpuBuildError, match=said) as caught:
        read_shape(make_model(**changes))
    assert caught.value.exit_code is ExitCode.SETTINGS


def test_all_that_is_wrong_is_said_at_once(make_model):
    folder = make_model()
    (folder / "config.json").write_text("[")
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(CpuBuildError) as caught:
        read_shape(folder)
    assert len(caught.value.problems) == 2


def test_a_folder_without_weights_or_none_at_all(tmp_path, make_model):
    folder = make_model()
    (folder / "model.safetensors").unlink()
    with pytest.raises(CpuBuildError, match=r"no \*\.safetensors"):
        read_shape(folder)
    with pytest.raises(CpuBuildError, match="not a folder"):
        read_shape(tmp_path / "nowhere")


GROUP = {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (None, None),
        ({"quant_method": "awq", "bits": 4}, "int4-awq"),
        ({"quant_method": "awq", "w_bit": 4}, "int4-awq"),
        ({"quant_method": "gptq", "bits": 8}, "int8-gptq"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": GROUP}}, "int8-w8a8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "int4-packed",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 4, "type": "float"}}},
            },
            "float4",
        ),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors of an unknown format"),
    ],
)
def test_the_kind_of_quantisation(given, kind):
    assert quantisation({"quantization_config": given})[1] == kind
