"""Packs of templates: zip files, their versions, and the addresses of templates."""

import io
import zipfile

import pytest

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.service.template_store import (
    PACK_BYTES_MAX,
    TemplatesInMemory,
    TemplateUri,
    get_template,
    parse_template_uri,
    read_pack_file,
)
from tests.support.flow_templates import make_pack, write_pack, write_template, zip_files

TEMPLATE = write_template({"kind": "database", "format": "table"}, {"kind": "files", "format": "dataset"})


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("FS:///x.template", TemplateUri("default", "x.template")),
        ("FS:///team/x.template", TemplateUri("team", "x.template")),
        ("FS:///team@2.1/x.template", TemplateUri("team", "x.template", "2.1")),
        ("FS:///usecase/templates/template1.template", TemplateUri("usecase", "templates/template1.template")),
    ],
)
def test_an_address_names_a_template_of_the_store(text: str, uri: TemplateUri) -> None:
    assert parse_template_uri(text) == uri
    assert parse_template_uri(str(uri)) == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.template",
        "/etc/passwd",
        "file:///x.template",
        "FS://host/x.template",
        "FS:///../x.template",
        "FS:///team/../x.template",
        "FS:///team/..template",
        "FS:///team/x.yaml",
        "FS:///team@/x.template",
        "FS:///team@a/x.template",
        "FS:///team//x.template",
        "FS:///team/%2e%2e/x.template",
        "FS:///x.template\n",
        "FS:///" + "a" * 2_000 + ".template",
    ],
)
def test_another_text_is_no_address(text: str) -> None:
    with pytest.raises(RejectedError, match=r"FS:///<pack>/<name>\.template") as caught:
        parse_template_uri(text, "template_uris[3]")
    assert caught.value.field == "template_uris[3]"


def test_a_zip_file_is_a_pack() -> None:
    pack = read_pack_file(zip_files(write_pack({"a": TEMPLATE, "deep/b": TEMPLATE}, "team", "3")))
    assert (pack.name, pack.version) == ("team", "3")
    assert sorted(pack.templates) == ["a.template", "deep/b.template"]
    template = pack.templates["deep/b.template"]
    assert (template.uri, template.plain_uri) == ("FS:///team@3/deep/b.template", "FS:///team/deep/b.template")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no zip", "no zip file"),
        (b"\0" * (PACK_BYTES_MAX + 1), "at most 1024 KiB"),
        (zip_files({}), "has no pack.yaml"),
        (zip_files({**write_pack({"a": TEMPLATE}), "../b.template": b""}), "found '../b.template'"),
        (zip_files({**write_pack({"a": TEMPLATE}), "/etc/b.template": b""}), "found '/etc/b.template'"),
        (zip_files({**write_pack({"a": TEMPLATE}), "a..b.template": b""}), "found 'a..b.template'"),
        (zip_files({**write_pack({"a": TEMPLATE}), "run.sh": b""}), "found 'run.sh'"),
        (zip_files({**write_pack({"a": TEMPLATE}), "b.template": b"\xff"}), "no text in UTF-8"),
        (zip_files({**write_pack({"a": TEMPLATE}), "b.template": b"x" * (300 << 10)}), "b.template is too large"),
        (zip_files({**write_pack({}), **{f"t{number}.template": b"" for number in range(501)}}), "at most 500"),
        (zip_files(write_pack({"a": TEMPLATE}, version="one")), "version"),
        (zip_files(write_pack({"a": TEMPLATE}, name="a/b")), "pack.yaml: pack"),
        (zip_files(write_pack({"a": {**TEMPLATE, "cost": -1}})), "FS:///test/a.template: cost"),
        (zip_files({**write_pack({}), "a.template": b"from: ["}), "FS:///test/a.template: template"),
    ],
    # A zip file has the time at which it was made, and workers must agree on the names of tests.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_pack_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(RejectedError) as caught:
        read_pack_file(content)
    assert said in str(caught.value)
    assert caught.value.hint


def test_more_than_it_says_is_not_unpacked() -> None:
    """A few bytes can stand for gigabytes."""
    files = write_pack({})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack.yaml", files["pack.yaml"])
        for number in range(60):
            archive.writestr(f"t{number}.template", b" " * (250 << 10))
    with pytest.raises(RejectedError, match="is too large"):
        read_pack_file(content.getvalue())


def test_a_name_that_is_there_twice_is_refused() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("pack.yaml", write_pack({})["pack.yaml"])
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("pack.yaml", b"pack: other")
    with pytest.raises(RejectedError, match="there twice"):
        read_pack_file(content.getvalue())


def test_a_published_version_never_changes() -> None:
    store = TemplatesInMemory([make_pack({"a": TEMPLATE})])
    assert store.publish(make_pack({"a": TEMPLATE})) is store.find_pack("test", "1")
    with pytest.raises(ConflictError, match="Count up the version"):
        store.publish(make_pack({"a": {**TEMPLATE, "cost": 7}}))
    store.publish(make_pack({"a": {**TEMPLATE, "cost": 7}}, version="2"))
    assert get_template(store, TemplateUri("test", "a.template", "1")).cost == 1.0
    assert get_template(store, TemplateUri("test", "a.template")).cost == 7.0


def test_the_newest_version_is_the_greatest_number() -> None:
    store = TemplatesInMemory([make_pack({"a": TEMPLATE}, version=each) for each in ("9", "10", "2.5")])
    assert [pack.version for pack in store.list_packs()] == ["10"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (TemplateUri("tset", "a.template"), "Did you mean 'test'?"),
        (TemplateUri("test", "a.template", "2"), "no pack 'test' of the version 2"),
        (TemplateUri("test", "aa.template"), "Did you mean 'a.template'?"),
        (TemplateUri("test", "something.template"), "Known: a.template."),
    ],
)
def test_a_template_that_there_is_not_is_refused_with_the_nearest(uri: TemplateUri, said: str) -> None:
    store = TemplatesInMemory([make_pack({"a": TEMPLATE})])
    with pytest.raises(RejectedError) as caught:
        get_template(store, uri, "uri")
    assert said in str(caught.value)
    assert caught.value.field == "uri"


def test_what_is_for_other_groups_does_not_exist_for_a_user_not_even_in_hints() -> None:
    secret = {**TEMPLATE, "acl": {"groups": ["auditors"]}}
    packs = [make_pack({"a": TEMPLATE, "salaries": secret}), make_pack({"audit": secret}, "vault")]
    store = TemplatesInMemory(packs)

    def refuse(uri: TemplateUri) -> str:
        with pytest.raises(RejectedError) as caught:
            get_template(store, uri, "uri", lambda groups: not groups)
        return str(caught.value)

    for name in ("salaries", "salarie", "other"):
        assert refuse(TemplateUri("test", f"{name}.template")).endswith("Known: a.template.")
    for pack, path in (("vault", "audit"), ("vault", "none"), ("valt", "audit")):
        said = refuse(TemplateUri(pack, f"{path}.template"))
        assert "there is no pack" in said
        assert said.endswith("Known: test.")


def test_a_damaged_zip_file_is_refused() -> None:
    content = bytearray(zip_files(write_pack({"a": TEMPLATE})))
    begin = content.index(b"pack.yaml") + len("pack.yaml")
    content[begin : begin + 8] = b"\xff" * 8
    with pytest.raises(RejectedError, match="no zip file that can be read"):
        read_pack_file(bytes(content))
