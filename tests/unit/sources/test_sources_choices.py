from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from dataclasses import asdict

import pytest

from cpubuild.errors import CpuBuildError, ExitCode
from cpubuild.facts.model import Distro
from cpubuild.sources import Rejected, apt, trees, vllm, vllm_errors
from cpubuild.sources.constraints import admits, excluded_by, logical_lines
from cpubuild.sources.git import parse_ls_remote, why_unreached
from cpubuild.sources.index import IndexFile, Listing, group, nothing_listed
from cpubuild.sources.onednn import (
    OnednnChoice,
    choose_onednn,
    differs,
    fetch_onednn,
    recorded,
    tree_version,
    upstream_version,
    verify_files,
)
from cpubuild.sources.pipconfig import PipConfig
from cpubuild.sources.session import trusted

DEBIAN = Distro(id="debian", version="12", codename="bookworm", pretty="Debian 12", family="apt")
FEDORA = Distro(id="fedora", version="42", codename="", pretty="Fedora 42", family="dnf")
ONE, TWO = "1" * 40, "2" * 40


def sdist(version, yanked=False, kind="sdist"):
    return IndexFile(
        project="vllm",
        version=version,
        filename=f"vllm-{version}.tar.gz",
        url=f"https://mirror.example/vllm-{version}.tar.gz",
        kind=kind,
        origin="the index",
        sha256="ab" * 32,
        yanked=yanked,
    )


def listed(*files):
    return Listing(project="vllm", releases=group(files), asked=("the index",))


def vllm_tree(folder):
    (folder / "requirements/build").mkdir(parents=True)
    (folder / "requirements/build/cpu.txt").write_text("torch==2.13.0+cpu\n")
    (folder / "setup.py").write_text("print()\n")
    (folder / "PKG-INFO").write_text("Name: vllm\nVersion: 0.32.0\n")
    (folder / "build").mkdir()
    (folder / "build/junk.o").write_text("x")
    (folder / "vllm/__pycache__").mkdir(parents=True)
    (folder / "vllm/__pycache__/a.pyc").write_text("x")
    (folder / "link").symlink_to("setup.py")
    return folder


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("latest", "latest"),
        ("0.32.0", "version"),
        ("v0.32.0", "version"),
        ("0.6.3.post1", "version"),
        ("main", "ref"),
        ("releases/v0.32.0", "ref"),
        ("617be5e", "ref"),
        ("1234567", "ref"),
        ("./0.32.0", "path"),
        ("/src/vllm", "path"),
        ("vllm-0.32.0.tar.gz", "path"),
    ],
)
def test_what_was_asked_for(spec, kind):
    assert vllm.spec_kind(spec) == kind


def test_the_newest_release_is_the_one_whose_torch_is_here():
    found = listed(
        sdist("0.34.0rc1"), sdist("0.33.0"), sdist("0.32.1", yanked=True), sdist("0.32.0")
    )
    pins = {"0.33.0": "2.14.0+cpu", "0.32.0": "2.13.0+cpu"}
    version, passed = vllm.newest(
        found, torch_pin_of=pins.get, torch_available=lambda pin: pin == "2.13.0+cpu"
    )
    assert version == "0.32.0"
    assert [r.what for r in passed] == ["vLLM 0.34.0rc1", "vLLM 0.33.0", "vLLM 0.32.1"]
    assert "2.14.0+cpu" in passed[1].why
    assert vllm.newest(found)[0] == "0.33.0"


def test_no_release_with_torch_is_a_download_error_with_a_remedy():
    with pytest.raises(CpuBuildError) as caught:
        vllm.newest(listed(sdist("0.33.0")), torch_pin_of=lambda _: None, torch_available=bool)
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert "could not be read" in str(caught.value)


def test_who_did_not_answer_is_told_with_what_helps():
    gone = Rejected(what="https://mirror.example/simple", why="connection refused")
    found = Listing(
        project="vllm", releases=(), asked=("https://mirror.example/simple", "/w"), failed=(gone,)
    )
    error = nothing_listed(found)
    assert error.exit_code is ExitCode.DOWNLOAD
    (problem,) = error.problems
    assert problem.what.endswith("reached: https://mirror.example/simple: connection refused")
    assert problem.why.endswith("it is not on /w")
    helps = " ".join(problem.remedy)
    assert all(word in helps for word in ("index-url", "--offline", "--wheel-cache", "mirror"))


def test_places_that_answer_and_have_nothing_are_named():
    error = nothing_listed(Listing(project="vllm", releases=(), asked=("/w", "/x")))
    assert str(error) == "no package index of this host lists vllm: it is not on /w, /x"
    error = nothing_listed(Listing(project="vllm", releases=(), asked=()))
    assert str(error).endswith("none is set")


def test_an_unknown_version_names_its_neighbours():
    error = vllm_errors.unknown_version("0.32.7", ("0.30.0", "0.31.0", "0.32.0", "0.33.0", "0.9.2"))
    assert error.exit_code is ExitCode.SETTINGS
    assert "0.32.7" in str(error)
    assert error.problems[0].remedy[:2] == ("--vllm 0.32.0", "--vllm 0.33.0")
    assert vllm_errors.nearest("9", ("0.1", "0.2")) == ("0.2", "0.1")


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("spec", ["0.0.1", "v0.5.4", "0.6.2"])
def test_a_release_from_before_the_readable_ones_is_refused(tmp_path, spec, offline):
    with pytest.raises(CpuBuildError, match=r"the nearest releases that can: 0\.6\.3") as caught:
        vllm.choose_vllm(spec, config=PipConfig(no_index=True), folder=tmp_path, offline=offline)
    assert caught.value.exit_code is ExitCode.SETTINGS
    assert f"vLLM {spec} " in str(caught.value)


def test_a_version_that_is_not_cached_offline_names_what_is_near(tmp_path):
    config = PipConfig(no_index=True)
    for key, record in {
        "vllm-a": {"spec": "0.30.0", "version": "0.30.0"},
        "onednn-b": {"tag": "v3.13", "version": "3.13"},
    }.items():
        trees.place(tmp_path, key, record, lambda tree: None)
    with pytest.raises(CpuBuildError) as caught:
        vllm.choose_vllm("0.32.9", config=config, folder=tmp_path, offline=True)
    assert "the cache holds: 0.30.0;" in caught.value.problems[0].why
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert "near it that are known: 0.32.0, 0.33.0" in caught.value.problems[0].why
    with pytest.raises(CpuBuildError) as caught:
        vllm.choose_vllm("0.32.0", config=config, folder=tmp_path, offline=True)
    assert "near it" not in caught.value.problems[0].why


def test_a_folder_is_copied_without_products_and_keyed_by_content(tmp_path):
    source = vllm_tree(tmp_path / "src")
    config, cache = PipConfig(no_index=True), tmp_path / "cache"
    first = trees.tree_sha256(source)
    key = trees.tree_sha256(source)
    assert first == key
    (source / "build/more.o").write_text("y")
    assert trees.tree_sha256(source) == first
    choice = vllm.VllmChoice(
        spec=str(source), kind="path", key=first, reason="asked", path=str(source)
    )
    tree = vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config)
    assert (tree / "requirements/build/cpu.txt").is_file()
    assert (tree / "link").is_symlink()
    assert not (tree / "build").exists()
    assert not (tree / "vllm/__pycache__").exists()
    assert trees.tree_sha256(tree) == first
    (source / "setup.py").write_text("changed\n")
    assert trees.tree_sha256(source) != first
    assert vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config) == tree
    assert (tree / "setup.py").read_text() == "print()\n"


def test_the_executable_bit_counts(tmp_path):
    source = vllm_tree(tmp_path / "src")
    before = trees.tree_sha256(source)
    (source / "setup.py").chmod(0o755)
    assert trees.tree_sha256(source) != before


def test_a_failed_fill_leaves_nothing(tmp_path):
    def fill(tree):
        (tree / "half").write_text("x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        trees.place(tmp_path, "key", {}, fill)
    assert list(tmp_path.iterdir()) == []


def kept_tree(folder):
    def fill(tree):
        (tree / "setup.py").write_text("print()\n")
        (tree / "csrc").mkdir()
        (tree / "csrc/a.cpp").write_text("int a;\n")

    heard = []
    record = {"version": "1", "reason": "found"}
    tree = trees.place(folder, "key", record, fill, tell=heard.append)
    return tree, heard


DAMAGES = {
    "removed": lambda tree: (tree / "setup.py").unlink(),
    "altered": lambda tree: (tree / "csrc/a.cpp").write_text("int b;\n"),
    "added": lambda tree: (tree / "csrc/b.cpp").write_text("int b;\n"),
    "mode": lambda tree: (tree / "setup.py").chmod(0o755),
    "link": lambda tree: ((tree / "setup.py").unlink(), (tree / "setup.py").symlink_to("csrc")),
    "gone": lambda tree: shutil.rmtree(tree),
    "record": lambda tree: (tree.parent / trees.RECORD).write_text("{"),
    "seal": lambda tree: (tree.parent / trees.SEAL).unlink(),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_kept_tree_that_was_changed_is_made_again(tmp_path, damage):
    tree, heard = kept_tree(tmp_path)
    whole = trees.tree_sha256(tree)
    assert kept_tree(tmp_path) == (tree, [])
    DAMAGES[damage](tree)
    again, heard = kept_tree(tmp_path)
    assert again == tree
    assert len(heard) == 1
    assert str(tmp_path / "key") in heard[0]
    assert trees.tree_sha256(tree) == whole
    assert trees.damage(tmp_path / "key") == ""
    assert kept_tree(tmp_path) == (tree, [])


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_lies_where_a_tree_belongs_gives_way(tmp_path, kind):
    if kind == "file":
        (tmp_path / "key").write_text("x")
    else:
        (tmp_path / "key").symlink_to("nowhere")
    assert kept_tree(tmp_path) == (tmp_path / "key/tree", [])
    assert (tmp_path / "key/tree/setup.py").is_file()


def test_a_tree_that_is_made_again_keeps_its_record(tmp_path):
    tree, _ = kept_tree(tmp_path)
    DAMAGES["altered"](tree)
    trees.place(tmp_path, "key", {"version": "2"}, lambda _: None, tell=lambda _: None)
    assert [r["version"] for _, r in trees.records(tmp_path)] == ["1"]


def test_what_was_wrong_with_a_kept_vllm_is_told_and_not_recorded(tmp_path):
    source, heard = vllm_tree(tmp_path / "src"), []
    config, cache = PipConfig(no_index=True), tmp_path / "cache"
    choice = vllm.choose_vllm(str(source), config=config, folder=cache)
    tree = vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config)
    (tree / "setup.py").unlink()
    vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config, tell=heard.append)
    assert (tree / "setup.py").is_file()
    assert "changed since it was unpacked" in heard[0]
    assert [r["warning"] for _, r in trees.records(cache)] == [None]


def test_a_damaged_onednn_is_still_the_choice_and_says_so(tmp_path):
    choice = OnednnChoice(
        tag="v3.13", kind="git", key=ONE, reason="answered", version="3.13", commit=ONE
    )
    record = asdict(choice)
    tree = trees.place(tmp_path, "onednn-x", record, lambda t: (t / "a").write_text("x"))
    kept = recorded("v3.13", tmp_path)
    assert kept.reason == "already in the cache; answered"
    (tree / "a").unlink()
    kept = recorded("v3.13", tmp_path)
    assert kept.reason.endswith("changed since it was unpacked: it is fetched again; answered")
    shutil.rmtree(tree)
    assert "is gone: it is fetched again" in recorded("v3.13", tmp_path).reason


def test_an_archive_is_chosen_by_its_path_alone(tmp_path):
    source = vllm_tree(tmp_path / "src")
    archive = tmp_path / "vllm-0.32.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, "vllm-0.32.0")
    config, cache = PipConfig(no_index=True), tmp_path / "cache"
    choice = vllm.choose_vllm(str(archive), config=config, folder=cache)
    assert (choice.version, choice.kind) == ("0.32.0", "path")
    tree = vllm.fetch_vllm(choice, cache, downloads=tmp_path / "d", config=config)
    assert (tree / "setup.py").is_file()
    # what lay under a path is no release: it answers only to that path
    for spec in ("0.32.0", "v0.32.0", "latest"):
        with pytest.raises(CpuBuildError, match="not in the cache"):
            vllm.choose_vllm(spec, config=config, folder=cache, offline=True)
    with pytest.raises(CpuBuildError, match="main are not in the cache"):
        vllm.choose_vllm("main", config=config, folder=cache, offline=True)


@pytest.mark.parametrize("name", ["gone", "empty", "file.tar.gz.d"])
def test_a_path_that_is_no_vllm_is_a_settings_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.tar.gz.d").write_text("x")
    with pytest.raises(CpuBuildError, match=name) as caught:
        vllm.choose_vllm(str(tmp_path / name), config=PipConfig(), folder=tmp_path)
    assert caught.value.exit_code is ExitCode.SETTINGS


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o4777
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("top/../../evil"),
        member("/etc/evil"),
        member("top/l", tarfile.SYMTYPE, "../../etc/passwd"),
        member("top/l", tarfile.SYMTYPE, "/etc/passwd"),
        member("top/l", tarfile.LNKTYPE, "../x"),
        member("top/d", tarfile.CHRTYPE),
    ],
)
@pytest.mark.parametrize("filtered", [True, False])
def test_an_archive_cannot_leave_its_tree(tmp_path, bad, filtered, monkeypatch):
    if filtered and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no extraction filter")
    if not filtered:
        if sys.version_info >= (3, 12):
            pytest.skip("every Python of this version has the extraction filter")
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(member("top/ok"), io.BytesIO())
        tar.addfile(bad, io.BytesIO() if bad.isreg() else None)
    tree = tmp_path / "tree"
    tree.mkdir()
    if filtered and bad.name == "/etc/evil":
        trees.unpack(archive, tree)
        assert (tree / "top/ok").exists() or (tree / "ok").exists()
        return
    with pytest.raises(CpuBuildError, match=r"evil\.tar cannot be unpacked") as caught:
        trees.unpack(archive, tree)
    assert caught.value.exit_code is ExitCode.DOWNLOAD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.tar", "tree"]


def test_a_plain_member_loses_its_special_bits():
    info = member("top/file")
    trees.plain_member(info)
    assert info.mode == 0o755


def test_a_damaged_record_is_passed_over(tmp_path):
    (tmp_path / "a/tree").mkdir(parents=True)
    (tmp_path / "a/source.json").write_text("{")
    (tmp_path / "b/tree").mkdir(parents=True)
    (tmp_path / "b/source.json").write_text(json.dumps({"version": "1"}))
    assert [r for _, r in trees.records(tmp_path)] == [{"version": "1"}]
    assert vllm.recorded("1", tmp_path) is None


def test_tags_are_peeled_to_their_commits():
    text = f"{ONE}\trefs/tags/v1\n{TWO}\trefs/tags/v1^{{}}\nwarning: noise\n{ONE}\tHEAD\n"
    assert dict(parse_ls_remote(text)) == {"refs/tags/v1": TWO, "HEAD": ONE}


@pytest.mark.parametrize(
    ("code", "late", "stderr", "said"),
    [
        (0, True, "", "no answer within 3 s"),
        (127, False, "", "git is not installed"),
        (
            128,
            False,
            "warning: x\nfatal: unable to access 'https://h/': Could not resolve",
            "Could not",
        ),
        (128, False, "", "status 128"),
    ],
)
def test_why_git_gave_no_answer(code, late, stderr, said):
    assert why_unreached(code, late, stderr, 3).startswith(said) or said in why_unreached(
        code, late, stderr, 3
    )


DEB822 = """\
# the distribution
Types: deb
# a comment inside
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/
Suites: bookworm
Components: main

Types: deb
URIs: https://inline.example/
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_deb822_sources_are_read():
    entries = apt.parse_deb822(DEB822, "f")
    assert [e.uris[0] for e in entries] == [
        "http://mirror.example/debian",
        "http://mirror.example/security",
        "https://inline.example/",
    ]
    main = apt.main_entry(entries, "bookworm")
    assert main is not None
    assert main.signed_by == "/usr/share/keyrings/k.gpg"
    assert apt.source_stanza(main, "trixie", "main") == (
        "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/k.gpg\n"
    )
    assert apt.main_entry(entries, "trixie") is None
    inline = apt.source_stanza(entries[2], "trixie", "main")
    assert apt.parse_deb822(inline, "g")[0].signed_by == entries[2].signed_by


def test_one_line_sources_are_read():
    text = (
        "# deb http://off.example x main\n"
        "deb cdrom:[Debian]/ bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg,/l.gpg trusted=yes] "
        "http://m.example/debian bookworm main # x\n"
        "deb-src http://m.example/debian bookworm main contrib\n"
    )
    entries = apt.parse_one_line(text, "f")
    main = apt.main_entry(entries, "bookworm")
    assert main is not None
    assert (main.uris, main.signed_by) == (("http://m.example/debian",), "/k.gpg /l.gpg")
    assert "trusted" not in apt.source_stanza(main, "trixie", "main").lower()
    assert entries[-1].components == ("main", "contrib")


def test_both_formats_are_found_under_a_root(tmp_path):
    parts = tmp_path / "etc/apt/sources.list.d"
    parts.mkdir(parents=True)
    (parts / "a.sources").write_text(DEB822)
    (parts / "b.list").write_text("deb http://m.example/x y main\n")
    (parts / "c.list.disabled").write_text("deb http://m.example/z y main\n")
    assert [e.uris[0] for e in apt.read_entries(tmp_path)][-1] == "http://m.example/x"
    assert len(apt.read_entries(tmp_path)) == 4
    assert apt.read_entries(tmp_path / "nowhere") == ()


def test_the_private_configuration_keeps_the_network_and_nothing_that_acts(tmp_path):
    dump = "\n".join(
        [
            'APT::Architecture "amd64";',
            'Acquire::http::Proxy "http://proxy:3142";',
            'Acquire::https::CaInfo "/ca.pem";',
            'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";',
            'APT::Get::AllowUnauthenticated "true";',
            'Acquire::AllowInsecureRepositories "true";',
            'DPkg::Post-Invoke:: "touch /x";',
            'Dir::State "var/lib/apt";',
        ]
    )
    text = apt.private_config(dump, tmp_path)
    assert all(word in text for word in ("proxy:3142", "/ca.pem", '"amd64"'))
    assert "Invoke" not in text
    assert '"true"' not in text
    assert "var/lib/apt" not in text
    assert f'Dir::State::lists "{tmp_path}/state/lists";' in text


SHOWSRC = """\
Package: onednn
Version: 3.7.2+ds-2
Checksums-Sha256:
 aa 2297 onednn_3.7.2+ds-2.dsc
 bb 9898052 onednn_3.7.2+ds.orig.tar.xz

Package: onednn
Version: 3.8-1
Checksums-Sha256:
 cc 1 onednn_3.8-1.dsc
"""


def test_the_listed_source_packages_are_read():
    found = apt.parse_showsrc(SHOWSRC)
    assert [version for version, _ in found] == ["3.7.2+ds-2", "3.8-1"]
    assert found[0][1][1] == ("onednn_3.7.2+ds.orig.tar.xz", "bb", 9898052)
    assert apt.parse_showsrc("") == []


def test_apts_complaint_is_the_one_that_matters():
    sandbox = "W: Download is performed unsandboxed as root as file 'x'\n"
    key = "W: GPG error: http://m trixie InRelease: NO_PUBKEY 6ED0\n"
    error = "E: The repository 'http://m trixie InRelease' is not signed.\n"
    assert apt.complaint(sandbox + error + key).startswith("GPG error")
    assert "not signed" in apt.complaint(sandbox + error)
    assert apt.complaint(sandbox + "Get:1 x") == ""


@pytest.mark.parametrize(
    ("package", "expected"),
    [("3.7.2+ds-2", "3.7.2"), ("1:3.12.1~rc1-1", "3.12.1"), ("unknown", None)],
)
def test_upstreams_part_of_a_debian_version(package, expected):
    assert upstream_version(package) == expected


@pytest.mark.parametrize(
    ("tag", "version", "words"),
    [
        ("v3.13", "3.13", None),
        ("v3.13", "3.13.0", None),
        ("v3.13", "3.13.2", None),
        ("v3.13", "3.7.2", ("3.7.2", "3.13")),
        ("v3.1", "3.13", ("3.13", "3.1")),
        (ONE, "3.7.2", ("3.7.2", ONE[:12])),
        ("v3.13", None, ("v3.13", "cannot be told")),
    ],
)
def test_another_version_is_a_warning_with_both_numbers(tag, version, words):
    said = differs(tag, version)
    if words is None:
        assert said is None
    else:
        assert said is not None
        assert all(w in said for w in words)


def onednn_tree(folder, version="3.7.2"):
    for name in ("cmake/options.cmake", "src/cpu/CMakeLists.txt", "include/dnnl.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "CMakeLists.txt").write_text(f'set(PROJECT_VERSION "{version}")\n')
    return folder


def test_a_local_folder_is_used_where_it_lies(tmp_path):
    tree = onednn_tree(tmp_path / "onednn")
    choice = choose_onednn("v3.13", distro=DEBIAN, folder=tmp_path / "c", directory=tree)
    assert (choice.kind, choice.version) == ("directory", "3.7.2")
    assert choice.warning == "oneDNN 3.7.2 is used; this vLLM pins 3.13"
    assert fetch_onednn(choice, tmp_path / "c") == tree
    assert tree_version(tree) == "3.7.2"
    (tree / "include/dnnl.h").unlink()
    with pytest.raises(CpuBuildError, match=r"include/dnnl\.h"):
        choose_onednn("v3.13", distro=DEBIAN, folder=tmp_path / "c", directory=tree)


def test_offline_takes_the_cache_or_says_what_is_missing(tmp_path):
    with pytest.raises(CpuBuildError, match=r"v3\.13 cannot be had") as caught:
        choose_onednn("v3.13", distro=FEDORA, folder=tmp_path, offline=True)
    assert "CPUBUILD_ONEDNN" in caught.value.problems[0].remedy[0]
    kept = {
        "tag": "v3.13",
        "kind": "distro",
        "key": "k",
        "reason": "signed",
        "version": "3.7.2",
        "files": [["a.dsc", "aa", 1]],
        "warning": "w",
    }
    trees.place(tmp_path, "onednn-k", kept, lambda tree: (tree / "a").touch())
    choice = choose_onednn("v3.13", distro=FEDORA, folder=tmp_path, offline=True)
    assert choice.files == (("a.dsc", "aa", 1),)
    assert choice.warning == "w"
    assert fetch_onednn(choice, tmp_path, offline=True) == tmp_path / "onednn-k/tree"
    gone = OnednnChoice(tag="v9", kind="git", key="other", reason="", version="9")
    with pytest.raises(CpuBuildError, match="offline"):
        fetch_onednn(gone, tmp_path, offline=True)


def test_files_that_differ_from_the_signed_index_are_named(tmp_path):
    (tmp_path / "a.dsc").write_text("hello")
    good = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    verify_files(tmp_path, (("a.dsc", good, 5),))
    for entry in (("a.dsc", "0" * 64, 5), ("a.dsc", good, 6), ("b.dsc", good, 5)):
        with pytest.raises(CpuBuildError, match=entry[0]) as caught:
            verify_files(tmp_path, (entry,))
        assert caught.value.exit_code is ExitCode.DOWNLOAD


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch<=2.14.1", True),
        ("torch<2.13", False),
        ("torch==2.13.0", True),
        ("torch==2.13.0+cu130", False),
        ("Torch_>=1", True),
        ("torch<2; python_version < '3'", True),
        ("torchvision<0.1", True),
        ("not a requirement", True),
    ],
)
def test_what_a_constraint_admits(line, expected):
    assert admits(line, "torch", "2.13.0+cpu") is expected


def test_constraints_are_followed_into_other_files(tmp_path):
    (tmp_path / "a.txt").write_text("numpy<3\n-c more/b.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/b.txt").write_text("# cap\n\ntorch \\\n  <2\n")
    config = PipConfig(constraints=(str(tmp_path / "a.txt"),))
    found = excluded_by("torch", "2.13.0", config)
    assert found is not None
    assert (found.file, found.number) == (str(tmp_path / "more/b.txt"), 3)
    assert excluded_by("numpy", "2.0", config) is None
    with pytest.raises(CpuBuildError, match=r"gone\.txt"):
        excluded_by("torch", "2", PipConfig(constraints=("/gone.txt",)))
    with pytest.raises(CpuBuildError, match="offline"):
        excluded_by("torch", "2", PipConfig(constraints=("https://h/c.txt",)), offline=True)


def test_lines_lose_their_comments():
    assert list(logical_lines("a #x\n#y\n\nb#c\n")) == [(1, "a"), (4, "b#c")]


def test_trusted_hosts_match_with_and_without_port():
    assert trusted("https://h.example:8443/x", ("H.example",))
    assert trusted("https://h.example:8443/x", ("h.example:8443",))
    assert not trusted("https://h.example/x", ("h.example:8443",))
