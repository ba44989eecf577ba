"""The memory tool's answers, word for word: those of Claude's documentation, and those of its Python SDK."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

StringSet = Literal["docs", "sdk"]


@dataclass(frozen=True, slots=True)
class Strings:
    """One set of answers; the fields are templates for `str.format`."""

    prefix: str = "Error: "
    listing: str = (
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items and node_modules:"
    )
    content: str = "Here's the content of {path} with line numbers:"
    view_missing: str = "The path {path} does not exist. Please provide a valid path."
    too_many_lines: str = "File {path} exceeds maximum line limit of 999,999 lines."
    unsupported: str = "Unsupported file type for {path}"
    created: str = "File created successfully at: {path}"
    exists: str = "Error: File {path} already exists"
    replaced: str = "The memory file has been edited."
    replace_missing: str = "Error: The path {path} does not exist. Please provide a valid path."
    replace_directory: str = "Error: The path {path} does not exist. Please provide a valid path."
    absent: str = "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
    empty: str = "No replacement was performed, old_str is empty; give the text to replace."
    duplicate: str = (
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
        "Please ensure it is unique"
    )
    inserted: str = "The file {path} has been edited."
    insert_missing: str = "Error: The path {path} does not exist"
    insert_directory: str = "Error: The path {path} does not exist"
    bad_line: str = (
        "Error: Invalid `insert_line` parameter: {line}. "
        "It should be within the range of lines of the file: [0, {lines}]"
    )
    deleted: str = "Successfully deleted {path}"
    missing: str = "Error: The path {path} does not exist"
    delete_root: str = "Cannot delete the /memories directory itself"
    renamed: str = "Successfully renamed {path} to {new_path}"
    taken: str = "Error: The destination {path} already exists"
    rename_root: str = "Cannot rename the /memories directory itself"
    outside: str = "Path must start with /memories, got: {path}"
    escape: str = "Path {path} would escape /memories directory{advice}"
    symlink: str = "Path would escape /memories directory via symlink"


_DOCS: Final = Strings()
_SDK: Final = replace(
    _DOCS,
    prefix="",
    listing="Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:",
    exists="File {path} already exists",
    replaced="The memory file has been edited. Here is the snippet showing the change (with line numbers):",
    replace_missing="The path {path} does not exist. Please provide a valid path.",
    replace_directory="The path {path} is not a file.",
    insert_missing="The path {path} does not exist. Please provide a valid path.",
    insert_directory="The path {path} is not a file.",
    bad_line="Invalid `insert_line` parameter: {line}. It should be within the range [0, {lines}].",
    missing="The path {path} does not exist",
    taken="The destination {path} already exists",
    escape="Path {path} would escape /memories directory",
)
STRINGS: Final[dict[StringSet, Strings]] = {"docs": _DOCS, "sdk": _SDK}
