"""Prompt templates: found, rendered, and kept in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.errors import TemplateError

SECRET = "planted secret"
TOOLS = [
    ToolSpec(
        "time",
        "now",
        "The time.",
        {"type": "object", "properties": {"zone": {}}},
        annotations=ToolAnnotations(read_only=True),
    ),
    ToolSpec("files", "delete", "Delete a file."),
    ToolSpec("_synthetic", "search_tools", "Find tools.", wire_name="search_tools"),
]


def library(folder: Path, **templates: str) -> TemplateLibrary:
    for name, text in templates.items():
        (folder / f"{name}.j2").write_text(text, encoding="utf-8")
    return TemplateLibrary([folder])


def refusal(templates: TemplateLibrary, name: str, tools: list[ToolSpec] = TOOLS) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        templates.render(name, tools=tools)
    return caught.value


def test_a_template_sees_tools_and_variables(tmp_path: Path) -> None:
    fields = "{{ t.name }}|{{ t.server }}|{{ t.tool }}|{{ t.description }}|{{ t.badges }};"
    text = f"{{% for t in tools %}}{fields}{{% endfor %}}{{{{ who }}}}\n"
    rendered = library(tmp_path, a=text).render(
        "a", tools=TOOLS[:2], variables={"who": "<you> & me", "tools": "other"}
    )
    assert (
        rendered == "time__now|time|now|The time.|['read-only'];files__delete|files|delete|Delete a"
        " file.|[];<you> & me"
    )


def test_the_suffix_can_be_left_out_and_folders_can_have_folders(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.j2").write_text("B")
    templates = library(tmp_path, a="{% include 'deep/b' %}{% include 'deep/b.j2' %}")
    assert templates.names() == ["a.j2", "deep/b.j2"]
    assert templates.render("a.j2", tools=[]) == templates.render("a", tools=[]) == "BB"
    assert templates.source("deep/b") == "B"


def test_the_configs_folder_comes_first_then_the_working_one_then_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level, names in (("config", ["a"]), ("cwd", ["a", "b", "default"])):
        folder = tmp_path / level / "prompt-templates"
        folder.mkdir(parents=True)
        library(folder, **dict.fromkeys(names, level))
    monkeypatch.chdir(tmp_path / "cwd")
    templates = TemplateLibrary.for_config(tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    assert [templates.render(name, tools=[]) for name in ("a", "b", "default")] == [
        "config",
        "cwd",
        "cwd",
    ]
    assert "concise.j2" in templates.names()
    assert templates.render("concise", tools=[])


def test_an_edited_template_is_read_again(tmp_path: Path) -> None:
    templates = library(tmp_path, a="{% include 'b' %}", b="one")
    assert templates.render("a", tools=[]) == "one"
    library(tmp_path, b="two, longer")
    assert templates.render("a", tools=[]) == "two, longer"


@pytest.mark.parametrize("name", ["default", "concise", "careful", "teacher", "discovery"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
def test_the_templates_of_the_package_render(
    name: str, tools: list[ToolSpec], tmp_path: Path
) -> None:
    rendered = TemplateLibrary.for_config(tmp_path).render(name, tools=tools)
    assert 50 < len(rendered) < 1500
    assert "\n\n\n" not in rendered


def test_the_packages_templates_use_the_tools_descriptions(tmp_path: Path) -> None:
    templates = TemplateLibrary.for_config(tmp_path)
    careful = templates.render("careful", tools=TOOLS)
    assert "freely: time__now." in careful
    assert "delete something: files__delete." in careful
    assert "call search_tools with" in templates.render("discovery", tools=TOOLS)


@pytest.mark.fault(79)
@pytest.mark.parametrize("suffix", ["", ".j2"])
@pytest.mark.parametrize(
    "form",
    [
        "../outside",
        "a/../../outside",
        "{outside}",
        "..\\outside",
        "outside\0",
        "link",
        "deep/outside",
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, form: str, suffix: str) -> None:
    (tmp_path / "outside.j2").write_text(SECRET)
    folder = tmp_path / "prompt-templates"
    folder.mkdir()
    (folder / "link.j2").symlink_to(tmp_path / "outside.j2")
    (folder / "deep").symlink_to(tmp_path)
    templates = library(
        folder,
        a="{% include name %}",
        b="{% include name ignore missing %}",
        c="{% extends name %}",
    )
    name = form.replace("{outside}", str(tmp_path / "outside")) + suffix
    assert "is refused" in str(refusal(templates, name))
    with pytest.raises(TemplateError, match="is refused"):
        templates.source(name)
    for outer in ("a", "c"):
        with pytest.raises(TemplateError, match="is refused") as caught:
            templates.render(outer, tools=[], variables={"name": name})
        assert SECRET not in str(caught.value)
        assert (caught.value.path, caught.value.line) == (str(folder / f"{outer}.j2"), 1)
    assert templates.render("b", tools=[], variables={"name": name}) == ""
    assert templates.names() == ["a.j2", "b.j2", "c.j2"]


@pytest.mark.fault(79)
def test_only_templates_can_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(SECRET)
    assert "no template '.env'" in str(refusal(library(tmp_path), ".env"))


BROKEN = {
    "undefined variable": ("\n{{ missing }}", "'missing' is undefined"),
    "undefined field of a tool": ("\n{{ tools[0].colour }}", "has no attribute 'colour'"),
    "syntax": ("\n{% for %}", "Expected an expression"),
    "tag that is not closed": ("a\n{% if tools %}\n", "Unexpected end of template"),
    "missing include": ("\n{% include 'nowhere' %}", "There is no template 'nowhere'"),
    "error in an expression": ("\n{{ 1 / 0 }}", "ZeroDivisionError"),
    "underscore attribute": ("\n{{ tools.__class__.__mro__ }}", "unsafe"),
    "way to the globals": ("\n{{ lipsum.__globals__['os'].popen('id').read() }}", "unsafe"),
    "way through a format": ("\n{{ '{0.__class__}'.format(tools) }}", "unsafe"),
    "way through a filter": (
        "\n{{ ([''] | map(attribute='__class__') | list)[0].mro() }}",
        "unsafe",
    ),
    "change of the tools": ("\n{{ tools.clear() }}", "unsafe"),
    "change of a schema": ("\n{{ tools[0].parameters.update({'a': 1}) }}", "unsafe"),
    "loop over all numbers": ("\n{% for n in range(10 ** 9) %}{% endfor %}", "Range too big"),
    "itself": ("\n{% include 'a' %}", "RecursionError"),
}


@pytest.mark.fault(80)
@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_template_that_fails_is_named_with_file_and_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    error = refusal(library(tmp_path, a=text), "a")
    assert reason in str(error)
    assert (error.path, error.line) == (str(tmp_path / "a.j2"), 2)


@pytest.mark.fault(80)
@pytest.mark.parametrize("text", ["{{ missing }}", "{% for %}"])
def test_an_error_in_an_included_template_names_that_one(tmp_path: Path, text: str) -> None:
    error = refusal(library(tmp_path, a="{% include 'b' %}", b=f"\n\n{text}"), "a")
    assert (error.path, error.line) == (str(tmp_path / "b.j2"), 3)


@pytest.mark.fault(80)
def test_a_missing_template_is_named_with_the_closest_ones(tmp_path: Path) -> None:
    assert "Did you mean 'research.j2'?" in str(refusal(library(tmp_path, research="x"), "reserch"))
    assert "There are none." in str(refusal(TemplateLibrary([tmp_path / "nowhere"]), "any"))


@pytest.mark.fault(80)
def test_a_template_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.j2").write_bytes(b"\n\xff")
    error = refusal(TemplateLibrary([tmp_path]), "a")
    assert (error.path, error.line) == (str(tmp_path / "a.j2"), 2)


@pytest.mark.fault(80)
def test_text_from_tools_is_never_evaluated(tmp_path: Path) -> None:
    hostile = "{{ 7 * 7 }}{% include '../outside' %}{# gone #}"
    tools = [ToolSpec(hostile, hostile, hostile, {"description": hostile}, title=hostile)]
    fields = (
        "{{ t.server }} {{ t.tool }} {{ t.description }} {{ t.title }} {{"
        " t.parameters.description }}"
    )
    assert library(tmp_path, a=f"{{% for t in tools %}}{fields}{{% endfor %}}").render(
        "a", tools=tools
    ) == " ".join([hostile] * 5)


@pytest.mark.fault(80)
def test_the_working_directory_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    library(tmp_path / "t", a="here")
    monkeypatch.chdir(tmp_path)
    templates = TemplateLibrary([Path("t")])
    monkeypatch.chdir("/")
    assert templates.render("a", tools=[]) == "here"


def test_edited_included_and_overriding_templates_show_in_the_next_prompt(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    library(second, a="one {% include 'b' %}", b="b1")
    templates = TemplateLibrary([first, second])
    tools = tuple(TOOLS)

    def prompts() -> set[str]:
        return {templates.render("a", tools=tools) for _ in range(3)}

    assert prompts() == {"one b1"}
    (second / "b.j2").write_text("b22")
    assert prompts() == {"one b22"}
    (second / "a.j2").write_text("changed {{ tools | length }}")
    assert prompts() == {f"changed {len(tools)}"}
    assert templates.render("a", tools=tools[:1]) == "changed 1"
    (first / "a.j2").write_text("put before")
    assert prompts() == {"put before"}
    (first / "a.j2").unlink()
    assert prompts() == {f"changed {len(tools)}"}
    (second / "a.j2").write_text("{{ name }}")
    assert [templates.render("a", tools=tools, variables={"name": name}) for name in "xy"] == [
        "x",
        "y",
    ]


def test_the_packages_own_templates_convert_only_the_tools_that_they_read(tmp_path: Path) -> None:
    tools = tuple(ToolSpec("shelf", f"tool_{number}", "Do it.") for number in range(50))
    templates = TemplateLibrary.for_config(None)
    assert "You have tools." in templates.render("default", tools=tools)
    assert not any("_defined" in vars(tool) for tool in tools)
    assert "shelf__tool_39" in templates.render("discovery", tools=tools)
