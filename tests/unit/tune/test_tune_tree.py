"""What an installed vLLM knows is read from its own files; unknown is not the same as nothing."""

from __future__ import annotations

import pytest

from cpubuild.tune.tree import Tree, read_tree


def test_names_come_from_the_installed_files(make_site):
    tree = read_tree(make_site())
    assert tree.has("VLLM_CPU_OMP_THREADS_BIND")
    assert not tree.has("VLLM_CPU_MOE_PREPACK")
    assert tree.takes("--dtype")
    assert tree.takes("--api-key")  # of the front end
    assert not tree.takes("--device")
    assert tree.unbound == "nobind"


def test_where_nothing_is_installed_all_is_unknown(tmp_path):
    tree = read_tree(tmp_path)
    assert (tree.site, tree.variables, tree.options, tree.unbound) == (None, None, None, None)
    assert tree.has("VLLM_CPU_KVCACHE_SPACE")  # harmless if it is not read
    assert not tree.takes("--dtype")  # an unknown option ends the start
    assert not tree.matches("**/*.py", ".")


@pytest.mark.parametrize("text", ["def (", "\0", "x = "])
def test_files_that_are_no_python_leave_the_names_unknown(make_site, text):
    files = {"vllm/envs.py": text, "vllm/engine/arg_utils.py": text}
    tree = read_tree(make_site(files=files))
    assert tree.variables is None
    assert tree.options is None


def test_methods_of_quantisation_are_read_old_and_new(make_site):
    name = "vllm/model_executor/layers/quantization/__init__.py"
    new = read_tree(make_site(files={name: 'QuantizationMethods = Literal["awq", "fp8"]\n'}))
    assert new.methods == {"awq", "fp8"}
    assert new.site is not None
    old = {name: 'QUANTIZATION_METHODS: dict[str, int] = {"gptq": A, "awq": B}\n'}
    assert read_tree(make_site(files=old)).methods == {"awq", "gptq"}


def test_patterns_are_looked_for_in_all_files_that_match(make_site):
    tree = read_tree(make_site(files={"vllm/a/one.py": "x", "vllm/a/b/two.py": "needle"}))
    assert tree.matches("vllm/a/**/*.py", "need.e")
    assert not tree.matches("vllm/a/*.py", "needle")
    assert Tree(site=None).variables is None
