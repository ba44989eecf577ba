"""Events of MkDocs that make the site from pages that are written for GitHub; mkdocs.yml names this file.

- The pages of the root, such as ``CHANGELOG.md``, are added to the pages of ``docs/``.
- The examples become one page. A link to another file of the repository, also to a decision or to evidence, becomes its
  path, because the repository has no public URL.
- The header shows the version, and the search weighs pages.
- Lists, tables and fences are rewritten where Python-Markdown reads them in another way than GitHub.
- ``llms.txt`` and ``llms-full.txt`` are written beside the site, for language models: https://llmstxt.org.
"""

from __future__ import annotations

import html
import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
ROOT_PAGES: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""The pages outside ``docs/``, and their names in the site."""
EXCLUDED: Final = ("docs/decisions", "docs/evidence")
"""The directories that the site leaves out, as ``exclude_docs`` of mkdocs.yml; a link to one of their files becomes its
path."""
EXAMPLES: Final = "examples.md"
"""The page of the examples."""
SEARCH_BOOSTS: Final = {
    "api/": 0.1,
    "changelog.md": 0.1,
    "contributing.md": 0.1,
    EXAMPLES: 0.1,
    "plugins.md": 2,
    "production.md": 2,
    "tenants.md": 2,
    "runbook.md": 2,
    "costs.md": 2,
}
"""How the search weighs pages, by the beginnings of their names: lists of names and changes have every word, so a page
that explains a word comes before them."""
_EXAMPLE_LANGUAGES: Final = {
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
    ".service": "ini",
    ".txt": "text",
    "Dockerfile": "dockerfile",
}
"""The files of an example that its section shows, by suffix or name."""

_FENCE: Final = re.compile(r"^ *(`{3,})([^\n`]*)\n.*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_FENCE_LINE: Final = re.compile(r" *`{3,}[^\s`]*")
_FENCE_TITLE: Final = re.compile(r' title="[^"]+"')
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_ITEM: Final = re.compile(r" *(?:[-*]|\d+\.) +(?=\S)")
_INTERRUPTS: Final = re.compile(r"(?:[-*]|1\.) ")
_SENTENCE: Final = re.compile(r".+?[.!?](?=\s|$)")
_NO_PROSE: Final = re.compile(r"[#|><!]|[-*] |\d+\. |:::| {4}")
_NO_TEXT: Final = re.compile(r'<a [^>]*class="headerlink".*?</a>|<svg.*?</svg>|<small.*?</small>', re.DOTALL)
_PRE: Final = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)
_HEADING: Final = re.compile(r"<h(\d)[^>]*>(.*?)</h\1>", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_DASH: Final = re.compile(r"\s*\n\u2013\s*")
_INDENT: Final = 4  # of the content of a list item in Python-Markdown


class SitePage(NamedTuple):
    """One page for a language model: its section of the navigation, its title, its URL and its Markdown."""

    section: str
    title: str
    url: str
    markdown: str


_texts: Final[dict[str, str]] = {}  # the Markdown of each page, by its name in the site
_navigation: Final[list[Navigation]] = []  # of the present build only


def on_config(config: MkDocsConfig) -> None:
    """Give the header and the footer the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.extra["release"] = project["version"]
    config.copyright = f"{config.site_name} {project['version']}, {project['license']}"


def on_files(files: Files, *, config: MkDocsConfig, **_: object) -> Files:
    """Add the pages of the root, and the page of the examples."""
    from mkdocs.structure.files import File  # not at the top: tests import this module without MkDocs

    for source, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, EXAMPLES, content=examples_page()))
    return files


def on_nav(nav: Navigation, **_: object) -> None:
    """Remember the order of the pages."""
    _navigation[:] = [nav]


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Adapt a page to Python-Markdown and to the site."""
    uri = page.file.src_uri
    source = next((name for name, found in ROOT_PAGES.items() if found == uri), f"docs/{uri}")
    _texts[uri] = for_site(markdown, source, uri)
    for name, boost in SEARCH_BOOSTS.items():
        if uri.startswith(name):
            page.meta["search"] = {"boost": boost}
    return _texts[uri]


def on_page_content(content: str, *, page: Page, **_: object) -> str:
    """Remove the double colons by which docstrings announce a block of code; keep the reference for language models."""
    if not page.file.src_uri.startswith("api/"):
        return content
    content = content.replace("<p>::</p>", "").replace("::</p>", ":</p>")
    _texts[page.file.src_uri] = reference_text(content)
    return content


def on_post_build(*, config: MkDocsConfig, **_: object) -> None:
    """Write the two files for language models."""
    site = Path(config.site_dir)
    pages = [
        SitePage(
            section=str(page.ancestors[-1].title) if page.ancestors else "Pages",
            title=str(page.title),
            url=page.canonical_url or page.url or "./",
            markdown=_texts[page.file.src_uri],
        )
        for page in _navigation[0].pages
    ]
    (site / "llms.txt").write_text(llms_txt(config.site_name, config.site_description or "", pages), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms_full_txt(pages), encoding="utf-8")


def examples() -> Iterator[Path]:
    """The examples: a directory with a README, and a single file in any other directory."""
    for path in sorted((ROOT / "examples").iterdir()):
        yield from [path] if (path / "README.md").exists() else sorted(path.glob("*.py"))


def example_files(example: Path) -> list[Path]:
    """The files of an example that the page shows, programs first."""
    if example.is_file():
        return [example]
    files = [file for file in example.rglob("*") if _example_language(file)]
    return sorted(files, key=lambda file: (file.suffix != ".py", file))


def _example_language(file: Path) -> str | None:
    return _EXAMPLE_LANGUAGES.get(file.suffix or file.name)


def examples_page() -> str:
    """The Markdown of the page with the source of each example."""
    lines = ["# Examples", "", "They run without a key. Where one needs more files, they are below it.", ""]
    for example in examples():
        name = example.relative_to(ROOT).as_posix()
        lines += [f"## {name}", ""]
        for file in example_files(example):
            lines += [] if file == example else [f"### {file.relative_to(ROOT).as_posix()}", ""]
            source = file.read_text(encoding="utf-8").strip()
            lines += [f"```{_example_language(file)}", source, "```", ""]
    return "\n".join(lines)


def for_site(markdown: str, source: str, uri: str) -> str:
    """The Markdown of a page for the site.

    Args:
        markdown: the page as it is in the repository.
        source: its path in the repository, to which its links are relative.
        uri: its name in the site.
    """
    pieces = []
    for text, is_fence in _pieces(markdown):
        if is_fence:
            first, newline, rest = text.partition("\n")
            pieces.append(_plain_fence(first) + newline + rest)
        else:
            linked = _LINK.sub(lambda link: _site_link(link, source, uri), text)
            pieces.append(_ROW.sub(_plain_row, linked))
    return with_indented_lists("".join(pieces))


def _pieces(markdown: str) -> Iterator[tuple[str, bool]]:
    """The text between fenced blocks, and the blocks."""
    begin = 0
    for fence in _FENCE.finditer(markdown):
        yield markdown[begin : fence.start()], False
        yield fence[0], True
        begin = fence.end()
    yield markdown[begin:], False


def _plain_fence(line: str) -> str:
    """The first line of a fenced block with nothing but its language and title: other words are for the tests."""
    fence = _FENCE_LINE.match(line)
    title = _FENCE_TITLE.search(line)
    return (fence[0] if fence else line) + (title[0] if title else "")


def _plain_row(row: re.Match[str]) -> str:
    """A row of a table with plain pipes in code: Python-Markdown would show the backslash that GitHub needs."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def _site_link(link: re.Match[str], source: str, uri: str) -> str:
    text, target = link[1], link[2]
    path, mark, anchor = target.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return link[0]
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = _page_of(found)
    if page is not None:
        return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{mark}{anchor})"
    if any(ROOT / found in (example, *example_files(example)) for example in examples()):
        anchor = re.sub(r"[^\w-]", "", found).lower()
        return f"[{text}]({posixpath.relpath(EXAMPLES, posixpath.dirname(uri) or '.')}#{anchor})"
    if found.startswith("../") or not (ROOT / found).exists():
        return link[0]  # a broken link stays, for the strict build to find
    is_its_name = text.strip("`") in (found, posixpath.basename(found), path)
    return f"`{found}`" if is_its_name else f"{text} (`{found}`)"


def _page_of(path: str) -> str | None:
    """The name in the site of a file or directory of the repository; None if the site does not have it."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path in ("docs", "README.md"):
        return "index.md"
    if not path.startswith("docs/") or path.startswith(EXCLUDED) or not (ROOT / path).exists():
        return None
    uri = path.removeprefix("docs/")
    return f"{uri}/index.md" if (ROOT / path).is_dir() else uri


def with_indented_lists(markdown: str) -> str:
    """Indent the content of list items by four spaces, and begin each list after an empty line."""
    lines: list[str] = []
    offsets: list[int] = []  # the columns in which the content of the open list items begins
    is_fenced = False
    before = ""
    for line in markdown.rstrip("\n").split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        item = None if is_fenced or (not offsets and indent >= _INDENT) else _ITEM.match(line)
        was_in_list = bool(offsets)
        is_fence = line.lstrip(" ").startswith("```")
        if line and not is_fenced and (item or is_fence or not before):
            offsets = [offset for offset in offsets if offset <= indent]
        if before and not was_in_list and _INTERRUPTS.match(line) and not is_fenced:
            lines.append("")
        depth = sum(offset <= indent for offset in offsets)
        lines.append(" " * (_INDENT * depth) + line[offsets[depth - 1] :] if depth else line)
        if item:
            offsets.append(item.end())
        is_fenced ^= is_fence
        before = line.strip()
    return "\n".join([*lines, ""])


def first_sentence(markdown: str) -> str:
    """The first sentence of a page's prose, in one line and without links; "" if it has none."""
    prose = "".join(text for text, is_fence in _pieces(markdown) if not is_fence)
    for paragraph in re.split(r"\n\s*\n", prose):
        if paragraph.strip() and not _NO_PROSE.match(paragraph.lstrip("\n")):
            text = _LINK.sub(r"\1", " ".join(paragraph.split()))
            sentence = _SENTENCE.match(text)
            return sentence[0] if sentence else text
    return ""


def llms_txt(title: str, description: str, pages: Iterable[SitePage]) -> str:
    """The list of all pages, by the sections of the navigation."""
    lines = [f"# {title}", "", f"> {description}"]
    section = None
    for page in pages:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""]
        sentence = first_sentence(page.markdown)
        lines.append(f"- [{page.title}]({page.url})" + (f": {sentence}" if sentence else ""))
    return "\n".join([*lines, ""])


def llms_full_txt(pages: Iterable[SitePage]) -> str:
    """The Markdown of all pages, each after a comment with its URL."""
    return "\n".join(f"<!-- {page.url} -->\n\n{page.markdown.strip()}\n" for page in pages)


def reference_text(content: str) -> str:
    """The text of a page that mkdocstrings has made: headings, signatures in fences, paragraphs and lists."""
    content = _NO_TEXT.sub("", content)
    content = _HEADING.sub(
        lambda heading: f"\n{'#' * int(heading[1])} {' '.join(_text(heading[2]).split())}\n", content
    )
    pieces = _PRE.split(content)  # prose and preformatted text alternately
    texts = [_prose(text) for text in pieces]
    texts[1::2] = [f"```\n{_text(text).strip()}\n```" for text in pieces[1::2]]
    return "\n\n".join(filter(None, texts)) + "\n"


def _prose(content: str) -> str:
    for tag, mark in (("<li>", "\n- "), ("<code>", "`"), ("</code>", "`")):
        content = content.replace(tag, mark)
    lines = "\n".join(line.strip() for line in _text(content).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", _DASH.sub(" \u2013 ", lines)).strip()


def _text(content: str) -> str:
    return html.unescape(_TAG.sub("", content))
